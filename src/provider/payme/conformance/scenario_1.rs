//! Scenario 1: a payment is created, repeated, disturbed and cancelled before any money moves.
//!
//! Everything is sent twice, as the sandbox does: Payme repeats a call whenever an answer was late, and a merchant that
//! answers the repeat with a new time or an error leaves the two sides with different books.

use std::time::Duration;

use serde_json::json;

use super::expect::{self, Mismatch};
use super::payment::Payment;
use super::snapshot::{self, Snapshot};
use super::suite::{Check, Group, Kind, Suite, Target, check};

const CHECKS: &[Check] = &[
    check("check-perform", "§5 scenario 1", "CheckPerformTransaction allows the payment"),
    check("check-perform-traceless", "§3", "and allows it again: it has no side effects"),
    check("create", "§5 scenario 1", "CreateTransaction creates"),
    check("create-again", "§5 scenario 1", "the same CreateTransaction gets the identical answer"),
    check("check-transaction-created", "§5 scenario 1", "CheckTransaction: state 1, times 0, reason null"),
    check("second-id-refused", "§5 scenario 1", "another id on the same order is refused"),
    check("second-id-message", "§2", "and the payer can read why: ru, uz and en"),
    check("check-perform-busy", "§3", "CheckPerformTransaction refuses the order while it is held"),
    check("second-id-created", "§5 further", "a second open id on the same wallet is created"),
    check("second-id-independent", "§4", "and cancelling it leaves the first one alone"),
    check("same-id-other-amount", "§3", "the same id with another amount is answered with -31008"),
    check("same-id-other-account", "§3", "the same id with another account is answered with -31008"),
    check("same-id-unchanged", "§3", "and nothing of the stored transaction has changed"),
    check("cancel-without-reason", "§3", "CancelTransaction without a reason is answered with -32600"),
    check("cancel", "§5 scenario 1", "CancelTransaction cancels: state -1"),
    check("cancel-again", "§5 scenario 1", "the same CancelTransaction gets the identical answer"),
    check("cancel-other-reason", "§3", "with another reason it gets the stored answer, too"),
    check(
        "check-transaction-cancelled",
        "§5 scenario 1",
        "CheckTransaction: state -1, perform_time 0, the first reason",
    ),
    check("perform-cancelled", "§5 further", "PerformTransaction of the cancelled one is answered with -31008"),
    check("create-cancelled", "§5 further", "CreateTransaction with the cancelled id is answered with -31008"),
    check("freed", "§4", "the order can be paid again after the cancel"),
];

const ONE_TIME_ONLY: &[&str] = &["second-id-refused", "second-id-message", "check-perform-busy", "freed"];
const ACCUMULATIVE_ONLY: &[&str] = &["second-id-created", "second-id-independent"];

pub async fn run(suite: &mut Suite<'_>) {
    for kind in Kind::ALL {
        let target = suite.take(kind);
        let mut group = suite.group(kind.id(), CHECKS).without(match kind {
            Kind::Accumulative => ONE_TIME_ONLY,
            Kind::OneTime => ACCUMULATIVE_ONLY,
        });
        match target {
            Some(target) => {
                walk(&mut group, &target).await;
                group.close_after_failure();
            }
            None => group.close(kind.missing(), Some(kind.hint())),
        }
    }
}

async fn walk(group: &mut Group<'_, '_>, target: &Target) -> Option<()> {
    let client = group.client();
    for step in ["check-perform", "check-perform-traceless"] {
        let allowed = client.check_perform(&target.account, target.amount).await;
        group.record(step, &[&allowed], expect::allowed(&allowed));
    }
    let payment = Payment::new(&target.account, target.amount);
    let created = create_twice(group, &payment).await?;
    match target.kind {
        Kind::OneTime => second_payer(group, target).await,
        Kind::Accumulative => second_open_id(group, target, &payment, &created).await,
    }

    let other = Payment { amount: target.amount.saturating_add(1), ..payment.clone() };
    let refused = client.create(&other).await;
    group.expect_error("same-id-other-amount", &refused, -31_008);
    let other = Payment { account: target.account.unknown(), ..payment.clone() };
    let refused_account = client.create(&other).await;
    group.expect_error("same-id-other-account", &refused_account, -31_008);
    let after = client.check(&payment.id).await;
    group.record("same-id-unchanged", &[&refused, &refused_account, &after], created.verify(&after));

    let refused = client.rpc("CancelTransaction", json!({"id": payment.id})).await;
    group.expect_error("cancel-without-reason", &refused, -32_600);

    let cancel = client.cancel(&payment.id, 3).await;
    let cancelled = group.keep("cancel", &[&cancel], snapshot::cancelled(&cancel, &created, 3))?;
    let again = client.cancel(&payment.id, 3).await;
    group.record("cancel-again", &[&cancel, &again], expect::identical([&*cancel, &*again]));
    let again = client.cancel(&payment.id, 5).await;
    group.record("cancel-other-reason", &[&cancel, &again], expect::identical([&*cancel, &*again]));
    let check = client.check(&payment.id).await;
    group.record("check-transaction-cancelled", &[&check], cancelled.verify(&check));

    let refused = client.perform(&payment.id).await;
    group.expect_error("perform-cancelled", &refused, -31_008);
    let refused = client.create(&payment).await;
    group.expect_error("create-cancelled", &refused, -31_008);
    if target.kind == Kind::OneTime {
        let allowed = client.check_perform(&target.account, target.amount).await;
        group.record("freed", &[&allowed], expect::allowed(&allowed));
    }
    Some(())
}

/// The beginning that both scenarios share: Create, the same Create, `CheckTransaction`.
pub async fn create_twice(group: &mut Group<'_, '_>, payment: &Payment) -> Option<Snapshot> {
    let client = group.client();
    let create = client.create(payment).await;
    let created = group.keep("create", &[&create], snapshot::created(&create))?;
    // A pause longer than a millisecond, so that a merchant which answers with its clock instead of its store is caught.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = client.create(payment).await;
    group.record("create-again", &[&create, &again], expect::identical([&*create, &*again]));
    let check = client.check(&payment.id).await;
    group.record("check-transaction-created", &[&create, &check], created.verify(&check));
    Some(created)
}

/// Another payer on an order that is held.
async fn second_payer(group: &mut Group<'_, '_>, target: &Target) {
    let client = group.client();
    let busy_code = group.busy_code();
    let second = Payment::new(&target.account, target.amount);
    let refused = client.create(&second).await;
    group.record("second-id-refused", &[&refused], expect::busy(&refused, busy_code));
    group.record("second-id-message", &[&refused], expect::localized_message(&refused));
    client.undo_if_created(&refused, &second.id).await;
    let refused = client.check_perform(&target.account, target.amount).await;
    group.record("check-perform-busy", &[&refused], expect::busy(&refused, busy_code));
}

/// Another payment into a wallet while the first one is open.
async fn second_open_id(group: &mut Group<'_, '_>, target: &Target, first: &Payment, created: &Snapshot) {
    let client = group.client();
    let second = Payment::new(&target.account, target.amount);
    let create = client.create(&second).await;
    let distinct = snapshot::created(&create).and_then(|second| {
        if second.transaction == created.transaction {
            let got = format!("transaction {:?} for both", second.transaction);
            return Err(Mismatch::new("another transaction than the first id's", got));
        }
        Ok(second)
    });
    if group.keep("second-id-created", &[&create], distinct).is_some() {
        let cancel = client.cancel(&second.id, 3).await;
        let check = client.check(&first.id).await;
        group.record("second-id-independent", &[&cancel, &check], created.verify(&check));
    }
}
