//! Slots: a piece of a resource's time that many want and one gets.
//!
//! This room knows who holds a slot and who has booked it, and nothing of money: the payment room asks it, under
//! the lock of the order, and pays or doesn't by the answer.
//!
//! Locks are taken in one order: *order, then payment, then slot, then wallet*. The slot's row is locked by
//! [`lock`]; what is known about it is read in a statement after that (one that waited for the lock still sees the
//! time before its wait), and the time that decides is the database's own, asked for after the lock, too (B2). The
//! decisions themselves are pure functions of [`state`].
//!
//! A hold that is past its time holds nothing, also while nobody has said so; so there is no sweep of holds.

mod error;
mod service;
mod slot;
pub mod state;
mod store;

pub use error::{ResourceRefusal, SlotRefusal, WithdrawRefusal};
pub use service::{
    Booked, Locked, book, cancel, create_resource, create_slots, database_now, end_hold_of_payment, find_booking,
    find_booking_of_order, find_slot, hold_for_checkout, hold_for_payment, is_held_by, list_free, lock, lock_and_read,
    read, refund_until, slot_price, slot_prices, withdraw_slot,
};
pub use slot::{Booking, FreeSlot, FreeSlotQuery, NewSlot, Price, RefundTo, Resource, Slot, WeeklyPattern};
