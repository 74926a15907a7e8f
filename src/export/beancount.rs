//! The journal for beancount.

use std::io;

use super::journal::{Contra, Declared, Fact, JournalEntry, said_of};
use super::text::{beancount_name, beancount_part, beancount_string, beancount_unit};
use super::{Exported, Format, Opening, Row, Selection, Wallet};
use crate::money::Currency;

/// The day on which everything is opened: before any row, whatever the order of the wallets. An account stands
/// in the file where it is first used.
const OPENED_ON: &str = "1970-01-01";

/// Writes the journal.
#[derive(Debug)]
pub struct Beancount<W: io::Write> {
    out: W,
    declared: Declared,
}

impl<W: io::Write> Beancount<W> {
    /// A journal that goes there. It is written in small pieces: `out` had better be buffered.
    pub fn new(out: W) -> Self {
        Self { out, declared: Declared::default() }
    }

    fn entry(&mut self, wallet: &Wallet, entry: &JournalEntry<'_>) -> io::Result<()> {
        let held = format!(
            "Liabilities:Wallets:{}:{}",
            beancount_part("T-", wallet.tenant_id.as_str()),
            beancount_name(entry.pocket)
        );
        let contra = account(entry.contra);
        if self.declared.first_of_wallet(wallet, &held) {
            writeln!(self.out, "\n{OPENED_ON} open {held}")?;
        }
        if self.declared.first_of_all(&contra) {
            writeln!(self.out, "\n{OPENED_ON} open {contra}")?;
        }
        writeln!(self.out, "\n{} * {}", entry.day, beancount_string(&entry.description))?;
        writeln!(self.out, "  seq: {}", entry.seq)?;
        for (name, fact) in &entry.facts {
            match fact {
                Fact::Number(number) => writeln!(self.out, "  {name}: {number}")?,
                Fact::Text(text) => writeln!(self.out, "  {name}: {}", beancount_string(text))?,
            }
        }
        let unit = beancount_unit(wallet.currency.code.as_str());
        let (amount, opposite) = (&entry.amount, entry.opposite());
        let width = held.len().max(contra.len());
        let digits = amount.len().max(opposite.len());
        writeln!(self.out, "  {held:width$}  {opposite:>digits$} {unit}")?;
        writeln!(self.out, "  {contra:width$}  {amount:>digits$} {unit}")
    }
}

/// The other account of a movement.
fn account(contra: Contra<'_>) -> String {
    match contra {
        Contra::Provider(name) => format!("Assets:Providers:{}", beancount_name(name)),
        Contra::Fees => "Income:Fees".to_owned(),
        Contra::Bookings => "Income:Bookings".to_owned(),
        Contra::Refunds => "Income:Refunds".to_owned(),
        Contra::Adjustments => "Equity:Adjustments".to_owned(),
        Contra::Other(kind) => format!("Equity:Other:{}", beancount_name(kind)),
        Contra::Opening => "Equity:Opening-Balances".to_owned(),
    }
}

impl<W: io::Write> Format for Beancount<W> {
    fn begin(&mut self, selection: &Selection, currencies: &[Currency]) -> io::Result<()> {
        writeln!(self.out, "; {}", said_of(selection))?;
        writeln!(self.out, "; A wallet is a liability: its balance stands here with the opposite sign.\n")?;
        for currency in currencies {
            let code = currency.code.as_str();
            let unit = beancount_unit(code);
            writeln!(self.out, "{OPENED_ON} commodity {unit}")?;
            if unit != code {
                writeln!(self.out, "  unit: {}", beancount_string(code))?;
            }
        }
        Ok(())
    }

    fn opening(&mut self, wallet: &Wallet, opening: &Opening) -> io::Result<()> {
        self.entry(wallet, &JournalEntry::of_opening(wallet, opening))
    }

    fn row(&mut self, wallet: &Wallet, row: &Row) -> io::Result<()> {
        self.entry(wallet, &JournalEntry::of_row(wallet, row))
    }

    fn end(&mut self, exported: &Exported) -> io::Result<()> {
        let Exported { wallets, openings, rows } = exported;
        writeln!(self.out, "\n; The end: {wallets} wallets, {openings} openings, {rows} rows.")?;
        self.out.flush()
    }
}
