//! Equal calls at the same time, and two payers for one order.
//!
//! The sandbox sends its repeats one after the other; production does not. A merchant that looks first and writes later
//! passes there and still credits twice, or sells one order to two people.

use std::sync::Arc;

use futures::future::{join, join_all};

use super::client::Exchange;
use super::expect::{self, Mismatch, Verdict};
use super::payment::Payment;
use super::snapshot;
use super::suite::{Check, Group, Kind, Suite, Target, check};

const AT_ONCE: usize = 16;

const BURST: &[Check] = &[
    check("create", "§3", "16 identical CreateTransactions at once get identical answers"),
    check("perform", "§3", "16 identical PerformTransactions at once get identical answers"),
    check("check-performed", "§3", "CheckTransaction agrees with them"),
    check("cancel", "§3", "16 identical CancelTransactions at once get identical answers"),
    check("check-cancelled", "§3", "CheckTransaction agrees with them"),
];

const RACE: &[Check] = &[
    check("one-wins", "§3", "of two different ids on one order at once, exactly one is created"),
    check("other-refused", "§4", "and the other one is refused as busy"),
    check("loser-unknown", "§3", "and does not exist afterwards"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let target = suite.take(Kind::OneTime);
    let mut group = suite.group("race", RACE);
    match target {
        Some(target) => {
            race(&mut group, &target).await;
            group.close_after_failure();
        }
        None => group.close(Kind::OneTime.missing(), Some(Kind::OneTime.hint())),
    }
    for kind in Kind::ALL {
        let target = suite.take(kind);
        let mut group = suite.group(kind.id(), BURST);
        match target {
            Some(target) => {
                burst(&mut group, &target).await;
                group.close_after_failure();
            }
            None => group.close(kind.missing(), Some(kind.hint())),
        }
    }
}

async fn burst(group: &mut Group<'_, '_>, target: &Target) -> Option<()> {
    let client = group.client();
    let payment = Payment::new(&target.account, target.amount);
    let answers = join_all((0..AT_ONCE).map(|_| client.create(&payment))).await;
    let created = record_equal(group, "create", &answers, snapshot::created)?;

    let answers = join_all((0..AT_ONCE).map(|_| client.perform(&payment.id))).await;
    let performed = record_equal(group, "perform", &answers, |first| snapshot::performed(first, &created))?;
    let check = client.check(&payment.id).await;
    group.record("check-performed", &[&check], performed.verify(&check));

    let answers = join_all((0..AT_ONCE).map(|_| client.cancel(&payment.id, 5))).await;
    let cancelled = record_equal(group, "cancel", &answers, |first| snapshot::cancelled(first, &performed, 5))?;
    let check = client.check(&payment.id).await;
    group.record("check-cancelled", &[&check], cancelled.verify(&check));
    Some(())
}

/// Records whether all answers are equal; the value of the first one is kept even where they are not, since the next
/// checks can still be made and the payment still has to be cleaned up.
fn record_equal<T>(
    group: &mut Group<'_, '_>,
    step: &'static str,
    answers: &[Arc<Exchange>],
    read: impl Fn(&Exchange) -> Result<T, Mismatch>,
) -> Option<T> {
    let equal: Verdict = expect::identical(answers.iter().map(|answer| &**answer));
    let (verdict, kept) = match answers.iter().find_map(|answer| read(answer).ok()) {
        Some(value) => (equal, Some(value)),
        None => (equal.and_then(|()| answers.first().map_or(Ok(()), |first| read(first).map(|_| ()))), None),
    };
    // The two that differ come first, so that a shortened report shows them.
    let first = answers.first();
    let odd = answers.iter().find(|answer| first.is_some_and(|first| !same(first, answer)));
    let evidence: Vec<&Arc<Exchange>> = first.into_iter().chain(odd).collect();
    group.record(step, &evidence, verdict);
    kept
}

fn same(one: &Exchange, other: &Exchange) -> bool {
    expect::identical([one, other]).is_ok()
}

async fn race(group: &mut Group<'_, '_>, target: &Target) {
    let client = group.client();
    let one = Payment::new(&target.account, target.amount);
    let other = Payment::new(&target.account, target.amount);
    let (first, second) = join(client.create(&one), client.create(&other)).await;
    let outcomes = [&first, &second].map(|answer| snapshot::created(answer).is_ok());
    let (loser, refused) = match outcomes {
        [true, false] => (&other, &second),
        [false, true] => (&one, &first),
        [both, _] => {
            let got = if both { "both created".to_owned() } else { expect::describe(&first) };
            let verdict = Err(Mismatch::new("one created, one refused", got));
            group.record("one-wins", &[&first, &second], verdict);
            clean_up(group, [&one, &other]).await;
            return;
        }
    };
    group.record("one-wins", &[&first, &second], Ok(()));
    let busy_code = group.busy_code();
    group.record("other-refused", &[refused], expect::busy(refused, busy_code));
    let check = client.check(&loser.id).await;
    group.record("loser-unknown", &[refused, &check], expect::error(&check, -31_003));
    clean_up(group, [&one, &other]).await;
}

/// Frees the order: it belongs to somebody, who wants to use it for the next run.
async fn clean_up(group: &Group<'_, '_>, payments: [&Payment; 2]) {
    let client = group.client();
    for payment in payments {
        client.cancel(&payment.id, 3).await;
    }
}
