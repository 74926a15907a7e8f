//! Work that nobody asks for.
//!
//! A job is a function without input: it looks at the database and brings it to where it should be, in steps
//! that are each whole. It may be killed, run late or run twice, and nothing is lost or done twice.

mod scheduler;

pub use scheduler::Scheduler;

use std::sync::Arc;

use sqlx::Connection as _;

use crate::app::App;
use crate::fault::Fault;
use crate::payment;
use crate::provider::payme;

/// The key of a job's advisory lock, so that one process of many runs it at a time.
const PAYME_SWEEP_LOCK: i64 = 0x68_61_6d_01;

/// Times out Payme transactions that nobody came back for within twelve hours. Returns how many.
///
/// # Errors
/// A fault; what was timed out before it stays timed out.
pub async fn payme_sweep(app: &Arc<App>) -> Result<u64, Fault> {
    // The lock belongs to a session, so the session is held for as long as the job runs.
    let mut leader = app.db.pool().acquire().await?;
    let leads: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(PAYME_SWEEP_LOCK).fetch_one(&mut *leader).await?;
    if !leads {
        return Ok(0);
    }
    let swept = payment::sweep_expired(&app.db, &app.clock, payme::PROVIDER, app.payme.terms()).await;
    let released = sqlx::query("SELECT pg_advisory_unlock($1)").bind(PAYME_SWEEP_LOCK).execute(&mut *leader).await;
    if released.is_err() {
        // The lock ends with its session.
        leader.detach().close().await?;
    }
    swept
}
