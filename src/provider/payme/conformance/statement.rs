//! `GetStatement`, with which Payme reconciles: every transaction of a period, whatever became of it.
//!
//! Two payments are made, the second of which has the *earlier* time: an answer sorted by creation is not good enough. The
//! period is a few milliseconds long, and other people's transactions in it are ignored.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::client::{Client, Exchange};
use super::expect::{self, Mismatch, Verdict};
use super::now_ms;
use super::payment::Payment;
use super::snapshot::{self, Snapshot};
use super::suite::{ANY_ACCOUNT_HINT, Check, Group, NO_ACCOUNT, Suite, Target, check};

const CHECKS: &[Check] = &[
    check("create", "§3", "two transactions are created and cancelled for the statement"),
    check("includes-cancelled", "§5 further", "both are in the statement, though cancelled"),
    check("ascending", "§3", "in ascending order of Payme's time"),
    check("members", "§3", "with Payme's id, time, amount and account as they were first sent"),
    check("states", "§3", "and with the same state, times and reason as CheckTransaction"),
    check("both-ends-inclusive", "§3", "a period that begins and ends with their times holds both"),
    check("from-excludes", "§3", "a period that begins one millisecond later holds only the later one"),
    check("to-excludes", "§3", "a period that ends one millisecond earlier holds only the earlier one"),
    check("empty", "§3", "a period in which nothing happened is an empty list"),
    check("from-after-to", "§3", "from after to is an empty list"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let target = suite.take_any();
    let mut group = suite.group("", CHECKS);
    let Some(target) = target else {
        group.close(NO_ACCOUNT, Some(ANY_ACCOUNT_HINT));
        return;
    };
    walk(&mut group, &target).await;
    group.close_after_failure();
}

async fn walk(group: &mut Group<'_, '_>, target: &Target) -> Option<()> {
    let client = group.client();
    let later_at = now_ms();
    let earlier_at = later_at.saturating_sub(60_000);
    let later = Payment::started_at(&target.account, target.amount, later_at);
    let earlier = Payment::started_at(&target.account, target.amount, earlier_at);
    let mut snapshots = Vec::new();
    for payment in [&later, &earlier] {
        let create = client.create(payment).await;
        // Refused, as scenario 1 checks; here the statement shows whether the stored amount was overwritten all the same.
        let other = Payment { amount: payment.amount.saturating_add(1), ..payment.clone() };
        client.create(&other).await;
        let cancel = client.cancel(&payment.id, 3).await;
        let cancelled = snapshot::created(&create).and_then(|created| snapshot::cancelled(&cancel, &created, 3));
        match cancelled {
            Ok(cancelled) => snapshots.push((payment, cancelled)),
            Err(mismatch) => {
                group.record("create", &[&create, &cancel], Err(mismatch));
                return None;
            }
        }
    }
    group.record("create", &[], Ok(()));

    let (statement, rows) = ask(&client, earlier_at.saturating_sub(1), later_at.saturating_add(1)).await;
    let rows = group.keep(
        "includes-cancelled",
        &[&statement],
        rows.and_then(|rows| holds(&rows, &[&later, &earlier]).map(|()| rows)),
    )?;
    let place = |payment: &Payment| rows.iter().position(|row| row.get("id") == Some(&json!(payment.id)));
    let ascending = if place(&earlier) < place(&later) && is_ascending(&rows) {
        Ok(())
    } else {
        let times: Vec<_> = rows.iter().map(|row| row.get("time").cloned().unwrap_or(Value::Null)).collect();
        Err(Mismatch::new("times in ascending order", format!("times {}", Value::from(times))))
    };
    group.record("ascending", &[&statement], ascending);
    group.record("members", &[&statement], all(&snapshots, &rows, |payment, _, row| sent_members(payment, row)));
    group.record("states", &[&statement], all(&snapshots, &rows, |_, snapshot, row| snapshot.verify_members(row)));

    periods(group, &earlier, &later).await;
    Some(())
}

/// The same two payments, asked for with other ends.
async fn periods(group: &mut Group<'_, '_>, earlier: &Payment, later: &Payment) {
    let client = group.client();
    let (earlier_at, later_at) = (earlier.time, later.time);
    let after_first = earlier_at.saturating_add(1);
    let before_last = later_at.saturating_sub(1);
    let periods: [Period<'_>; 3] = [
        ("both-ends-inclusive", earlier_at, later_at, &[earlier, later], &[]),
        ("from-excludes", after_first, later_at, &[later], &[earlier]),
        ("to-excludes", earlier_at, before_last, &[earlier], &[later]),
    ];
    for (step, from, to, inside, outside) in periods {
        let (statement, rows) = ask(&client, from, to).await;
        let verdict = rows.and_then(|rows| holds(&rows, inside).and_then(|()| lacks(&rows, outside)));
        group.record(step, &[&statement], verdict);
    }
    for (step, from, to) in [("empty", 1, 2), ("from-after-to", later_at, earlier_at)] {
        let (statement, rows) = ask(&client, from, to).await;
        let verdict = rows.and_then(|rows| {
            let got = format!("{} transactions", rows.len());
            if rows.is_empty() { Ok(()) } else { Err(Mismatch::new("transactions []", got)) }
        });
        group.record(step, &[&statement], verdict);
    }
}

type Row = Map<String, Value>;

/// A check's step, from, to, what must be in the answer and what must not.
type Period<'p> = (&'static str, i64, i64, &'p [&'p Payment], &'p [&'p Payment]);

async fn ask(client: &Client, from: i64, to: i64) -> (Arc<Exchange>, Result<Vec<Row>, Mismatch>) {
    let exchange = client.rpc("GetStatement", json!({"from": from, "to": to})).await;
    let expected = "transactions as a list of objects";
    let rows = expect::result(&exchange, expected).and_then(|result| {
        let list = result.get("transactions").and_then(Value::as_array);
        let rows: Option<Vec<Row>> = list.and_then(|list| list.iter().map(|row| row.as_object().cloned()).collect());
        rows.ok_or_else(|| Mismatch::new(expected, expect::describe(&exchange)))
    });
    (exchange, rows)
}

fn find<'a>(rows: &'a [Row], payment: &Payment) -> Option<&'a Row> {
    rows.iter().find(|row| row.get("id") == Some(&json!(payment.id)))
}

fn holds(rows: &[Row], payments: &[&Payment]) -> Verdict {
    match payments.iter().find(|payment| find(rows, payment).is_none()) {
        Some(missing) => Err(Mismatch::new(format!("the transaction {} in the list", missing.id), "not in it")),
        None => Ok(()),
    }
}

fn lacks(rows: &[Row], payments: &[&Payment]) -> Verdict {
    match payments.iter().find(|payment| find(rows, payment).is_some()) {
        Some(present) => {
            Err(Mismatch::new(format!("the transaction {} outside the period", present.id), "in the list"))
        }
        None => Ok(()),
    }
}

fn is_ascending(rows: &[Row]) -> bool {
    let times: Vec<Option<i64>> = rows.iter().map(|row| row.get("time").and_then(Value::as_i64)).collect();
    times.is_sorted()
}

fn all(
    snapshots: &[(&Payment, Snapshot)],
    rows: &[Row],
    verify: impl Fn(&Payment, &Snapshot, &Row) -> Verdict,
) -> Verdict {
    snapshots
        .iter()
        .try_for_each(|(payment, snapshot)| find(rows, payment).map_or(Ok(()), |row| verify(payment, snapshot, row)))
}

fn sent_members(payment: &Payment, row: &Row) -> Verdict {
    let wanted =
        [("time", json!(payment.time)), ("amount", json!(payment.amount)), ("account", payment.account.to_json())];
    for (name, value) in wanted {
        let got = row.get(name).cloned().unwrap_or(Value::Null);
        if got != value {
            return Err(Mismatch::new(format!("{name} {value}"), format!("{name} {got}")));
        }
    }
    Ok(())
}
