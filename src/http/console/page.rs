//! What every page has around it, and how an error looks.

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};

use super::words::Words;
use crate::fault::{Fault, Remedy};
use crate::http::error::REQUEST_ID;
use crate::staff::{LoggedIn, Role};
use crate::tenant::Locale;

/// Around every page.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The language of the page.
    pub language: Locale,
    /// Its words.
    pub w: &'static Words,
    /// Who looks at it; nobody at the login.
    pub username: Option<String>,
    /// As what.
    pub role: Option<Role>,
    /// What its forms carry.
    pub csrf_token: String,
    /// Where the language switch comes back to.
    pub here: String,
}

impl Frame {
    /// Around a page that nobody is logged in at.
    pub fn outside(language: Locale, here: &str) -> Self {
        Self {
            language,
            w: Words::of(language),
            username: None,
            role: None,
            csrf_token: String::new(),
            here: here.to_owned(),
        }
    }

    /// Around a page of somebody who is logged in.
    pub fn inside(language: Locale, here: &str, session: &LoggedIn) -> Self {
        Self {
            username: Some(session.member.username.to_string()),
            role: Some(session.member.role),
            csrf_token: session.csrf_token().to_owned(),
            ..Self::outside(language, here)
        }
    }

    /// Whether whoever looks may do what this role may.
    pub fn may(&self, role: &str) -> bool {
        Role::parse(role).is_ok_and(|needed| self.role.is_some_and(|role| role >= needed))
    }

    /// The language's code.
    pub fn lang(&self) -> &'static str {
        self.language.as_str()
    }
}

/// Renders a page.
pub fn show(template: &impl Template) -> Result<Response, ConsoleError> {
    show_with(StatusCode::OK, template)
}

/// Renders a page with a status.
pub fn show_with(status: StatusCode, template: &impl Template) -> Result<Response, ConsoleError> {
    let html = template.render().map_err(|error| Fault::new("a page can't be rendered").because(error))?;
    Ok((status, Html(html)).into_response())
}

/// Why there is no page.
#[derive(Debug)]
pub enum ConsoleError {
    /// Nobody is logged in. Looking leads to the login, and back.
    LoginNeeded {
        /// Where to come back to.
        next: String,
    },
    /// Nobody is logged in, or not with this form.
    FormRefused(Locale),
    /// The role doesn't allow it.
    Forbidden(Locale, Role),
    /// There is no such thing.
    NotFound(Locale),
    /// What was asked can't be done, in words.
    Refused(StatusCode, String),
    /// Something broke.
    Fault(Fault),
}

impl From<Fault> for ConsoleError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<sqlx::Error> for ConsoleError {
    fn from(error: sqlx::Error) -> Self {
        Self::Fault(error.into())
    }
}

/// What a refusal says. The layer around every page ([`super::dress`]) puts it into its reader's frame.
#[derive(Debug, Clone)]
pub enum Said {
    /// Words of its own.
    Words(String),
    /// That something broke, with the reference to tell.
    Broken(String),
}

impl IntoResponse for ConsoleError {
    fn into_response(self) -> Response {
        let (status, said) = match self {
            Self::LoginNeeded { next } => {
                let query = serde_urlencoded::to_string([("next", next)]).unwrap_or_default();
                return Redirect::to(&format!("/console/login?{query}")).into_response();
            }
            Self::FormRefused(language) => {
                (StatusCode::FORBIDDEN, Said::Words(Words::of(language).error_form.to_owned()))
            }
            Self::Forbidden(language, needed) => {
                let w = Words::of(language);
                let words = format!("{} {} ({needed})", w.error_forbidden, w.role_name(needed.as_str()));
                (StatusCode::FORBIDDEN, Said::Words(words))
            }
            Self::NotFound(language) => {
                (StatusCode::NOT_FOUND, Said::Words(Words::of(language).error_not_found.to_owned()))
            }
            Self::Refused(status, words) => (status, Said::Words(words)),
            Self::Fault(fault) => {
                let reference = REQUEST_ID.try_with(Clone::clone).unwrap_or_default();
                tracing::error!(reference, "console page {reference} failed: {}", fault.chain());
                let status = match fault.remedy() {
                    Remedy::Wait | Remedy::Repeat => StatusCode::SERVICE_UNAVAILABLE,
                    Remedy::Report => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, Said::Broken(reference))
            }
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(said);
        response
    }
}

/// A file to be saved.
pub fn download(name: &str, content_type: &'static str, body: String) -> Response {
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}
