//! How a performed payment would go back to its payer now, and what stands in the way but for the money: for those who
//! explain it. Reads only, without locks; whoever does it decides again behind them.

use sqlx::PgConnection;

use super::prepaid::{self, GiveBackRefusal};
use super::slot::{self, SpentOn};
use super::store;
use crate::fault::{Error, Fault};

/// The way back of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WayBack {
    /// Its provider cancels it, and is refused while its money is spent on a slot.
    Provider(SpentOn),
    /// We ask its provider.
    Us(Option<GiveBackRefusal>),
}

/// The way back of a payment; none when there is no such payment.
///
/// # Errors
/// A fault.
pub async fn way_back(conn: &mut PgConnection, payment_id: i64) -> Result<Option<WayBack>, Fault> {
    let Some(payment) = store::find_by_id(conn, payment_id).await? else { return Ok(None) };
    if !prepaid::is_prepaid(conn, payment_id).await? {
        return Ok(Some(WayBack::Provider(slot::spent_on(conn, &payment).await?)));
    }
    match prepaid::give_back::check(conn, &payment).await {
        Ok(()) => Ok(Some(WayBack::Us(None))),
        Err(Error::Refused(refusal)) => Ok(Some(WayBack::Us(Some(refusal)))),
        Err(Error::Fault(fault)) => Err(fault),
    }
}
