//! Who looks: the session's cookie, the language, and the two ways into a handler.
//!
//! A handler gets the application from [`Staff`] or [`SignedForm`] and from nowhere else, so a page without a
//! session, or a form without the session's token, has nothing to work with.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::page::{ConsoleError, Frame};
use crate::app::App;
use crate::audit::Who;
use crate::http::{PeerAddress, RequestId};
use crate::staff::{self, LoggedIn, Role};
use crate::support::{Desk, Rights};
use crate::tenant::Locale;

pub const SESSION_COOKIE: &str = "hamyon_session";
pub const LANGUAGE_COOKIE: &str = "hamyon_language";
pub const LOGIN_COOKIE: &str = "hamyon_login";

/// The longest form.
const FORM_BYTES_MAX: usize = 64 * 1024;

/// A role as a type, so that a handler's signature says what it needs.
pub trait AtLeast: Send + Sync + 'static {
    /// The smallest role that may.
    const ROLE: Role;
}

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;
            impl AtLeast for $name {
                const ROLE: Role = Role::$name;
            }
        )+
    };
}

roles!(
    /// Anybody who is logged in.
    Viewer,
    /// Agents and above.
    Agent,
    /// Approvers and above.
    Approver,
);

/// Somebody who is logged in and may do what `R` may.
#[derive(Debug)]
pub struct Staff<R> {
    pub app: Arc<App>,
    pub session: LoggedIn,
    pub who: Who,
    pub frame: Frame,
    role: PhantomData<R>,
}

impl<R> Staff<R> {
    /// The language they read.
    pub fn language(&self) -> Locale {
        self.frame.language
    }

    /// Their place at the support desk.
    pub fn desk(&self) -> Desk<'_> {
        Desk { who: &self.who, rights: self.rights(), limits: &self.app.settings.support_limits }
    }

    /// What they may do there.
    pub fn rights(&self) -> Rights {
        Rights::Staff(self.session.member.role)
    }
}

impl<R: AtLeast> FromRequestParts<Arc<App>> for Staff<R> {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ConsoleError> {
        let language = language(&parts.headers);
        let here = parts.uri.path_and_query().map_or("/console", axum::http::uri::PathAndQuery::as_str).to_owned();
        let needed = || ConsoleError::LoginNeeded { next: here.clone() };
        let token = cookie(&parts.headers, SESSION_COOKIE).ok_or_else(needed)?;
        let mut conn = app.db.pool().acquire().await?;
        let session = staff::authenticate(&mut conn, token, app.clock.now()).await?.ok_or_else(needed)?;
        drop(conn);
        let who = caller(parts, app, &session).await?;
        if session.member.role < R::ROLE {
            let words = format!("{} {}: needs the role {}", parts.method, parts.uri.path(), R::ROLE);
            let line = crate::audit::Line { action: "console", allowed: false, tenant_id: None, words };
            crate::audit::write_alone(&app.db, &app.clock, &who, &line).await?;
            return Err(ConsoleError::Forbidden(language, R::ROLE));
        }
        let frame = Frame::inside(language, &here, &session);
        Ok(Self { app: app.clone(), session, who, frame, role: PhantomData })
    }
}

async fn caller(parts: &mut Parts, app: &Arc<App>, session: &LoggedIn) -> Result<Who, ConsoleError> {
    let peer = match PeerAddress::from_request_parts(parts, app).await {
        Ok(peer) => peer,
        Err(never) => match never {},
    };
    Ok(Who {
        actor: session.member.username.actor()?.to_string(),
        role: Some(session.member.role.as_str()),
        remote_address: peer.0.map(|address| address.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(|id| id.0.clone()),
    })
}

/// A form that this session's page sent.
#[derive(Debug)]
pub struct SignedForm<R, T> {
    pub staff: Staff<R>,
    pub fields: T,
}

#[derive(Deserialize)]
struct Signature {
    csrf_token: String,
}

impl<R: AtLeast, T: DeserializeOwned> FromRequest<Arc<App>> for SignedForm<R, T> {
    type Rejection = ConsoleError;

    async fn from_request(request: Request<Body>, app: &Arc<App>) -> Result<Self, ConsoleError> {
        let (mut parts, body) = request.into_parts();
        let language = language(&parts.headers);
        let staff = match Staff::<R>::from_request_parts(&mut parts, app).await {
            // A form isn't sent again by itself after the login, so its sender is told.
            Err(ConsoleError::LoginNeeded { .. }) => return Err(ConsoleError::FormRefused(language)),
            staff => staff?,
        };
        let refused = || ConsoleError::FormRefused(language);
        if !same_site(&parts.headers) {
            return Err(refused());
        }
        let bytes = form_bytes(&parts.headers, body).await.ok_or_else(refused)?;
        // What isn't UTF-8 would be stored as question marks.
        let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(&bytes).map_err(|_| refused())?;
        if pairs.iter().any(|(_, value)| value.contains('\u{fffd}')) {
            return Err(refused());
        }
        let signature: Signature = serde_urlencoded::from_bytes(&bytes).map_err(|_| refused())?;
        if !staff.session.owns_form(&signature.csrf_token) {
            return Err(refused());
        }
        let fields = serde_urlencoded::from_bytes(&bytes)
            .map_err(|error| ConsoleError::Refused(language, axum::http::StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(Self { staff, fields })
    }
}

/// The bytes of a form; none when the body is something else or too long.
pub async fn form_bytes(headers: &HeaderMap, body: Body) -> Option<axum::body::Bytes> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let essence = content_type.split(';').next()?.trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return None;
    }
    axum::body::to_bytes(body, FORM_BYTES_MAX).await.ok()
}

/// Browsers say where a request comes from; one from another site is refused even with the right token.
pub fn same_site(headers: &HeaderMap) -> bool {
    let ours = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin" || site == "none");
    // Sent with every form, also where the page came by http and the other header doesn't.
    let from = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let here = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    ours && from.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| host == here))
}

/// A cookie's value.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// The language somebody chose, or the first one their browser asks for that we speak, or Uzbek.
pub fn language(headers: &HeaderMap) -> Locale {
    let chosen = cookie(headers, LANGUAGE_COOKIE).and_then(|code| Locale::parse(code).ok());
    chosen
        .or_else(|| {
            let asked = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
            asked.split(',').find_map(|item| Locale::parse(item.trim().get(..2)?).ok())
        })
        .unwrap_or(Locale::Uz)
}

/// A cookie as it is set. It goes to our own pages only, and scripts can't read it.
pub fn set_cookie(app: &App, name: &str, value: &str, max_age_secs: i64) -> String {
    let secure = if app.settings.console_https { "; Secure" } else { "" };
    format!("{name}={value}; Path=/console; HttpOnly; SameSite=Strict; Max-Age={max_age_secs}{secure}")
}
