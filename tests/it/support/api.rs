//! Requests of `/v1` in any shape, also broken ones, and what every error must look like.

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::TestApp;

/// A request that is put together piece by piece, so that any piece can be wrong.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    token: Option<String>,
    headers: Vec<(&'static str, String)>,
    content_type: Option<String>,
    body: Vec<u8>,
}

/// What came back, byte for byte.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Call {
    /// A request without token and body.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.parse().expect("a method"),
            path: path.to_owned(),
            token: None,
            headers: Vec::new(),
            content_type: None,
            body: Vec::new(),
        }
    }

    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The `Idempotency-Key`.
    pub fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub fn content_type(mut self, content_type: &str) -> Self {
        self.content_type = Some(content_type.to_owned());
        self
    }

    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.content_type("application/json").bytes(body.to_string())
    }

    pub async fn send(self, app: &TestApp) -> Answer {
        let mut request = app.client.request(self.method, app.url(&self.path));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if let Some(content_type) = &self.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let response = request.body(self.body).send().await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.expect("a whole answer").to_vec();
        Answer { status, headers, bytes }
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }

    /// Checks that this is an RFC 9457 problem with all five members, and returns it.
    pub fn problem(&self, about: &str) -> Value {
        let seen = format!("{about}: {} {}", self.status, self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{seen}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16(), "{seen}");
        for member in ["type", "title", "code", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {seen}");
        }
        let code = problem["code"].as_str().expect("a code");
        assert_eq!(problem["type"], format!("urn:hamyon:problem:{code}"), "{seen}");
        for leak in ["SELECT", "INSERT", "UPDATE ", "sqlx", "panicked", "relation \"", "/src/"] {
            assert!(!self.text().contains(leak), "an answer shows the inside: {seen}");
        }
        problem
    }

    /// Checks that this is a problem with this status and code, and returns it.
    pub fn refused(&self, status: u16, code: &str, about: &str) -> Value {
        let problem = self.problem(about);
        assert_eq!((self.status.as_u16(), problem["code"].as_str()), (status, Some(code)), "{about}: {problem}");
        problem
    }
}

/// A posting in so'm, as the batch endpoint takes it.
pub fn posting(tenant_id: &str, kind: &str, amount: &str, reference: &str) -> Value {
    json!({
        "tenant_id": tenant_id, "currency": "UZS", "kind": kind, "amount": amount, "reference": reference,
        "reason": "a test",
    })
}

/// A batch of postings.
pub fn batch(postings: &[Value]) -> Value {
    json!({ "transactions": postings })
}
