//! An adviser's evenings, which are sold for stars, and two orders of the next one.

use chrono::Weekday::{Fri, Mon, Sat, Sun, Thu, Tue, Wed};
use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::{Refusal, invalid};
use crate::booking::{self, FreeSlotQuery, NewSlot, Price, Resource, WeeklyPattern};
use crate::fault::{Error, Fault, Widen as _};
use crate::ids::{OrderId, ResourceId, TenantId};
use crate::money::{CurrencyCode, MinorUnits, local_day};
use crate::payment::order::{self, Order, OrderStatus};
use crate::provider::telegram;
use crate::tenant::TimeZone;

/// What an hour costs.
pub const STARS: MinorUnits = MinorUnits::new(250);
const TIYIN: MinorUnits = MinorUnits::new(15_000_000);

/// Whose slots, and for how many days there are some.
const RESOURCE: &str = "adviser";
const DAYS: u64 = 7;

/// The buyers, by their numbers at Telegram, and how their orders end.
const BUYERS: [(&str, &str); 2] = [("700000001", "a"), ("700000002", "b")];

/// Sees to slots for the next days, and to two orders that can still get the first free one.
pub async fn fill(
    conn: &mut PgConnection,
    lifetime: TimeDelta,
    now: DateTime<Utc>,
) -> Result<Vec<OrderId>, Error<Refusal>> {
    let resource_id = ResourceId::parse(RESOURCE).map_err(invalid)?;
    let resource = Resource {
        resource_id: resource_id.clone(),
        name: "An hour with the adviser".to_owned(),
        time_zone: TimeZone::TASHKENT,
        refund_until: TimeDelta::hours(24),
        created_at: now,
    };
    booking::create_resource(conn, &resource).await.widen()?;
    let stars = CurrencyCode::parse(telegram::CURRENCY).map_err(invalid)?;
    let prices =
        [Price { currency: stars.clone(), amount: STARS }, Price { currency: CurrencyCode::uzs(), amount: TIYIN }];
    // Those that are there already stay as they are.
    booking::create_slots(conn, &resource_id, &prices, |resource| evenings(resource, now), now).await.widen()?;
    let query = FreeSlotQuery { resource_id: Some(resource_id), from: None, to: None, after: None, limit: 1 };
    let Some(free) = booking::list_free(conn, &query).await?.into_iter().next() else { return Ok(Vec::new()) };
    let mut orders = Vec::new();
    for (payer, end) in BUYERS {
        let slot_id = free.slot.slot_id;
        let order = Order {
            order_id: unused(conn, slot_id, end, lifetime, now).await?,
            tenant_id: TenantId::parse("acme").map_err(invalid)?,
            currency: stars.clone(),
            amount: STARS,
            title: resource.name.clone(),
            created_at: now,
            expires_at: None,
            closed_at: None,
            slot_id: Some(slot_id),
            payer: Some(payer.to_owned()),
        };
        let (order, _) = order::create(conn, &order).await.widen()?;
        orders.push(order.order_id);
    }
    Ok(orders)
}

/// Each evening from tomorrow on.
fn evenings(resource: &Resource, now: DateTime<Utc>) -> Vec<NewSlot> {
    let zone = resource.time_zone.zone();
    let today = local_day(now, zone);
    let day = |days: u64| today.checked_add_days(Days::new(days)).unwrap_or(today);
    let pattern = WeeklyPattern {
        weekdays: vec![Mon, Tue, Wed, Thu, Fri, Sat, Sun],
        starts: NaiveTime::from_hms_opt(18, 0, 0).unwrap_or_default(),
        length: TimeDelta::hours(1),
        times: 1,
        from: day(1),
        to: day(DAYS),
    };
    pattern.slots(zone)
}

/// The name of an order that nobody has tried: one that held the slot can't get it again.
async fn unused(
    conn: &mut PgConnection,
    slot_id: i64,
    end: &str,
    lifetime: TimeDelta,
    now: DateTime<Utc>,
) -> Result<OrderId, Fault> {
    let mut attempt: u32 = 1;
    loop {
        let order_id = OrderId::parse(format!("slot-{slot_id}-{attempt}{end}")).map_err(invalid)?;
        let status = order::find_with_status(conn, &order_id, lifetime, now).await?.map(|(_, status)| status);
        let tried = booking::read(conn, slot_id, &order_id).await?.standing.approved_before;
        if !tried && status.is_none_or(|status| status == OrderStatus::Open) {
            return Ok(order_id);
        }
        attempt = attempt.saturating_add(1);
    }
}
