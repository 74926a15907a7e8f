//! One hold and its story: what was asked, from which pockets, what was used, how it ended and which rows paid it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::words::Words;
use crate::hold::{EndedBy, Hold, HoldId, credits_for, micro_per_unit};
use crate::inquiry::{self, HoldStory};
use crate::money::{Currency, MinorUnits};
use crate::tenant;

#[derive(Template)]
#[template(path = "hold.html")]
struct HoldPage {
    frame: Frame,
    zone: Tz,
    currency: Currency,
    hold_id: String,
    tenant_id: String,
    status: &'static str,
    /// How it ended, or what it waits for.
    ending: &'static str,
    /// Whether a person should look.
    alarm: bool,
    /// The sums: a name and an amount.
    sums: Vec<(&'static str, String)>,
    asked: Vec<(&'static str, String)>,
    times: Vec<(&'static str, String)>,
    /// The pockets and what it kept, or keeps, of each.
    parts: Vec<(String, String)>,
    story: HoldStory,
    /// How many calls there are, when not all of them are told.
    calls_in_all: Option<i64>,
}

impl HoldPage {
    fn moment(&self, at: &DateTime<Utc>) -> String {
        money::moment(*at, self.zone)
    }

    fn charge(&self, amount: &i64) -> String {
        money::text(MinorUnits::new(*amount), &self.currency)
    }
}

/// How a hold ended, or what it waits for; and whether a person should look.
fn ending(w: &'static Words, hold: &Hold, now: DateTime<Utc>) -> (&'static str, bool) {
    let Some(end) = &hold.end else {
        let words = if !hold.is_live(now) {
            w.hold_time_over
        } else if hold.started_at.is_none() {
            w.hold_waits
        } else if hold.cancel_asked_at.is_some() {
            w.hold_stopping
        } else {
            w.hold_works
        };
        return (words, false);
    };
    let asked: Value = serde_json::from_str(&end.asked).unwrap_or_default();
    let mode = asked.get("mode").and_then(Value::as_str);
    // Only work that was begun and logged nothing is charged without a call.
    let usage_lost = end.by == EndedBy::Reconciler && end.settled && hold.calls == 0;
    let words = match (end.by, end.settled) {
        (EndedBy::Worker, true) => match mode {
            Some("as_held") => w.hold_settled_as_held,
            Some("amount") => w.hold_settled_amount,
            Some("by_usage") => w.hold_settled_by_usage,
            _ => w.hold_failed_used,
        },
        (EndedBy::Worker, false) => w.hold_failed,
        (EndedBy::Canceller, true) => w.hold_cancelled_used,
        (EndedBy::Canceller, false) => w.hold_cancelled,
        (EndedBy::Successor, true) => w.hold_replaced_used,
        (EndedBy::Successor, false) => w.hold_replaced,
        (EndedBy::Reconciler, true) if usage_lost => w.hold_usage_lost,
        (EndedBy::Reconciler, true) => w.hold_reconciled_used,
        (EndedBy::Reconciler, false) if hold.started_at.is_none() => w.hold_never_started,
        (EndedBy::Reconciler, false) => w.hold_reconciled_free,
    };
    (words, usage_lost)
}

/// What it keeps, may cost, has used and was charged.
fn sums(w: &'static Words, hold: &Hold, currency: &Currency) -> Vec<(&'static str, String)> {
    let used = micro_per_unit(&hold.currency).map(|micro| credits_for(hold.used_micro, micro));
    [
        (w.held, Some(hold.amount)),
        (w.cost_cap, Some(hold.cost_cap)),
        (w.used, used),
        (w.charged, hold.end.as_ref().map(|end| end.charged)),
    ]
    .into_iter()
    .filter_map(|(name, amount)| Some((name, money::text(amount?, currency))))
    .collect()
}

/// What was asked, by whom, and what was decided with it.
fn asked(w: &'static Words, story: &HoldStory, currency: &Currency) -> Vec<(&'static str, String)> {
    let hold = &story.hold;
    let asked: Value = serde_json::from_str(&hold.asked).unwrap_or_default();
    let amount = asked.get("amount").and_then(Value::as_i64);
    let partial = asked.get("allow_partial").and_then(Value::as_bool).unwrap_or_default();
    let partial = if partial { w.yes } else { w.no };
    [
        (w.amount, amount.map(|amount| money::text(MinorUnits::new(amount), currency))),
        (w.tier, hold.tier.clone()),
        (w.hold_partial, Some(partial.to_owned())),
        (w.session, hold.session.clone()),
        (w.dedupe_key, hold.dedupe_key.clone()),
        (w.fingerprint, story.fingerprint.clone()),
        (w.queue, Some(w.queue_name(&hold.queue).to_owned())),
        (w.price_book, hold.price_version.map(|version| version.to_string())),
        (w.placed_by, Some(story.placed_by.clone())),
        (w.ended_by, hold.end.as_ref().map(|end| w.hold_ended_by(end.by).to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, text)| Some((name, text?)))
    .collect()
}

/// What happened when.
fn times(w: &'static Words, story: &HoldStory, zone: Tz) -> Vec<(&'static str, String)> {
    let hold = &story.hold;
    [
        (w.placed, Some(hold.placed_at)),
        (w.told_waiting, story.waiting_told_at),
        (w.started, hold.started_at),
        (w.lease, hold.lease_until),
        (w.cancel_asked, hold.cancel_asked_at),
        (w.expires, Some(hold.expires_at)),
        (w.ended, hold.end.as_ref().map(|end| end.at)),
    ]
    .into_iter()
    .filter_map(|(name, at)| Some((name, money::moment(at?, zone))))
    .collect()
}

/// The page.
pub async fn page(staff: Staff<Viewer>, Path(hold_id): Path<String>) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let hold_id = HoldId::parse(hold_id).map_err(|_| not_found())?;
    let mut conn = staff.app.db.pool().acquire().await?;
    let story = inquiry::explain_hold(&mut conn, &hold_id).await?.ok_or_else(not_found)?;
    let tenant = tenant::find(&mut conn, &story.hold.tenant_id).await?.ok_or_else(not_found)?;
    drop(conn);
    let hold = &story.hold;
    let currency = super::holds::currency(&staff.app, &hold.currency).await?;
    let zone = tenant.time_zone.zone();
    let w = staff.frame.w;
    let now = staff.app.clock.now();
    let (ending, alarm) = ending(w, hold, now);
    let told = i64::try_from(story.calls.len()).unwrap_or(i64::MAX);
    show(&HoldPage {
        hold_id: hold_id.to_string(),
        tenant_id: hold.tenant_id.to_string(),
        status: w.hold_status(hold, now),
        ending,
        alarm,
        sums: sums(w, hold, &currency),
        asked: asked(w, &story, &currency),
        times: times(w, &story, zone),
        parts: hold.parts.iter().map(|part| (part.pocket.to_string(), money::text(part.amount, &currency))).collect(),
        calls_in_all: Some(hold.calls).filter(|calls| *calls > told),
        zone,
        currency,
        story,
        frame: staff.frame,
    })
}
