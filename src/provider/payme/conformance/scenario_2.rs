//! Scenario 2: a payment is created, performed and given back.
//!
//! Between Perform and Cancel the order is paid, which is the only moment to see that a paid order refuses the next payer.

use std::time::Duration;

use super::expect;
use super::payment::Payment;
use super::scenario_1::create_twice;
use super::snapshot;
use super::suite::{Check, Group, Kind, Suite, Target, check};

const CHECKS: &[Check] = &[
    check("check-perform", "§5 scenario 2", "CheckPerformTransaction allows the payment"),
    check("create", "§5 scenario 2", "CreateTransaction creates"),
    check("create-again", "§5 scenario 2", "the same CreateTransaction gets the identical answer"),
    check("check-transaction-created", "§5 scenario 2", "CheckTransaction: state 1, times 0, reason null"),
    check("perform", "§5 scenario 2", "PerformTransaction performs: state 2"),
    check("perform-again", "§5 scenario 2", "the same PerformTransaction gets the identical answer"),
    check("check-transaction-performed", "§5 scenario 2", "CheckTransaction: state 2, cancel_time 0, reason null"),
    check("create-performed", "§5 further", "CreateTransaction with the performed id is answered with -31008"),
    check("paid-check", "§5 further", "CheckPerformTransaction refuses the paid order in the account range"),
    check("paid-create", "§5 further", "CreateTransaction refuses the paid order in the account range"),
    check("paid-message", "§2", "and the payer can read why: ru, uz and en"),
    check("cancel", "§5 scenario 2", "CancelTransaction gives back: state -2"),
    check("cancel-again", "§5 scenario 2", "the same CancelTransaction gets the identical answer"),
    check("cancel-other-reason", "§3", "with another reason it gets the stored answer, too"),
    check(
        "check-transaction-refunded",
        "§5 scenario 2",
        "CheckTransaction: state -2, perform_time kept, the first reason",
    ),
    check("perform-refunded", "§3", "PerformTransaction of the refunded one is answered with -31008"),
    check("create-refunded", "§5 further", "CreateTransaction with the refunded id is answered with -31008"),
];

const ONE_TIME_ONLY: &[&str] = &["paid-check", "paid-create", "paid-message"];

pub async fn run(suite: &mut Suite<'_>) {
    for kind in Kind::ALL {
        let target = suite.take(kind);
        let mut group = suite.group(kind.id(), CHECKS);
        if kind == Kind::Accumulative {
            group = group.without(ONE_TIME_ONLY);
        }
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
    let allowed = client.check_perform(&target.account, target.amount).await;
    group.record("check-perform", &[&allowed], expect::allowed(&allowed));
    let payment = Payment::new(&target.account, target.amount);
    let created = create_twice(group, &payment).await?;

    let perform = client.perform(&payment.id).await;
    let performed = group.keep("perform", &[&perform], snapshot::performed(&perform, &created))?;
    // Longer than a millisecond: see `create_twice`.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = client.perform(&payment.id).await;
    group.record("perform-again", &[&perform, &again], expect::identical([&*perform, &*again]));
    let check = client.check(&payment.id).await;
    group.record("check-transaction-performed", &[&check], performed.verify(&check));
    let refused = client.create(&payment).await;
    group.expect_error("create-performed", &refused, -31_008);

    if target.kind == Kind::OneTime {
        let refused = client.check_perform(&target.account, target.amount).await;
        group.record("paid-check", &[&refused], expect::account_error(&refused));
        let second = Payment::new(&target.account, target.amount);
        let refused = client.create(&second).await;
        group.record("paid-create", &[&refused], expect::account_error(&refused));
        group.record("paid-message", &[&refused], expect::localized_message(&refused));
        client.undo_if_created(&refused, &second.id).await;
    }

    let cancel = client.cancel(&payment.id, 5).await;
    let refunded = group.keep("cancel", &[&cancel], snapshot::cancelled(&cancel, &performed, 5))?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = client.cancel(&payment.id, 5).await;
    group.record("cancel-again", &[&cancel, &again], expect::identical([&*cancel, &*again]));
    let again = client.cancel(&payment.id, 3).await;
    group.record("cancel-other-reason", &[&cancel, &again], expect::identical([&*cancel, &*again]));
    let check = client.check(&payment.id).await;
    group.record("check-transaction-refunded", &[&check], refunded.verify(&check));

    let refused = client.perform(&payment.id).await;
    group.expect_error("perform-refunded", &refused, -31_008);
    let refused = client.create(&payment).await;
    group.expect_error("create-refunded", &refused, -31_008);
    Some(())
}
