//! Sending a request until it is answered, refused, or enough.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use secrecy::ExposeSecret as _;
use serde::de::DeserializeOwned;

use super::retry::TOO_MANY;
use super::{Client, Error, Problem};

/// No answer of the service is nearly as long; something else's might be.
const ANSWER_BYTES_MAX: usize = 4_194_304;

/// A request, which may be sent more than once.
#[derive(Debug)]
pub(super) struct Call {
    pub method: Method,
    pub url: Url,
    pub body: Option<String>,
    /// The `Idempotency-Key`, where the path doesn't name the effect.
    pub key: Option<String>,
}

struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

/// An attempt without success.
enum Failure {
    NoAnswer(reqwest::Error),
    Problem(Box<Problem>),
}

impl Failure {
    fn status(&self) -> Option<u16> {
        match self {
            Self::NoAnswer(_) => None,
            Self::Problem(problem) => Some(problem.status),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoAnswer(_) => None,
            Self::Problem(problem) => problem.retry_after,
        }
    }

    fn into_error(self, attempts: u32) -> Error {
        match self {
            Self::NoAnswer(cause) => Error::NoAnswer { attempts, cause },
            Self::Problem(problem) if problem.status >= 500 => Error::Failed { attempts, problem },
            Self::Problem(problem) => Error::Refused(problem),
        }
    }
}

/// Sends a request, again where that helps, and reads the answer.
pub(super) async fn send<T: DeserializeOwned>(client: &Client, call: &Call) -> Result<T, Error> {
    let mut faults: u32 = 0;
    let mut waited = Duration::ZERO;
    loop {
        let failure = match attempt(client, call).await {
            Ok(answer) if answer.status.is_success() => {
                let status = answer.status.as_u16();
                return serde_json::from_slice(&answer.body).map_err(|cause| Error::Unreadable { status, cause });
            }
            Ok(answer) => {
                let status = answer.status.as_u16();
                Failure::Problem(Box::new(Problem::read(status, answer.retry_after, &answer.body)))
            }
            // It couldn't even be put together, so it never will be.
            Err(cause) if cause.is_builder() => return Err(Error::NoAnswer { attempts: 0, cause }),
            Err(cause) => Failure::NoAnswer(cause),
        };
        let wants_room = failure.status() == Some(TOO_MANY);
        if !wants_room {
            faults = faults.saturating_add(1);
        }
        let Some(wait) = client.retry.wait(failure.status(), failure.retry_after(), faults, waited) else {
            return Err(failure.into_error(faults));
        };
        if wants_room {
            waited = waited.saturating_add(wait);
        }
        tokio::time::sleep(wait).await;
    }
}

async fn attempt(client: &Client, call: &Call) -> Result<Answer, reqwest::Error> {
    // The library marks this header as a secret, so it is in no log of its own either.
    let mut request = client
        .http
        .request(call.method.clone(), call.url.clone())
        .timeout(client.timeout)
        .bearer_auth(client.token.expose_secret());
    if let Some(key) = &call.key {
        request = request.header("idempotency-key", key);
    }
    if let Some(body) = &call.body {
        request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
    }
    let mut response = request.send().await?;
    let (status, retry_after) = (response.status(), retry_after(response.headers()));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    Ok(Answer { status, retry_after, body })
}

/// Seconds; the service never says a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
