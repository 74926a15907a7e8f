//! Jobs that are paid by credits: one that is settled, one that failed, one at work and one that waits.

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use rust_decimal::Decimal;
use scoped_futures::ScopedFutureExt as _;

use super::{Refusal, before, invalid};
use crate::app::App;
use crate::clock::Clock;
use crate::fault::{Error, Fault, Widen as _};
use crate::hold::{self, Ask, Asked, Call, Deed, End, HoldId, Metered, ModelPrice, Performance};
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::money::{CurrencyCode, MinorUnits};
use crate::pocket;

/// Whose jobs hold credits, and what a hold of their tier asks for.
const HOLDER: &str = "studio-berlin";
const TIER: (&str, MinorUnits) = ("standard", MinorUnits::new(20));
/// How long a hold lives that is there to be looked at.
const WEEK_SECS: i32 = 604_800;

/// Jobs that are paid by credits, each deed at its own time.
pub async fn fill(app: &App) -> anyhow::Result<()> {
    let now = app.clock.now();
    let prepared = app.db.run("demo_holds", |conn| async move { prepare_holds(conn, now).await }.scope_boxed()).await;
    match prepared {
        Ok(()) => {}
        Err(Error::Refused(refusal)) => return Err(refusal.into()),
        Err(Error::Fault(fault)) => return Err(fault.into()),
    }
    let currency = app.currencies.find(&credits()?).await?.context("there is no currency CREDIT")?;
    for (ago, deed) in jobs()? {
        let performance = Performance {
            db: app.db.clone(),
            clock: Clock::manual(before(now, ago)),
            terms: app.settings.holds,
            actor: Actor::job("demo"),
            currency: currency.clone(),
            claim: None,
            // Nobody reads the answer.
            render: Box::new(|_, _, _| Ok((200, String::new()))),
        };
        match performance.run(deed).await {
            Ok(_) => {}
            Err(Error::Refused(refusal)) => return Err(refusal.into()),
            Err(Error::Fault(fault)) => return Err(fault.into()),
        }
    }
    Ok(())
}

/// A tier, what models cost, and a pocket of granted credits that ends.
async fn prepare_holds(conn: &mut sqlx::PgConnection, now: DateTime<Utc>) -> Result<(), Error<Refusal>> {
    let (then, actor) = (before(now, TimeDelta::days(6)), Actor::job("demo"));
    let (tier, amount) = TIER;
    let tier = hold::Tier { tier: tier.to_owned(), currency: credits()?, amount, created_at: then };
    hold::set_tier(conn, &tier).await?;
    let models = [
        ModelPrice {
            model: "small".to_owned(),
            input: Decimal::new(3, 0),
            output: Decimal::new(15, 0),
            cached: Decimal::new(3, 1),
        },
        ModelPrice {
            model: "large".to_owned(),
            input: Decimal::new(15, 0),
            output: Decimal::new(75, 0),
            cached: Decimal::new(15, 1),
        },
    ];
    hold::write_book(conn, 1, &models, &actor, then).await.widen()?;
    let grant = pocket::Grant {
        tenant_id: TenantId::parse(HOLDER).map_err(invalid)?,
        currency: credits()?,
        pocket: Pocket::parse("promotion").map_err(invalid)?,
        amount: MinorUnits::new(300),
        priority: None,
        expires_at: now.checked_add_signed(TimeDelta::days(25)),
        reference: Reference::parse("promotion:2026-11").map_err(invalid)?,
        reason: Some(Reason::parse("For trying the summaries").map_err(invalid)?),
    };
    pocket::grant(conn, &grant, &actor, then).await.widen()?;
    Ok(())
}

fn credits() -> Result<CurrencyCode, Fault> {
    CurrencyCode::parse("CREDIT").map_err(invalid)
}

/// One job that was paid by what it used, one that failed, one at work and one that waits: how long ago, and what.
fn jobs() -> Result<Vec<(TimeDelta, Deed)>, Fault> {
    let job = |number: u8| HoldId::parse(format!("demo-summary-{number}")).map_err(invalid);
    let tier = || Asked::Tier(TIER.0.to_owned());
    let place = |number: u8, asked: Asked, ttl_secs: Option<i32>, queue: Option<&'static str>| {
        Ok::<_, Fault>(Deed::Place(Box::new(Ask {
            hold_id: job(number)?,
            tenant_id: TenantId::parse(HOLDER).map_err(invalid)?,
            currency: credits()?,
            asked,
            allow_partial: false,
            max_in_flight: None,
            ttl_secs,
            budget: None,
            session: None,
            dedupe_key: None,
            fingerprint: None,
            queue,
        })))
    };
    let call = |number: u8, call_id: &str, input: i64, output: i64, cached: i64| {
        let metered = Metered::Tokens { model: "small".to_owned(), input, output, cached };
        Ok::<_, Fault>(Deed::Use { hold_id: job(number)?, call: Call { call_id: call_id.to_owned(), metered } })
    };
    let (long_ago, later, just_now) = (TimeDelta::days(5), TimeDelta::days(4), TimeDelta::minutes(10));
    Ok(vec![
        // 12,300 and 3,900 micro-dollars, which are 17 credits of the 20 that were held.
        (long_ago, place(1, tier(), None, None)?),
        (long_ago, Deed::Start { hold_id: job(1)?, lease_secs: None }),
        (long_ago, call(1, "call-1", 2_000, 400, 1_000)?),
        (long_ago, call(1, "call-2", 500, 120, 2_000)?),
        (long_ago, Deed::End { hold_id: job(1)?, end: End::ByUsage }),
        (later, place(2, Asked::Amount(MinorUnits::new(50)), None, None)?),
        (later, Deed::Start { hold_id: job(2)?, lease_secs: None }),
        (later, Deed::End { hold_id: job(2)?, end: End::Release }),
        (just_now, place(3, tier(), Some(WEEK_SECS), None)?),
        (just_now, Deed::Start { hold_id: job(3)?, lease_secs: None }),
        (just_now, call(3, "call-1", 1_500, 300, 0)?),
        (TimeDelta::minutes(1), place(4, tier(), Some(WEEK_SECS), Some("priority"))?),
    ])
}
