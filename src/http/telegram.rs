//! `/telegram/webhook`: the HTTP side of the Telegram door.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::RequestId;
use crate::app::App;
use crate::provider::telegram::{Delivered, Reply};

/// An update has a few kilobytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// How long a body may take to arrive: it is part of the ten seconds that a pre-checkout query has.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

pub async fn webhook(
    State(app): State<Arc<App>>,
    axum::Extension(RequestId(request_id)): axum::Extension<RequestId>,
    request: Request<Body>,
) -> Response {
    let received = Instant::now();
    let (parts, body) = request.into_parts();
    // Telegram sends one; with two, whoever reads the other would let somebody else in.
    let mut secrets = parts.headers.get_all(SECRET_HEADER).iter();
    let secret = secrets.next().filter(|_| secrets.next().is_none()).map(|value| value.as_bytes().to_vec());
    // Nothing of a stranger's body is read.
    if !app.telegram.knows(secret.as_deref()) {
        return to_response(Reply::Stranger);
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_BYTES_MAX)).await;
    let Ok(Ok(body)) = body else {
        tracing::error!(reference = request_id, "an update of Telegram did not arrive whole");
        return to_response(Reply::Again);
    };
    let body = body.to_vec();
    let worker = app.clone();
    let reference = request_id.clone();
    let delivered = Delivered { secret, body, received, request_id };
    match app.run_to_end(async move { worker.telegram.answer(delivered).await }).await {
        Ok(reply) => to_response(reply),
        Err(fault) => {
            tracing::error!(reference, "Telegram's update {reference} failed: {}", fault.chain());
            to_response(Reply::Again)
        }
    }
}

fn to_response(reply: Reply) -> Response {
    match reply {
        Reply::Done => StatusCode::OK.into_response(),
        Reply::Call(call) => ([(header::CONTENT_TYPE, "application/json")], call.to_string()).into_response(),
        Reply::Again => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Reply::Stranger => StatusCode::UNAUTHORIZED.into_response(),
    }
}
