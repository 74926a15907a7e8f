//! What support wants to know: where something is, how it came about, how a month went. It only reads, and every
//! answer takes a bounded number of rows however long a wallet is.

mod explain;
mod hold;
pub mod order;
mod overview;
mod search;
mod store;
mod wallet;

pub use explain::{Story, explain};
pub use hold::{HOLD_CALLS_MAX, HoldStory, explain_hold};
pub use overview::{KindSum, MonthSums, months};
pub use search::{Hits, OrderHit, RowHit, Search, TenantHit, search};
pub use store::{CallLine, ChargeLine, DueLine, EventLine, OverdueSum, PaymentLine, UsageLine};
pub use wallet::{
    HISTORY_POINTS, Point, calls_of_payment, dues_of, find_payment, history, overdue_sums, payments_of, refused_calls,
    seqs_before, wallets_of,
};
