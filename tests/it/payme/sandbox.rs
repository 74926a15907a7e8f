//! The provider's own list: what its sandbox sends before it lets a cashbox go live, played against us by the
//! conformance tool. A cashbox that fails there never gets to serve a payer.

use std::time::Duration;

use hamyon::provider::payme::conformance::{self, Options, Outcome};
use secrecy::SecretString;

use super::{AMOUNT, shop};
use crate::support::app::{PAYME_KEY, PAYME_TEST_KEY};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p2_p3_the_sandboxs_list_is_passed_with_either_key() {
    for key in [PAYME_KEY, PAYME_TEST_KEY] {
        let app = shop().await;
        // The tool sends times of the machine's clock.
        let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
        app.clock.advance(now - app.clock.now());
        let orders: Vec<String> = (1..=8).map(|number| format!("{number}")).collect();
        for order_id in &orders {
            app.order(order_id, "acme", "5000.00").await;
        }
        let options = Options {
            url: app.url("/payme").parse().unwrap(),
            login: "Paycom".to_owned(),
            key: SecretString::from(key),
            account: Some("tenant_id=acme".parse().unwrap()),
            one_time_accounts: orders.iter().map(|order| format!("order_id={order}").parse().unwrap()).collect(),
            amount: AMOUNT,
            one_time_amount: Some(AMOUNT),
            unknown_account: None,
            busy_code: Some(-31_099),
            spend_command: None,
            expiry_wait: None,
            timeout: Duration::from_secs(20),
            only: Vec::new(),
        };
        let report = conformance::run(options, &mut ()).await.unwrap();
        let failed: Vec<String> = report
            .checks
            .iter()
            .filter(|check| matches!(check.outcome, Outcome::Failed { .. }))
            .map(|check| format!("{}: {:?}", check.id, check.outcome))
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(report.summary().passed > 120, "{:?}", report.summary());
        assert!(app.verify().await.is_clean());
        if key == PAYME_TEST_KEY {
            assert_eq!(app.count("SELECT count(*) FROM wallet_transactions").await, 0);
        }
    }
}
