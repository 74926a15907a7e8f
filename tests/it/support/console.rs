//! A person at the console, without a browser: a cookie, pages, and the forms on them.

use hamyon::audit::Who;
use hamyon::staff::{self, Role, Username};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, COOKIE, HeaderMap, LOCATION, ORIGIN, SET_COOKIE};
use scoped_futures::ScopedFutureExt as _;
use secrecy::SecretString;

use super::TestApp;

pub const PASSWORD: &str = "correct horse battery";

/// A page or a redirection.
#[derive(Debug, Clone)]
pub struct Page {
    pub status: StatusCode,
    pub location: Option<String>,
    pub cookies: Vec<String>,
    pub headers: reqwest::header::HeaderMap,
    pub html: String,
}

impl Page {
    /// The value of a hidden field.
    pub fn hidden(&self, name: &str) -> String {
        let marker = format!("name=\"{name}\" value=\"");
        let from = self.html.find(&marker).unwrap_or_else(|| panic!("no field {name} in {}", self.html)) + marker.len();
        let length = self.html[from..].find('"').expect("the value ends");
        self.html[from..from + length].to_owned()
    }

    /// The address of the link with this id.
    pub fn link(&self, id: &str) -> Option<String> {
        let from = self.html.find(&format!("<a id=\"{id}\" href=\""))?;
        let address = self.html[from..].split('"').nth(3)?;
        Some(address.replace("&#38;", "&").replace("&amp;", "&"))
    }

    pub fn has(&self, text: &str) -> bool {
        self.html.contains(text)
    }

    fn cookie(&self, name: &str) -> String {
        let beginning = format!("{name}=");
        let line = self.cookies.iter().find(|line| line.starts_with(&beginning)).expect("the cookie is set");
        line.split(';').next().expect("a cookie").to_owned()
    }
}

/// Somebody with an account.
pub async fn member(app: &TestApp, username: &str, role: Role) {
    let (who, username, now) = (&Who::cli(), &Username::parse(username).expect("a username"), app.clock.now());
    app.app
        .db
        .run("test_staff", |conn| {
            async move { staff::add(conn, who, username, role, SecretString::from(PASSWORD), now).await }.scope_boxed()
        })
        .await
        .expect("a member of the staff");
}

/// A browser that follows nothing by itself.
#[derive(Debug, Clone)]
pub struct Visitor {
    client: reqwest::Client,
    base: String,
    cookie: Option<String>,
}

impl Visitor {
    pub fn new(app: &TestApp) -> Self {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(std::time::Duration::from_secs(3))
            .build()
            .expect("a client");
        Self { client, base: app.url(""), cookie: None }
    }

    /// Somebody with an account of this role, logged in by the form.
    pub async fn logged_in(app: &TestApp, username: &str, role: Role) -> Self {
        member(app, username, role).await;
        let mut visitor = Self::new(app);
        let page = visitor.log_in(username, PASSWORD).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        visitor
    }

    /// Logs in by the form and keeps the session.
    pub async fn log_in(&mut self, username: &str, password: &str) -> Page {
        let form = self.get("/console/login").await;
        let tied = Self { cookie: Some(form.cookie("hamyon_login")), ..self.clone() };
        let token = form.hidden("login_token");
        let fields = [("login_token", token.as_str()), ("username", username), ("password", password), ("next", "")];
        let page = tied.post("/console/login", &fields).await;
        if page.status == StatusCode::SEE_OTHER {
            self.cookie = Some(page.cookie("hamyon_session"));
        }
        page
    }

    /// The same person in another language.
    pub fn speaking(&self, language: &str) -> Self {
        let cookie = format!("{}; hamyon_language={language}", self.cookie.clone().unwrap_or_default());
        Self { cookie: Some(cookie), ..self.clone() }
    }

    async fn page(&self, mut request: reqwest::RequestBuilder) -> Page {
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        let response = request.send().await.expect("an answer");
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        Page {
            status: response.status(),
            location: text(LOCATION),
            cookies: response
                .headers()
                .get_all(SET_COOKIE)
                .iter()
                .filter_map(|value| value.to_str().ok().map(ToOwned::to_owned))
                .collect(),
            headers: response.headers().clone(),
            html: response.text().await.expect("text"),
        }
    }

    pub async fn get(&self, path: &str) -> Page {
        self.page(self.client.get(format!("{}{path}", self.base))).await
    }

    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.post_from(path, fields, None).await
    }

    /// A form that a page of another site sent, when one is named.
    pub async fn post_from(&self, path: &str, fields: &[(&str, &str)], site: Option<&str>) -> Page {
        let mut request = self
            .client
            .post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ORIGIN, &self.base)
            .body(serde_urlencoded::to_string(fields).expect("a form"));
        if let Some(site) = site {
            request = request.header("Sec-Fetch-Site", site);
        }
        self.page(request).await
    }

    /// A signed form with headers of the caller's choosing and no others about where it comes from.
    pub async fn send_with(&self, path: &str, fields: &[(&str, &str)], headers: HeaderMap) -> Page {
        let token = self.get("/console").await.hidden("csrf_token");
        let mut all = vec![("csrf_token", token.as_str())];
        all.extend_from_slice(fields);
        let request = self
            .client
            .post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .headers(headers)
            .body(serde_urlencoded::to_string(&all).expect("a form"));
        self.page(request).await
    }

    /// A form of the session's own, signed with the token that stands on its pages.
    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let token = self.get("/console").await.hidden("csrf_token");
        let mut all = vec![("csrf_token", token.as_str())];
        all.extend_from_slice(fields);
        self.post(path, &all).await
    }
}
