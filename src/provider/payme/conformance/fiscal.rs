//! `SetFiscalData`: Payme hands over the receipt of a payment and of its refund, and may hand it over again.

use serde_json::{Value, json};

use super::client::Exchange;
use super::expect::{self, Mismatch, Verdict};
use super::payment::{Payment, new_id};
use super::snapshot;
use super::suite::{ANY_ACCOUNT_HINT, Check, Group, NO_ACCOUNT, Suite, Target, check};

const CHECKS: &[Check] = &[
    check("performed", "§3", "a payment is created and performed for the receipt"),
    check("perform-receipt", "§3", "the receipt of the payment is taken: success true"),
    check("perform-receipt-again", "§3", "the same receipt again is success again"),
    check("cancel-receipt", "§3", "the receipt of the refund is taken: success true"),
    check("unknown-id", "§3", "the receipt of an unknown payment is answered with -32001"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let target = suite.take_any();
    let mut group = suite.group("", CHECKS);
    let client = group.client();
    let unknown = client.rpc("SetFiscalData", receipt(&new_id(), "PERFORM", &json!(121))).await;
    group.expect_error("unknown-id", &unknown, -32_001);
    let Some(target) = target else {
        group.close(NO_ACCOUNT, Some(ANY_ACCOUNT_HINT));
        return;
    };
    walk(&mut group, &target).await;
    group.close_after_failure();
}

async fn walk(group: &mut Group<'_, '_>, target: &Target) -> Option<()> {
    let client = group.client();
    let payment = Payment::new(&target.account, target.amount);
    let create = client.create(&payment).await;
    let perform = client.perform(&payment.id).await;
    let performed = snapshot::created(&create).and_then(|created| snapshot::performed(&perform, &created));
    group.keep("performed", &[&create, &perform], performed)?;

    // A receipt id arrives as a number or as a string.
    let params = receipt(&payment.id, "PERFORM", &json!(121));
    let taken = client.rpc("SetFiscalData", params.clone()).await;
    group.record("perform-receipt", &[&taken], success(&taken));
    let taken = client.rpc("SetFiscalData", params).await;
    group.record("perform-receipt-again", &[&taken], success(&taken));
    client.cancel(&payment.id, 5).await;
    let taken = client.rpc("SetFiscalData", receipt(&payment.id, "CANCEL", &json!("122"))).await;
    group.record("cancel-receipt", &[&taken], success(&taken));
    Some(())
}

fn receipt(id: &str, kind: &str, receipt_id: &Value) -> Value {
    json!({
        "id": id,
        "type": kind,
        "fiscal_data": {
            "receipt_id": receipt_id,
            "status_code": 0,
            "message": "accepted",
            "terminal_id": "EP000000000025",
            "fiscal_sign": "800031554082",
            "qr_code_url": "https://ofd.soliq.uz/check?t=EP000000000025&r=121&c=20261129120000&s=800031554082",
            "date": "20261129120000",
        },
    })
}

fn success(exchange: &Exchange) -> Verdict {
    let expected = "result.success true";
    match expect::result(exchange, expected)?.get("success") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err(Mismatch::new(expected, expect::describe(exchange))),
    }
}
