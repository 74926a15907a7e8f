//! Ids that the merchant has never seen: -31003 from every method that takes one.

use std::sync::Arc;

use super::payment::new_id;
use super::suite::{Check, Suite, check};

const CHECKS: &[Check] = &[
    check("PerformTransaction", "§3", "PerformTransaction of an unknown id is answered with -31003"),
    check("CancelTransaction", "§3", "CancelTransaction of an unknown id is answered with -31003"),
    check("CheckTransaction", "§3", "CheckTransaction of an unknown id is answered with -31003"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let client = Arc::clone(&suite.client);
    let id = new_id();
    let mut group = suite.group("", CHECKS);
    let perform = client.perform(&id).await;
    group.expect_error("PerformTransaction", &perform, -31_003);
    let cancel = client.cancel(&id, 3).await;
    group.expect_error("CancelTransaction", &cancel, -31_003);
    let check = client.check(&id).await;
    group.expect_error("CheckTransaction", &check, -31_003);
    group.close_after_failure();
}
