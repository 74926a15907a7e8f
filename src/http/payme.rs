//! `/payme`: the HTTP side of the Payme door. Every answer is HTTP 200.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};

use super::{ANSWER_TIMEOUT, RequestId, forwarded_for};
use crate::app::App;
use crate::provider::payme::{Incoming, PaymeError, envelope};

/// Payme's calls have a few hundred bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn answer(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    axum::Extension(RequestId(request_id)): axum::Extension<RequestId>,
    request: Request<Body>,
) -> Response {
    let text = answer_text(&app, peer, request_id, request).await;
    ([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response()
}

async fn answer_text(app: &Arc<App>, peer: SocketAddr, request_id: String, request: Request<Body>) -> String {
    let refuse = |error: &PaymeError| envelope::error(&envelope::null(), &error.to_object().to_string());
    if request.method() != Method::POST {
        return refuse(&PaymeError::NotPost);
    }
    let (parts, body) = request.into_parts();
    let address = app.remote_address(peer.ip(), forwarded_for(&parts.headers).as_deref());
    let allowed = &app.settings.payme_addresses;
    let mode = if allowed.is_empty() || allowed.iter().any(|net| net.contains(&address)) {
        app.payme.mode_of(parts.headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes))
    } else {
        None
    };
    let body = match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body.to_vec()),
        Ok(Err(_)) => Err("the body is too long or did not arrive whole"),
        Err(_) => Err("the body took too long to arrive"),
    };
    // Whatever becomes of the call, its answer has its id.
    let id = body.as_ref().map_or_else(|_| envelope::null(), |body| envelope::open(body).id);
    let refuse = |error: &PaymeError| envelope::error(&id, &error.to_object().to_string());
    let incoming = Incoming { body, mode, remote_address: Some(address.to_string()), request_id: request_id.clone() };
    let worker = app.clone();
    let work = app.run_to_end(async move { worker.payme.answer(incoming).await });
    match tokio::time::timeout(ANSWER_TIMEOUT, work).await {
        Ok(Ok(text)) => text,
        Ok(Err(fault)) => {
            tracing::error!(reference = request_id, "Payme call {request_id} failed: {}", fault.chain());
            refuse(&PaymeError::Internal { reference: request_id })
        }
        // What moves money goes on to its end; Payme repeats the call and gets its answer then.
        Err(_) => {
            tracing::error!(
                reference = request_id,
                "Payme call {request_id} was not answered within {} s",
                ANSWER_TIMEOUT.as_secs()
            );
            refuse(&PaymeError::Internal { reference: request_id })
        }
    }
}
