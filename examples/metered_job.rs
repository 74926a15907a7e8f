//! A fake metered job, from its hold to its settlement, against a wallet that runs (`make run`):
//!
//! ```sh
//! export HAMYON_API_TOKEN=hamyon_demo_token_for_this_machine_only
//! cargo run --release --example metered_job --features client
//! ```
//!
//! `HAMYON_URL` is `http://127.0.0.1:8080` and `HAMYON_TENANT` is `acme` when left out.

use std::time::Duration;

use anyhow::Context as _;
use hamyon::client::{
    Client, Error, Grant, ModelPrice, Money, NewHold, PriceBook, Pulse, Settle, Standing, Usage, Used,
};
use rust_decimal::Decimal;
use secrecy::SecretString;
use uuid::Uuid;

/// The wallet's unit: a credit is $0.001.
const CURRENCY: &str = "CREDIT";
/// What the job asks for, a little more than it will use.
const ASKED: u32 = 60;
/// How long a sign of life counts.
const LEASE_SECS: u32 = 15;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = setting("HAMYON_URL", "http://127.0.0.1:8080");
    let tenant = setting("HAMYON_TENANT", "acme");
    let token = std::env::var("HAMYON_API_TOKEN")
        .context("HAMYON_API_TOKEN must hold a token; `make run` prints the demonstration's")?;
    let client = Client::new(&url, SecretString::from(token))?;
    // The job's own id: whoever is given this job again comes to the same hold.
    let job = format!("metered-job-{}", Uuid::now_v7().simple());

    let model = model(&client).await?;
    let before = money(&client, &tenant, &job).await?;
    println!("{tenant} has {before} {CURRENCY} available");

    let mut ask = NewHold::of_amount(&job, &tenant, CURRENCY, ASKED.into());
    ask.allow_partial = true;
    ask.max_in_flight = Some(3);
    let hold = client.place(&ask).await?;
    if hold.outcome == Some(Standing::Placed) {
        println!("placed {job}: {} held, it may cost {}", hold.amount, hold.cost_cap);
    }
    for part in &hold.allocations {
        println!("  {} from pocket {}", part.amount, part.pocket);
    }

    client.start(&job, Some(LEASE_SECS)).await?;
    let worked = client.while_beating(&job, LEASE_SECS, |pulse| work(&client, &job, &model, pulse)).await;
    if let Some(stop) = &worked.stop {
        println!("asked to stop: {stop:?}");
    }
    let ended = match worked.output {
        Ok(()) => client.settle(&job, Settle::ByUsage).await?,
        Err(error) => {
            // The calls that were reported are paid; had there been none, nothing would be.
            println!("the work failed: {error}");
            client.release(&job).await?
        }
    };

    let charged = ended.charged.unwrap_or_default();
    println!("{:?} by {}: charged {charged}", ended.status, ended.settled_by.as_deref().unwrap_or("nobody"));
    let after = client.balance(&tenant, CURRENCY).await?;
    println!("balance {}, held {}, available {}", after.balance, after.held, after.available);
    Ok(())
}

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

/// The cheapest model of the price book; a book is written when there is none.
async fn model(client: &Client) -> anyhow::Result<String> {
    let book = match client.price_book().await? {
        Some(book) => book,
        None => first_book(client).await?,
    };
    let cheap = book.models.into_iter().min_by_key(|price| price.output).context("the price book is empty")?;
    println!("price book {}: {} at {} / {} / {}", book.version, cheap.model, cheap.input, cheap.output, cheap.cached);
    Ok(cheap.model)
}

async fn first_book(client: &Client) -> anyhow::Result<PriceBook> {
    let price = |text: &str| Decimal::from_str_exact(text).map(Money);
    // US dollars for a million tokens.
    let small =
        ModelPrice { model: "small".to_owned(), input: price("3")?, output: price("15")?, cached: price("0.3")? };
    Ok(client.write_price_book(1, &[small]).await?)
}

/// What is available, after a grant when that isn't enough for the job.
async fn money(client: &Client, tenant: &str, job: &str) -> Result<Money, Error> {
    let balance = client.balance(tenant, CURRENCY).await?;
    if balance.available >= Money::from(ASKED) {
        return Ok(balance.available);
    }
    let grant = Grant {
        currency: CURRENCY.to_owned(),
        pocket: "metered-job".to_owned(),
        amount: 500_u32.into(),
        expires_at: None,
        reason: Some("For the example of a metered job".to_owned()),
    };
    let granted = client.grant(tenant, job, &grant).await?;
    println!("granted {} into pocket {}", granted.amount, granted.pocket);
    Ok(client.balance(tenant, CURRENCY).await?.available)
}

/// Five calls of a model, or fewer when the money is used up or somebody asks to stop.
async fn work(client: &Client, job: &str, model: &str, mut pulse: Pulse) -> Result<(), Error> {
    for number in 1..=5_u64 {
        // The call of the model. Who is asked to stop in the middle of it doesn't wait for its end.
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(400)) => {}
            _ = pulse.stopped() => return Ok(()),
        }
        let usage = Usage::Tokens { model: model.to_owned(), input: 1_200, output: 400, cached: 3_000 };
        let used: Used = client.report(job, &format!("call-{number}"), &usage).await?;
        println!(
            "call {number} cost {} micro-dollars; used {} {CURRENCY}, {} left{}",
            used.cost_micro,
            used.used,
            used.remaining,
            if used.stop { ": stop" } else { "" }
        );
        if used.stop {
            break;
        }
    }
    Ok(())
}
