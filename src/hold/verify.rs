//! Do the holds agree with the rows? For `hamyon verify`.

use sqlx::PgConnection;

use super::price::micro_per_unit;
use crate::fault::Fault;
use crate::money::CurrencyCode;

/// Something that is wrong: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amiss {
    /// Which hold.
    pub hold_id: String,
    /// What is wrong with it.
    pub what: String,
}

/// Settled holds whose rows don't sum up to what they were charged, rows that no settled hold stands behind, and holds
/// that were settled by usage for something else than their usage says.
///
/// # Errors
/// A fault of reading.
pub async fn verify(conn: &mut PgConnection) -> Result<Vec<Amiss>, Fault> {
    let mut amiss = Vec::new();
    let sums = sqlx::query!(
        r#"-- hold::verify_rows
           SELECT coalesce(h.hold_id, x.hold_id, '?') AS "hold_id!", h.charged AS "charged?", x.booked AS "booked?"
             FROM (SELECT hold_id, wallet_id, charged FROM holds WHERE charged > 0) h
             FULL JOIN (SELECT wallet_id, metadata ->> 'hold_id' AS hold_id, (-sum(amount))::bigint AS booked
                          FROM wallet_transactions WHERE kind = 'hold_charge' GROUP BY 1, 2) x
               ON x.wallet_id = h.wallet_id AND x.hold_id = h.hold_id
            WHERE h.charged IS DISTINCT FROM x.booked
            ORDER BY 1"#
    )
    .fetch_all(&mut *conn)
    .await?;
    for row in sums {
        let what = match (row.charged, row.booked) {
            (Some(charged), Some(booked)) => format!("it was charged {charged} minor units, and its rows say {booked}"),
            (Some(charged), None) => format!("it was charged {charged} minor units, and no row says so"),
            (None, booked) => format!("its rows say {}, and it was charged nothing", booked.unwrap_or_default()),
        };
        amiss.push(Amiss { hold_id: row.hold_id, what });
    }
    let usage = sqlx::query!(
        r#"-- hold::verify_usage
           SELECT h.hold_id, h.currency, h.charged AS "charged!", sum(u.cost_micro)::bigint AS "used_micro!"
             FROM holds h JOIN hold_usage u ON u.hold_id = h.hold_id
            WHERE h.outcome = 'settled' AND (h.ended_by <> 'worker' OR h.end_asked::json ->> 'mode' = 'by_usage'
                                             OR h.end_asked::json ->> 'end' = 'release')
            GROUP BY h.hold_id, h.currency, h.charged
           HAVING sum(u.cost_micro) > 0
            ORDER BY h.hold_id"#
    )
    .fetch_all(conn)
    .await?;
    for row in usage {
        let micro = micro_per_unit(&CurrencyCode::from_column(row.currency)?);
        let cost = micro.map(|micro| super::credits_for(row.used_micro, micro).get());
        if cost != Some(row.charged) {
            let what = format!("it used {} micro-dollars, and was charged {} minor units", row.used_micro, row.charged);
            amiss.push(Amiss { hold_id: row.hold_id, what });
        }
    }
    Ok(amiss)
}
