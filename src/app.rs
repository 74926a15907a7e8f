//! The state that every door shares.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch::Batches;
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::Fault;
use crate::fee::{ReminderPolicy, RunLimits};
use crate::hold;
use crate::ledger::Currencies;
use crate::outbox::{Deliverer, DelivererSettings};
use crate::provider::payme::{Payme, PaymeSettings};
use crate::provider::telegram::{Telegram, TelegramSettings};
use crate::support::Limits;
use crate::tenant::TimeZone;

/// What is set about the service, beyond the database.
#[derive(Debug, Clone)]
pub struct AppSettings {
    /// The Payme cashbox.
    pub payme: PaymeSettings,
    /// Payment links of the Payme cashbox.
    pub payme_links: Option<PaymeLinks>,
    /// Where Payme may call from; empty means anywhere.
    pub payme_addresses: Vec<IpNet>,
    /// The bots whose payments in stars we take.
    pub telegram: TelegramSettings,
    /// Whose word about a forwarded address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where a tenant or a resource is that is made without a zone.
    pub time_zone: TimeZone,
    /// How much a fee run may do without a person saying yes.
    pub fee_limits: RunLimits,
    /// When a tenant hears about an unpaid fee.
    pub reminders: ReminderPolicy,
    /// Whether browsers reach the console by https, so that its cookies go nowhere else.
    pub console_https: bool,
    /// How much somebody at the support desk may move alone.
    pub support_limits: Arc<Limits>,
    /// How holds are kept.
    pub holds: hold::Terms,
    /// How events are delivered.
    pub webhooks: DelivererSettings,
}

/// What a payment link needs.
#[derive(Debug, Clone)]
pub struct PaymeLinks {
    /// The cashbox.
    pub merchant_id: String,
    /// `https://checkout.paycom.uz` or the sandbox's.
    pub base_url: String,
}

/// The state.
#[derive(Debug)]
pub struct App {
    /// The database.
    pub db: Database,
    /// The time.
    pub clock: Clock,
    /// The units of account.
    pub currencies: Currencies,
    /// The Payme door.
    pub payme: Payme,
    /// The Telegram door.
    pub telegram: Telegram,
    /// Settings that handlers read.
    pub settings: AppSettings,
    /// Delivers events.
    pub deliverer: Deliverer,
    /// Books batches of postings.
    pub batches: Batches,
    /// Work that runs to its end whether or not its caller waits.
    pub tasks: TaskTracker,
    /// Cancelled when the service stops: a job that goes on for long ends between two of its steps.
    pub stopping: CancellationToken,
    /// What `/metrics` shows; none when nothing is recorded.
    pub metrics: Option<PrometheusHandle>,
}

impl App {
    /// Puts the state together.
    ///
    /// # Errors
    /// A fault when a provider's door can't be opened.
    pub fn build(
        db: Database,
        clock: Clock,
        settings: AppSettings,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Self, Fault> {
        let tasks = TaskTracker::new();
        Ok(Self {
            batches: Batches::new(db.clone(), clock.clone(), tasks.clone()),
            currencies: Currencies::new(db.clone()),
            deliverer: Deliverer::new(db.clone(), clock.clone(), settings.webhooks)?,
            payme: Payme::new(db.clone(), clock.clone(), settings.payme.clone())?,
            telegram: Telegram::new(db.clone(), clock.clone(), settings.telegram.clone())?,
            db,
            clock,
            settings,
            tasks,
            stopping: CancellationToken::new(),
            metrics,
        })
    }

    /// Runs work to its end, also when the caller hangs up while it runs (L8). A panic in it is a fault.
    ///
    /// # Errors
    /// A fault when the work panicked.
    pub async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        use tracing::Instrument as _;
        self.tasks
            .spawn(work.instrument(tracing::Span::current()))
            .await
            .map_err(|error| Fault::new("the work panicked").because(error))
    }

    /// The address a request comes from: the peer's, or what a trusted proxy says in front of it.
    #[must_use]
    pub fn remote_address(&self, peer: IpAddr, forwarded_for: Option<&str>) -> IpAddr {
        let trusted = |address: &IpAddr| self.settings.trusted_proxies.iter().any(|net| net.contains(address));
        let peer = peer.to_canonical();
        if !trusted(&peer) {
            return peer;
        }
        // Each proxy appends whom it saw, so the last one that isn't ours is the caller.
        forwarded_for
            .into_iter()
            .flat_map(|list| list.rsplit(','))
            .map_while(|address| address.trim().parse::<IpAddr>().ok())
            .map(|address| address.to_canonical())
            .find(|address| !trusted(address))
            .unwrap_or(peer)
    }
}
