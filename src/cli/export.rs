//! `hamyon export`

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chrono::NaiveDate;
use indicatif::ProgressBar;

use crate::config::{self, DatabaseArgs};
use crate::db::{Database, Server};
use crate::export::{self, Beancount, Csv, Exported, Format, Hledger, Selection};
use crate::fault::Error;
use crate::ids::{InvalidName, TenantId};

/// Which part of the book, and in what form.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The form
    #[arg(long, value_enum)]
    format: FormatName,
    /// The first day, in each tenant's time zone; what came before is one opening balance for each pocket
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    from: Option<NaiveDate>,
    /// The last day, in each tenant's time zone
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    to: Option<NaiveDate>,
    /// Only this tenant's wallets
    #[arg(long, value_name = "ID", value_parser = |text: &str| TenantId::parse(text))]
    tenant: Option<TenantId>,
    /// Write to this file, which appears when it is complete [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormatName {
    /// A table (RFC 4180)
    Csv,
    /// A journal for hledger
    Hledger,
    /// A journal for beancount
    Beancount,
}

impl FormatName {
    fn to(self, out: Box<dyn Write>) -> Box<dyn Format> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        match self {
            Self::Csv => Box::new(Csv::new(out)),
            Self::Hledger => Box::new(Hledger::new(out)),
            Self::Beancount => Box::new(Beancount::new(out)),
        }
    }
}

const BUFFER_BYTES: usize = 64 * 1024;

/// Four digits, two and two: a date in another shape is rather refused than guessed at.
fn day(text: &str) -> Result<NaiveDate, InvalidName> {
    let shape = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    let day = if shape { NaiveDate::parse_from_str(text, "%Y-%m-%d").ok() } else { None };
    day.ok_or(InvalidName { what: "the day", rule: "must be a date such as 2026-12-31" })
}

pub async fn run(database: &DatabaseArgs, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = export_from(&server, database, args).await;
    config::leave(server, outcome).await
}

async fn export_from(server: &Server, database: &DatabaseArgs, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let db = server.connect(database.patient_pool().for_long_reads()).await?;
    let exported = match &args.output {
        Some(path) => {
            let output = Output::open(path).with_context(|| format!("{} can't be written", path.display()))?;
            let exported = write(&db, args, Box::new(output.writer()?)).await;
            match exported {
                Ok(exported) => {
                    output.finish().with_context(|| format!("{} can't be written", path.display()))?;
                    exported
                }
                Err(error) => {
                    output.give_up();
                    return Err(error);
                }
            }
        }
        None => write(&db, args, Box::new(io::stdout())).await?,
    };
    db.close().await;
    // With the book itself on standard output, standard error is left to what goes wrong.
    if args.output.is_some() {
        eprintln!("{} wallets, {} openings, {} rows", exported.wallets, exported.openings, exported.rows);
    }
    Ok(ExitCode::SUCCESS)
}

async fn write(db: &Database, args: &ExportArgs, out: Box<dyn Write>) -> anyhow::Result<Exported> {
    let selection = Selection { from: args.from, to: args.to, tenant_id: args.tenant.clone() };
    // Rows that run over the same terminal show the progress themselves.
    let seen = io::stderr().is_terminal() && (args.output.is_some() || !io::stdout().is_terminal());
    let bar = if seen { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut format = args.format.to(out);
    let exported = export::export(db, &selection, &mut *format, |rows| {
        bar.set_message(format!("{rows} rows"));
        bar.tick();
    })
    .await;
    bar.finish_and_clear();
    exported.map_err(|error| match error {
        Error::Refused(refusal) => refusal.into(),
        Error::Fault(fault) => fault.into(),
    })
}

/// A file that is there in full or not at all: half a book looks like a whole one.
struct Output {
    file: File,
    /// Where it grows and where it goes then; none for what isn't a file, such as /dev/null or a named pipe.
    rename: Option<(PathBuf, PathBuf)>,
}

impl Output {
    fn open(path: &Path) -> io::Result<Self> {
        let target = match fs::metadata(path) {
            Ok(there) if there.is_file() => fs::canonicalize(path)?,
            Ok(_) => return Ok(Self { file: File::options().write(true).open(path)?, rename: None }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let mut growing = OsString::from(&target);
        growing.push(format!(".{}.part", std::process::id()));
        let growing = PathBuf::from(growing);
        let file = File::options().write(true).create_new(true).open(&growing)?;
        Ok(Self { file, rename: Some((growing, target)) })
    }

    fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn finish(self) -> io::Result<()> {
        let done = match &self.rename {
            Some((growing, target)) => self.file.sync_all().and_then(|()| fs::rename(growing, target)),
            None => Ok(()),
        };
        if done.is_err() {
            self.give_up();
        }
        done
    }

    /// Takes the half away. A killed process leaves it, under a name that says so.
    fn give_up(self) {
        if let Some((growing, _)) = &self.rename
            && let Err(error) = fs::remove_file(growing)
        {
            tracing::warn!("{} is left: {error}", growing.display());
        }
    }
}
