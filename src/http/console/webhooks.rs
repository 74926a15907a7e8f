//! What was delivered to whom, and sending it again.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::login::NoFields;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Agent, SignedForm, Staff, Viewer};
use crate::audit::{self, Line};
use crate::fault::Error;
use crate::outbox::endpoint::{self, Endpoint};
use crate::outbox::{DeliveryRow, Replay};
use scoped_futures::ScopedFutureExt as _;

const PAGE_ROWS: i64 = 50;

/// Which deliveries.
#[derive(Debug, Deserialize)]
pub struct DeliveryQuery {
    state: Option<String>,
    after: Option<String>,
}

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage {
    frame: Frame,
    endpoints: Vec<Endpoint>,
    deliveries: Vec<DeliveryRow>,
    state: String,
    next: Option<String>,
}

impl WebhooksPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, super::health::OFFICE_ZONE)
    }

    fn state_of(&self, row: &DeliveryRow) -> &'static str {
        let w = self.frame.w;
        if row.delivered_at.is_some() {
            w.delivered
        } else if row.dead_at.is_some() {
            w.dead
        } else {
            w.waiting
        }
    }
}

/// The page; dead letters first, since those need somebody.
pub async fn page(staff: Staff<Viewer>, Query(query): Query<DeliveryQuery>) -> Result<Response, ConsoleError> {
    let state = query.state.unwrap_or_else(|| "dead".to_owned());
    let known = matches!(state.as_str(), "dead" | "waiting" | "delivered").then_some(state.as_str());
    let after = query.after.as_deref().and_then(|text| {
        let (event_id, endpoint_id) = text.split_once('.')?;
        Some((event_id.parse().ok()?, endpoint_id.parse().ok()?))
    });
    let mut conn = staff.app.db.pool().acquire().await?;
    let endpoints = endpoint::list(&mut conn).await?;
    let deliveries = endpoint::deliveries(&mut conn, known, after.unwrap_or((0, 0)), PAGE_ROWS).await?;
    let full = i64::try_from(deliveries.len()) == Ok(PAGE_ROWS);
    let next = deliveries.last().map(|row| format!("{}.{}", row.event_id, row.endpoint_id)).filter(|_| full);
    show(&WebhooksPage { endpoints, deliveries, next, state, frame: staff.frame })
}

/// Sends an event to an endpoint again.
pub async fn replay(
    Path((endpoint_id, event_id)): Path<(String, String)>,
    form: SignedForm<Agent, NoFields>,
) -> Result<Response, ConsoleError> {
    let staff = form.staff;
    let language = staff.language();
    let not_found = || ConsoleError::NotFound(language);
    let endpoint_id: i64 = endpoint_id.parse().map_err(|_| not_found())?;
    let event_id: i64 = event_id.parse().map_err(|_| not_found())?;
    let (who, clock) = (&staff.who, &staff.app.clock);
    let replayed = staff
        .app
        .db
        .run("console_replay", |conn| {
            async move {
                let now = clock.now();
                let replayed = endpoint::replay(conn, endpoint_id, event_id, now).await?;
                let words = format!("event {event_id} to endpoint {endpoint_id}: {replayed:?}");
                let allowed = matches!(replayed, Replay::Queued);
                audit::write(conn, who, &Line { action: "webhook.replay", allowed, tenant_id: None, words }, now)
                    .await?;
                Ok::<_, Error<std::convert::Infallible>>(replayed)
            }
            .scope_boxed()
        })
        .await;
    match replayed {
        Ok(Replay::Queued) => Ok(Redirect::to("/console/webhooks?state=waiting").into_response()),
        Ok(Replay::EndpointOff) => {
            let words = staff.frame.w.error_endpoint_off.to_owned();
            Err(ConsoleError::Refused(StatusCode::CONFLICT, words))
        }
        Ok(Replay::Unknown) => Err(not_found()),
        Err(Error::Fault(fault)) => Err(fault.into()),
        Err(Error::Refused(never)) => match never {},
    }
}
