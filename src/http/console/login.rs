//! In, out, and the language.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngCore as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::page::{ConsoleError, Frame, show_with};
use super::session::{
    LANGUAGE_COOKIE, LOGIN_COOKIE, SESSION_COOKIE, SignedForm, Viewer, cookie, form_bytes, language as language_of,
    own_path, same_site, set_cookie,
};
use crate::app::App;
use crate::audit::Who;
use crate::fault::Error;
use crate::http::{PeerAddress, RequestId};
use crate::staff::{self, Credentials, LIFETIME_HOURS, LoginRefusal};
use crate::tenant::Locale;

/// A year: how long a language is remembered.
const LANGUAGE_SECS: i64 = 365 * 24 * 3_600;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    login_token: String,
    next: String,
    problem: Option<String>,
}

/// Where to go after the login.
#[derive(Debug, Deserialize)]
pub struct Next {
    #[serde(default)]
    next: String,
}

fn login_page(
    app: &App,
    status: StatusCode,
    language: Locale,
    next: &str,
    problem: Option<String>,
) -> Result<Response, ConsoleError> {
    // Nobody has a session yet, so the form is tied to this browser by a cookie of its own.
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    let login_token = URL_SAFE_NO_PAD.encode(bytes);
    let cookie = set_cookie(app, LOGIN_COOKIE, &login_token, 3_600);
    let frame = Frame::outside(language, "/console/login");
    let page = LoginPage { frame, login_token, next: own_path(next).to_owned(), problem };
    let mut response = show_with(status, &page)?;
    add_cookie(&mut response, &cookie)?;
    Ok(response)
}

fn add_cookie(response: &mut Response, cookie: &str) -> Result<(), ConsoleError> {
    let value = HeaderValue::from_str(cookie)
        .map_err(|error| crate::fault::Fault::new("a cookie can't be written").because(error))?;
    response.headers_mut().append(header::SET_COOKIE, value);
    Ok(())
}

/// The form.
pub async fn form(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(next): Query<Next>,
) -> Result<Response, ConsoleError> {
    login_page(&app, StatusCode::OK, language_of(&headers), &next.next, None)
}

#[derive(Deserialize)]
struct LoginFields {
    login_token: String,
    username: String,
    password: SecretString,
    #[serde(default = "no_code")]
    code: SecretString,
    #[serde(default)]
    next: String,
}

fn no_code() -> SecretString {
    SecretString::from("")
}

/// Lets somebody in.
pub async fn log_in(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ConsoleError> {
    let (mut parts, body) = request.into_parts();
    let language = language_of(&parts.headers);
    let refused = || ConsoleError::FormRefused(language);
    let bytes = form_bytes(&parts.headers, body).await.ok_or_else(refused)?;
    let fields: LoginFields = serde_urlencoded::from_bytes(&bytes).map_err(|_| refused())?;
    let tied = cookie(&parts.headers, LOGIN_COOKIE)
        .is_some_and(|token| token.as_bytes().ct_eq(fields.login_token.as_bytes()).into());
    if !tied || !same_site(&parts.headers) {
        return Err(refused());
    }
    let peer = match PeerAddress::from_request_parts(&mut parts, &app).await {
        Ok(peer) => peer,
        Err(never) => match never {},
    };
    let from = Who {
        actor: "unknown".to_owned(),
        role: None,
        remote_address: peer.0.map(|address| address.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(|id| id.0.clone()),
    };
    let credentials = Credentials { username: fields.username, password: fields.password, code: fields.code };
    match staff::log_in(&app.db, &app.clock, credentials, &from).await {
        Ok(session) => {
            let mut response = Redirect::to(own_path(&fields.next)).into_response();
            let lifetime = LIFETIME_HOURS.saturating_mul(3_600);
            add_cookie(&mut response, &set_cookie(&app, SESSION_COOKIE, session.token.expose_secret(), lifetime))?;
            add_cookie(&mut response, &set_cookie(&app, LOGIN_COOKIE, "", 0))?;
            Ok(response)
        }
        Err(Error::Fault(fault)) => Err(fault.into()),
        Err(Error::Refused(refusal)) => {
            let words = super::words::Words::of(language);
            let (status, problem) = match refusal {
                LoginRefusal::Wrong => (StatusCode::UNAUTHORIZED, words.login_wrong.to_owned()),
                LoginRefusal::Throttled { retry_after_minutes } => {
                    (StatusCode::TOO_MANY_REQUESTS, format!("{} {retry_after_minutes}", words.login_throttled))
                }
            };
            login_page(&app, status, language, &fields.next, Some(problem))
        }
    }
}

/// Nothing but the signature.
#[derive(Debug, Deserialize)]
pub struct NoFields {}

/// Ends the session.
pub async fn log_out(form: SignedForm<Viewer, NoFields>) -> Result<Response, ConsoleError> {
    let app = &form.staff.app;
    staff::log_out(&app.db, &app.clock, &form.staff.session, &form.staff.who).await?;
    let mut response = Redirect::to("/console/login").into_response();
    add_cookie(&mut response, &set_cookie(app, SESSION_COOKIE, "", 0))?;
    Ok(response)
}

/// Where the switch stood.
#[derive(Debug, Deserialize)]
pub struct Back {
    #[serde(default)]
    back: String,
}

/// Changes the language.
pub async fn language(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(code): Path<String>,
    Query(back): Query<Back>,
) -> Result<Response, ConsoleError> {
    let language = Locale::parse(&code).map_err(|_| ConsoleError::NotFound(language_of(&headers)))?;
    let mut response = Redirect::to(own_path(&back.back)).into_response();
    add_cookie(&mut response, &set_cookie(&app, LANGUAGE_COOKIE, language.as_str(), LANGUAGE_SECS))?;
    Ok(response)
}
