//! A check that never fails is decoration. Each mistake that a merchant's code can have is switched on alone, and the check
//! that exists for it must fail.

use super::{check, failed, options};
use crate::support::fake_merchant::{Defect, FakeMerchant};

/// Each mistake, and the check that must notice it.
const CAUGHT: &[(Defect, &[&str])] = &[
    (
        Defect::UnauthorizedAs401,
        &["auth.wrong-key.PerformTransaction", "auth.no-header.GetStatement", "answers.http-200"],
    ),
    (Defect::ParamsBeforeAuth, &["auth.before-params"]),
    (Defect::SplitsAtColon, &["auth.longer-key"]),
    (Defect::IgnoresLogin, &["auth.wrong-login"]),
    (Defect::SchemeCaseSensitive, &["auth.scheme-case"]),
    (Defect::GetAs405, &["envelope.get", "envelope.put", "answers.http-200"]),
    (Defect::RejectsTextJson, &["envelope.text-json"]),
    (Defect::RequiresJsonrpc, &["envelope.no-jsonrpc"]),
    (Defect::AnswersBatch, &["envelope.batch"]),
    (
        Defect::DropsId,
        &["envelope.id.string", "envelope.id.null", "envelope.unreadable-id", "auth.id-echoed", "answers.id-echoed"],
    ),
    (Defect::StringId, &["envelope.id.number", "envelope.id.fractional", "answers.id-echoed"]),
    (Defect::NullErrorBesideResult, &["answers.result-or-error"]),
    (Defect::HtmlContentType, &["envelope.content-type-out", "answers.content-type"]),
    (Defect::NoMethodInData, &["envelope.unknown-method-data"]),
    (Defect::KeepsChangePassword, &["envelope.change-password"]),
    (
        Defect::PlainMessage,
        &[
            "accounts.unknown.accumulative.check.message",
            "accounts.unknown.one-time.create.message",
            "scenario-1.one-time.second-id-message",
        ],
    ),
    (Defect::NoFieldInData, &["accounts.unknown.accumulative.check.data", "accounts.unknown.one-time.create.data"]),
    (Defect::AmountBeforeAccount, &["accounts.unknown.accumulative.before-amount"]),
    (
        Defect::AcceptsExponent,
        &[
            "amounts.accumulative.exponent.check",
            "amounts.accumulative.exponent.create",
            "amounts.accumulative.nothing-created",
        ],
    ),
    (Defect::AcceptsZero, &["amounts.accumulative.zero.check", "amounts.accumulative.zero.create"]),
    (Defect::AcceptsAnyOrderAmount, &["amounts.one-time.one-more.check", "amounts.one-time.one-less.create"]),
    (
        Defect::BusyNotDetected,
        &[
            "scenario-1.one-time.second-id-refused",
            "scenario-1.one-time.check-perform-busy",
            "concurrency.race.one-wins",
        ],
    ),
    (Defect::RaceWindow, &["concurrency.race.one-wins", "concurrency.accumulative.create"]),
    (Defect::OneOpenPaymentPerWallet, &["scenario-1.accumulative.second-id-created"]),
    (Defect::CreateRestamps, &["scenario-1.accumulative.create-again", "scenario-2.one-time.create-again"]),
    (
        Defect::PerformRestamps,
        &["scenario-2.accumulative.perform-again", "scenario-2.one-time.check-transaction-performed"],
    ),
    (Defect::CancelRestamps, &["scenario-2.accumulative.cancel-again"]),
    (Defect::OverwritesAmount, &["scenario-1.accumulative.same-id-other-amount", "statement.members"]),
    (
        Defect::OverwritesReason,
        &["scenario-1.accumulative.check-transaction-cancelled", "scenario-2.one-time.check-transaction-refunded"],
    ),
    (
        Defect::NullForUnsetTime,
        &["scenario-1.one-time.check-transaction-created", "statement.states", "answers.member-types"],
    ),
    (
        Defect::ZeroForUnsetReason,
        &["scenario-1.one-time.check-transaction-created", "scenario-2.accumulative.check-transaction-performed"],
    ),
    (Defect::ForgetsPerformTime, &["scenario-2.accumulative.check-transaction-refunded"]),
    (
        Defect::AnswersCreateInAnyState,
        &[
            "scenario-1.accumulative.create-cancelled",
            "scenario-2.accumulative.create-performed",
            "scenario-2.one-time.create-refunded",
        ],
    ),
    (Defect::PerformsCancelled, &["scenario-1.accumulative.perform-cancelled", "scenario-2.one-time.perform-refunded"]),
    (Defect::PaidOrderPayable, &["scenario-2.one-time.paid-check", "scenario-2.one-time.paid-create"]),
    (Defect::OrderStaysBusy, &["scenario-1.one-time.freed"]),
    (Defect::ReasonOptional, &["scenario-1.accumulative.cancel-without-reason"]),
    (Defect::NoTimeLimit, &["expiry.stale-create", "expiry.stale-nothing-created"]),
    (Defect::StatementBySequence, &["statement.ascending"]),
    (Defect::StatementWithoutCancelled, &["statement.includes-cancelled"]),
    (Defect::StatementEndExclusive, &["statement.both-ends-inclusive"]),
    (Defect::ReceiptOnce, &["fiscal.perform-receipt-again"]),
    (Defect::RefundsSpentMoney, &["spent.cancel", "spent.unchanged"]),
    (
        Defect::UnknownIdAsImpossible,
        &["unknown-ids.PerformTransaction", "unknown-ids.CancelTransaction", "unknown-ids.CheckTransaction"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_defect_fails_the_check_that_exists_for_it() {
    let mut missed = Vec::new();
    for (defect, expected) in CAUGHT {
        let merchant = FakeMerchant::start(Some(*defect)).await;
        let report = check(options(&merchant)).await;
        let failed = failed(&report);
        for id in *expected {
            if !failed.contains(id) {
                missed.push(format!("{defect:?}: {id} did not fail; failed: {failed:?}"));
            }
        }
        assert_eq!(report.exit_code(), 1, "{defect:?}");
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
