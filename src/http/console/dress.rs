//! Whatever is refused below `/console` is a page in its reader's language, with the navigation if they are logged in:
//! a refusal of ours as well as a path that isn't there, an address that can't be read, an answer that took too long.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use super::page::{Frame, Said};
use super::session::{SESSION_COOKIE, cookie, here, language};
use super::words::Words;
use crate::app::App;
use crate::fault::Fault;
use crate::http::error::REQUEST_ID;
use crate::staff::{self, LoggedIn};

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    words: String,
    reference: Option<String>,
}

/// Puts a refusal into the frame of whoever asked.
pub async fn dress(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let language = language(headers);
    let token = cookie(headers, SESSION_COOKIE).map(ToOwned::to_owned);
    let here = here(request.method(), request.uri(), headers);
    let response = next.run(request).await;
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let said = response.extensions().get::<Said>().cloned();
    if said.is_none() && is_html(response.headers()) {
        return response;
    }
    let w = Words::of(language);
    let (words, reference) = match said {
        Some(Said::Words(words)) => (words, None),
        Some(Said::Broken(reference)) => (w.error_internal.to_owned(), Some(reference)),
        None => {
            let reference = REQUEST_ID.try_with(Clone::clone).ok().filter(|_| status.is_server_error());
            (of_status(w, status).to_owned(), reference)
        }
    };
    // Whoever waits for the database isn't made to wait for it twice.
    let session = match token {
        Some(token) if status != StatusCode::SERVICE_UNAVAILABLE => match session(&app, &token).await {
            Ok(session) => session,
            Err(fault) => {
                tracing::warn!("a refusal has no frame: {}", fault.chain());
                None
            }
        },
        Some(_) | None => None,
    };
    let frame = match &session {
        Some(session) => Frame::inside(language, &here, session),
        None => Frame::outside(language, &here),
    };
    let page = match (ErrorPage { frame, words, reference }).render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!("the error page can't be rendered: {error}");
            return response;
        }
    };
    let (mut parts, _) = response.into_parts();
    let (page, body) = page.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(page.headers);
    Response::from_parts(parts, body)
}

async fn session(app: &App, token: &str) -> Result<Option<LoggedIn>, Fault> {
    let mut conn = app.db.pool().acquire().await?;
    staff::authenticate(&mut conn, token, app.clock.now()).await
}

fn is_html(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
}

/// What a refusal says that came from the machinery around the pages.
fn of_status(w: &'static Words, status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => w.error_not_found,
        StatusCode::METHOD_NOT_ALLOWED => w.error_method,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => w.error_late,
        status if status.is_client_error() => w.error_address,
        _ => w.error_internal,
    }
}
