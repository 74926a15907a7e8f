//! What a person decides about money outside of the desk, whether it comes by `/v1` or by the console: once under its
//! key, to its end whoever hangs up (L8), and in the audit whatever becomes of it (S2).

use std::future::Future;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;

use crate::app::App;
use crate::audit::{self, Line, Who};
use crate::fault::{Error, Fault, Widen as _};
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::{Reason, TenantId};
use crate::inquiry;
use crate::money::{Exponent, MinorUnits};

/// A decision and who makes it.
pub trait Deed: Send + Sync + 'static {
    /// Its transaction's name.
    const NAME: &'static str;
    /// Why it isn't done.
    type Refusal: std::error::Error + Send + Sync + 'static;

    /// Who does it.
    fn who(&self) -> &Who;

    /// The audit's line about it, with the numbers that are in the book; a refusal says why not.
    fn line(
        &self,
        conn: &mut PgConnection,
        refusal: Option<&Self::Refusal>,
    ) -> impl Future<Output = Result<Line, Fault>> + Send;

    /// Does it on a connection whose transaction is the caller's, and says what is answered.
    fn perform(
        &self,
        conn: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> impl Future<Output = Result<Answer, Error<Self::Refusal>>> + Send;
}

/// Why a deed isn't done.
#[derive(Debug)]
pub enum DeedRefusal<R> {
    /// The key stands for another request.
    Key(KeyReused),
    /// The deed's own reason.
    Deed(R),
}

impl<R> From<KeyReused> for DeedRefusal<R> {
    fn from(reused: KeyReused) -> Self {
        Self::Key(reused)
    }
}

/// Does it, or answers what was answered under its key before.
///
/// # Errors
/// [`DeedRefusal`]; nothing was written then but the audit's line, and the key isn't bound.
pub async fn perform<D: Deed>(app: &Arc<App>, deed: D, claim: Claim) -> Result<Answer, Error<DeedRefusal<D::Refusal>>> {
    let owned = app.clone();
    app.run_to_end(async move {
        let (app, deed, claim) = (&owned, &deed, &claim);
        let outcome = app
            .db
            .run(D::NAME, |conn| {
                async move {
                    let now = app.clock.now();
                    if let Claimed::Answered(answer) = idempotency::claim(conn, claim, now).await.widen()? {
                        return Ok(answer);
                    }
                    let answer = match deed.perform(conn, now).await {
                        Ok(answer) => answer,
                        Err(Error::Fault(fault)) => return Err(Error::Fault(fault)),
                        Err(Error::Refused(refusal)) => return Err(Error::Refused(DeedRefusal::Deed(refusal))),
                    };
                    let line = deed.line(conn, None).await?;
                    audit::write(conn, deed.who(), &line, now).await?;
                    idempotency::finish_all(conn, &[(claim, &answer)]).await?;
                    Ok(answer)
                }
                .scope_boxed()
            })
            .await;
        if let Err(Error::Refused(DeedRefusal::Deed(refusal))) = &outcome {
            let line = deed.line(&mut *app.db.pool().acquire().await.map_err(Fault::from)?, Some(refusal)).await?;
            audit::write_alone(&app.db, &app.clock, deed.who(), &line).await?;
        }
        outcome
    })
    .await?
}

/// The words of a line: what it is about, why not, and last what a person wrote, in quotes, so that a long text pushes
/// nothing off the end of the line.
pub fn words(about: &str, refusal: Option<&impl std::fmt::Display>, written: Option<(&str, &Reason)>) -> String {
    let refusal = refusal.map_or_else(String::new, |refusal| format!(": {refusal}"));
    let written = written.map_or_else(String::new, |(what, text)| format!(", {what} {:?}", text.as_str()));
    format!("{about}{refusal}{written}")
}

/// A payment for a line of the audit, with whose it is; its number alone when there is no such payment.
///
/// # Errors
/// A fault.
pub async fn payment_words(conn: &mut PgConnection, payment_id: i64) -> Result<(String, Option<TenantId>), Fault> {
    let Some(payment) = inquiry::find_payment(conn, payment_id).await? else {
        return Ok((format!("payment {payment_id}"), None));
    };
    let amount = MinorUnits::new(payment.amount).to_text(Exponent::from_column(payment.exponent)?);
    let words =
        format!("payment {payment_id}, {} {}, of {amount} {}", payment.provider, payment.external_id, payment.currency);
    Ok((words, Some(TenantId::from_column(payment.tenant_id)?)))
}

/// An answer with a body, as it is kept with its key.
///
/// # Errors
/// A fault when the body can't be written.
pub fn answer(status: axum::http::StatusCode, body: &impl serde::Serialize) -> Result<Answer, Fault> {
    let body = serde_json::to_string(body).map_err(|error| Fault::new("an answer can't be written").because(error))?;
    Ok(Answer { status: status.as_u16(), body, replayed: false })
}
