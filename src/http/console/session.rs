//! Who looks: the session's cookie, the language, and the two ways into a handler.
//!
//! A handler gets the application from [`Staff`] or [`SignedForm`] and from nowhere else, so a page without a
//! session, or a form without the session's token, has nothing to work with.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Uri, header};
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
        let here = here(&parts.method, &parts.uri, &parts.headers);
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
        let why = match signed::<T>(&parts.headers, body, &staff.session).await {
            Ok(fields) => return Ok(Self { staff, fields }),
            Err(NotSigned::Fields) => {
                let words = staff.frame.w.error_fields.to_owned();
                return Err(ConsoleError::Refused(axum::http::StatusCode::BAD_REQUEST, words));
            }
            Err(NotSigned::Form(why)) => why,
        };
        // Somebody who is logged in sent what none of their pages has: that is worth knowing.
        let words = format!("{} {}: {why}", parts.method, parts.uri.path());
        let line = crate::audit::Line { action: "form", allowed: false, tenant_id: None, words };
        crate::audit::write_alone(&app.db, &app.clock, &staff.who, &line).await?;
        Err(ConsoleError::FormRefused(language))
    }
}

/// Why a form isn't taken.
enum NotSigned {
    /// It isn't this session's.
    Form(&'static str),
    /// It is, and one of its fields is missing or has the wrong shape.
    Fields,
}

async fn signed<T: DeserializeOwned>(headers: &HeaderMap, body: Body, session: &LoggedIn) -> Result<T, NotSigned> {
    if !same_site(headers) {
        return Err(NotSigned::Form("the form came from another site"));
    }
    let bytes = form_bytes(headers, body).await.ok_or(NotSigned::Form("the body is no form, or too long"))?;
    // What isn't UTF-8 would be stored as question marks.
    let unreadable = NotSigned::Form("the form can't be read");
    let Ok(pairs) = serde_urlencoded::from_bytes::<Vec<(String, String)>>(&bytes) else { return Err(unreadable) };
    if pairs.iter().any(|(_, value)| value.contains('\u{fffd}')) {
        return Err(unreadable);
    }
    match serde_urlencoded::from_bytes::<Signature>(&bytes) {
        Ok(signature) if session.owns_form(&signature.csrf_token) => {}
        Ok(_) | Err(_) => return Err(NotSigned::Form("the form doesn't carry the session's token")),
    }
    serde_urlencoded::from_bytes(&bytes).map_err(|_| NotSigned::Fields)
}

/// A path of ours, or the start page: nobody is led elsewhere.
pub fn own_path(path: &str) -> &str {
    let ours = path == "/console" || path.starts_with("/console/") || path.starts_with("/console?");
    if ours && !path.contains('\\') && !path.contains(char::is_control) { path } else { "/console" }
}

/// The page that somebody is at, for the way back to it: this one, or for a form the one it was sent from. A page that
/// only a form leads to can't be asked for by its address.
pub fn here(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    if method == Method::GET || method == Method::HEAD {
        return uri.path_and_query().map_or("/console", axum::http::uri::PathAndQuery::as_str).to_owned();
    }
    let sent_from = headers
        .get(header::REFERER)
        .and_then(|from| from.to_str().ok())
        .and_then(|from| from.split_once("://"))
        .and_then(|(_, rest)| rest.find('/').and_then(|at| rest.get(at..)))
        .map(own_path);
    if let Some(page) = sent_from
        && super::is_page(page.split(['?', '#']).next().unwrap_or_default())
    {
        return page.to_owned();
    }
    // The nearest page above it: a tenant's for what is done to the tenant.
    let mut path = uri.path();
    while !super::is_page(path) {
        let Some((above, _)) = path.rsplit_once('/') else { return "/console".to_owned() };
        path = above;
    }
    path.to_owned()
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
///
/// `Sec-Fetch-Site` compares what the browser itself sees, so it is right behind any proxy. A browser sends it by
/// https (and to this machine); else `Origin` is compared with `Host`, which a proxy has to hand on.
pub fn same_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    let from = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let here = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    from.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| host == here))
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
