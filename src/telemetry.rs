//! Logs and metrics.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error. `RUST_LOG` says what is worth a line.
///
/// # Errors
/// When `RUST_LOG` can't be read.
pub fn start_log(format: LogFormat, default_filter: &str) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => EnvFilter::try_new(&text).with_context(|| format!("RUST_LOG: {text:?} is not a filter"))?,
        Err(_) => EnvFilter::new(default_filter),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().with_current_span(true).with_span_list(false).init(),
    }
    Ok(())
}

/// Starts recording metrics for `/metrics`.
///
/// # Errors
/// When this process records already.
pub fn record_metrics() -> anyhow::Result<PrometheusHandle> {
    let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)?
        .install_recorder()?;
    metrics::describe_counter!("hamyon_http_requests_total", "Requests by method, route and status");
    metrics::describe_histogram!("hamyon_http_request_duration_seconds", "Time to the answer by route");
    metrics::describe_counter!("hamyon_transactions_total", "Database transactions by name and how they ended");
    metrics::describe_histogram!("hamyon_transaction_duration_seconds", "Time of one attempt by transaction");
    metrics::describe_counter!("hamyon_provider_calls_total", "Calls of payment providers by method and answered code");
    metrics::describe_counter!("hamyon_job_runs_total", "Runs of scheduled jobs by how they ended");
    metrics::describe_counter!("hamyon_fees_decided_total", "Dues decided by runs, charged or overdue");
    metrics::describe_counter!("hamyon_holds_reconciled_total", "Expired holds by what became of them");
    metrics::describe_counter!(
        "hamyon_hold_usage_too_late_total",
        "Calls that were reported after their hold had ended"
    );
    metrics::describe_counter!("hamyon_webhook_attempts_total", "Attempts to deliver an event by their result");
    metrics::describe_gauge!("hamyon_outbox_oldest_age_seconds", "Age of the oldest event that waits for delivery");
    metrics::describe_gauge!("hamyon_database_connections", "Open connections of the pool");
    metrics::describe_gauge!("hamyon_database_connections_idle", "Connections of the pool that wait for work");
    Ok(handle)
}
