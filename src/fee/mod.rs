//! Monthly fees: on the tenant's own first of the month, exactly once, whatever dies.
//!
//! A subscription owes one due a local month. A due is *decided* under the wallet's lock: paid by exactly one
//! `subscription_fee` row, or overdue, together with its event. The key (subscription, month) makes a second
//! decision impossible, so a run may be killed, repeated, run twice at once or late.
//!
//! A run ([`run()`]) takes no input but the clock: it looks for months that are owed and not decided. A credit
//! pays what is overdue, oldest first, in its own transaction ([`pay_overdue`], called by the funding room).

mod credit;
mod owed;
mod plan;
mod reminder;
mod run;
mod status;
mod store;

pub use credit::{overdue_of, pay_overdue};
pub use owed::{FirstMonth, Owed, REFERENCE_PREFIX};
pub use plan::{
    FeeRefusal, NewSubscription, Plan, Subscription, cancel, change_price, check_start, create_plan, list_plans,
    list_subscriptions, subscribe,
};
pub use reminder::{ReminderPolicy, remind};
pub use run::{RunLimits, RunOptions, RunRefusal, RunReport, Running, run};
pub use status::{FeeRun, find_run, list_runs};
pub use store::UnpaidDue;
