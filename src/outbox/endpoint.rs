//! Where events are sent to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use rand::RngCore as _;
use secrecy::SecretString;
use sqlx::PgConnection;

use super::store::{self, DeliveryRow, Replay};
use crate::fault::{Error, Fault};

/// A receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its number.
    pub endpoint_id: i64,
    /// Where events are sent to.
    pub url: String,
    /// When it was registered. Earlier events aren't sent to it.
    pub created_at: DateTime<Utc>,
    /// When it was switched off, by the product or by its own 410 Gone.
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Registers a receiver. The secret signs what is sent to it and is shown this once.
///
/// # Errors
/// A fault; the URL must have been checked by [`super::check_url`].
pub async fn register(
    conn: &mut PgConnection,
    url: &str,
    now: DateTime<Utc>,
) -> Result<(Endpoint, SecretString), Fault> {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    // The scheme's own form: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    let secret = format!("whsec_{}", STANDARD.encode(bytes));
    let endpoint = store::insert_endpoint(conn, url, &secret, now).await?;
    Ok((endpoint, SecretString::from(secret)))
}

/// There is no such receiver that is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no endpoint {0} that is off")]
pub struct NotOff(pub i64);

/// Registers a receiver that goes on where one ended that is off: with every event which that one hasn't got, in their
/// order.
///
/// # Errors
/// [`NotOff`]; the URL must have been checked by [`super::check_url`].
pub async fn register_in_place_of(
    conn: &mut PgConnection,
    from_endpoint_id: i64,
    url: &str,
    now: DateTime<Utc>,
) -> Result<(Endpoint, SecretString), Error<NotOff>> {
    let (endpoint, secret) = register(conn, url, now).await?;
    match store::take_over(conn, endpoint.endpoint_id, from_endpoint_id, now).await? {
        Some(events) => {
            let endpoint_id = endpoint.endpoint_id;
            tracing::info!(endpoint_id, from_endpoint_id, events, "a webhook endpoint goes on where another one ended");
            Ok((endpoint, secret))
        }
        None => Err(Error::Refused(NotOff(from_endpoint_id))),
    }
}

/// Every receiver, the oldest first.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Endpoint>, Fault> {
    store::list_endpoints(conn).await
}

/// Switches a receiver off; `false` when there is none that is on.
///
/// # Errors
/// A fault.
pub async fn disable(conn: &mut PgConnection, endpoint_id: i64, now: DateTime<Utc>) -> Result<bool, Fault> {
    store::disable_endpoint(conn, endpoint_id, now).await
}

/// Deliveries after a place (event, endpoint), the oldest first; `state` is dead, waiting or delivered.
///
/// # Errors
/// A fault.
pub async fn deliveries(
    conn: &mut PgConnection,
    state: Option<&str>,
    after: (i64, i64),
    limit: i64,
) -> Result<Vec<DeliveryRow>, Fault> {
    store::list_deliveries(conn, state, after, limit).await
}

/// Sends an event again, one that was given up or one that has arrived.
///
/// # Errors
/// A fault.
pub async fn replay(
    conn: &mut PgConnection,
    endpoint_id: i64,
    event_id: i64,
    now: DateTime<Utc>,
) -> Result<Replay, Fault> {
    store::replay(conn, endpoint_id, event_id, now).await
}
