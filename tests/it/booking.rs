//! Slots and who has them: made without overlap, shown when free, sold through two kinds of providers, and given up
//! with their money going where the policy says.

mod cancel;
mod payme;
mod slots;
