//! The journal for hledger.

use std::io;

use super::journal::{Contra, Declared, Fact, JournalEntry, said_of};
use super::text::{hledger_part, hledger_tag_value, hledger_unit, on_one_line};
use super::{Exported, Format, Opening, Row, Selection, Wallet};
use crate::money::Currency;

/// Writes the journal. Accounts and units are declared before they are used, so that `hledger check --strict`
/// has something to hold them against.
#[derive(Debug)]
pub struct Hledger<W: io::Write> {
    out: W,
    declared: Declared,
}

impl<W: io::Write> Hledger<W> {
    /// A journal that goes there. It is written in small pieces: `out` had better be buffered.
    pub fn new(out: W) -> Self {
        Self { out, declared: Declared::default() }
    }

    fn entry(&mut self, wallet: &Wallet, entry: &JournalEntry<'_>) -> io::Result<()> {
        let held =
            format!("liabilities:wallets:{}:{}", hledger_part(wallet.tenant_id.as_str()), hledger_part(entry.pocket));
        let contra = account(entry.contra);
        if self.declared.first_of_wallet(wallet, &held) {
            writeln!(self.out, "\naccount {held}")?;
        }
        if self.declared.first_of_all(&contra) {
            writeln!(self.out, "\naccount {contra}")?;
        }
        writeln!(self.out, "\n{} ({}) {}", entry.day, entry.seq, on_one_line(&entry.description))?;
        for (name, fact) in &entry.facts {
            match fact {
                Fact::Number(number) => writeln!(self.out, "    ; {name}:{number}")?,
                Fact::Text(text) => writeln!(self.out, "    ; {name}:{}", hledger_tag_value(text))?,
            }
        }
        let unit = hledger_unit(wallet.currency.code.as_str());
        let (amount, opposite) = (&entry.amount, entry.opposite());
        let width = held.len().max(contra.len());
        let digits = amount.len().max(opposite.len());
        writeln!(self.out, "    {held:width$}  {opposite:>digits$} {unit}")?;
        writeln!(self.out, "    {contra:width$}  {amount:>digits$} {unit}")
    }
}

/// The other account of a movement.
fn account(contra: Contra<'_>) -> String {
    match contra {
        Contra::Provider(name) => format!("assets:providers:{}", hledger_part(name)),
        Contra::Fees => "income:fees".to_owned(),
        Contra::Bookings => "income:bookings".to_owned(),
        Contra::Refunds => "income:refunds".to_owned(),
        Contra::Adjustments => "equity:adjustments".to_owned(),
        Contra::Other(kind) => format!("equity:other:{}", hledger_part(kind)),
        Contra::Opening => "equity:opening-balances".to_owned(),
    }
}

impl<W: io::Write> Format for Hledger<W> {
    fn begin(&mut self, selection: &Selection, currencies: &[Currency]) -> io::Result<()> {
        writeln!(self.out, "; {}", said_of(selection))?;
        writeln!(self.out, "; A wallet is a liability: its balance stands here with the opposite sign.")?;
        writeln!(self.out, "\ndecimal-mark .\n")?;
        for currency in currencies {
            let digits = "0".repeat(usize::from(currency.exponent.digits()));
            writeln!(self.out, "commodity 1000.{digits} {}", hledger_unit(currency.code.as_str()))?;
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
