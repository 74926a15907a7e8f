//! The ledger: one append-only table of signed rows, and one door through which rows get in.
//!
//! [`post()`] is that door. It locks the wallets in the order of their ids, *then* reads them in a second
//! statement (a statement that waits for a lock still sees the world from before the wait), decides in memory
//! with [`balance::decide`], and writes everything once. Nothing is written before everything is known to
//! succeed, so a refusal can name the entry that caused it and there is nothing to undo. One entry is a batch
//! of one.
//!
//! A balance is the SUM of a wallet's rows. A checkpoint may shorten the sum; dropping every checkpoint
//! changes no answer. Rows form a hash chain per wallet, and the wallet remembers the chain's head, so
//! [`verify`] finds an edit, a gap, a reordering and a cut tail.

pub mod balance;
pub mod chain;
mod currencies;
mod entry;
mod error;
mod kind;
mod original;
mod post;
mod statement;
mod store;
pub mod verify;

pub use balance::{Division, PocketRule, Promised, Shortage, WalletState};
pub use currencies::{Currencies, CurrencyRefusal, add_currency};
pub use entry::{Entry, Floor, Metadata, MetadataError, PostedRow};
pub use error::Refusal;
pub use kind::{CustomKind, Direction, Kind};
pub use original::{
    CASE_TRANSFER, COVER_TRANSFER, Original, REFUND_TASK_TRANSFER, TRANSFERS, can_be_refunded, is_transfer,
};
pub use post::{
    LockedWallet, LockedWallets, divide, find, given_back, lock_wallet, lock_wallets, open_wallet, post,
    post_in_locked, post_or_leave_out, rehearse,
};
pub use statement::{Balance, StatementPage, StatementQuery, balance, row, statement};
