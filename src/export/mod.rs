//! The book for other programs: a table for spreadsheets, a journal for hledger, a journal for beancount.
//!
//! One read-only snapshot, wallets in the order of their tenants, rows in the order of their numbers. Both are
//! read in pages by key, so memory doesn't grow with the book. What comes out is decided by the rows alone:
//! no checkpoint and no head is believed, and the same snapshot gives the same bytes.
//!
//! A day is a day where the tenant lives, in every format: a row of 23:30 UTC on 31 March is in a Tashkent
//! tenant's April.
//!
//! The formats are pure: they get movements and write text. Texts came from outside and may hold anything, so
//! each format has its own way to keep them from being read as something else ([`text`]).

mod beancount;
mod csv;
mod hledger;
mod journal;
mod store;
pub mod text;

use std::io;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::PgConnection;

pub use self::beancount::Beancount;
pub use self::csv::Csv;
pub use self::hledger::Hledger;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::ids::TenantId;
use crate::ledger::Kind;
use crate::money::{Currency, MinorUnits, day_begins_at, local_day};
use crate::tenant::{self, TimeZone};

/// Wallets that are read at once.
const WALLETS_PER_PAGE: i64 = 1_000;

/// Rows that are read at once.
const ROWS_PER_PAGE: i64 = 2_000;

/// Which part of the book.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The first day, in each tenant's zone. What came before is folded into one opening for each pocket.
    pub from: Option<NaiveDate>,
    /// The last day, in each tenant's zone.
    pub to: Option<NaiveDate>,
    /// Only this tenant's wallets.
    pub tenant_id: Option<TenantId>,
}

/// A wallet whose movements follow.
#[derive(Debug, Clone)]
pub struct Wallet {
    /// Its number.
    pub wallet_id: i64,
    /// Whose.
    pub tenant_id: TenantId,
    /// In which unit.
    pub currency: Currency,
    /// Where the tenant's days begin.
    pub time_zone: TimeZone,
}

/// A row of a wallet. The texts stand as they are stored, whatever rules they ought to keep: an odd one must
/// not keep the rest of the book from being exported.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its number in the wallet.
    pub seq: i64,
    /// What happened.
    pub kind: Kind,
    /// Positive is a credit.
    pub amount: MinorUnits,
    /// Which part of the wallet.
    pub pocket: String,
    /// What is booked.
    pub reference: String,
    /// The row that this one gives back.
    pub original_seq: Option<i64>,
    /// What that row was.
    pub original_kind: Option<Kind>,
    /// Why.
    pub reason: Option<String>,
    /// Who.
    pub actor: String,
    /// When.
    pub recorded_at: DateTime<Utc>,
    /// What the wallet held after it.
    pub balance_after: MinorUnits,
}

/// What a pocket held when the first exported day began.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The part of the wallet.
    pub pocket: String,
    /// What it held, never zero.
    pub amount: MinorUnits,
    /// The first exported day.
    pub day: NaiveDate,
    /// The instant at which it began.
    pub at: DateTime<Utc>,
    /// What the wallet held, counting the openings before this one.
    pub balance_after: MinorUnits,
}

/// How much was exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    /// Wallets with an opening or a row.
    pub wallets: u64,
    /// Openings.
    pub openings: u64,
    /// Rows.
    pub rows: u64,
}

/// Why there is nothing to export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportRefusal {
    /// There is no such tenant.
    #[error("there is no tenant {0}")]
    UnknownTenant(TenantId),
    /// The days are the wrong way round.
    #[error("the last day, {to}, is before the first, {from}")]
    DaysReversed {
        /// The first day.
        from: NaiveDate,
        /// The last day.
        to: NaiveDate,
    },
}

/// A way to write the book down. All movements of a tenant come together, wallet by wallet.
pub trait Format {
    /// What stands before everything.
    ///
    /// # Errors
    /// When it can't be written.
    fn begin(&mut self, selection: &Selection, currencies: &[Currency]) -> io::Result<()>;

    /// What a pocket held before the first exported day.
    ///
    /// # Errors
    /// When it can't be written.
    fn opening(&mut self, wallet: &Wallet, opening: &Opening) -> io::Result<()>;

    /// A row.
    ///
    /// # Errors
    /// When it can't be written.
    fn row(&mut self, wallet: &Wallet, row: &Row) -> io::Result<()>;

    /// What stands behind everything; then all of it is handed on to where it goes.
    ///
    /// # Errors
    /// When it can't be written.
    fn end(&mut self, exported: &Exported) -> io::Result<()>;
}

/// Writes the selected part of the book as one snapshot has it. `progress` hears the number of rows so far.
///
/// # Errors
/// [`ExportRefusal`]; a fault of reading, or of writing when the receiver is gone. What was written until then
/// is only a part.
pub async fn export(
    db: &Database,
    selection: &Selection,
    format: &mut dyn Format,
    progress: impl FnMut(u64),
) -> Result<Exported, Error<ExportRefusal>> {
    if let (Some(from), Some(to)) = (selection.from, selection.to)
        && to < from
    {
        return Err(Error::Refused(ExportRefusal::DaysReversed { from, to }));
    }
    let mut snapshot = store::snapshot(db).await?;
    if let Some(tenant_id) = &selection.tenant_id
        && tenant::find(&mut snapshot, tenant_id).await?.is_none()
    {
        return Err(Error::Refused(ExportRefusal::UnknownTenant(tenant_id.clone())));
    }
    let mut pass = Pass { selection, format, progress, exported: Exported::default() };
    pass.run(&mut snapshot).await?;
    snapshot.rollback().await?;
    Ok(pass.exported)
}

/// A wallet as it was found, with the number of rows it says it has. That number is a hint for how many wallets
/// to read at once, and nothing more.
struct Found {
    wallet: Wallet,
    rows_about: i64,
}

/// How far a wallet is written.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    seq: i64,
    balance: MinorUnits,
    /// Whether it has come to the first row after the last exported day.
    ended: bool,
}

struct Pass<'a, P> {
    selection: &'a Selection,
    format: &'a mut dyn Format,
    progress: P,
    exported: Exported,
}

impl<P: FnMut(u64)> Pass<'_, P> {
    async fn run(&mut self, conn: &mut PgConnection) -> Result<(), Fault> {
        let currencies = store::currencies(conn).await?;
        self.format.begin(self.selection, &currencies).map_err(not_written)?;
        let mut last: Option<(TenantId, String)> = None;
        loop {
            let page = store::wallets(conn, self.selection.tenant_id.as_ref(), last.as_ref(), WALLETS_PER_PAGE).await?;
            let Some(found) = page.last() else { break };
            last = Some((found.wallet.tenant_id.clone(), found.wallet.currency.code.to_string()));
            let mut rest = &page[..];
            while !rest.is_empty() {
                let (batch, later) = rest.split_at(batch_len(rest));
                self.batch(conn, batch).await?;
                rest = later;
            }
        }
        self.format.end(&self.exported).map_err(not_written)?;
        (self.progress)(self.exported.rows);
        Ok(())
    }

    /// Wallets that are read together: one with many rows, or many with few.
    async fn batch(&mut self, conn: &mut PgConnection, batch: &[Found]) -> Result<(), Fault> {
        let wallet_ids: Vec<i64> = batch.iter().map(|found| found.wallet.wallet_id).collect();
        let mut openings = self.openings(conn, &wallet_ids, batch).await?.into_iter().peekable();
        let mut standings = vec![Standing::default(); batch.len()];
        let mut pockets = Vec::with_capacity(batch.len());
        for (index, standing) in standings.iter_mut().enumerate() {
            let mut of_wallet = Vec::new();
            while let Some(folded) = openings.next_if(|folded| folded.wallet_index == index) {
                standing.seq = standing.seq.max(folded.last_seq);
                of_wallet.push((folded.pocket, folded.amount));
            }
            pockets.push(of_wallet);
        }
        let seqs: Vec<i64> = standings.iter().map(|standing| standing.seq).collect();
        let mut rows = store::rows(conn, &wallet_ids, &seqs, ROWS_PER_PAGE).await?.into_iter().peekable();
        for (index, ((found, standing), pockets)) in batch.iter().zip(&mut standings).zip(pockets).enumerate() {
            let before = self.exported;
            let wallet = &found.wallet;
            self.open(wallet, standing, pockets)?;
            let mut taken: i64 = 0;
            while let Some((_, row)) = rows.next_if(|(of, _)| *of == index) {
                taken = taken.saturating_add(1);
                self.row(wallet, standing, row)?;
            }
            // A page that is full may not be the last one.
            while taken == ROWS_PER_PAGE && !standing.ended {
                let page = store::rows(conn, &[wallet.wallet_id], &[standing.seq], ROWS_PER_PAGE).await?;
                taken = i64::try_from(page.len()).unwrap_or(i64::MAX);
                for (_, row) in page {
                    self.row(wallet, standing, row)?;
                }
            }
            if (self.exported.rows, self.exported.openings) != (before.rows, before.openings) {
                self.exported.wallets = self.exported.wallets.saturating_add(1);
            }
        }
        Ok(())
    }

    /// What is folded of the wallets, sorted by wallet and pocket.
    async fn openings(
        &self,
        conn: &mut PgConnection,
        wallet_ids: &[i64],
        batch: &[Found],
    ) -> Result<Vec<store::Folded>, Fault> {
        let Some(from) = self.selection.from else { return Ok(Vec::new()) };
        let begins: Vec<DateTime<Utc>> =
            batch.iter().map(|found| day_begins_at(from, found.wallet.time_zone.zone())).collect();
        store::fold(conn, wallet_ids, &begins).await
    }

    fn open(
        &mut self,
        wallet: &Wallet,
        standing: &mut Standing,
        pockets: Vec<(String, MinorUnits)>,
    ) -> Result<(), Fault> {
        let Some(day) = self.selection.from else { return Ok(()) };
        for (pocket, amount) in pockets {
            if amount.is_zero() {
                continue;
            }
            standing.balance = MinorUnits::sum([standing.balance, amount])?;
            let at = day_begins_at(day, wallet.time_zone.zone());
            let opening = Opening { pocket, amount, day, at, balance_after: standing.balance };
            self.format.opening(wallet, &opening).map_err(not_written)?;
            self.exported.openings = self.exported.openings.saturating_add(1);
        }
        Ok(())
    }

    /// Time never runs backwards in a wallet, so nothing follows a row behind the last day.
    fn row(&mut self, wallet: &Wallet, standing: &mut Standing, mut row: Row) -> Result<(), Fault> {
        let after = self.selection.to.is_some_and(|to| wallet.day_of(row.recorded_at) > to);
        standing.ended = standing.ended || after;
        if standing.ended {
            return Ok(());
        }
        standing.seq = row.seq;
        standing.balance = MinorUnits::sum([standing.balance, row.amount])?;
        row.balance_after = standing.balance;
        self.format.row(wallet, &row).map_err(not_written)?;
        self.exported.rows = self.exported.rows.saturating_add(1);
        if self.exported.rows.is_multiple_of(10_000) {
            (self.progress)(self.exported.rows);
        }
        Ok(())
    }
}

impl Wallet {
    /// The day it is at an instant where the tenant lives.
    #[must_use]
    pub fn day_of(&self, at: DateTime<Utc>) -> NaiveDate {
        local_day(at, self.time_zone.zone())
    }
}

/// How many of the wallets fit into one page of rows; at least one.
fn batch_len(wallets: &[Found]) -> usize {
    let mut rows: i64 = 0;
    let fitting = wallets.iter().take_while(|found| {
        rows = rows.saturating_add(found.rows_about);
        rows <= ROWS_PER_PAGE
    });
    fitting.count().max(1)
}

fn not_written(error: io::Error) -> Fault {
    Fault::new("the export can't be written").because(error)
}
