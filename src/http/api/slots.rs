//! Resources and their slots.

use axum::http::StatusCode;
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use crate::app::App;
use crate::booking::{self, FreeSlotQuery, NewSlot, Price, Resource, Slot, WeeklyPattern};
use crate::fault::Fault;
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, Named, NoParameters, PathName, PaymentsWrite, Query, TenantsRead};
use crate::ids::{InvalidName, ResourceId};
use crate::money::Currency;
use crate::tenant::{TimeZone, check_name};

/// The most slots that one request makes.
const SLOTS_MAX: usize = 1_000;

/// Something that has slots.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewResource {
    /// The product's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + -
    #[schema(example = "dr-karimova")]
    pub resource_id: String,
    /// For people to read.
    #[schema(example = "Dr. Karimova")]
    pub name: String,
    /// An IANA name; the service's own zone (`HAMYON_TIME_ZONE`, Asia/Tashkent) when left out.
    pub time_zone: Option<String>,
    /// Who cancels at least so many hours before the start gets everything back; 24 when left out.
    pub refund_until_hours: Option<u16>,
}

/// A resource.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResourceBody {
    /// The product's own id.
    pub resource_id: String,
    /// For people to read.
    pub name: String,
    /// An IANA name.
    pub time_zone: String,
    /// Who cancels at least so many hours before the start gets everything back.
    pub refund_until_hours: i64,
}

/// What a slot costs in one currency.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceBody {
    /// The currency.
    #[schema(example = "XTR")]
    pub currency: String,
    /// The price as decimal text.
    #[schema(example = "250")]
    pub amount: String,
}

/// The same hours on some days of the week.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatternBody {
    /// mon, tue, wed, thu, fri, sat, sun.
    #[schema(example = json!(["mon", "thu"]))]
    pub weekdays: Vec<String>,
    /// When the first slot of a day begins, by the resource's own clock.
    #[schema(example = "18:00")]
    pub starts: String,
    /// How long each slot is.
    #[schema(example = 60)]
    pub minutes: u16,
    /// How many slots follow each other on a day; one when left out.
    pub times: Option<u16>,
    /// The first day.
    #[schema(example = "2026-12-01")]
    pub from: String,
    /// The last day.
    #[schema(example = "2026-12-31")]
    pub to: String,
}

/// Slots to be made: one by its bounds, or many by a pattern.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSlots {
    /// Whose time.
    #[schema(example = "dr-karimova")]
    pub resource_id: String,
    /// When the one slot begins.
    pub starts_at: Option<DateTime<Utc>>,
    /// When it ends.
    pub ends_at: Option<DateTime<Utc>>,
    /// The pattern.
    pub pattern: Option<PatternBody>,
    /// What each costs, at most once a currency. An order may have a price of its own.
    #[serde(default)]
    pub prices: Vec<PriceBody>,
}

/// A slot.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlotBody {
    /// Its number.
    pub slot_id: i64,
    /// Whose time.
    pub resource_id: String,
    /// When it begins.
    pub starts_at: DateTime<Utc>,
    /// When it ends.
    pub ends_at: DateTime<Utc>,
    /// What it costs.
    pub prices: Vec<PriceBody>,
}

/// Some slots.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlotPage {
    /// In the order of their starts.
    pub items: Vec<SlotBody>,
    /// Give it as `after` to get the next page; null on the last one.
    pub next: Option<String>,
}

/// Which free slots.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SlotQuery {
    /// Only of this resource.
    resource_id: Option<String>,
    /// Only those that begin at this moment or later.
    from: Option<DateTime<Utc>>,
    /// Only those that begin before.
    to: Option<DateTime<Utc>>,
    /// The `next` of the page before.
    after: Option<String>,
    /// 1 to 500; 100 when left out.
    limit: Option<u16>,
}

impl SlotBody {
    fn new(slot: &Slot, prices: Vec<PriceBody>) -> Self {
        Self {
            slot_id: slot.slot_id,
            resource_id: slot.resource_id.to_string(),
            starts_at: slot.starts_at,
            ends_at: slot.ends_at,
            prices,
        }
    }
}

/// Makes a resource. The same again is answered the same.
#[utoipa::path(post, path = "/v1/resources", tag = "bookings", request_body = NewResource,
    responses((status = 201, body = ResourceBody), (status = 200, description = "It was there", body = ResourceBody),
        (status = 409, description = "resource_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create_resource(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    json: Json<NewResource>,
) -> Result<(StatusCode, axum::Json<ResourceBody>), Problem> {
    let body = json.body;
    super::field("name", check_name(&body.name))?;
    let resource = &Resource {
        resource_id: super::field("resource_id", ResourceId::parse(body.resource_id))?,
        name: body.name,
        time_zone: match &body.time_zone {
            Some(zone) => super::field("time_zone", TimeZone::parse(zone))?,
            None => caller.app.settings.time_zone,
        },
        refund_until: TimeDelta::hours(i64::from(body.refund_until_hours.unwrap_or(24))),
        created_at: caller.app.clock.now(),
    };
    let (there, new) = caller
        .db()
        .run("resource_create", |conn| async move { booking::create_resource(conn, resource).await }.scope_boxed())
        .await?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    let answer = ResourceBody {
        resource_id: there.resource_id.to_string(),
        name: there.name,
        time_zone: there.time_zone.as_str().to_owned(),
        refund_until_hours: there.refund_until.num_hours(),
    };
    Ok((code, axum::Json(answer)))
}

/// Makes slots, all or none. A slot that is there already with the same bounds and prices is taken for made.
#[utoipa::path(post, path = "/v1/slots", tag = "bookings", request_body = NewSlots,
    responses((status = 201, body = SlotPage), (status = 200, description = "They were there", body = SlotPage),
        (status = 404, description = "resource_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "slot_overlaps, slot_prices_differ", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "slot_past, no_slots", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    json: Json<NewSlots>,
) -> Result<(StatusCode, axum::Json<SlotPage>), Problem> {
    let body = json.body;
    let resource_id = &super::field("resource_id", ResourceId::parse(body.resource_id))?;
    let (prices, shown) = prices(&caller, &body.prices).await?;
    let prices = &prices;
    let wanted = &match (body.starts_at, body.ends_at, body.pattern) {
        (Some(starts_at), Some(ends_at), None) => {
            let slot = NewSlot {
                starts_at: super::moment("starts_at", starts_at)?,
                ends_at: super::moment("ends_at", ends_at)?,
            };
            let length = slot.ends_at.signed_duration_since(slot.starts_at);
            if length <= TimeDelta::zero() || length > TimeDelta::days(31) {
                return Err(Problem::invalid_field("ends_at", "must be after starts_at, by 31 days at most"));
            }
            Wanted::One(slot)
        }
        (None, None, Some(pattern)) => Wanted::Pattern(weekly(&pattern)?),
        _ => return Err(Problem::invalid("give starts_at and ends_at, or a pattern")),
    };
    let now = caller.app.clock.now();
    let (slots, any_new) = caller
        .db()
        .run("slots_create", |conn| {
            async move {
                let slots = |resource: &Resource| match wanted {
                    Wanted::One(slot) => vec![slot.clone()],
                    Wanted::Pattern(pattern) => pattern.slots(resource.time_zone.zone()),
                };
                booking::create_slots(conn, resource_id, prices, slots, now).await
            }
            .scope_boxed()
        })
        .await?;
    if slots.is_empty() {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "no_slots",
            "The pattern has no slot",
            "none of these days from `from` to `to` has such an hour: look at the weekdays and at the two days",
        ));
    }
    let items = slots.iter().map(|slot| SlotBody::new(slot, shown.clone())).collect();
    let code = if any_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, axum::Json(SlotPage { items, next: None })))
}

enum Wanted {
    One(NewSlot),
    Pattern(WeeklyPattern),
}

async fn prices(caller: &Caller<PaymentsWrite>, bodies: &[PriceBody]) -> Result<(Vec<Price>, Vec<PriceBody>), Problem> {
    let (mut prices, mut shown): (Vec<Price>, Vec<PriceBody>) = (Vec::new(), Vec::new());
    for (index, body) in bodies.iter().enumerate() {
        let name = |field: &str| format!("prices[{index}].{field}");
        let currency: Currency = super::currency(&caller.app, &name("currency"), &body.currency).await?;
        let amount = super::amount(&name("amount"), &body.amount, &currency)?;
        if !amount.is_positive() {
            return Err(Problem::invalid_field(&name("amount"), "must be positive"));
        }
        if prices.iter().any(|price| price.currency == currency.code) {
            return Err(Problem::invalid_field(&name("currency"), "stands here twice"));
        }
        shown.push(PriceBody { currency: currency.code.to_string(), amount: amount.to_text(currency.exponent) });
        prices.push(Price { currency: currency.code, amount });
    }
    Ok((prices, shown))
}

fn weekly(body: &PatternBody) -> Result<WeeklyPattern, Problem> {
    let weekdays = body
        .weekdays
        .iter()
        .map(|day| match day.as_str() {
            "mon" => Ok(Weekday::Mon),
            "tue" => Ok(Weekday::Tue),
            "wed" => Ok(Weekday::Wed),
            "thu" => Ok(Weekday::Thu),
            "fri" => Ok(Weekday::Fri),
            "sat" => Ok(Weekday::Sat),
            "sun" => Ok(Weekday::Sun),
            _ => Err(Problem::invalid_field("pattern.weekdays", "must be of mon, tue, wed, thu, fri, sat, sun")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if weekdays.is_empty() {
        return Err(Problem::invalid_field("pattern.weekdays", "must name at least one day"));
    }
    let starts = NaiveTime::parse_from_str(&body.starts, "%H:%M")
        .map_err(|_| Problem::invalid_field("pattern.starts", "must be a time such as 18:00"))?;
    let day = |name: &str, text: &str| {
        NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .map_err(|_| Problem::invalid_field(name, "must be a day such as 2026-12-01"))
    };
    let (from, to) = (day("pattern.from", &body.from)?, day("pattern.to", &body.to)?);
    let days = to.signed_duration_since(from).num_days();
    if !(0..=366).contains(&days) {
        return Err(Problem::invalid_field("pattern.to", "must be pattern.from or a day of the year after it"));
    }
    let times = u32::from(body.times.unwrap_or(1));
    if body.minutes == 0 || body.minutes > 1_440 || times == 0 || times > 96 {
        return Err(Problem::invalid("pattern: minutes must be 1 to 1440, and times 1 to 96"));
    }
    let weeks = usize::try_from(days).unwrap_or(0) / 7;
    let per_day = usize::try_from(times).unwrap_or(usize::MAX);
    let most = weeks.saturating_add(1).saturating_mul(weekdays.len()).saturating_mul(per_day);
    if most > SLOTS_MAX {
        return Err(Problem::invalid(format!("pattern: would make up to {most} slots, and may make {SLOTS_MAX}")));
    }
    Ok(WeeklyPattern { weekdays, starts, length: TimeDelta::minutes(i64::from(body.minutes)), times, from, to })
}

/// The number of a slot in a path.
#[derive(Debug)]
pub struct SlotNumber(pub i64);

impl PathName for SlotNumber {
    const NOT_FOUND: &'static str = "slot_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        text.parse().map(Self).map_err(|_| InvalidName { what: "the slot", rule: "must be a number" })
    }
}

/// Takes a slot out of sale that nobody holds or has booked: nobody can order it any more, and another slot may stand
/// in its place. Withdrawing it again changes nothing.
#[utoipa::path(post, path = "/v1/slots/{slot_id}/withdraw", tag = "bookings", params(("slot_id" = i64, Path)),
    responses((status = 200, body = SlotBody),
        (status = 404, description = "slot_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "slot_held, slot_booked", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn withdraw(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    Named(SlotNumber(slot_id)): Named<SlotNumber>,
) -> Result<axum::Json<SlotBody>, Problem> {
    let by = &caller.actor();
    let slot = caller
        .db()
        .run("slot_withdraw", |conn| {
            async move { booking::withdraw_slot(conn, slot_id, by.as_str()).await }.scope_boxed()
        })
        .await?;
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let prices = booking::slot_prices(&mut conn, slot_id).await?;
    drop(conn);
    Ok(axum::Json(SlotBody::new(&slot, shown(&caller.app, &prices).await?)))
}

/// Prices as they are shown.
async fn shown(app: &App, prices: &[Price]) -> Result<Vec<PriceBody>, Problem> {
    let mut shown = Vec::with_capacity(prices.len());
    for price in prices {
        let currency = super::currency(app, "currency", price.currency.as_str()).await?;
        let amount = price.amount.to_text(currency.exponent);
        shown.push(PriceBody { currency: price.currency.to_string(), amount });
    }
    Ok(shown)
}

/// Lists slots that nobody holds or has booked.
#[utoipa::path(get, path = "/v1/slots", tag = "bookings", params(SlotQuery),
    responses((status = 200, body = SlotPage)))]
pub async fn list_free(
    caller: Caller<TenantsRead>,
    Query(query): Query<SlotQuery>,
) -> Result<axum::Json<SlotPage>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if limit == 0 || limit > 500 {
        return Err(Problem::invalid_field("limit", "must be 1 to 500"));
    }
    let asked = FreeSlotQuery {
        resource_id: query.resource_id.map(|id| super::field("resource_id", ResourceId::parse(id))).transpose()?,
        from: query.from.map(|at| super::moment("from", at)).transpose()?,
        to: query.to.map(|at| super::moment("to", at)).transpose()?,
        after: query.after.as_deref().map(place).transpose()?,
        limit: i64::from(limit),
    };
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let free = booking::list_free(&mut conn, &asked).await?;
    let full = free.len() == usize::from(limit);
    let next = free.last().map(|free| place_text(&free.slot)).filter(|_| full);
    let mut items = Vec::with_capacity(free.len());
    for free in free {
        items.push(SlotBody::new(&free.slot, shown(&caller.app, &free.prices).await?));
    }
    Ok(axum::Json(SlotPage { items, next }))
}

/// A place in the list: the start in microseconds and the number.
fn place_text(slot: &Slot) -> String {
    format!("{}.{}", slot.starts_at.timestamp_micros(), slot.slot_id)
}

fn place(text: &str) -> Result<(DateTime<Utc>, i64), Problem> {
    text.split_once('.')
        .and_then(|(micros, slot_id)| Some((micros.parse::<i64>().ok()?, slot_id.parse().ok()?)))
        .and_then(|(micros, slot_id)| Some((DateTime::from_timestamp_micros(micros)?, slot_id)))
        .ok_or_else(|| Problem::invalid_field("after", "must be the next of a page"))
        .and_then(|(at, slot_id)| Ok((super::moment("after", at)?, slot_id)))
}
