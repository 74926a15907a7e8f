//! Settings: flags, each with an environment variable. A secret can come from a file (`…_FILE`).
//!
//! A wrong setting stops the start with a sentence that says which one and why.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use ipnet::IpNet;
use nix::sys::resource::{Resource, getrlimit};
use secrecy::SecretString;

use crate::app::{AppSettings, PaymeLinks};
use crate::db::{PoolSettings, Server, embedded};
use crate::fault::Fault;
use crate::fee::{ReminderPolicy, RunLimits};
use crate::hold;
use crate::ids::InvalidName;
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use crate::outbox::DelivererSettings;
use crate::provider::payme::auth::Keys;
use crate::provider::payme::{FiscalItem, PaymeSettings};
use crate::provider::telegram::{AnswerBy, Bot, TelegramSettings};
use crate::support::{Limit, Limits};
use crate::tenant::TimeZone;

/// Files that stay free for what isn't a connection to us or to the database (the program's own, deliveries to
/// webhook endpoints), at least; of a larger limit a quarter.
const OTHER_FILES: u64 = 100;

/// Connections that there may be even if the limit of open files leaves none.
const CONNECTIONS_MIN: u64 = 16;

/// An IANA name.
fn parse_time_zone(name: &str) -> Result<TimeZone, InvalidName> {
    TimeZone::parse(name)
}

/// Which database.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Database")]
pub struct DatabaseArgs {
    /// A PostgreSQL server, 15 or newer. Without it, Hamyon runs a private one under the data directory
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true)]
    pub database_url: Option<SecretString>,
    /// A file that holds the database URL
    #[arg(long, env = "DATABASE_URL_FILE", global = true, conflicts_with = "database_url")]
    pub database_url_file: Option<PathBuf>,
    /// The same database as a user who may create roles, for migrations [default: the database URL]
    #[arg(long, env = "HAMYON_DATABASE_OWNER_URL", hide_env_values = true, global = true)]
    pub database_owner_url: Option<SecretString>,
    /// A file that holds the owner's URL
    #[arg(long, env = "HAMYON_DATABASE_OWNER_URL_FILE", global = true, conflicts_with = "database_owner_url")]
    pub database_owner_url_file: Option<PathBuf>,
    /// Most connections of this process
    #[arg(long, env = "HAMYON_DATABASE_CONNECTIONS", default_value_t = 20, global = true,
          value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub database_connections: u32,
    /// Where the private server keeps its files [default: /var/lib/hamyon for root, else $XDG_DATA_HOME/hamyon or
    /// ~/.local/share/hamyon]
    #[arg(long, env = "HAMYON_DATA_DIR", global = true)]
    pub data_dir: Option<PathBuf>,
    /// The folder of PostgreSQL's programs, for the private server [default: looked for]
    #[arg(long, env = "HAMYON_POSTGRES_BIN", global = true)]
    pub postgres_bin: Option<PathBuf>,
}

impl DatabaseArgs {
    /// Reaches the server, starting the private one when there is no URL, and making it when there is none. For
    /// `serve` and `migrate` only: everybody else asks about a database that is there.
    ///
    /// # Errors
    /// When the URL can't be read or the server doesn't start.
    pub async fn server_or_new(&self) -> anyhow::Result<Server> {
        self.reach(|options| options).await
    }

    async fn reach(&self, private: impl FnOnce(embedded::Options) -> embedded::Options) -> anyhow::Result<Server> {
        let url = secret("DATABASE_URL", self.database_url.as_ref(), self.database_url_file.as_ref())?;
        if let Some(url) = url {
            let owner_url = secret(
                "HAMYON_DATABASE_OWNER_URL",
                self.database_owner_url.as_ref(),
                self.database_owner_url_file.as_ref(),
            )?;
            return Ok(Server::given(&url, owner_url.as_ref())?);
        }
        let data_dir = match &self.data_dir {
            Some(data_dir) => data_dir.clone(),
            None => embedded::default_data_dir()?,
        };
        let options = embedded::Options::new(data_dir).postgres_bin(self.postgres_bin.clone());
        Ok(Server::private(private(options)).await?)
    }

    /// Reaches a server that is there with its schema up to date: the private one is migrated, a given one must be.
    ///
    /// # Errors
    /// When the URL can't be read, the data directory holds no database, or the server doesn't start.
    pub async fn migrated_server(&self) -> anyhow::Result<Server> {
        let server = self.reach(embedded::Options::only_existing).await?;
        if server.is_private()
            && let Err(fault) = server.migrate().await
        {
            server.stop().await?;
            return Err(fault.into());
        }
        Ok(server)
    }

    /// The same for a command at a terminal or in a timer, which has nobody waiting for an answer and rather
    /// waits than fails.
    #[must_use]
    pub fn patient_pool(&self) -> PoolSettings {
        PoolSettings { acquire_timeout: Duration::from_mins(1), ..self.pool() }
    }

    /// How many connections, and how long anything may wait.
    #[must_use]
    pub fn pool(&self) -> PoolSettings {
        PoolSettings { connections_max: self.database_connections, ..PoolSettings::default() }
    }
}

/// How the service listens and whom it serves.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Fill an empty database with demonstration data and print where to look
    #[arg(long)]
    pub demo: bool,
    /// Whether this process runs the scheduled jobs
    #[arg(long, env = "HAMYON_JOBS", default_value = "on", value_parser = ["on", "off"])]
    pub jobs: String,
    /// The address to listen on
    #[arg(long, env = "HAMYON_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Most connections at once; more wait. Lowered to what the limit of open files leaves
    #[arg(long, env = "HAMYON_CONNECTIONS_MAX", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,
    /// A first API token with every scope; others are made by `hamyon token create`
    #[arg(long, env = "HAMYON_API_TOKEN", hide_env_values = true)]
    pub api_token: Option<SecretString>,
    /// A file that holds the first API token
    #[arg(long, env = "HAMYON_API_TOKEN_FILE", conflicts_with = "api_token")]
    pub api_token_file: Option<PathBuf>,
    /// Proxies in front of us whose X-Forwarded-For is believed (addresses or networks, by comma)
    #[arg(long, env = "HAMYON_TRUSTED_PROXIES", value_delimiter = ',', value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,
    /// The zone of tenants and resources that are made without one, an IANA name
    #[arg(long, env = "HAMYON_TIME_ZONE", default_value = "Asia/Tashkent", value_parser = parse_time_zone)]
    pub time_zone: TimeZone,
    /// The Payme cashbox.
    #[command(flatten)]
    pub payme: PaymeArgs,
    /// The bots.
    #[command(flatten)]
    pub telegram: TelegramArgs,
    /// Fees and what is told about them.
    #[command(flatten)]
    pub fees: FeeArgs,
    /// Holds.
    #[command(flatten)]
    pub holds: HoldArgs,
    /// The support desk.
    #[command(flatten)]
    pub support: SupportArgs,
    /// Whether webhook endpoints may have private addresses
    #[arg(long, env = "HAMYON_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,
}

/// The Payme cashbox.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Payme")]
pub struct PaymeArgs {
    /// The cashbox's production key; unset, nobody gets in with it
    #[arg(long, env = "HAMYON_PAYME_KEY", hide_env_values = true)]
    pub payme_key: Option<SecretString>,
    /// A file that holds the production key
    #[arg(long, env = "HAMYON_PAYME_KEY_FILE", conflicts_with = "payme_key")]
    pub payme_key_file: Option<PathBuf>,
    /// The cashbox's test key; what it pays never becomes money
    #[arg(long, env = "HAMYON_PAYME_TEST_KEY", hide_env_values = true)]
    pub payme_test_key: Option<SecretString>,
    /// A file that holds the test key
    #[arg(long, env = "HAMYON_PAYME_TEST_KEY_FILE", conflicts_with = "payme_test_key")]
    pub payme_test_key_file: Option<PathBuf>,
    /// The login Payme's calls come with
    #[arg(long, env = "HAMYON_PAYME_LOGIN", default_value = "Paycom")]
    pub payme_login: String,
    /// The account's field that names a tenant
    #[arg(long, env = "HAMYON_PAYME_ACCOUNT_FIELD", default_value = "tenant_id")]
    pub payme_account_field: String,
    /// The account's field that names an order
    #[arg(long, env = "HAMYON_PAYME_ORDER_FIELD", default_value = "order_id")]
    pub payme_order_field: String,
    /// The error code for an order that another payment holds
    #[arg(long, env = "HAMYON_PAYME_BUSY_CODE", default_value_t = -31_099, allow_negative_numbers = true)]
    pub payme_busy_code: i32,
    /// Where Payme may call from (addresses or networks, by comma); anywhere when unset
    #[arg(long, env = "HAMYON_PAYME_ADDRESSES", value_delimiter = ',', value_parser = network)]
    pub payme_addresses: Vec<IpNet>,
    /// The cashbox's id, for payment links
    #[arg(long, env = "HAMYON_PAYME_MERCHANT_ID")]
    pub payme_merchant_id: Option<String>,
    /// Where payment links lead
    #[arg(long, env = "HAMYON_PAYME_CHECKOUT_URL", default_value = "https://checkout.paycom.uz")]
    pub payme_checkout_url: String,
    /// The least a wallet takes in one payment, in so'm
    #[arg(long, env = "HAMYON_TOPUP_MIN", default_value = "1000")]
    pub topup_min: String,
    /// The most a wallet takes in one payment, in so'm
    #[arg(long, env = "HAMYON_TOPUP_MAX", default_value = "100000000")]
    pub topup_max: String,
    /// What the tax receipt of a payment says is sold; unset, no receipt is asked for
    #[arg(long, env = "HAMYON_PAYME_FISCAL_TITLE", requires_all = ["payme_fiscal_code", "payme_fiscal_package_code"])]
    pub payme_fiscal_title: Option<String>,
    /// Its IKPU (MXIK) code, 17 digits
    #[arg(long, env = "HAMYON_PAYME_FISCAL_CODE", requires = "payme_fiscal_title")]
    pub payme_fiscal_code: Option<String>,
    /// Its package code
    #[arg(long, env = "HAMYON_PAYME_FISCAL_PACKAGE_CODE", requires = "payme_fiscal_title")]
    pub payme_fiscal_package_code: Option<String>,
    /// Its VAT in whole per cent
    #[arg(long, env = "HAMYON_PAYME_FISCAL_VAT_PERCENT", default_value_t = 12, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub payme_fiscal_vat_percent: u8,
}

/// The bots whose payments in Telegram Stars we take.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Telegram")]
pub struct TelegramArgs {
    /// The token of the bot, or of several by comma; unset, every call of the webhook is refused
    #[arg(long, env = "HAMYON_TELEGRAM_TOKEN", hide_env_values = true)]
    pub telegram_token: Option<SecretString>,
    /// A file that holds the token, or several, one a line
    #[arg(long, env = "HAMYON_TELEGRAM_TOKEN_FILE", conflicts_with = "telegram_token")]
    pub telegram_token_file: Option<PathBuf>,
    /// What Telegram's calls come with (setWebhook's secret_token), one for each bot, in the order of the tokens
    #[arg(long, env = "HAMYON_TELEGRAM_WEBHOOK_SECRET", hide_env_values = true)]
    pub telegram_webhook_secret: Option<SecretString>,
    /// A file that holds the secret, or several, one a line
    #[arg(long, env = "HAMYON_TELEGRAM_WEBHOOK_SECRET_FILE", conflicts_with = "telegram_webhook_secret")]
    pub telegram_webhook_secret_file: Option<PathBuf>,
    /// Where the Bot API is
    #[arg(long, env = "HAMYON_TELEGRAM_API_URL", default_value = "https://api.telegram.org")]
    pub telegram_api_url: String,
    /// How a pre-checkout query is answered: in our answer to the webhook, or by a call of the Bot API
    #[arg(long, env = "HAMYON_TELEGRAM_ANSWER_BY", default_value = "response")]
    pub telegram_answer_by: AnswerBy,
    /// Seconds for which a yes to a payer holds the slot
    #[arg(long, env = "HAMYON_SLOT_HOLD_SECS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub slot_hold_secs: u32,
}

/// Fees.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Fees")]
pub struct FeeArgs {
    /// Months of one subscription that a run may charge at once without a person saying yes
    #[arg(long, env = "HAMYON_FEES_MONTHS_MAX", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=120))]
    pub fees_months_max: u32,
    /// Per cent of a run's dues that may turn out overdue without a person saying yes
    #[arg(long, env = "HAMYON_FEES_OVERDUE_PERCENT_MAX", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub fees_overdue_percent_max: u8,
    /// Days after which a tenant is reminded of an unpaid fee; day 0 is the run itself
    #[arg(long, env = "HAMYON_REMINDER_DAYS", value_delimiter = ',', default_value = "0,3,7",
          value_parser = clap::value_parser!(u16).range(0..=365))]
    pub reminder_days: Vec<u16>,
    /// Days after which access should be suspended for an unpaid fee
    #[arg(long, env = "HAMYON_SUSPEND_AFTER_DAYS", default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=365))]
    pub suspend_after_days: u16,
}

/// Holds for work.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Holds")]
pub struct HoldArgs {
    /// The longest a job may legally run, in seconds
    #[arg(long, env = "HAMYON_HOLD_RUN_MAX_SECS", default_value_t = 300, value_parser = clap::value_parser!(i32).range(1..=86_400))]
    pub hold_run_max_secs: i32,
    /// How long a hold lives when nobody comes back, in seconds; at least three times the longest run [default: three times]
    #[arg(long, env = "HAMYON_HOLD_TTL_SECS", value_parser = clap::value_parser!(i32).range(1..=604_800))]
    pub hold_ttl_secs: Option<i32>,
    /// How long two jobs with one fingerprint are the same, in seconds
    #[arg(long, env = "HAMYON_HOLD_DUPLICATE_SECS", default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=3_600))]
    pub hold_duplicate_secs: i32,
}

impl HoldArgs {
    /// How holds are kept. A reconciler that came during a legal run would free what the run is paid from, so a time
    /// that leaves no room for it is refused.
    fn terms(&self) -> anyhow::Result<hold::Terms> {
        let least = self.hold_run_max_secs.saturating_mul(3);
        let ttl_secs = self.hold_ttl_secs.unwrap_or(least);
        if ttl_secs < least {
            bail!(
                "HAMYON_HOLD_TTL_SECS is {ttl_secs}, and must be at least {least}: three times HAMYON_HOLD_RUN_MAX_SECS \
                 ({})",
                self.hold_run_max_secs
            );
        }
        Ok(hold::Terms { ttl_secs, duplicate_secs: self.hold_duplicate_secs, ..hold::Terms::default() })
    }
}

/// The support desk.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Support")]
pub struct SupportArgs {
    /// How much an agent, or a program with a token, may refund and adjust alone per wallet and day, as UZS=500000,XTR=100
    #[arg(long, env = "HAMYON_SUPPORT_LIMIT_AGENT", default_value = "UZS=500000")]
    pub support_limit_agent: String,
    /// How much an approver or admin may refund and adjust alone per wallet and day
    #[arg(long, env = "HAMYON_SUPPORT_LIMIT_APPROVER", default_value = "UZS=5000000")]
    pub support_limit_approver: String,
    /// Hours after which a request that nobody decided about is over
    #[arg(long, env = "HAMYON_SUPPORT_REQUEST_HOURS", default_value_t = 168, value_parser = clap::value_parser!(u16).range(1..=8_760))]
    pub support_request_hours: u16,
    /// Browsers reach the console by https, through a proxy in front of us: its cookies go nowhere else
    #[arg(long, env = "HAMYON_CONSOLE_HTTPS")]
    pub console_https: bool,
}

impl SupportArgs {
    fn limits(&self) -> anyhow::Result<Limits> {
        let limit = |name: &str, text: &str| Limit::parse(text).with_context(|| format!("{name}: {text:?}"));
        Ok(Limits {
            agent: limit("HAMYON_SUPPORT_LIMIT_AGENT", &self.support_limit_agent)?,
            approver: limit("HAMYON_SUPPORT_LIMIT_APPROVER", &self.support_limit_approver)?,
            request_hours: self.support_request_hours,
        })
    }
}

impl FeeArgs {
    /// How much a run may do without a person saying yes.
    #[must_use]
    pub const fn limits(&self) -> RunLimits {
        RunLimits { months_max: self.fees_months_max, overdue_percent_max: self.fees_overdue_percent_max }
    }
}

impl ServeArgs {
    /// The settings, checked.
    ///
    /// # Errors
    /// The first setting that is wrong, and why.
    pub fn app_settings(&self) -> anyhow::Result<AppSettings> {
        use secrecy::ExposeSecret as _;
        let payme = &self.payme;
        let uzs = Currency { code: CurrencyCode::uzs(), exponent: Exponent::parse(2)? };
        let bound = |name: &str, text: &str| {
            let amount = MinorUnits::parse(text, &uzs).with_context(|| format!("{name}: {text:?} is not an amount"))?;
            if amount.is_positive() { Ok(amount) } else { bail!("{name} must be positive, and is {text}") }
        };
        let top_up_min = bound("HAMYON_TOPUP_MIN", &payme.topup_min)?;
        let top_up_max = bound("HAMYON_TOPUP_MAX", &payme.topup_max)?;
        if top_up_min > top_up_max {
            bail!("HAMYON_TOPUP_MIN ({}) is above HAMYON_TOPUP_MAX ({})", payme.topup_min, payme.topup_max);
        }
        for (name, text) in [
            ("HAMYON_PAYME_LOGIN", Some(&payme.payme_login)),
            ("HAMYON_PAYME_ACCOUNT_FIELD", Some(&payme.payme_account_field)),
            ("HAMYON_PAYME_ORDER_FIELD", Some(&payme.payme_order_field)),
            ("HAMYON_PAYME_MERCHANT_ID", payme.payme_merchant_id.as_ref()),
        ] {
            if text.is_some_and(|text| text.trim().is_empty()) {
                bail!("{name} is set and empty; leave it unset or give it a value");
            }
        }
        if payme.payme_login.contains(':') {
            bail!("HAMYON_PAYME_LOGIN can't hold a colon, which ends the login in a call's Authorization");
        }
        let checkout = reqwest::Url::parse(&payme.payme_checkout_url).ok();
        if !checkout.is_some_and(|url| matches!(url.scheme(), "https" | "http") && url.has_host()) {
            bail!(
                "HAMYON_PAYME_CHECKOUT_URL must be an address such as https://checkout.paycom.uz, and is {:?}",
                payme.payme_checkout_url
            );
        }
        if payme.payme_account_field == payme.payme_order_field {
            bail!("HAMYON_PAYME_ACCOUNT_FIELD and HAMYON_PAYME_ORDER_FIELD are both {}", payme.payme_order_field);
        }
        if !(-31_099..=-31_050).contains(&payme.payme_busy_code) && payme.payme_busy_code != -31_008 {
            bail!("HAMYON_PAYME_BUSY_CODE must be -31099 to -31050, or -31008, and is {}", payme.payme_busy_code);
        }
        let live = secret("HAMYON_PAYME_KEY", payme.payme_key.as_ref(), payme.payme_key_file.as_ref())?;
        let test = secret("HAMYON_PAYME_TEST_KEY", payme.payme_test_key.as_ref(), payme.payme_test_key_file.as_ref())?;
        if let (Some(live), Some(test)) = (&live, &test)
            && live.expose_secret() == test.expose_secret()
        {
            // A test payment would be taken for money, or money for a test.
            bail!("HAMYON_PAYME_KEY and HAMYON_PAYME_TEST_KEY are the same; the cashbox has two different keys");
        }
        Ok(AppSettings {
            payme: PaymeSettings {
                keys: Keys { login: payme.payme_login.clone(), live, test },
                tenant_field: payme.payme_account_field.clone(),
                order_field: payme.payme_order_field.clone(),
                busy_code: payme.payme_busy_code,
                top_up_min,
                top_up_max,
                fiscal_item: payme.fiscal_item()?,
            },
            payme_links: payme.payme_merchant_id.as_ref().map(|merchant_id| PaymeLinks {
                merchant_id: merchant_id.clone(),
                base_url: payme.payme_checkout_url.clone(),
            }),
            payme_addresses: payme.payme_addresses.clone(),
            telegram: self.telegram.settings()?,
            trusted_proxies: self.trusted_proxies.clone(),
            time_zone: self.time_zone,
            fee_limits: self.fees.limits(),
            reminders: ReminderPolicy {
                days: self.fees.reminder_days.clone(),
                suspend_after_days: self.fees.suspend_after_days,
            },
            console_https: self.support.console_https,
            support_limits: Arc::new(self.support.limits()?),
            holds: self.holds.terms()?,
            webhooks: DelivererSettings { allow_private: self.webhook_allow_private, ..DelivererSettings::default() },
        })
    }

    /// How many connections there may be at once: as many as set, and no more than there are files for.
    ///
    /// # Errors
    /// When the system doesn't say how many files we may open.
    pub fn connections_max(&self, database: &DatabaseArgs) -> anyhow::Result<usize> {
        let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files can't be read")?;
        let kept = OTHER_FILES.max(files >> 2).saturating_add(u64::from(database.database_connections));
        let left = files.saturating_sub(kept).max(CONNECTIONS_MIN);
        let set = u64::from(self.connections_max);
        if left < set {
            tracing::info!(
                connections = left,
                "at most {left} connections at once, not {set}: only {files} files may be open (RLIMIT_NOFILE, \
                 LimitNOFILE, ulimit -n)"
            );
        }
        Ok(usize::try_from(left.min(set))?)
    }

    /// The first API token, if one is set.
    ///
    /// # Errors
    /// When its file can't be read or it is too short to be a secret.
    pub fn first_token(&self) -> anyhow::Result<Option<SecretString>> {
        use secrecy::ExposeSecret as _;
        let token = secret("HAMYON_API_TOKEN", self.api_token.as_ref(), self.api_token_file.as_ref())?;
        if let Some(token) = &token
            && token.expose_secret().len() < 20
        {
            bail!("HAMYON_API_TOKEN must have at least 20 characters; `openssl rand -base64 32` makes a good one");
        }
        Ok(token)
    }
}

impl TelegramArgs {
    fn settings(&self) -> anyhow::Result<TelegramSettings> {
        use secrecy::ExposeSecret as _;
        let token = secret("HAMYON_TELEGRAM_TOKEN", self.telegram_token.as_ref(), self.telegram_token_file.as_ref())?;
        let webhook_secret = secret(
            "HAMYON_TELEGRAM_WEBHOOK_SECRET",
            self.telegram_webhook_secret.as_ref(),
            self.telegram_webhook_secret_file.as_ref(),
        )?;
        let each = |several: &Option<SecretString>| -> Vec<String> {
            let text = several.as_ref().map_or("", |several| several.expose_secret());
            text.split([',', '\n']).map(str::trim).filter(|one| !one.is_empty()).map(ToOwned::to_owned).collect()
        };
        let (tokens, secrets) = (each(&token), each(&webhook_secret));
        if tokens.len() != secrets.len() {
            bail!(
                "HAMYON_TELEGRAM_TOKEN has {} tokens and HAMYON_TELEGRAM_WEBHOOK_SECRET {} secrets; each bot needs one \
                 of both",
                tokens.len(),
                secrets.len()
            );
        }
        let bots = tokens
            .iter()
            .zip(&secrets)
            .map(|(token, secret)| Bot::parse(token, secret))
            .collect::<Result<Vec<_>, _>>()
            .context("HAMYON_TELEGRAM_TOKEN and HAMYON_TELEGRAM_WEBHOOK_SECRET")?;
        for (index, bot) in bots.iter().enumerate() {
            let others = bots.iter().skip(index.saturating_add(1));
            if others.clone().any(|other| other.bot_id == bot.bot_id) {
                bail!("HAMYON_TELEGRAM_TOKEN names bot {} twice", bot.bot_id);
            }
            let secret = bot.webhook_secret.expose_secret();
            if others.clone().any(|other| other.webhook_secret.expose_secret() == secret) {
                // The secret is what tells whose call it is.
                bail!("HAMYON_TELEGRAM_WEBHOOK_SECRET has the same secret for two bots; each needs its own");
            }
        }
        let url = reqwest::Url::parse(&self.telegram_api_url).ok();
        if !url.is_some_and(|url| matches!(url.scheme(), "https" | "http") && url.has_host()) {
            bail!(
                "HAMYON_TELEGRAM_API_URL must be an address such as https://api.telegram.org, and is {:?}",
                self.telegram_api_url
            );
        }
        Ok(TelegramSettings {
            bots,
            api_url: self.telegram_api_url.clone(),
            answer_by: self.telegram_answer_by,
            hold_for: chrono::TimeDelta::seconds(i64::from(self.slot_hold_secs)),
            ..TelegramSettings::default()
        })
    }
}

impl PaymeArgs {
    fn fiscal_item(&self) -> anyhow::Result<Option<FiscalItem>> {
        let (Some(title), Some(code), Some(package_code)) =
            (&self.payme_fiscal_title, &self.payme_fiscal_code, &self.payme_fiscal_package_code)
        else {
            return Ok(None);
        };
        if code.len() != 17 || !code.bytes().all(|byte| byte.is_ascii_digit()) {
            bail!("HAMYON_PAYME_FISCAL_CODE must have 17 digits, and is {code:?}");
        }
        Ok(Some(FiscalItem {
            title: title.clone(),
            code: code.clone(),
            package_code: package_code.clone(),
            vat_percent: self.payme_fiscal_vat_percent,
        }))
    }
}

/// A secret from its setting or from its file, without the white space around it. An empty one is a mistake.
fn secret(name: &str, value: Option<&SecretString>, file: Option<&PathBuf>) -> anyhow::Result<Option<SecretString>> {
    use secrecy::ExposeSecret as _;
    let text = match (value, file) {
        (Some(value), _) => value.expose_secret().to_owned(),
        (None, Some(file)) => {
            std::fs::read_to_string(file).with_context(|| format!("{name}_FILE: {} can't be read", file.display()))?
        }
        (None, None) => return Ok(None),
    };
    let text = text.trim();
    if text.is_empty() {
        bail!("{name} is set and empty; leave it unset or give it a value");
    }
    Ok(Some(SecretString::from(text)))
}

/// An address or a network.
fn network(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is neither an address nor a network such as 185.234.113.0/28"))
}

/// Joins the outcome of a command with leaving the server, so that neither error hides the other.
///
/// # Errors
/// The command's error, or else the server's.
pub async fn leave<T>(server: Server, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
    let stopped: Result<(), Fault> = server.stop().await;
    match (outcome, stopped) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(fault)) => Err(fault.into()),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(fault)) => {
            tracing::error!("{}", fault.chain());
            Err(error)
        }
    }
}
