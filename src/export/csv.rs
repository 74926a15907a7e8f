//! The table: RFC 4180, one line a row, for spreadsheets and scripts.

use std::io;

use chrono::SecondsFormat;

use super::text::cell;
use super::{Exported, Format, Opening, Row, Selection, Wallet};
use crate::money::Currency;

const COLUMNS: [&str; 13] = [
    "tenant_id",
    "currency",
    "seq",
    "kind",
    "amount",
    "pocket",
    "reference",
    "original_seq",
    "reason",
    "actor",
    "recorded_at",
    "balance_after",
    "date",
];

/// Writes the table. An opening has the number 0, which no row has.
#[derive(Debug)]
pub struct Csv<W: io::Write> {
    out: csv::Writer<W>,
}

impl<W: io::Write> Csv<W> {
    /// A table that goes there.
    pub fn new(out: W) -> Self {
        Self { out: csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out) }
    }
}

impl<W: io::Write> Format for Csv<W> {
    fn begin(&mut self, _: &Selection, _: &[Currency]) -> io::Result<()> {
        self.out.write_record(COLUMNS).map_err(as_io)
    }

    fn opening(&mut self, wallet: &Wallet, opening: &Opening) -> io::Result<()> {
        let exponent = wallet.currency.exponent;
        let record: [&str; COLUMNS.len()] = [
            &cell(wallet.tenant_id.as_str()),
            wallet.currency.code.as_str(),
            "0",
            "opening_balance",
            &opening.amount.to_text(exponent),
            &cell(&opening.pocket),
            "",
            "",
            "",
            "",
            &opening.at.to_rfc3339_opts(SecondsFormat::Micros, true),
            &opening.balance_after.to_text(exponent),
            &opening.day.to_string(),
        ];
        self.out.write_record(record).map_err(as_io)
    }

    fn row(&mut self, wallet: &Wallet, row: &Row) -> io::Result<()> {
        let exponent = wallet.currency.exponent;
        let original_seq = row.original_seq.map(|seq| seq.to_string()).unwrap_or_default();
        let record: [&str; COLUMNS.len()] = [
            &cell(wallet.tenant_id.as_str()),
            wallet.currency.code.as_str(),
            &row.seq.to_string(),
            row.kind.as_str(),
            &row.amount.to_text(exponent),
            &cell(&row.pocket),
            &cell(&row.reference),
            &original_seq,
            &cell(row.reason.as_deref().unwrap_or_default()),
            &cell(&row.actor),
            &row.recorded_at.to_rfc3339_opts(SecondsFormat::Micros, true),
            &row.balance_after.to_text(exponent),
            &wallet.day_of(row.recorded_at).to_string(),
        ];
        self.out.write_record(record).map_err(as_io)
    }

    fn end(&mut self, _: &Exported) -> io::Result<()> {
        self.out.flush()
    }
}

/// The error of the receiver itself, with its kind.
fn as_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
