//! Who opens a connection and doesn't say what he wants must shut nobody else out: not by holding every file that
//! the process may open, not for ever, and not without a word in the log. And who has said it all is answered.

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::book::Book;
use crate::support::process::{Serving, serve};

const HALF: &[u8] = b"POST /v1/tenants HTTP/1.1\r\nHost: here\r\n";
const WHOLE: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n";

async fn connect(serving: &Serving) -> TcpStream {
    TcpStream::connect(serving.url.trim_start_matches("http://")).await.unwrap()
}

/// The first line of an answer; empty when the connection was closed without one.
async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await {
            Ok(0) | Err(_) => break,
            Ok(_) => bytes.extend(byte),
        }
    }
    String::from_utf8(bytes).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn three_hundred_half_heads_do_not_starve_a_process_of_256_files() {
    let book = Book::new().await;
    // The same program and settings, from a shell that has lowered its limit.
    let program = serve();
    let program = program.as_std();
    let mut limited = tokio::process::Command::new("sh");
    limited.kill_on_drop(true).args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""]);
    limited.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.env("DATABASE_URL", &book.url);
    let serving = Serving::launch(limited).await;
    serving.has_logged("at most 136 connections at once, not 4096").await;

    let mut halves = Vec::new();
    for _ in 0..300 {
        let mut half = connect(&serving).await;
        half.write_all(HALF).await.unwrap();
        halves.push(half);
    }
    serving.has_logged("all 136 connections are in use (HAMYON_CONNECTIONS_MAX)").await;
    let mut caller = connect(&serving).await;
    caller.write_all(WHOLE).await.unwrap();
    assert_eq!(answer(&mut caller).await, "HTTP/1.1 200 OK", "he waits for a place, and gets one");
    let said = serving.stop().await;
    assert!(!said.contains("could not be accepted") && !said.contains("were cut"), "{said}");
}

#[tokio::test]
async fn the_bound_on_connections_is_a_setting_and_a_place_is_free_again_at_once() {
    let book = Book::new().await;
    let mut command = serve();
    command.env("DATABASE_URL", &book.url).env("HAMYON_CONNECTIONS_MAX", "2");
    let serving = Serving::launch(command).await;
    let mut held = [connect(&serving).await, connect(&serving).await];
    for stream in &mut held {
        stream.write_all(WHOLE).await.unwrap();
        assert_eq!(answer(stream).await, "HTTP/1.1 200 OK");
    }
    let mut third = connect(&serving).await;
    third.write_all(WHOLE).await.unwrap();
    serving.has_logged("all 2 connections are in use").await;
    let [first, _second] = held;
    drop(first);
    assert_eq!(answer(&mut third).await, "HTTP/1.1 200 OK");
    serving.stop().await;
}

#[tokio::test]
async fn who_closes_his_side_after_a_whole_request_is_answered() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    let mut stream = connect(&serving).await;
    let body = r#"{"id":7,"method":"CheckPerformTransaction","params":{}}"#;
    let request = format!("POST /payme HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("-32504"), "{answer}");
    serving.stop().await;
}

#[tokio::test]
async fn half_a_head_ends_by_itself_and_does_not_make_the_exit_a_bad_one() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    let mut half = connect(&serving).await;
    half.write_all(HALF).await.unwrap();
    let mut last = connect(&serving).await;
    last.write_all(WHOLE).await.unwrap();
    assert_eq!(answer(&mut last).await, "HTTP/1.1 200 OK", "the half was accepted before this one");

    serving.signal(Signal::SIGTERM);
    assert_eq!(answer(&mut half).await, "");
    let (status, said) = serving.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("were cut"), "{said}");
}
