//! One payment: what was promised, what its provider asked and what we answered, and what became of it. "I paid and it
//! isn't there" is answered from here, whether or not it ever became money.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::{calls, money};
use crate::ids::{Reference, TenantId};
use crate::inquiry::{self, CallLine, PaymentLine};
use crate::ledger::{self, Kind};
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use crate::payment::prepaid::refund;
use crate::tenant;

#[derive(Template)]
#[template(path = "payment.html")]
struct PaymentPage {
    frame: Frame,
    payment: PaymentLine,
    zone: Tz,
    state: &'static str,
    amount: String,
    times: Vec<(&'static str, String)>,
    /// Its rows in the wallet.
    rows: Vec<(i64, &'static str, String)>,
    calls: Vec<CallLine>,
    on_its_way: bool,
}

impl PaymentPage {
    fn time(&self, at: &DateTime<Utc>) -> String {
        money::moment(*at, self.zone)
    }

    fn call_words(&self, call: &CallLine) -> String {
        calls::words(self.frame.language, call)
    }
}

/// The page.
pub async fn page(staff: Staff<Viewer>, Path(payment_id): Path<String>) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let payment_id: i64 = payment_id.parse().map_err(|_| not_found())?;
    let mut conn = staff.app.db.pool().acquire().await?;
    let payment = inquiry::find_payment(&mut conn, payment_id).await?.ok_or_else(not_found)?;
    let tenant_id = TenantId::from_column(payment.tenant_id.clone())?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(not_found)?;
    let zone = tenant.time_zone.zone();
    let currency = Currency {
        code: CurrencyCode::from_column(payment.currency.clone())?,
        exponent: Exponent::from_column(payment.exponent)?,
    };
    let w = staff.frame.w;
    let mut rows = Vec::new();
    if let Ok(reference) = Reference::parse(format!("{}:{}", payment.provider, payment.external_id)) {
        for (kind, name) in [(Kind::TopUp, w.kind_top_up), (Kind::TopUpReversal, w.kind_top_up_reversal)] {
            if let Some((seq, amount)) = ledger::find(&mut conn, &tenant_id, &currency.code, &kind, &reference).await? {
                rows.push((seq, name, money::text(amount, &currency)));
            }
        }
    }
    let calls = inquiry::calls_of_payment(&mut conn, &payment.provider, &payment.external_id).await?;
    let on_its_way = refund::is_on_its_way(&mut conn, payment_id).await?;
    drop(conn);
    let ended = if payment.performed_at.is_some() { w.moment_refunded } else { w.moment_payment_cancelled };
    let times = [
        (w.moment_promised, Some(payment.created_at)),
        (w.moment_paid, payment.performed_at),
        (ended, payment.cancelled_at),
    ];
    show(&PaymentPage {
        state: super::tenant::payment_state(w, &payment),
        amount: money::text(MinorUnits::new(payment.amount), &currency),
        times: times.into_iter().filter_map(|(name, at)| Some((name, money::moment(at?, zone)))).collect(),
        zone,
        rows,
        calls,
        on_its_way,
        payment,
        frame: staff.frame,
    })
}
