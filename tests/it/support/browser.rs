//! A real Chromium, as a person uses it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::TestApp;
use super::console::PASSWORD;

/// How long a page may take before a test gives it up: long, because other tests keep the machine busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// A browser under remote control; it ends with this.
pub struct Browser {
    pub client: Client,
    _driver: Child,
}

impl Browser {
    pub async fn start() -> Self {
        let browser = Self::start_with(json!({})).await;
        browser.client.set_window_size(1280, 900).await.expect("a window");
        browser
    }

    /// On a phone that is 360 dots wide: a window can't be made so narrow.
    pub async fn on_a_phone() -> Self {
        let metrics = json!({ "width": 360, "height": 740, "pixelRatio": 2.0, "mobile": true, "touch": true });
        Self::start_with(json!({ "mobileEmulation": { "deviceMetrics": metrics } })).await
    }

    async fn start_with(options: Value) -> Self {
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
        let mut options = options;
        options["args"] = json!(arguments);
        let capabilities = json!({ "goog:chromeOptions": options });
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let client = ClientBuilder::new(connector)
            .capabilities(capabilities.as_object().expect("an object").clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser");
        Self { client, _driver: driver }
    }

    /// Clicks what leads to another page and waits until that page is there. A click returns while the old page
    /// still stands, and on a busy machine the next step would find its link there, or go elsewhere before the form
    /// was sent; so the old page gets a mark, and the page without it is the next.
    pub async fn click(&self, css: &str) {
        let link = self.find(css).await;
        self.client.execute("document.documentElement.dataset.left = 'yes'", Vec::new()).await.expect("marked");
        link.click().await.unwrap_or_else(|error| panic!("{css}: {error}"));
        let arrived = "return document.readyState === 'complete' && !document.documentElement.dataset.left";
        let began = Instant::now();
        loop {
            // Between two pages there is no document to ask: that is not there yet, too.
            if matches!(self.client.execute(arrived, Vec::new()).await, Ok(Value::Bool(true))) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{css}: no page came after it: {}", self.page().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn find(&self, css: &str) -> Element {
        match self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await {
            Ok(element) => element,
            Err(error) => panic!("{css}: {error}: {}", self.page().await),
        }
    }

    /// Where the browser is and what a person reads there, for the message of a failure.
    async fn page(&self) -> String {
        let address = self.client.current_url().await.map_or_else(|error| error.to_string(), |url| url.to_string());
        let text = self.client.execute("return document.body.innerText", Vec::new()).await;
        format!("{address} shows {}", text.map_or_else(|error| error.to_string(), |text| text.to_string()))
    }

    pub async fn type_into(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.expect("cleared");
        field.send_keys(text).await.expect("typed");
    }

    /// Presses Enter in a field and waits long enough for a page that it would lead to.
    pub async fn press_enter_in(&self, css: &str) {
        self.find(css).await.send_keys("\u{e007}").await.expect("pressed");
        tokio::time::sleep(Duration::from_millis(700)).await;
    }

    /// What is wider than the window, as far as a person would have to scroll sideways for it.
    pub async fn too_wide(&self) -> Value {
        let script = "
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll('body *')]
                .filter(one => one.getBoundingClientRect().right > width + 1 && !one.closest('.scroll, pre'))
                .map(one => one.tagName + '.' + one.className + ': ' + one.textContent.slice(0, 60));";
        self.client.execute(script, Vec::new()).await.expect("a measurement")
    }

    pub async fn text(&self, css: &str) -> String {
        self.find(css).await.text().await.expect("text").replace('\u{a0}', " ")
    }

    /// Keeps what a person would see, for people to look at.
    pub async fn keep(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console");
        tokio::fs::create_dir_all(&folder).await.expect("a folder");
        let picture = self.client.screenshot().await.expect("a screenshot");
        tokio::fs::write(folder.join(format!("{name}.png")), picture).await.expect("kept");
    }

    pub async fn log_in(&self, app: &TestApp, username: &str, language: &str) {
        self.client.goto(&app.url(&format!("/console/language/{language}"))).await.expect("a language");
        self.client.goto(&app.url("/console")).await.expect("the console");
        self.type_into("input[name=username]", username).await;
        self.type_into("input[name=password]", PASSWORD).await;
        self.keep(&format!("{language}-login")).await;
        self.click("button.main").await;
    }
}
