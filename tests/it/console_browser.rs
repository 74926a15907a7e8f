//! A person's whole way through the console in a real Chromium, in each language: what a reader of HTML can't see
//! (a form that a policy blocks, a cookie a browser refuses) fails here.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use hamyon::jobs::Job;
use hamyon::staff::Role;
use hamyon::support::{Limit, Limits};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::TestApp;
use crate::support::app::settings;
use crate::support::console::{PASSWORD, member};

const PAYME_ID: &str = "5f00000000000000000000aa";

/// A browser under remote control; it ends with this.
struct Browser {
    client: Client,
    _driver: Child,
}

impl Browser {
    async fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is installed (`make test` installs it)");
        let mut lines = BufReader::new(driver.stdout.take().expect("its output")).lines();
        let port: u16 = loop {
            let line = lines.next_line().await.expect("it talks").expect("it says its port");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').parse().expect("a port");
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"];
        let capabilities = json!({ "goog:chromeOptions": { "args": arguments } });
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let client = ClientBuilder::new(connector)
            .capabilities(capabilities.as_object().expect("an object").clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser");
        client.set_window_size(1280, 900).await.expect("a window");
        Self { client, _driver: driver }
    }

    async fn click(&self, css: &str) {
        let what = self.client.wait().at_most(Duration::from_secs(30)).for_element(Locator::Css(css)).await;
        what.unwrap_or_else(|error| panic!("{css}: {error}")).click().await.expect("clicked");
    }

    async fn type_into(&self, css: &str, text: &str) {
        let field = self.client.wait().at_most(Duration::from_secs(30)).for_element(Locator::Css(css)).await;
        let field = field.unwrap_or_else(|error| panic!("{css}: {error}"));
        field.clear().await.expect("cleared");
        field.send_keys(text).await.expect("typed");
    }

    async fn text(&self, css: &str) -> String {
        let what = self.client.wait().at_most(Duration::from_secs(30)).for_element(Locator::Css(css)).await;
        what.unwrap_or_else(|error| panic!("{css}: {error}")).text().await.expect("text").replace('\u{a0}', " ")
    }

    /// Keeps what a person would see, for people to look at.
    async fn keep(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console");
        tokio::fs::create_dir_all(&folder).await.expect("a folder");
        let picture = self.client.screenshot().await.expect("a screenshot");
        tokio::fs::write(folder.join(format!("{name}.png")), picture).await.expect("kept");
    }

    async fn log_in(&self, app: &TestApp, username: &str, language: &str) {
        self.client.goto(&app.url(&format!("/console/language/{language}"))).await.expect("a language");
        self.client.goto(&app.url("/console")).await.expect("the console");
        self.type_into("input[name=username]", username).await;
        self.type_into("input[name=password]", PASSWORD).await;
        self.keep(&format!("{language}-login")).await;
        self.click("button.main").await;
    }
}

/// A tenant who topped up 300,000 by Payme and paid a fee of 150,000.
async fn app() -> TestApp {
    let limit = |text| Limit::parse(text).expect("a limit");
    let limits = Limits { agent: limit("UZS=10000"), approver: limit("UZS=20000"), request_hours: 24 };
    let app = TestApp::start_with(hamyon::app::AppSettings { support_limits: limits.into(), ..settings() }).await;
    app.tenant("acme").await;
    app.payme_created(PAYME_ID, "acme", 30_000_000).await;
    app.payme("PerformTransaction", json!({ "id": PAYME_ID })).await;
    app.plan("standard", "150000").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    for (username, role) in [("dilnoza", Role::Agent), ("rustam", Role::Approver)] {
        member(&app, username, role).await;
    }
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s2_a_fee_is_refunded_in_part_by_two_people_in_each_language() {
    let app = app().await;
    let browser = Browser::start().await;
    let words = [
        ("uz", "ikkinchi odam kutilmoqda", "oʻtkazildi", "200 000.00"),
        ("ru", "ждёт второго человека", "проведено", "250 000.00"),
        ("en", "waits for a second person", "posted", "300 000.00"),
    ];
    for (language, waits, posted, balance) in words {
        browser.log_in(&app, "dilnoza", language).await;
        // "I paid and was charged twice": the customer names the payment.
        browser.type_into("input[name=q]", PAYME_ID).await;
        browser.click("form[role=search] button").await;
        browser.keep(&format!("{language}-search")).await;
        browser.click("main a[href^='/console/tenants/acme']").await;
        browser.keep(&format!("{language}-tenant")).await;
        browser.click("main a[href='/console/tenants/acme/UZS/2']").await;
        browser.type_into("input[name=amount]", "50 000").await;
        browser.type_into("input[name=reason]", "A month without service").await;
        browser.keep(&format!("{language}-row")).await;
        browser.click("form[action$='/refund/preview'] button").await;
        assert!(browser.text("#verdict").await.contains("10000 UZS"), "it says that approval is needed, and the limit");
        browser.keep(&format!("{language}-preview")).await;
        browser.click("#confirm").await;
        assert_eq!(browser.text("#status").await, waits);
        browser.keep(&format!("{language}-waiting")).await;
        let request = browser.client.current_url().await.expect("an address").path().to_owned();
        assert!(request.starts_with("/console/requests/"), "{request}");
        browser.click("form.who button").await;

        browser.log_in(&app, "rustam", language).await;
        browser.click("header a[href='/console/requests']").await;
        browser.keep(&format!("{language}-queue")).await;
        browser.click(&format!("main a[href='{request}']")).await;
        browser.type_into("input[name=note]", "Checked with the operator").await;
        browser.click("#approve").await;
        // The page comes back decided.
        browser.click("main a[href='/console/tenants/acme']").await;
        assert!(browser.text("#balances .balance").await.contains(balance));
        assert!(browser.text("main").await.contains("A month without service"), "the statement has the row");
        browser.keep(&format!("{language}-after")).await;
        browser.click(&format!("main a[href='{request}']")).await;
        assert_eq!(browser.text("#status").await, posted);
        browser.click("header a[href='/console/audit']").await;
        let audit = browser.text("main").await;
        assert!(audit.contains("request.approve") && audit.contains("staff:dilnoza"), "{audit}");
        browser.keep(&format!("{language}-audit")).await;
        for page in ["overview", "fee-runs", "health"] {
            browser.click(&format!("header a[href='/console/{page}']")).await;
            browser.keep(&format!("{language}-{page}")).await;
        }
        browser.click("form.who button").await;
    }
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions WHERE kind = 'refund'").await, 3);

    // On a phone nothing is wider than the screen.
    browser.client.set_window_size(500, 900).await.expect("a window");
    browser.log_in(&app, "dilnoza", "uz").await;
    browser.client.goto(&app.url("/console/tenants/acme")).await.expect("the page");
    let overflow = browser
        .client
        .execute("return document.documentElement.scrollWidth - document.documentElement.clientWidth", Vec::new())
        .await
        .expect("a measurement");
    assert_eq!(overflow, json!(0));
    browser.keep("uz-phone").await;
    browser.client.clone().close().await.expect("closed");
}
