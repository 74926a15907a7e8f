-- A pocket whose end is booked is closed for everybody, also for whoever read the clock before its end and then waited
-- for the wallet's lock: money that came in after the end was booked would neither be spent nor expire.
CREATE OR REPLACE FUNCTION wallet_divisions(of_wallets bigint[], named_pockets text[], moment timestamptz)
RETURNS TABLE (wallet_id bigint, pocket text, priority smallint, created_at timestamptz, ends_at timestamptz,
               live bigint, unended bigint)
LANGUAGE sql STABLE AS $$
    WITH promised AS MATERIALIZED (
        SELECT h.wallet_id, p.pocket, sum(p.amount)::bigint AS unended,
               coalesce(sum(p.amount) FILTER (WHERE h.expires_at > moment OR h.lease_until > moment), 0)::bigint AS live
          FROM holds h CROSS JOIN LATERAL unnest(h.pockets, h.pocket_amounts) AS p (pocket, amount)
         WHERE h.wallet_id = ANY (of_wallets) AND h.ended_at IS NULL
         GROUP BY h.wallet_id, p.pocket
    ), ruled AS (
        SELECT k.wallet_id, k.pocket, k.priority, k.created_at,
               CASE WHEN k.expired_at IS NULL THEN least(k.expires_at, k.voided_at)
                    ELSE least(k.expires_at, k.voided_at, moment) END AS ends_at
          FROM pockets k
         WHERE k.wallet_id = ANY (of_wallets)
           AND (k.expired_at IS NULL OR k.pocket = ANY (named_pockets)
                OR EXISTS (SELECT FROM promised p WHERE p.wallet_id = k.wallet_id AND p.pocket = k.pocket))
    )
    SELECT coalesce(r.wallet_id, p.wallet_id), coalesce(r.pocket, p.pocket), r.priority, r.created_at, r.ends_at,
           coalesce(p.live, 0), coalesce(p.unended, 0)
      FROM ruled r FULL JOIN promised p ON p.wallet_id = r.wallet_id AND p.pocket = r.pocket
$$;
