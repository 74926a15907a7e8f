//! What a handler gets out of a request. Every rejection is a problem document.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query as AxumQuery, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::Problem;
use super::{PeerAddress, RequestId};
use crate::app::App;
use crate::audit::{self, Line, Who};
use crate::db::Database;
use crate::fault::Fault;
use crate::idempotency;
use crate::ids::{Actor, ClientName, InvalidName};
use crate::token::{self, Scope};

/// The longest body of `/v1`. A batch of 5,000 postings fits.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A scope as a type, so that a handler's signature says what it needs.
pub trait Permission: Send + Sync + 'static {
    /// The scope.
    const SCOPE: Scope;
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;
            impl Permission for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )+
    };
}

permissions!(
    /// `tenants:read`
    TenantsRead,
    /// `tenants:write`
    TenantsWrite,
    /// `ledger:read`
    LedgerRead,
    /// `ledger:post`
    LedgerPost,
    /// `payments:write`
    PaymentsWrite,
    /// `currencies:write`
    CurrenciesWrite,
    /// `fees:write`
    FeesWrite,
    /// `webhooks:write`
    WebhooksWrite,
    /// `support:write`
    SupportWrite,
    /// `support:approve`
    SupportApprove,
    /// `holds:write`
    HoldsWrite,
    /// `holds:configure`
    HoldsConfigure,
);

/// A caller whose token allows `P`. A handler gets the application, and with it the database, from here and
/// from nowhere else: without the permission there is nothing to work with.
#[derive(Debug)]
pub struct Caller<P> {
    /// The application.
    pub app: Arc<App>,
    /// The program that calls.
    pub client: ClientName,
    permission: PhantomData<P>,
}

impl<P> Caller<P> {
    /// Who the ledger says did it.
    pub fn actor(&self) -> Actor {
        Actor::api(&self.client)
    }

    /// The database.
    pub fn db(&self) -> &Database {
        &self.app.db
    }
}

impl<P: Permission> FromRequestParts<Arc<App>> for Caller<P> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let unauthorized =
            |detail| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "A valid token is needed", detail);
        let given = bearer(&parts.headers)
            .ok_or_else(|| unauthorized("send a token: Authorization: Bearer … (hamyon token create makes one)"))?;
        let mut conn = app.db.pool().acquire().await.map_err(Fault::from)?;
        let token = token::authenticate(&mut conn, given, app.clock.now())
            .await?
            .ok_or_else(|| unauthorized("this token is unknown, revoked or expired"))?;
        if let Some(seen) = parts.extensions.get::<super::SeenClient>() {
            seen.set(&token.client);
        }
        if !token.scopes.contains(&P::SCOPE) {
            let scope = P::SCOPE.as_str();
            drop(conn);
            if matches!(P::SCOPE, Scope::SupportWrite | Scope::SupportApprove) {
                note_refusal(parts, app, &token.client, scope).await?;
            }
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "The token doesn't allow this",
                format!("this needs the scope {scope}"),
            )
            .with("scope", scope));
        }
        Ok(Self { app: app.clone(), client: token.client, permission: PhantomData })
    }
}

/// What a program without the scope wanted of the support desk is a line of its audit, too (S2).
async fn note_refusal(parts: &mut Parts, app: &Arc<App>, client: &ClientName, scope: &str) -> Result<(), Fault> {
    let Ok(PeerAddress(peer)) = PeerAddress::from_request_parts(parts, app).await;
    let who = Who {
        actor: Actor::api(client).to_string(),
        role: None,
        remote_address: peer.map(|address| address.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(|id| id.0.clone()),
    };
    let words = format!("{} {}: the token has no scope {scope}", parts.method, parts.uri.path());
    audit::write_alone(&app.db, &app.clock, &who, &Line { action: "token", allowed: false, tenant_id: None, words })
        .await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The `Idempotency-Key` header, which every request that moves money must have.
#[derive(Debug)]
pub struct IdempotencyKey(pub idempotency::Key);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut given = parts.headers.get_all("idempotency-key").iter();
        let header = given.next().ok_or_else(|| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "idempotency_key_missing",
                "A request that moves money needs an Idempotency-Key",
                "send the header Idempotency-Key with a value of your own, and the same one when you repeat the request",
            )
        })?;
        if given.next().is_some() {
            return Err(Problem::invalid_field("Idempotency-Key", "must be given once"));
        }
        let key = header.to_str().unwrap_or_default();
        idempotency::Key::parse(key).map(Self).map_err(|error| Problem::invalid_field("Idempotency-Key", error.rule))
    }
}

/// The same header where the path already names what happens once: it may be there.
#[derive(Debug)]
pub struct OptionalIdempotencyKey(pub Option<idempotency::Key>);

impl<S: Sync> FromRequestParts<S> for OptionalIdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if parts.headers.contains_key("idempotency-key") {
            let IdempotencyKey(key) = IdempotencyKey::from_request_parts(parts, state).await?;
            Ok(Self(Some(key)))
        } else {
            Ok(Self(None))
        }
    }
}

/// A JSON body that may be left out, which is the same as `{}`.
#[derive(Debug)]
pub struct OptionalJson<T>(pub Json<T>);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, app: &Arc<App>) -> Result<Self, Problem> {
        use axum::body::HttpBody as _;
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            let value = Value::Object(serde_json::Map::new());
            let body = serde_json::from_value(value.clone()).map_err(|error| Problem::invalid(error.to_string()))?;
            return Ok(Self(Json { body, value }));
        }
        Json::from_request(Request::from_parts(parts, body), app).await.map(Self)
    }
}

/// A JSON body: the parsed one, and the same as a value for the idempotency record.
#[derive(Debug)]
pub struct Json<T> {
    /// The body.
    pub body: T,
    /// The body as it came.
    pub value: Value,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, _: &Arc<App>) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body must be JSON",
                "send Content-Type: application/json",
            ));
        }
        let bytes = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await.map_err(|_| {
            Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                "The body is too large",
                format!("the body may have {BODY_BYTES_MAX} bytes and must arrive whole"),
            )
        })?;
        let shape = |error: serde_json::Error| Problem::invalid(error.to_string());
        let body = serde_json::from_slice(&bytes).map_err(shape)?;
        let value = serde_json::from_slice(&bytes).map_err(shape)?;
        Ok(Self { body, value })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The query, in which an unknown or repeated parameter is an error.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        AxumQuery::<T>::try_from_uri(&parts.uri)
            .map(|AxumQuery(query)| Self(query))
            .map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// The query of a path that takes no parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// The one name in the path, parsed. A name that can't exist is not found.
#[derive(Debug)]
pub struct Named<T>(pub T);

/// A name that stands in a path.
pub trait PathName: Sized {
    /// The problem's code when there is none.
    const NOT_FOUND: &'static str;
    /// Parses it.
    ///
    /// # Errors
    /// [`InvalidName`].
    fn parse(text: &str) -> Result<Self, InvalidName>;
}

impl PathName for crate::ids::TenantId {
    const NOT_FOUND: &'static str = "tenant_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

impl PathName for crate::hold::HoldId {
    const NOT_FOUND: &'static str = "hold_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

impl PathName for crate::ids::OrderId {
    const NOT_FOUND: &'static str = "order_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

impl PathName for crate::money::Month {
    const NOT_FOUND: &'static str = "fee_run_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

/// The second thing a path names: a number.
#[derive(Debug)]
pub struct SecondNumber(pub i64);

impl<S: Sync + Send> FromRequestParts<S> for SecondNumber {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::invalid("the path is not UTF-8"))?;
        let number = params.iter().nth(1).and_then(|(_, value)| value.parse().ok());
        number.map(Self).ok_or_else(|| Problem::not_found("path_not_found", "the path's number is not one"))
    }
}

/// The one number in a path.
#[derive(Debug)]
pub struct Number(pub i64);

impl PathName for Number {
    const NOT_FOUND: &'static str = "endpoint_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        text.parse().map(Self).map_err(|_| InvalidName { what: "the id", rule: "must be a number" })
    }
}

impl<T: PathName, S: Sync> FromRequestParts<S> for Named<T>
where
    S: Send,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::invalid("the path is not UTF-8"))?;
        let name = params.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default();
        T::parse(&name)
            .map(Self)
            .map_err(|error| Problem::not_found(T::NOT_FOUND, format!("there is none: {} {}", error.what, error.rule)))
    }
}
