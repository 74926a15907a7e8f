//! Accounts that do not exist: an error of the account range, with a message for the payer and the field's name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Exchange;
use super::expect::{self, Verdict};
use super::payment::{Account, Payment};
use super::suite::{Check, Group, Kind, Suite, Target, check};

const UNKNOWN: &[Check] = &[
    check("check.code", "§5 scenario 1", "CheckPerformTransaction: an error of the account range"),
    check("check.message", "§2", "CheckPerformTransaction: the message in ru, uz and en"),
    check("check.data", "§2", "CheckPerformTransaction: data names the field"),
    check("create.code", "§5 scenario 1", "CreateTransaction: an error of the account range"),
    check("create.message", "§2", "CreateTransaction: the message in ru, uz and en"),
    check("create.data", "§2", "CreateTransaction: data names the field"),
    check("create.nothing-created", "§3", "the refused transaction does not exist afterwards"),
    check("before-amount", "§3", "the account is checked before the amount"),
];

const KNOWN: &[Check] = &[
    check("missing", "§2", "an empty account is an error of the account range"),
    check("number", "§3", "the account's value may arrive as a number"),
];

pub async fn run(suite: &mut Suite<'_>) {
    for kind in Kind::ALL {
        let target = suite.look_at(kind);
        let stranger = match (&suite.options.unknown_account, &target) {
            (Some(unknown), Some(target)) if unknown.field == target.account.field => Some(unknown.clone()),
            // Without any account at all the flag alone is enough; it is then checked as an accumulative one.
            (Some(unknown), None) if kind == Kind::Accumulative => Some(unknown.clone()),
            (_, Some(target)) => Some(target.account.unknown()),
            (_, None) => None,
        };
        let amount = target.as_ref().map_or(suite.options.amount, |target| target.amount);
        let mut group = suite.group(&format!("unknown.{}", kind.id()), UNKNOWN);
        match stranger {
            Some(stranger) => {
                unknown(&mut group, &stranger, amount).await;
                group.close_after_failure();
            }
            None => group.close(kind.missing(), Some(kind.hint())),
        }
        let mut group = suite.group(kind.id(), KNOWN);
        match target {
            Some(target) => {
                known(&mut group, &target).await;
                group.close_after_failure();
            }
            None => group.close(kind.missing(), Some(kind.hint())),
        }
    }
}

async fn unknown(group: &mut Group<'_, '_>, stranger: &Account, amount: i64) {
    let client = group.client();
    let refused = client.check_perform(stranger, amount).await;
    record_refusal(group, ["check.code", "check.message", "check.data"], &refused, stranger);

    let payment = Payment::new(stranger, amount);
    let refused = client.create(&payment).await;
    record_refusal(group, ["create.code", "create.message", "create.data"], &refused, stranger);
    let check = client.check(&payment.id).await;
    group.record("create.nothing-created", &[&refused, &check], expect::error(&check, -31_003));
    client.undo_if_created(&refused, &payment.id).await;

    let refused = client.check_perform(stranger, 0).await;
    group.record("before-amount", &[&refused], expect::account_error(&refused));
}

fn record_refusal(group: &mut Group<'_, '_>, steps: [&'static str; 3], refused: &Arc<Exchange>, account: &Account) {
    let verdicts: [Verdict; 3] = [
        expect::account_error(refused),
        expect::localized_message(refused),
        expect::error_data(refused, &account.field),
    ];
    for (step, verdict) in steps.into_iter().zip(verdicts) {
        group.record(step, &[refused], verdict);
    }
}

async fn known(group: &mut Group<'_, '_>, target: &Target) {
    let client = group.client();
    let params = json!({"amount": target.amount, "account": {}});
    let refused = client.rpc("CheckPerformTransaction", params).await;
    group.record("missing", &[&refused], expect::account_error(&refused));

    // Only a value that is written the way a JSON number is can arrive as one.
    let number = target.account.value.parse::<u64>().ok().filter(|number| number.to_string() == target.account.value);
    let Some(number) = number else {
        group.skip("number", "the account's value is not a number", None);
        return;
    };
    let account = json!({ &target.account.field: Value::from(number) });
    let params = json!({"amount": target.amount, "account": account});
    let allowed = client.rpc("CheckPerformTransaction", params).await;
    group.record("number", &[&allowed], expect::allowed(&allowed));
}
