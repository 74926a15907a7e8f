//! Rule L7: whoever changes the book behind the ledger's back is found, and the first wrong row is named.
//! The intruder here has the database's master key and switches every trigger off.

use std::process::Output;

use hamyon::ids::Pocket;
use hamyon::ledger::chain::Link;
use hamyon::ledger::verify::{self, Head, Report};
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::support::TestApp;
use crate::support::app::entry;
use crate::support::intruder::{intruder, run};
use crate::support::process::hamyon;

/// Wallet 1 (acme): nine rows, row 9 a refund of row 5. Wallet 2 (other): three rows. Wallet 3 (many): 70
/// rows with a checkpoint. Wallet 4 (idle): none.
async fn book() -> TestApp {
    let app = TestApp::start().await;
    for tenant in ["acme", "other", "many", "idle"] {
        app.tenant(tenant).await;
    }
    let mut rows = vec![entry("acme", "top_up", 10_000, "row-1")];
    rows.extend((2..=8).map(|number| {
        let mut row = entry("acme", "purchase", -number, &format!("row-{number}"));
        row.pocket = Pocket::main();
        row
    }));
    app.post_entries(&rows).await.expect("booked");
    let refund = hamyon::ledger::Entry { original_seq: Some(5), ..entry("acme", "refund", 5, "row-9") };
    app.post_entries(&[refund]).await.expect("booked");
    let rows: Vec<_> = (1..=3).map(|number| entry("other", "bonus", number, &format!("other-{number}"))).collect();
    app.post_entries(&rows).await.expect("booked");
    let rows: Vec<_> = (1..=70).map(|number| entry("many", "bonus", number, &format!("many-{number}"))).collect();
    app.post_entries(&rows).await.expect("booked");
    app
}

/// Changes something, looks, and takes it back.
async fn after(app: &TestApp, change: &str, anchor: &[Head]) -> Report {
    let mut conn = intruder(app).await;
    let mut changed = conn.begin().await.expect("a transaction");
    run(&mut changed, change).await;
    let report =
        verify::verify(&mut changed, anchor, |_| {}).await.unwrap_or_else(|fault| panic!("{change}: {fault:?}"));
    changed.rollback().await.expect("taken back");
    report
}

/// The change is found, and the first finding names this place and says this.
async fn found(app: &TestApp, change: &str, place: &str, what: &str) {
    let report = after(app, change, &[]).await;
    assert!(!report.is_clean(), "nobody noticed: {change}");
    let first = &report.findings[0];
    assert!(first.place.ends_with(place), "{change}: {report:?}");
    assert!(first.what.contains(what), "{change}: {report:?}");
    assert_eq!(report.wrong, u64::try_from(report.findings.len()).expect("few"));
}

async fn heads(conn: &mut PgConnection) -> Vec<Head> {
    verify::heads(conn).await.expect("heads")
}

#[tokio::test]
async fn l7_c91_an_edit_of_any_column_of_any_row_is_found() {
    let app = book().await;
    let columns: Vec<String> = sqlx::query_scalar(
        "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'wallet_transactions'
          ORDER BY ordinal_position",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .expect("the columns");
    for column in columns {
        let edits: &[&str] = match column.as_str() {
            // To a wallet that has no such row yet.
            "wallet_id" => &["2", "4", "999"],
            "seq" => &["100", "9223372036854775807"],
            "tenant_id" => &["'other'", "'ACME'", "''"],
            "currency" => &["'USD'", "'nothing'"],
            "kind" => &["'bonus'"],
            "amount" => &["-6", "5", "9223372036854775807", "-9223372036854775807", "-9223372036854775808"],
            "pocket" => &["'promo'", "''", "'Not A Pocket'"],
            "reference" => &["'row-5 '", "''", "'row-50'"],
            "original_seq" => &["2", "4"],
            "reason" => &["NULL", "''", "'a Test'"],
            "actor" => &["'staff:somebody'", "'job:test '"],
            // The same object in other bytes is an edit, too.
            "metadata" => &[r#"'{"a":1}'"#, "'{ }'"],
            "recorded_at" => &[
                "recorded_at + interval '1 microsecond'",
                "recorded_at - interval '1 day'",
                "'infinity'",
                "'-infinity'",
                "'294276-01-01'",
                "'4713-01-01 BC'",
            ],
            "hash" => &["sha256('x')", "decode(repeat('00', 32), 'hex')"],
            unknown => panic!("column {unknown} is new: is it in the chain? Say here how it is edited"),
        };
        for edit in edits {
            for row in [5, 9] {
                // The database itself knows the sign of a refund, and that it names its original.
                if row == 9 && (column == "amount" || column == "kind") {
                    continue;
                }
                let change =
                    format!("UPDATE wallet_transactions SET {column} = {edit} WHERE wallet_id = 1 AND seq = {row}");
                let report = after(&app, &change, &[]).await;
                let first = report.findings.first().unwrap_or_else(|| panic!("nobody noticed: {change}"));
                assert!(first.place.ends_with(&format!(", row {row}")), "{change}: {report:?}");
                assert!(first.place.starts_with("wallet 1 ("), "{change}: {report:?}");
            }
        }
        assert!(app.verify().await.is_clean(), "everything was taken back");
    }
}

#[tokio::test]
async fn l7_a_gap_a_swap_and_a_cut_tail_are_found() {
    let app = book().await;
    let gone = "DELETE FROM wallet_transactions WHERE wallet_id = 1 AND seq";
    found(&app, &format!("{gone} = 5"), "(acme UZS), row 5", "row 5 is missing").await;
    found(&app, &format!("{gone} = 1"), "(acme UZS), row 1", "row 1 is missing").await;
    found(&app, &format!("{gone} = 9"), "(acme UZS), row 9", "row 9 is missing").await;
    // C91: the first of the missing rows is named.
    found(&app, &format!("{gone} > 6"), "(acme UZS), row 7", "row 7 is missing").await;
    found(&app, &format!("{gone} > 0"), "(acme UZS), row 1", "all are gone").await;
    found(&app, "TRUNCATE wallet_transactions", "row 1", "all are gone").await;
    let swap = "UPDATE wallet_transactions SET seq = 1000 WHERE wallet_id = 1 AND seq = 4;
                UPDATE wallet_transactions SET seq = 4 WHERE wallet_id = 1 AND seq = 5;
                UPDATE wallet_transactions SET seq = 5 WHERE wallet_id = 1 AND seq = 1000;";
    found(&app, swap, "(acme UZS), row 4", "was changed").await;
    let closed_up = "DELETE FROM wallet_transactions WHERE wallet_id = 1 AND seq = 4;
                     UPDATE wallet_transactions SET seq = seq - 1 WHERE wallet_id = 1 AND seq > 4;";
    found(&app, closed_up, "(acme UZS), row 4", "was changed").await;
    let moved = "UPDATE wallet_transactions SET wallet_id = 2, seq = 4, tenant_id = 'other', kind = 'bonus', original_seq = NULL
                  WHERE wallet_id = 1 AND seq = 9;";
    let report = after(&app, moved, &[]).await;
    let places: Vec<&str> = report.findings.iter().map(|finding| finding.place.as_str()).collect();
    assert!(places.iter().any(|place| place.ends_with("(acme UZS), row 9")), "{report:?}");
    assert!(places.iter().any(|place| place.ends_with("(other UZS), row 4")), "{report:?}");
    let invented = "INSERT INTO wallet_transactions SELECT wallet_id, 10, tenant_id, currency, 'bonus', 1, pocket, 'x',
                           NULL, reason, actor, metadata, recorded_at, hash
                      FROM wallet_transactions WHERE wallet_id = 1 AND seq = 9";
    found(&app, invented, "(acme UZS), row 10", "was changed").await;
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn l7_a_wallet_that_was_tampered_with_is_found() {
    let app = book().await;
    for (change, what) in [
        ("head_hash = sha256('x')", "isn't the one that the wallet's head knows"),
        ("head_seq = 10", "row 10 is missing"),
        ("head_seq = 8", "head stands at 8"),
        ("head_seq = 0, head_recorded_at = NULL", "head stands at 0"),
        ("head_recorded_at = head_recorded_at + interval '1 day'", "time"),
        ("head_recorded_at = 'infinity'", "time"),
        ("tenant_id = 'idle2'", "its wallet"),
        ("currency = 'USD'", "its wallet"),
    ] {
        let report = after(&app, &format!("UPDATE wallets SET {change} WHERE wallet_id = 1"), &[]).await;
        let found = report.findings.iter().any(|finding| finding.what.contains(what));
        assert!(found && report.findings[0].place.starts_with("wallet 1 ("), "{change}: {report:?}");
    }
    let report = after(&app, "DELETE FROM wallets WHERE wallet_id = 1", &[]).await;
    assert!(report.findings[0].place.starts_with("wallet 1 ("), "{report:?}");
    assert_eq!(report.wrong, 1, "one wallet is gone, which is one thing: {report:?}");
}

#[tokio::test]
async fn l7_a_checkpoint_that_lies_is_found() {
    let app = book().await;
    assert_eq!(app.verify().await.checkpoints, 4);
    for change in [
        r#"pocket_sums = '{"main": 2081}'"#,
        r"pocket_sums = '{}'",
        r#"pocket_sums = '{"main": 2080, "promo": 1}'"#,
        r#"pocket_sums = '{"promo": 2080}'"#,
        r#"pocket_sums = '{"main": 2080.5}'"#,
        r#"pocket_sums = '{"main": "2080"}'"#,
        r#"pocket_sums = '{"main": 99999999999999999999}'"#,
        r#"pocket_sums = '{"main": 2080, "Not A Pocket": 0}'"#,
        "seq = 69",
        "recorded_at = recorded_at - interval '1 day'",
        "recorded_at = recorded_at + interval '1 microsecond'",
        "recorded_at = '-infinity'",
    ] {
        let report = after(&app, &format!("UPDATE wallet_checkpoints SET {change} WHERE seq = 64"), &[]).await;
        assert_eq!(report.wrong, 1, "{change}: {report:?}");
        let row = if change == "seq = 69" { 69 } else { 64 };
        assert!(report.findings[0].place.ends_with(&format!("(many UZS), row {row}")), "{change}: {report:?}");
        assert!(report.findings[0].what.contains("checkpoint"), "{change}: {report:?}");
    }
    for (change, place) in [
        ("seq = 700", "(many UZS), row 700"),
        ("seq = 0", "(many UZS), row 0"),
        // A wallet without any row.
        ("wallet_id = 4", "(idle UZS), row 64"),
    ] {
        found(&app, &format!("UPDATE wallet_checkpoints SET {change} WHERE seq = 64"), place, "checkpoint").await;
    }
    assert!(after(&app, "DELETE FROM wallet_checkpoints", &[]).await.is_clean(), "it may go at any time");
}

/// Rewrites a row's amount and every hash from there on, and the head: a forger who knows how the chain is made.
async fn forge(conn: &mut PgConnection, from_seq: i64) {
    run(conn, &format!("UPDATE wallet_transactions SET amount = amount - 1 WHERE wallet_id = 1 AND seq = {from_seq}"))
        .await;
    #[derive(sqlx::FromRow)]
    struct Row {
        seq: i64,
        kind: String,
        amount: i64,
        reference: String,
        original_seq: Option<i64>,
        reason: Option<String>,
        actor: String,
        recorded_at: chrono::DateTime<chrono::Utc>,
    }
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT seq, kind, amount, reference, original_seq, reason, actor, recorded_at FROM wallet_transactions
          WHERE wallet_id = 1 ORDER BY seq",
    )
    .fetch_all(&mut *conn)
    .await
    .expect("rows");
    let mut hash = hamyon::ledger::chain::GENESIS;
    for row in rows {
        hash = Link {
            wallet_id: 1,
            seq: row.seq,
            tenant_id: "acme",
            currency: "UZS",
            kind: &row.kind,
            amount: row.amount,
            pocket: "main",
            reference: &row.reference,
            original_seq: row.original_seq,
            reason: row.reason.as_deref(),
            actor: &row.actor,
            metadata: "{}",
            recorded_at: row.recorded_at,
        }
        .hash(&hash);
        for update in [
            "UPDATE wallet_transactions SET hash = $2 WHERE wallet_id = 1 AND seq = $1",
            "UPDATE wallets SET head_hash = $2, head_seq = $1 WHERE wallet_id = 1",
        ] {
            sqlx::query(update).bind(row.seq).bind(&hash[..]).execute(&mut *conn).await.expect("forged");
        }
    }
}

#[tokio::test]
async fn l7_c115_a_forged_tail_with_its_head_is_found_against_an_anchor() {
    let app = book().await;
    let mut conn = intruder(&app).await;
    let anchor = heads(&mut conn).await;
    assert_eq!(anchor.len(), 4);
    let mut forged = conn.begin().await.expect("a transaction");
    forge(&mut forged, 8).await;
    let blind = verify::verify(&mut forged, &[], |_| {}).await.expect("read");
    assert!(blind.is_clean(), "a perfect forgery can't be seen from within: {blind:?}");
    let report = verify::verify(&mut forged, &anchor, |_| {}).await.expect("read");
    assert_eq!(report.anchors, 4);
    assert!(report.findings[0].place.ends_with("(acme UZS), row 9"), "{report:?}");
    assert!(report.findings[0].what.contains("anchor"), "{report:?}");
    forged.rollback().await.expect("taken back");

    // A cut tail with its head, a wallet emptied, a wallet gone with everything.
    let cut = "DELETE FROM wallet_transactions WHERE wallet_id = 1 AND seq > 6;
               UPDATE wallets SET head_seq = 6, head_hash = (SELECT hash FROM wallet_transactions
                                                              WHERE wallet_id = 1 AND seq = 6) WHERE wallet_id = 1;";
    let emptied = "DELETE FROM wallet_transactions WHERE wallet_id = 1;
                   UPDATE wallets SET head_seq = 0, head_recorded_at = NULL, head_hash = decode(repeat('00', 32), 'hex')
                    WHERE wallet_id = 1;";
    let gone = "DELETE FROM wallet_transactions WHERE wallet_id = 1; DELETE FROM wallets WHERE wallet_id = 1;";
    for change in [cut, emptied, gone] {
        assert!(after(&app, change, &[]).await.is_clean(), "{change}");
        let report = after(&app, change, &anchor).await;
        assert!(!report.is_clean(), "{change}");
        assert!(report.findings[0].place.starts_with("wallet 1 (acme UZS)"), "{change}: {report:?}");
        assert!(report.findings[0].what.contains("anchor"), "{change}: {report:?}");
    }
    // An older anchor stays true while the book grows.
    app.post_entries(&[entry("acme", "bonus", 1, "later")]).await.expect("booked");
    assert!(verify::verify(&mut conn, &anchor, |_| {}).await.expect("read").is_clean());
}

#[tokio::test]
async fn l7_a_rewritten_state_of_a_payment_is_found() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let ids = [
        "aaaaaaaaaaaaaaaaaaaaaaa1",
        "aaaaaaaaaaaaaaaaaaaaaaa2",
        "aaaaaaaaaaaaaaaaaaaaaaa3",
        "aaaaaaaaaaaaaaaaaaaaaaa4",
    ];
    for id in ids {
        app.payme_created(id, "acme", 500_000).await;
    }
    for id in &ids[..2] {
        assert_eq!(app.payme("PerformTransaction", json!({ "id": id })).await["result"]["state"], 2);
    }
    for (id, state) in [(ids[1], -2), (ids[2], -1)] {
        let answer = app.payme("CancelTransaction", json!({ "id": id, "reason": 5 })).await;
        assert_eq!(answer["result"]["state"], state, "{answer}");
    }
    let clean = app.verify().await;
    assert!(clean.is_clean(), "{clean:?}");
    assert_eq!(clean.payments, 4);
    let [performed, refunded, cancelled, created] = ids;
    for (id, change) in [
        (performed, "performed_at = NULL"),
        (performed, "performed_at = NULL, cancelled_at = created_at, cancel_reason = 5"),
        (performed, "cancelled_at = performed_at, cancel_reason = 5"),
        (performed, "amount = 500001"),
        (performed, "external_id = 'another'"),
        (performed, "tenant_id = 'another'"),
        (performed, "currency = 'USD'"),
        (performed, "mode = 'test'"),
        (refunded, "cancelled_at = NULL, cancel_reason = NULL"),
        (refunded, "performed_at = NULL"),
        (refunded, "performed_at = NULL, cancelled_at = NULL, cancel_reason = NULL"),
        (cancelled, "performed_at = cancelled_at"),
        (created, "performed_at = created_at"),
        (created, "performed_at = created_at, cancelled_at = created_at, cancel_reason = 5"),
    ] {
        let change = format!("UPDATE payments SET {change} WHERE external_id = '{id}'");
        let report = after(&app, &change, &[]).await;
        assert!(!report.is_clean(), "nobody noticed: {change}");
        let place = &report.findings[0].place;
        assert!(place.starts_with("payment ") || place.contains("(acme UZS), row "), "{change}: {report:?}");
    }
    for id in [performed, refunded] {
        let change = format!("DELETE FROM payments WHERE external_id = '{id}'");
        assert!(!after(&app, &change, &[]).await.is_clean(), "nobody noticed: {change}");
    }
}

async fn program(app: &TestApp, arguments: &[&str]) -> Output {
    let mut command = hamyon();
    command.arg("verify").args(arguments).env("DATABASE_URL", app.database_url());
    command.output().await.expect("the program runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn l7_the_program_says_what_is_wrong_and_ends_with_1() {
    let app = book().await;
    let folder = tempfile::tempdir().expect("a folder");
    let anchor = folder.path().join("heads.jsonl");
    let anchor = anchor.to_str().expect("a path");

    let clean = program(&app, &["--write-anchor", anchor]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", said(&clean));
    assert!(said(&clean).contains("Nothing is wrong."), "{}", said(&clean));
    // The anchor only grows.
    app.post_entries(&[entry("acme", "bonus", 1, "later")]).await.expect("booked");
    let clean = program(&app, &["--anchor", anchor, "--write-anchor", anchor, "--json"]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", said(&clean));
    let report: Value = serde_json::from_slice(&clean.stdout).expect("JSON");
    assert_eq!((&report["wrong"], &report["anchors"], &report["rows"]), (&json!(0), &json!(4), &json!(83)));
    let lines = std::fs::read_to_string(anchor).expect("the anchor");
    assert_eq!(lines.lines().count(), 8);

    let mut conn = intruder(&app).await;
    run(&mut conn, "UPDATE wallet_transactions SET metadata = '{\"a\":1}' WHERE wallet_id = 1 AND seq = 5").await;
    let wrong = program(&app, &[]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
    assert!(said(&wrong).contains("wallet 1 (acme UZS), row 5"), "{}", said(&wrong));
    let wrong = program(&app, &["--json", "--write-anchor", anchor]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
    let report: Value = serde_json::from_slice(&wrong.stdout).expect("JSON");
    assert_eq!((&report["wrong"], &report["findings"][0]["place"]), (&json!(1), &json!("wallet 1 (acme UZS), row 5")));
    assert_eq!(std::fs::read_to_string(anchor).expect("the anchor"), lines, "a broken book is no anchor");
    run(&mut conn, "UPDATE wallet_transactions SET metadata = '{}' WHERE wallet_id = 1 AND seq = 5").await;
    assert_eq!(program(&app, &["--anchor", anchor]).await.status.code(), Some(0), "restored");

    forge(&mut conn, 8).await;
    assert_eq!(program(&app, &[]).await.status.code(), Some(0), "a perfect forgery");
    let wrong = program(&app, &["--anchor", anchor]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
    assert!(
        said(&wrong).contains("wallet 1 (acme UZS), row 9: the row isn't the one that the anchor knows"),
        "{}",
        said(&wrong)
    );

    for (text, about) in [("{", "line 1"), ("\n{\"wallet_id\":1}", "line 2")] {
        std::fs::write(anchor, text).expect("a broken anchor");
        let broken = program(&app, &["--anchor", anchor]).await;
        assert!(!broken.status.success() && said(&broken).contains(about), "{}", said(&broken));
    }
}

#[tokio::test]
async fn f6_a_paid_due_and_its_row_can_not_be_told_apart() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.plan("plan", "1000").await;
    app.subscribe("acme", "plan", "2026-12-01", "full").await;
    app.fund("acme", 500_000).await;
    hamyon::jobs::Job::FeeRun.run(&app.app).await.expect("a run");
    assert!(app.verify().await.is_clean(), "the fee is charged");
    let mut intruder = app.superuser().await;
    for (change, back) in [
        ("UPDATE dues SET amount = amount - 1", "UPDATE dues SET amount = amount + 1"),
        ("UPDATE dues SET charged_seq = 1", "UPDATE dues SET charged_seq = 2"),
        (
            "UPDATE dues SET charged_seq = NULL, charged_at = NULL, overdue_at = decided_at",
            "UPDATE dues SET charged_seq = 2, charged_at = decided_at, overdue_at = NULL",
        ),
    ] {
        sqlx::raw_sql("SET session_replication_role = replica").execute(&mut intruder).await.expect("no guards");
        sqlx::query(change).execute(&mut intruder).await.expect(change);
        let report = app.verify().await;
        assert_eq!(report.wrong, 1, "{change}: {:?}", report.findings);
        assert!(report.findings[0].place.contains("fee:1:2026-12"), "{:?}", report.findings);
        sqlx::query(back).execute(&mut intruder).await.expect(back);
        assert!(app.verify().await.is_clean(), "{back}");
    }
}

#[tokio::test]
async fn l7_a_wallet_that_hides_its_holds_and_rows_of_requests_that_nobody_made_are_found() {
    let app = book().await;
    let grant = json!({ "currency": "UZS", "pocket": "promo", "amount": "1.00", "reference": "g",
                        "expires_at": app.clock.now() + chrono::TimeDelta::days(9) });
    assert_eq!(app.post_with_key("/v1/tenants/other/grants", "g", &grant).await.0.as_u16(), 201);
    let refund = json!({ "transaction": 2, "amount": "0.01", "reason": "asked" });
    assert_eq!(app.post_with_key("/v1/tenants/acme/refunds", "r", &refund).await.0.as_u16(), 201);
    let mut conn = intruder(&app).await;
    assert_eq!(program(&app, &[]).await.status.code(), Some(0));
    for (change, what) in [
        ("UPDATE wallets SET divided = false WHERE tenant_id = 'other'", "pockets or holds"),
        (
            "UPDATE support_requests SET posted_seq = NULL, decided_at = NULL, decided_by = NULL, decision = NULL",
            "support:1",
        ),
    ] {
        run(&mut conn, change).await;
        let said = program(&app, &[]).await;
        let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert_eq!(said.status.code(), Some(1), "{change}: {text}");
        assert!(text.contains(what), "{change}: {text}");
        run(&mut conn, "UPDATE wallets SET divided = true WHERE tenant_id = 'other'").await;
    }
}
