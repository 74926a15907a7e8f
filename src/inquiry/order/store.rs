//! The statements of an order's story.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::ids::OrderId;

/// One thing that happened about an order.
#[derive(Debug, Clone)]
pub struct OrderMoment {
    /// When.
    pub at: DateTime<Utc>,
    /// What: ordered, closed, yes, no, held, hold_ended, promised, paid, payment_cancelled, booked, cancelled,
    /// refund_asked, refund_checking, refunded, refund_failed, case_opened, case_resolved.
    pub what: String,
    /// More about it, in codes and ids.
    pub about: String,
}

/// The tables' own rows, laid side by side. A payment is of the order that it names, whether or not it was the order's.
pub async fn order_story(conn: &mut PgConnection, order_id: &OrderId) -> Result<Vec<OrderMoment>, Fault> {
    Ok(sqlx::query_as!(
        OrderMoment,
        r#"-- inquiry::order_story
           WITH of_order AS (
               SELECT p.payment_id, p.external_id, p.provider, p.created_at, p.performed_at, p.cancelled_at,
                      r.decision, r.why, r.payer
                 FROM payments p LEFT JOIN receipts r ON r.payment_id = p.payment_id
                WHERE p.mode = 'live' AND (p.order_id = $1 OR r.named_order = $1)
           )
           SELECT at AS "at!", what AS "what!", about AS "about!" FROM (
               SELECT created_at AS at, 'ordered' AS what, title AS about, 1 AS place FROM orders WHERE order_id = $1
               UNION ALL
               SELECT closed_at, 'closed', '', 2 FROM orders WHERE order_id = $1 AND closed_at IS NOT NULL
               UNION ALL
               SELECT decided_at, CASE WHEN refusal IS NULL THEN 'yes' ELSE 'no' END,
                      concat_ws(' ', query_id, payer, refusal), 3
                 FROM checkouts WHERE named_order = $1
               UNION ALL
               SELECT held_at, 'held', concat('slot ', slot_id, ' until ',
                      to_char(held_until AT TIME ZONE 'Asia/Tashkent', 'YYYY-MM-DD HH24:MI:SS')), 4
                 FROM slot_holds WHERE order_id = $1
               UNION ALL
               SELECT ended_at, 'hold_ended', 'slot ' || slot_id, 5
                 FROM slot_holds WHERE order_id = $1 AND ended_at IS NOT NULL
               UNION ALL
               SELECT created_at, 'promised', provider || ':' || external_id, 6 FROM of_order WHERE decision IS NULL
               UNION ALL
               SELECT performed_at, 'paid', concat_ws(' ', provider || ':' || external_id, payer, decision, why), 7
                 FROM of_order WHERE performed_at IS NOT NULL
               UNION ALL
               SELECT cancelled_at, 'payment_cancelled', provider || ':' || external_id, 8
                 FROM of_order WHERE cancelled_at IS NOT NULL AND performed_at IS NULL
               UNION ALL
               SELECT booked_at, 'booked', 'booking ' || booking_id, 9 FROM bookings WHERE order_id = $1
               UNION ALL
               SELECT cancelled_at, 'cancelled', concat_ws(' ', 'booking ' || booking_id, cancelled_by, cancel_reason,
                      refund), 10
                 FROM bookings WHERE order_id = $1 AND cancelled_at IS NOT NULL
               UNION ALL
               SELECT t.created_at, 'refund_asked', concat_ws(' ', t.why, t.requested_by), 11
                 FROM refund_tasks t JOIN of_order o ON o.payment_id = t.payment_id
               UNION ALL
               SELECT t.checking_since, 'refund_checking', coalesce(t.last_problem, ''), 12
                 FROM refund_tasks t JOIN of_order o ON o.payment_id = t.payment_id WHERE t.checking_since IS NOT NULL
               UNION ALL
               SELECT t.failed_at, 'refund_failed', coalesce(t.failure, ''), 13
                 FROM refund_tasks t JOIN of_order o ON o.payment_id = t.payment_id WHERE t.failed_at IS NOT NULL
               UNION ALL
               SELECT cancelled_at, 'refunded', provider || ':' || external_id, 14
                 FROM of_order WHERE cancelled_at IS NOT NULL AND performed_at IS NOT NULL
               UNION ALL
               SELECT c.opened_at, 'case_opened', c.case_id || ' ' || c.kind, 15
                 FROM payment_cases c JOIN of_order o ON o.payment_id = c.payment_id
               UNION ALL
               SELECT c.resolved_at, 'case_resolved', concat_ws(' ', c.case_id::text, c.resolution, c.resolved_by), 16
                 FROM payment_cases c JOIN of_order o ON o.payment_id = c.payment_id WHERE c.resolved_at IS NOT NULL
           ) AS story (at, what, about, place)
           ORDER BY at, place LIMIT 500"#,
        order_id.as_str(),
    )
    .fetch_all(conn)
    .await?)
}

/// A slot and whom it belongs to.
#[derive(Debug, Clone)]
pub struct SlotLine {
    /// Its number.
    pub slot_id: i64,
    /// Whose time.
    pub resource_id: String,
    /// When it begins.
    pub starts_at: DateTime<Utc>,
    /// When it ends.
    pub ends_at: DateTime<Utc>,
    /// The resource's zone.
    pub time_zone: String,
    /// The order that has booked it.
    pub booked_by: Option<String>,
    /// The order that holds it now.
    pub held_by: Option<String>,
    /// Until when.
    pub held_until: Option<DateTime<Utc>>,
}

pub async fn upcoming_slots(
    conn: &mut PgConnection,
    after: Option<(DateTime<Utc>, i64)>,
    limit: i64,
) -> Result<Vec<SlotLine>, Fault> {
    let (after_start, after_id) = after.unzip();
    Ok(sqlx::query_as!(
        SlotLine,
        r#"-- inquiry::upcoming_slots
           SELECT s.slot_id, r.resource_id, s.starts_at, s.ends_at, r.time_zone,
                  b.order_id AS "booked_by?", h.order_id AS "held_by?", h.held_until AS "held_until?"
             FROM slots s
             JOIN resources r ON r.resource_no = s.resource_no
             LEFT JOIN bookings b ON b.slot_id = s.slot_id AND b.cancelled_at IS NULL
             LEFT JOIN LATERAL (SELECT order_id, held_until FROM slot_holds
                                 WHERE slot_id = s.slot_id AND ended_at IS NULL AND held_until > database_now()
                                 LIMIT 1) h ON true
            WHERE s.ends_at > database_now() AND s.withdrawn_at IS NULL
              AND ($1::timestamptz IS NULL OR (s.starts_at, s.slot_id) > ($1, $2))
            ORDER BY s.starts_at, s.slot_id
            LIMIT $3"#,
        after_start,
        after_id,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
