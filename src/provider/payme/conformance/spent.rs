//! A refund after the money was spent: -31007, and nothing changes.
//!
//! Only the merchant can spend a wallet's money, so a command of his is run between Perform and Cancel. It must leave the
//! account with less than was paid in.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::expect::{self, Mismatch, Verdict};
use super::payment::Payment;
use super::snapshot::{self, Snapshot};
use super::suite::{ANY_ACCOUNT_HINT, Check, Group, NO_ACCOUNT, Suite, Target, check};

/// Long enough for a command that talks to a server, short enough for a pipeline.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

const CHECKS: &[Check] = &[
    check("performed", "§5 further", "a payment is created and performed"),
    check("command", "§5 further", "the spend command succeeds"),
    check("cancel", "§5 further", "CancelTransaction is answered with -31007"),
    check("cancel-again", "§5 further", "and so is its repeat"),
    check("unchanged", "§3", "CheckTransaction: still state 2, cancel_time 0, reason null"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let Some(command) = suite.options.spend_command.clone() else {
        let reason = "only the merchant can spend what was paid in";
        suite.group("", CHECKS).close(reason, Some("--spend-command 'a shell command'"));
        return;
    };
    let target = suite.take_any();
    let mut group = suite.group("", CHECKS);
    let Some(target) = target else {
        group.close(NO_ACCOUNT, Some(ANY_ACCOUNT_HINT));
        return;
    };
    walk(&mut group, &target, &command).await;
    group.close_after_failure();
}

async fn walk(group: &mut Group<'_, '_>, target: &Target, command: &str) -> Option<()> {
    let client = group.client();
    let payment = Payment::new(&target.account, target.amount);
    let create = client.create(&payment).await;
    let perform = client.perform(&payment.id).await;
    let performed = snapshot::created(&create).and_then(|created| snapshot::performed(&perform, &created));
    let performed = group.keep("performed", &[&create, &perform], performed)?;
    if !group.record("command", &[], spend(command, &payment, &performed).await) {
        client.cancel(&payment.id, 5).await;
        return None;
    }
    for step in ["cancel", "cancel-again"] {
        let refused = client.cancel(&payment.id, 5).await;
        group.expect_error(step, &refused, -31_007);
    }
    let check = client.check(&payment.id).await;
    group.record("unchanged", &[&check], performed.verify(&check));
    Some(())
}

async fn spend(command: &str, payment: &Payment, performed: &Snapshot) -> Verdict {
    let expected = "a command that ends with success";
    let child = Command::new("sh")
        .arg("-c")
        .arg(command)
        // The command has no need of the cashbox key, which may have come through the environment.
        .env_remove("HAMYON_PAYME_KEY")
        .env("HAMYON_ACCOUNT", &payment.account.value)
        .env("HAMYON_ACCOUNT_FIELD", &payment.account.field)
        .env("HAMYON_AMOUNT", payment.amount.to_string())
        .env("HAMYON_TRANSACTION", &performed.transaction)
        .env("HAMYON_PAYME_ID", &payment.id)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(COMMAND_TIMEOUT, child).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let got = format!("{}: {}", output.status, expect::shorten(errors.trim()));
            Err(Mismatch::new(expected, got))
        }
        Ok(Err(error)) => Err(Mismatch::new(expected, format!("it could not be started: {error}"))),
        Err(_) => Err(Mismatch::new(expected, "it was still running after 60 seconds")),
    }
}
