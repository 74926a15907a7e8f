//! Rule S2: the people at the desk are made and shut out by `hamyon staff`, on the server. It says no secret,
//! and what it says no to has changed nothing.

use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt as _;

use crate::support::book::Book;
use crate::support::process::{hamyon, run, said};

const PASSWORD: &str = "correct horse battery staple";

async fn staff(book: &Book, arguments: &[&str]) -> Output {
    run(hamyon().arg("staff").args(arguments).env("DATABASE_URL", &book.url)).await
}

/// With a text on standard input.
async fn staff_reading(book: &Book, arguments: &[&str], input: &str) -> Output {
    let mut command = hamyon();
    command.arg("staff").args(arguments).env("DATABASE_URL", &book.url).env("RUST_LOG", "trace");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // A program that refuses before it reads closes the pipe.
    let _ = pipe.write_all(input.as_bytes()).await;
    drop(pipe);
    child.wait_with_output().await.unwrap()
}

async fn everything(book: &Book) -> String {
    sqlx::query_scalar(
        "SELECT concat_ws('|', (SELECT string_agg(t::text, ',') FROM staff t), (SELECT string_agg(t::text, ',') FROM audit_log t))",
    )
    .fetch_one(&mut book.session().await)
    .await
    .unwrap()
}

async fn list(book: &Book) -> Vec<Vec<String>> {
    let listed = staff(book, &["list"]).await;
    assert_eq!(listed.status.code(), Some(0), "{}", said(&listed));
    let lines = String::from_utf8(listed.stdout).unwrap();
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

async fn hash_of_ann(book: &Book) -> String {
    sqlx::query_scalar("SELECT password_hash FROM staff WHERE username = 'ann'")
        .fetch_one(&mut book.session().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn s2_people_are_added_changed_and_shut_out_end_to_end() {
    let book = Book::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let file = file.to_str().unwrap();
    let mut heard = String::new();

    let added = staff_reading(&book, &["add", "Ann"], &format!("{PASSWORD}\r\nanother line\n")).await;
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    assert!(said(&added).contains("ann can log in at /console, as viewer."), "{}", said(&added));
    heard.push_str(&said(&added));
    let added = staff(&book, &["add", "boris", "--role", "approver", "--password-file", file]).await;
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    heard.push_str(&said(&added));
    let people = list(&book).await;
    assert_eq!(people.len(), 2, "{people:?}");
    assert_eq!((&people[0][..3], &people[0][4][..]), (&["ann", "viewer", "password"].map(String::from)[..], "active"));
    assert_eq!(people[1][..3], ["boris", "approver", "password"].map(String::from));

    let changed = staff(&book, &["role", "ann", "agent"]).await;
    assert_eq!(changed.status.code(), Some(0), "{}", said(&changed));
    let code = staff(&book, &["code", "ann"]).await;
    assert_eq!(code.status.code(), Some(0), "{}", said(&code));
    let url = String::from_utf8(code.stdout).unwrap();
    assert!(url.starts_with("otpauth://totp/Hamyon:ann?secret=") && url.trim().lines().count() == 1, "{url}");
    let secret = url.split("secret=").nth(1).unwrap().split('&').next().unwrap().trim().to_owned();
    assert!(!String::from_utf8_lossy(&code.stderr).contains(&secret), "it stands on standard output only");
    let people = list(&book).await;
    assert_eq!(people[0][..3], ["ann", "agent", "password and code"].map(String::from));
    heard.push_str(&people[0].join(" "));
    let off = staff(&book, &["code", "ann", "--off"]).await;
    assert_eq!(off.status.code(), Some(0), "{}", said(&off));
    heard.push_str(&said(&off));

    let before = hash_of_ann(&book).await;
    let changed = staff_reading(&book, &["password", "ann"], "another long password").await;
    assert_eq!(changed.status.code(), Some(0), "{}", said(&changed));
    assert_ne!(hash_of_ann(&book).await, before);
    heard.push_str(&said(&changed));
    let disabled = staff(&book, &["disable", "ann"]).await;
    assert_eq!(disabled.status.code(), Some(0), "{}", said(&disabled));
    let people = list(&book).await;
    assert!(people[0][4].starts_with("disabled 20"), "{people:?}");

    for secret in [PASSWORD, "another long password", "another line", &secret, "$argon2id$"] {
        assert!(!heard.contains(secret), "{secret}: {heard}");
    }
    let lines: Vec<(String, String, bool)> =
        sqlx::query_as("SELECT actor, action, allowed FROM audit_log ORDER BY seq")
            .fetch_all(&mut book.session().await)
            .await
            .unwrap();
    let actions: Vec<&str> = lines.iter().map(|(_, action, _)| action.as_str()).collect();
    assert_eq!(
        actions,
        [
            "staff.add",
            "staff.add",
            "staff.role",
            "staff.second_factor",
            "staff.second_factor",
            "staff.password",
            "staff.disable"
        ]
    );
    assert!(lines.iter().all(|(actor, _, allowed)| actor == "cli" && *allowed), "{lines:?}");
    let kept = everything(&book).await;
    assert!(!kept.contains(PASSWORD) && !kept.contains("another long password"));
    book.is_clean().await;
}

#[tokio::test]
async fn s2_what_is_refused_changes_nothing_and_says_why() {
    let book = Book::new().await;
    let added = staff_reading(&book, &["add", "ann"], PASSWORD).await;
    assert_eq!(added.status.code(), Some(0), "{}", said(&added));
    let before = everything(&book).await;
    for (arguments, input, says) in [
        (&["add", "ann"][..], PASSWORD, "a name is never given twice"),
        (&["add", "two words"], PASSWORD, "username"),
        (&["add", "clara", "--role", "god"], PASSWORD, "viewer, agent, approver, admin"),
        (&["add", "clara"], "", "at least 10 characters"),
        (&["add", "clara"], "hunter2", "at least 10 characters"),
        (&["add", "clara", "--password-file", "/nowhere/password"], "", "/nowhere/password"),
        (&["role", "nobody", "agent"], "", "nobody is called nobody"),
        (&["role", "ann", "god"], "", "viewer, agent, approver, admin"),
        (&["disable", "nobody"], "", "nobody is called nobody"),
        (&["password", "nobody"], PASSWORD, "nobody is called nobody"),
        (&["password", "ann"], "hunter2", "at least 10 characters"),
        (&["code", "nobody"], "", "nobody is called nobody"),
    ] {
        let refused = staff_reading(&book, arguments, input).await;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", said(&refused));
        assert!(said(&refused).contains(says), "{arguments:?}: {}", said(&refused));
        assert!(!said(&refused).contains("hunter2") && !said(&refused).contains(PASSWORD), "{}", said(&refused));
    }
    assert_eq!(everything(&book).await, before);
}

#[tokio::test]
async fn s2_tokens_that_are_made_and_revoked_are_in_the_audit_without_their_secrets() {
    let book = Book::new().await;
    let token =
        async |arguments: &[&str]| run(hamyon().arg("token").args(arguments).env("DATABASE_URL", &book.url)).await;
    let made = token(&["create", "--client", "shop", "--scope", "support:write,tenants:read"]).await;
    assert_eq!(made.status.code(), Some(0), "{}", said(&made));
    let secret = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert_eq!(token(&["create", "--client", "shop", "--scope", "anything"]).await.status.code(), Some(1));
    let number = sqlx::query_scalar::<_, i64>("SELECT max(token_id) FROM api_tokens")
        .fetch_one(&mut book.session().await)
        .await
        .unwrap()
        .to_string();
    assert_eq!(token(&["revoke", &number]).await.status.code(), Some(0));
    assert_eq!(token(&["revoke", &number]).await.status.code(), Some(1), "it is revoked already");
    let lines: Vec<(String, String, String)> =
        sqlx::query_as("SELECT action, actor, words FROM audit_log ORDER BY seq")
            .fetch_all(&mut book.session().await)
            .await
            .unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((lines[0].0.as_str(), lines[0].1.as_str()), ("token.create", "cli"));
    assert!(lines[0].2.contains("for shop: no end, allows support:write,tenants:read"), "{lines:?}");
    assert_eq!((lines[1].0.as_str(), lines[1].2.clone()), ("token.revoke", format!("token {number} is revoked")));
    assert!(!format!("{lines:?}").contains(&secret));
}
