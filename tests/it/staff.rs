//! Rule S2: who logs in at the desk is who they say, guessing is hopeless, and whoever is shut out is out at once.
//! Behind this door people move other people's money.

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::audit::Who;
use hamyon::fault::Error;
use hamyon::staff::{
    self, Credentials, IDLE_MINUTES, LIFETIME_HOURS, LoggedIn, LoginRefusal, NewSession, PasswordRefusal, Role,
    StaffRefusal, Username,
};
use scoped_futures::{ScopedBoxFuture, ScopedFutureExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{Connection as _, Executor as _, PgConnection};
use totp_rs::Totp;

use crate::locking::until_blocked;
use crate::support::TestApp;

const PASSWORD: &str = "correct horse battery staple";

fn name(text: &str) -> Username {
    Username::parse(text).unwrap()
}

fn from(address: &str) -> Who {
    Who {
        actor: "unknown".to_owned(),
        role: None,
        remote_address: Some(address.to_owned()),
        request_id: Some("r1".to_owned()),
    }
}

/// One change of an account, in its own transaction.
async fn change<T: Send, F>(app: &TestApp, work: F) -> Result<T, Error<StaffRefusal>>
where
    F: for<'c> Fn(&'c mut PgConnection) -> ScopedBoxFuture<'static, 'c, Result<T, Error<StaffRefusal>>> + Send + Sync,
{
    app.app.db.run("test", work).await
}

async fn add_with(app: &TestApp, username: &str, role: Role, password: &str) -> Result<(), Error<StaffRefusal>> {
    let (username, password, now) = (name(username), SecretString::from(password.to_owned()), app.clock.now());
    change(app, move |conn| {
        let (username, password) = (username.clone(), password.clone());
        async move { staff::add(conn, &Who::cli(), &username, role, password, now).await }.scope_boxed()
    })
    .await
}

async fn set_role(app: &TestApp, username: &str, role: Role) -> Result<(), Error<StaffRefusal>> {
    let (username, now) = (name(username), app.clock.now());
    change(app, move |conn| {
        let username = username.clone();
        async move { staff::set_role(conn, &Who::cli(), &username, role, now).await }.scope_boxed()
    })
    .await
}

async fn disable(app: &TestApp, username: &str) -> Result<(), Error<StaffRefusal>> {
    let (username, now) = (name(username), app.clock.now());
    change(app, move |conn| {
        let username = username.clone();
        async move { staff::disable(conn, &Who::cli(), &username, now).await }.scope_boxed()
    })
    .await
}

async fn set_password(app: &TestApp, username: &str, password: &str) -> Result<(), Error<StaffRefusal>> {
    let (username, password, now) = (name(username), SecretString::from(password.to_owned()), app.clock.now());
    change(app, move |conn| {
        let (username, password) = (username.clone(), password.clone());
        async move { staff::set_password(conn, &Who::cli(), &username, password, now).await }.scope_boxed()
    })
    .await
}

/// What the authenticator reads.
async fn set_second_factor(app: &TestApp, username: &str, on: bool) -> Option<Totp> {
    let (username, now) = (name(username), app.clock.now());
    let url = change(app, move |conn| {
        let username = username.clone();
        async move { staff::set_second_factor(conn, &Who::cli(), &username, on, now).await }.scope_boxed()
    })
    .await
    .unwrap();
    url.map(|url| Totp::from_url(url.expose_secret()).unwrap())
}

/// The service with one agent, ann.
async fn ann() -> TestApp {
    let app = TestApp::start().await;
    add_with(&app, "ann", Role::Agent, PASSWORD).await.unwrap();
    app
}

async fn log_in(
    app: &TestApp,
    username: &str,
    password: &str,
    code: &str,
    address: &str,
) -> Result<NewSession, Error<LoginRefusal>> {
    let secret = |text: &str| SecretString::from(text.to_owned());
    let credentials = Credentials { username: username.to_owned(), password: secret(password), code: secret(code) };
    staff::log_in(&app.app.db, &app.clock, credentials, &from(address)).await
}

async fn let_in(app: &TestApp, username: &str, password: &str, code: &str) -> String {
    log_in(app, username, password, code, "10.0.0.1").await.unwrap().token.expose_secret().to_owned()
}

async fn refused(app: &TestApp, username: &str, password: &str, code: &str, address: &str) -> LoginRefusal {
    match log_in(app, username, password, code, address).await {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{username}: {other:?}"),
    }
}

async fn authenticate(app: &TestApp, token: &str) -> Option<LoggedIn> {
    let mut conn = app.app.db.pool().acquire().await.unwrap();
    staff::authenticate(&mut conn, token, app.clock.now()).await.unwrap()
}

/// The newest line of the audit: actor, role, action, allowed, words.
async fn last_line(app: &TestApp) -> (String, Option<String>, String, bool, String) {
    sqlx::query_as("SELECT actor, role, action, allowed, words FROM audit_log ORDER BY seq DESC LIMIT 1")
        .fetch_one(&mut app.superuser().await)
        .await
        .unwrap()
}

fn at(app: &TestApp, time: &str) -> DateTime<Utc> {
    let time: DateTime<Utc> = time.parse().unwrap();
    app.clock.advance(time - app.clock.now());
    time
}

/// The code of an authenticator so many steps from now.
fn code(app: &TestApp, totp: &Totp, steps: i64) -> String {
    totp.generate(u64::try_from(app.clock.now().timestamp() + 30 * steps).unwrap()).to_string()
}

#[tokio::test]
async fn a_name_and_a_password_open_a_session_and_only_hashes_are_kept() {
    let app = ann().await;
    // Capital letters and a stray space are no other name.
    let token = let_in(&app, " Ann ", PASSWORD, "").await;
    let session = authenticate(&app, &token).await.unwrap();
    assert_eq!((session.member.username.as_str(), session.member.role), ("ann", Role::Agent));
    assert_eq!(session.member.username.actor().unwrap().to_string(), "staff:ann");
    assert!(session.owns_form(session.csrf_token()) && !session.owns_form("") && !session.owns_form(&token));
    let other = let_in(&app, "ann", PASSWORD, "").await;
    assert_ne!(token, other);
    let forms = authenticate(&app, &other).await.unwrap();
    assert!(!forms.owns_form(session.csrf_token()), "each session has forms of its own");
    let (actor, role, action, allowed, words) = last_line(&app).await;
    assert_eq!(
        (actor.as_str(), role.as_deref(), action.as_str(), allowed),
        ("staff:ann", Some("agent"), "log_in", true)
    );
    assert_eq!(words, "logged in as agent");

    let mut dump = String::new();
    for table in ["staff", "staff_sessions", "audit_log", "login_failures"] {
        let statement = format!("SELECT coalesce(string_agg(t::text, '|'), '') FROM {table} t");
        let rows: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(&mut app.superuser().await).await.unwrap();
        dump.push_str(&rows);
    }
    assert!(dump.contains("$argon2id$v=19$m=19456,t=2,p=1$"), "{dump}");
    assert!(!dump.contains(PASSWORD) && !dump.contains(&token));
    for wrong in ["", "x", &token[1..], &token.to_uppercase(), &format!("{token}x"), "' OR true --", "\0"] {
        assert!(authenticate(&app, wrong).await.is_none(), "{wrong:?}");
    }
    let shown = format!("{session:?} {:?}", log_in(&app, "ann", PASSWORD, "", "10.0.0.1").await.unwrap());
    assert!(!shown.contains(session.csrf_token()) && !shown.contains(&token), "{shown}");
    let typed = Credentials {
        username: PASSWORD.to_owned(),
        password: SecretString::from(PASSWORD.to_owned()),
        code: SecretString::from("123456".to_owned()),
    };
    let shown = format!("{typed:?}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("123456"), "{shown}");
}

#[tokio::test]
async fn nobody_learns_which_names_exist() {
    let app = ann().await;
    disable_boris(&app).await;
    let mut answers = Vec::new();
    for (username, password) in
        [("ann", "wrong password"), ("nobody", PASSWORD), ("boris", PASSWORD), ("boris", "wrong")]
    {
        let refusal = refused(&app, username, password, "", "10.0.0.1").await;
        answers.push((refusal.clone(), refusal.to_string()));
    }
    let wrong = (LoginRefusal::Wrong, "the name, the password or the code is wrong".to_owned());
    assert_eq!(answers, vec![wrong; 4]);
    // The throttle treats a name that nobody has like any other.
    for username in ["ann", "nobody"] {
        let tries: Vec<LoginRefusal> = {
            let mut tries = Vec::new();
            for number in 0..5 {
                tries.push(refused(&app, username, "wrong", "", &format!("10.9.{number}.1")).await);
            }
            tries
        };
        let throttled = LoginRefusal::Throttled { retry_after_minutes: 15 };
        assert_eq!(tries[..4], vec![LoginRefusal::Wrong; 4], "{username}");
        assert_eq!(tries[4], throttled, "{username}");
    }
    // The audit knows more, but not what was typed where a name should be.
    let actors: Vec<String> = sqlx::query_scalar("SELECT DISTINCT actor FROM audit_log WHERE NOT allowed ORDER BY 1")
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    assert_eq!(actors, ["staff:ann", "staff:boris", "unknown"]);
    let typed = "My Secret Passphrase!";
    assert_eq!(refused(&app, typed, "", "", "10.0.0.1").await, LoginRefusal::Wrong);
    for table in ["audit_log", "login_failures"] {
        let statement = format!("SELECT string_agg(t::text, '|') FROM {table} t");
        let rows: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(&mut app.superuser().await).await.unwrap();
        assert!(!rows.to_lowercase().contains("passphrase") && !rows.contains(PASSWORD), "{table}: {rows}");
    }
}

async fn disable_boris(app: &TestApp) {
    add_with(app, "boris", Role::Agent, PASSWORD).await.unwrap();
    disable(app, "boris").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_wrong_attempts_at_once_get_five_guesses() {
    let app = ann().await;
    let attempts = (0..30).map(|number| {
        let app = &app;
        async move { refused(app, "ann", &format!("wrong guess {number}"), "", &format!("10.0.{number}.1")).await }
    });
    let outcomes = futures::future::join_all(attempts).await;
    let looked_at = outcomes.iter().filter(|refusal| **refusal == LoginRefusal::Wrong).count();
    assert_eq!((looked_at, outcomes.len()), (5, 30), "{outcomes:?}");
    assert_eq!(app.count("SELECT count(*) FROM login_failures").await, 5);
    // Five wrong guesses, and one line that the name is throttled: a stranger doesn't grow the audit without bound.
    assert_eq!(app.count("SELECT count(*) FROM audit_log WHERE action = 'log_in' AND NOT allowed").await, 6);
    // The right password is no way in either, from wherever it comes.
    let throttled = refused(&app, "ann", PASSWORD, "", "10.7.7.7").await;
    assert_eq!(throttled, LoginRefusal::Throttled { retry_after_minutes: 15 });
    assert_eq!(app.count("SELECT count(*) FROM staff_sessions").await, 0);
}

#[tokio::test]
async fn s2_the_audit_hears_of_a_throttled_name_or_address_once_a_window() {
    let app = ann().await;
    let lines = "SELECT count(*) FROM audit_log WHERE action = 'log_in' AND words LIKE 'too many attempts%'";
    for _ in 0..5 {
        refused(&app, "ann", "wrong", "", "10.0.0.1").await;
    }
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert!(matches!(refused(&app, "ann", "wrong", "", address).await, LoginRefusal::Throttled { .. }));
    }
    assert_eq!(app.count(lines).await, 1, "by name");
    // Names that nobody has, from one place; of IPv6, somebody's whole network is one place.
    for number in 0..40 {
        refused(&app, &format!("nobody{number}"), "wrong", "", &format!("2001:db8:1:2::{number:x}")).await;
    }
    assert_eq!(app.count(lines).await, 2, "by address");
    app.clock.advance(TimeDelta::minutes(16));
    for _ in 0..8 {
        refused(&app, "ann", "wrong", "", "10.0.0.9").await;
    }
    assert_eq!(app.count(lines).await, 3, "another window");
    app.clock.advance(TimeDelta::days(2));
    refused(&app, "ann", "wrong", "", "10.0.0.1").await;
    assert_eq!(app.count("SELECT count(*) FROM login_throttles").await, 0, "what is older than a day is forgotten");
}

#[tokio::test]
async fn an_attempt_counts_before_it_is_looked_at() {
    let app = ann().await;
    for _ in 0..4 {
        assert_eq!(refused(&app, "ann", "wrong", "", "10.0.0.1").await, LoginRefusal::Wrong);
    }
    // The account is locked, so the fifth stands between being counted and being let in.
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM staff FOR NO KEY UPDATE").await.unwrap();
    let (fifth, sixth) = tokio::join!(log_in(&app, "ann", PASSWORD, "", "10.0.0.1"), async {
        until_blocked(&app, 1).await;
        let sixth = refused(&app, "ann", PASSWORD, "", "10.0.0.2").await;
        holding.rollback().await.unwrap();
        sixth
    });
    assert!(fifth.is_ok(), "{fifth:?}");
    assert!(matches!(sixth, LoginRefusal::Throttled { .. }), "{sixth:?}");
}

#[tokio::test]
async fn the_throttle_ends_by_itself_and_a_right_password_clears_the_name() {
    let app = ann().await;
    for minute in 0..5 {
        assert_eq!(refused(&app, "ann", "wrong", "", "10.0.0.1").await, LoginRefusal::Wrong, "{minute}");
        app.clock.advance(TimeDelta::minutes(1));
    }
    assert_eq!(
        refused(&app, "ann", PASSWORD, "", "10.0.0.1").await,
        LoginRefusal::Throttled { retry_after_minutes: 10 }
    );
    // Being refused by the throttle is no further attempt.
    app.clock.advance(TimeDelta::minutes(10) - TimeDelta::microseconds(1));
    assert_eq!(
        refused(&app, "ann", PASSWORD, "", "10.0.0.1").await,
        LoginRefusal::Throttled { retry_after_minutes: 1 }
    );
    app.clock.advance(TimeDelta::microseconds(1));
    let_in(&app, "ann", PASSWORD, "").await;
    for _ in 0..4 {
        assert_eq!(refused(&app, "ann", "wrong", "", "10.0.0.1").await, LoginRefusal::Wrong, "counted anew");
    }
    let_in(&app, "ann", PASSWORD, "").await;
    // What is older than a day is forgotten.
    app.clock.advance(TimeDelta::days(2));
    refused(&app, "ann", "wrong", "", "10.0.0.1").await;
    assert_eq!(app.count("SELECT count(*) FROM login_failures").await, 1);
}

#[tokio::test]
async fn an_address_has_thirty_guesses_whatever_the_names() {
    let app = ann().await;
    // Long passwords are refused without being hashed, which keeps this short.
    let long = "x".repeat(2_000);
    for number in 0..30 {
        assert_eq!(refused(&app, &format!("name-{number}"), &long, "", "10.0.0.1").await, LoginRefusal::Wrong);
    }
    assert!(matches!(refused(&app, "ann", PASSWORD, "", "10.0.0.1").await, LoginRefusal::Throttled { .. }));
    assert!(log_in(&app, "ann", PASSWORD, "", "10.0.0.2").await.is_ok(), "another address");
}

#[tokio::test]
async fn a_code_is_asked_for_besides_the_password_and_works_once() {
    let app = ann().await;
    at(&app, "2026-12-01T10:00:15Z");
    let totp = set_second_factor(&app, "ann", true).await.unwrap();
    let member = staff::list(&mut app.superuser().await).await.unwrap().remove(0);
    assert!(member.has_second_factor);
    let right = code(&app, &totp, 0);
    for wrong in ["", "000000", "12345", "abcdef", &code(&app, &totp, -2), &code(&app, &totp, 3)] {
        if wrong != right {
            let address = format!("10.0.1.{}", wrong.len());
            assert_eq!(refused(&app, "ann", PASSWORD, wrong, &address).await, LoginRefusal::Wrong, "{wrong}");
        }
        sqlx::query("DELETE FROM login_failures").execute(&mut app.superuser().await).await.unwrap();
    }
    assert_eq!(refused(&app, "ann", "wrong password", &right, "10.0.0.1").await, LoginRefusal::Wrong);
    // The wrong password above didn't use it up.
    let_in(&app, "ann", PASSWORD, &format!(" {right} ")).await;
    assert_eq!(refused(&app, "ann", PASSWORD, &right, "10.0.0.1").await, LoginRefusal::Wrong, "a second time");
    let before = code(&app, &totp, -1);
    assert_eq!(refused(&app, "ann", PASSWORD, &before, "10.0.0.1").await, LoginRefusal::Wrong, "an older one");
    app.clock.advance(TimeDelta::seconds(30));
    assert_eq!(refused(&app, "ann", PASSWORD, &right, "10.0.0.1").await, LoginRefusal::Wrong, "still in its slack");
    let_in(&app, "ann", PASSWORD, &code(&app, &totp, 0)).await;
    // A clock half a minute ahead is forgiven, and its code spends the step.
    app.clock.advance(TimeDelta::seconds(30));
    let_in(&app, "ann", PASSWORD, &code(&app, &totp, 1)).await;
    assert_eq!(refused(&app, "ann", PASSWORD, &code(&app, &totp, 0), "10.0.0.1").await, LoginRefusal::Wrong);

    // Another secret makes the old one's codes worthless; none asks for no code.
    app.clock.advance(TimeDelta::minutes(5));
    let other = set_second_factor(&app, "ann", true).await.unwrap();
    assert_eq!(refused(&app, "ann", PASSWORD, &code(&app, &totp, 0), "10.0.0.1").await, LoginRefusal::Wrong);
    let_in(&app, "ann", PASSWORD, &code(&app, &other, 0)).await;
    assert!(set_second_factor(&app, "ann", false).await.is_none());
    let_in(&app, "ann", PASSWORD, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_code_sent_four_times_at_once_lets_in_once() {
    let app = ann().await;
    let totp = set_second_factor(&app, "ann", true).await.unwrap();
    let right = code(&app, &totp, 0);
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM staff FOR NO KEY UPDATE").await.unwrap();
    let attempts = (0..4).map(|_| log_in(&app, "ann", PASSWORD, &right, "10.0.0.1"));
    let (outcomes, ()) = tokio::join!(futures::future::join_all(attempts), async {
        until_blocked(&app, 4).await;
        holding.rollback().await.unwrap();
    });
    let in_count = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!((in_count, app.count("SELECT count(*) FROM staff_sessions").await), (1, 1), "{outcomes:?}");
}

#[tokio::test]
async fn a_session_ends_when_nothing_happens_and_in_any_case() {
    let app = ann().await;
    let token = let_in(&app, "ann", PASSWORD, "").await;
    app.clock.advance(TimeDelta::minutes(IDLE_MINUTES) - TimeDelta::microseconds(1));
    assert!(authenticate(&app, &token).await.is_some(), "to its last moment");
    app.clock.advance(TimeDelta::minutes(IDLE_MINUTES));
    assert!(authenticate(&app, &token).await.is_none(), "idle");
    app.clock.advance(TimeDelta::minutes(-10));
    assert!(authenticate(&app, &token).await.is_some(), "the moment decides, not who asked last");

    let token = let_in(&app, "ann", PASSWORD, "").await;
    let began = app.clock.now();
    let end = began + TimeDelta::hours(LIFETIME_HOURS);
    while app.clock.now() + TimeDelta::minutes(20) < end {
        app.clock.advance(TimeDelta::minutes(20));
        assert!(authenticate(&app, &token).await.is_some(), "{}", app.clock.now());
    }
    app.clock.advance(end - TimeDelta::microseconds(1) - app.clock.now());
    assert!(authenticate(&app, &token).await.is_some());
    app.clock.advance(TimeDelta::microseconds(1));
    assert!(authenticate(&app, &token).await.is_none(), "however busy");
}

#[tokio::test]
async fn what_takes_something_away_ends_every_session_of_the_person_and_of_nobody_else() {
    let app = ann().await;
    add_with(&app, "boris", Role::Admin, PASSWORD).await.unwrap();
    let boris = let_in(&app, "boris", PASSWORD, "").await;
    let mut password = PASSWORD.to_owned();
    for what in ["log out", "role", "password", "second factor", "disable"] {
        let (one, two) = (let_in(&app, "ann", &password, "").await, let_in(&app, "ann", &password, "").await);
        let session = authenticate(&app, &one).await.unwrap();
        match what {
            "log out" => {
                staff::log_out(&app.app.db, &app.clock, &session, &from("10.0.0.1")).await.unwrap();
                assert!(authenticate(&app, &two).await.is_some(), "the other browser stays");
                set_role(&app, "ann", session.member.role).await.unwrap();
                assert!(authenticate(&app, &two).await.is_some(), "the same role takes nothing away");
                let two = authenticate(&app, &two).await.unwrap();
                staff::log_out(&app.app.db, &app.clock, &two, &from("10.0.0.1")).await.unwrap();
            }
            "role" => set_role(&app, "ann", Role::Viewer).await.unwrap(),
            "password" => {
                password = "another long password".to_owned();
                set_password(&app, "ann", &password).await.unwrap();
                assert_eq!(refused(&app, "ann", PASSWORD, "", "10.0.0.1").await, LoginRefusal::Wrong);
            }
            "second factor" => {
                set_second_factor(&app, "ann", true).await.unwrap();
                assert_eq!(refused(&app, "ann", &password, "", "10.0.0.1").await, LoginRefusal::Wrong);
                set_second_factor(&app, "ann", false).await;
            }
            _ => {
                disable(&app, "ann").await.unwrap();
                assert_eq!(refused(&app, "ann", &password, "", "10.0.0.1").await, LoginRefusal::Wrong);
            }
        }
        for token in [&one, &two] {
            assert!(authenticate(&app, token).await.is_none(), "{what}");
        }
        assert!(authenticate(&app, &boris).await.is_some(), "{what}");
    }
}

#[tokio::test]
async fn a_login_that_was_under_way_when_the_person_was_shut_out_fails() {
    for what in ["disable", "password"] {
        let app = ann().await;
        let mut holder = app.as_service().await;
        let mut holding = holder.begin().await.unwrap();
        holding.execute("SELECT FROM staff FOR NO KEY UPDATE").await.unwrap();
        // The password was found right; the login waits for the account.
        let (login, ()) = tokio::join!(log_in(&app, "ann", PASSWORD, "", "10.0.0.1"), async {
            until_blocked(&app, 1).await;
            let (ann, now) = (name("ann"), app.clock.now());
            if what == "disable" {
                staff::disable(&mut holding, &Who::cli(), &ann, now).await.unwrap();
            } else {
                let other = SecretString::from("another long password".to_owned());
                staff::set_password(&mut holding, &Who::cli(), &ann, other, now).await.unwrap();
            }
            holding.commit().await.unwrap();
        });
        assert!(matches!(login, Err(Error::Refused(LoginRefusal::Wrong))), "{what}: {login:?}");
        assert_eq!(app.count("SELECT count(*) FROM staff_sessions").await, 0, "{what}");
    }
}

#[tokio::test]
async fn a_role_is_what_it_is_now_and_not_what_it_was_at_the_login() {
    let app = ann().await;
    set_role(&app, "ann", Role::Admin).await.unwrap();
    let token = let_in(&app, "ann", PASSWORD, "").await;
    assert_eq!(authenticate(&app, &token).await.unwrap().member.role, Role::Admin);
    sqlx::query("UPDATE staff SET role = 'viewer'").execute(&mut app.superuser().await).await.unwrap();
    assert_eq!(authenticate(&app, &token).await.unwrap().member.role, Role::Viewer);
}

#[tokio::test]
async fn a_name_is_given_once_and_a_refused_change_writes_nothing() {
    let app = ann().await;
    disable_boris(&app).await;
    let before = app.everything_written().await;
    let lines = app.count("SELECT count(*) FROM audit_log").await;
    for taken in ["ann", "boris", "ANN"] {
        let refusal = add_with(&app, taken, Role::Admin, PASSWORD).await;
        assert!(matches!(refusal, Err(Error::Refused(StaffRefusal::Taken(_)))), "{taken}: {refusal:?}");
    }
    for (password, expected) in [
        ("", PasswordRefusal::TooShort(0)),
        ("123456789", PasswordRefusal::TooShort(9)),
        ("қисқароқ", PasswordRefusal::TooShort(8)),
        (&"x".repeat(1_001), PasswordRefusal::TooLong),
    ] {
        let refusal = add_with(&app, "clara", Role::Admin, password).await;
        assert!(
            matches!(&refusal, Err(Error::Refused(StaffRefusal::Password(found))) if *found == expected),
            "{refusal:?}"
        );
        let refusal = set_password(&app, "ann", password).await;
        assert!(matches!(refusal, Err(Error::Refused(StaffRefusal::Password(_)))), "{refusal:?}");
    }
    for refusal in [
        set_role(&app, "nobody", Role::Admin).await,
        disable(&app, "nobody").await,
        set_password(&app, "nobody", PASSWORD).await,
    ] {
        assert!(matches!(refusal, Err(Error::Refused(StaffRefusal::Unknown(_)))), "{refusal:?}");
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(app.count("SELECT count(*) FROM audit_log").await, lines);
    for wrong in ["", " ", "a b", "ann!", "ann:x", "ä", &"x".repeat(65), "a\0"] {
        assert!(Username::parse(wrong).is_err(), "{wrong:?}");
    }
    // The database holds it, too: the service renames and removes nobody.
    let mut service = app.as_service().await;
    for statement in
        ["UPDATE staff SET username = 'clara'", "DELETE FROM staff", "UPDATE staff_sessions SET staff_id = 2"]
    {
        let error = service.execute(statement).await.expect_err(statement);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
    }
    let error = service.execute("UPDATE staff SET password_hash = 'plain'").await.expect_err("hashed");
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    assert_eq!(constraint, Some("staff_password_is_hashed"), "{error}");
}
