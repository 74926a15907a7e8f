//! Top-ups that are booked under a payment's name by another path than the payment: an import from another system.
//!
//! Such a row stands for the payment, whose Perform then books nothing. So it must be of the same money; a row that
//! isn't would keep the payment from ever being performed.

use sqlx::PgConnection;

use super::store;
use crate::fault::Error;
use crate::ids::{Pocket, Reference};
use crate::ledger::{Entry, Kind};

/// The row would stand for a payment and be of other money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reference} is a payment with another {}", fields.join(", "))]
pub struct ImportRefusal {
    /// The entry's place.
    pub index: usize,
    /// The payment's name in the book.
    pub reference: Reference,
    /// Which of tenant_id, currency, amount, pocket and status (it was cancelled) differ.
    pub fields: Vec<&'static str>,
}

/// Holds every top-up among the entries against the payment that it names, if there is one.
///
/// # Errors
/// [`ImportRefusal`] for the first that differs.
pub async fn check_imports(conn: &mut PgConnection, entries: &[Entry]) -> Result<(), Error<ImportRefusal>> {
    let (mut named, mut providers, mut external_ids) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::TopUp) {
        if let Some((provider, external_id)) = entry.reference.as_str().split_once(':') {
            named.push((index, entry));
            providers.push(provider.to_owned());
            external_ids.push(external_id.to_owned());
        }
    }
    if named.is_empty() {
        return Ok(());
    }
    let payments = store::find_live(conn, &providers, &external_ids).await?;
    for ((index, entry), payment) in named.into_iter().zip(payments) {
        let Some(payment) = payment else { continue };
        let fields: Vec<&'static str> = [
            ("tenant_id", payment.tenant_id == entry.tenant_id),
            ("currency", payment.currency == entry.currency),
            ("amount", payment.amount == entry.amount),
            // Its way back takes it from there, and what was bought never expires.
            ("pocket", entry.pocket == Pocket::main()),
            // Of a payment that was cancelled no money came.
            ("status", !payment.cancelled),
        ]
        .into_iter()
        .filter_map(|(field, same)| (!same).then_some(field))
        .collect();
        if !fields.is_empty() {
            return Err(Error::Refused(ImportRefusal { index, reference: entry.reference.clone(), fields }));
        }
    }
    Ok(())
}
