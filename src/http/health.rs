//! What an operator's machines ask.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;

/// The process is alive.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The database answers.
pub async fn readyz(State(app): State<Arc<App>>) -> Response {
    let asked = sqlx::query("SELECT 1").execute(app.db.pool());
    match tokio::time::timeout(Duration::from_secs(2), asked).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the database doesn't answer\n").into_response(),
    }
}

/// Prometheus' text format.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let pool = app.db.pool();
    metrics::gauge!("hamyon_database_connections").set(pool.size());
    metrics::gauge!("hamyon_database_connections_idle").set(u32::try_from(pool.num_idle()).unwrap_or(u32::MAX));
    let waiting = async {
        let mut conn = pool.acquire().await?;
        crate::outbox::oldest_waiting_at(&mut conn).await
    };
    // A scrape doesn't fail because the database is away; the other numbers say more then.
    if let Ok(Ok(oldest)) = tokio::time::timeout(Duration::from_secs(2), waiting).await {
        let age = oldest.map_or(0, |at| app.clock.now().signed_duration_since(at).num_seconds().max(0));
        metrics::gauge!("hamyon_outbox_oldest_age_seconds").set(u32::try_from(age).unwrap_or(u32::MAX));
    }
    match &app.metrics {
        Some(handle) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response()
        }
        None => (StatusCode::NOT_FOUND, "nothing is recorded\n").into_response(),
    }
}
