//! Every error of `/v1`, as an RFC 9457 problem with a stable code.
//!
//! A refusal says the rule and the numbers; which status it is, is said in [`refusals`] alone. A fault says only a
//! reference; its whole chain is in the log under that reference.

mod refusals;

use std::fmt::Display;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::fault::{Error, Fault, Remedy};

tokio::task_local! {
    /// Our id of the request that the current task answers.
    pub static REQUEST_ID: String;
}

/// A problem document.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    members: Map<String, Value>,
    retry_after_secs: Option<u64>,
}

impl Problem {
    /// A problem with its status, its stable code, what the code means and what happened here.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), members: Map::new(), retry_after_secs: None }
    }

    /// Adds a member that a program can read.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_secs = Some(seconds);
        self
    }

    /// The request has the wrong shape.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", "The request has the wrong shape", detail)
    }

    /// A field of the request has the wrong shape.
    #[must_use]
    pub fn invalid_field(field: &str, rule: impl Display) -> Self {
        Self::invalid(format!("{field}: {rule}")).with("field", field)
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, "There is no such thing", detail)
    }

    /// There is no such currency.
    #[must_use]
    pub fn unknown_currency(code: impl Display) -> Self {
        Self::not_found("currency_not_found", format!("there is no currency {code}; POST /v1/currencies adds one"))
    }

    /// There is no such tenant.
    #[must_use]
    pub fn unknown_tenant(tenant_id: impl Display) -> Self {
        Self::not_found("tenant_not_found", format!("there is no tenant {tenant_id}; POST /v1/tenants makes one"))
    }

    /// The time for the request is over. What moves money goes on to its end; a repeat with the same key
    /// gets its answer.
    #[must_use]
    pub fn timed_out() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "timed_out",
            "The answer took too long",
            "the request was not answered in time; repeat it with the same Idempotency-Key",
        )
        .retry_after(1)
    }

    /// A handler panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self::from(Fault::new("a handler panicked"))
    }

    fn conflict(code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, title, detail)
    }

    fn unprocessable(code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, title, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut document = json!({
            "type": format!("urn:hamyon:problem:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(document) = document.as_object_mut() {
            for (name, value) in self.members {
                document.entry(name).or_insert(value);
            }
        }
        let mut response = (self.status, document.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let reference = REQUEST_ID.try_with(Clone::clone).unwrap_or_default();
        match fault.remedy() {
            Remedy::Wait | Remedy::Repeat => {
                tracing::warn!(reference, "request {reference} could not be served now: {}", fault.chain());
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    "The service can't answer now",
                    "repeat the request with the same Idempotency-Key: whatever became of this one, it happens once",
                )
                .retry_after(1)
            }
            Remedy::Report => {
                tracing::error!(reference, "request {reference} failed: {}", fault.chain());
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "Something broke on our side",
                    "give the reference to whoever runs this service; a repeat with the same Idempotency-Key happens once",
                )
            }
        }
        .with("reference", reference)
    }
}

impl<R: Into<Self>> From<Error<R>> for Problem {
    fn from(error: Error<R>) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Fault(fault) => fault.into(),
        }
    }
}
