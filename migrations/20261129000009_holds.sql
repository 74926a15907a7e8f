-- Money promised to work in progress, and the parts of a wallet it comes from.

-- A wallet is divided once it has a pocket with rules of its own or a hold. Most wallets never are, and a posting
-- looks for neither in those.
ALTER TABLE wallets ADD COLUMN divided boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION refuse_head_moved_back() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.wallet_id, NEW.tenant_id, NEW.currency, NEW.created_at)
       IS DISTINCT FROM (OLD.wallet_id, OLD.tenant_id, OLD.currency, OLD.created_at) THEN
        RAISE EXCEPTION 'wallet % keeps its tenant and its currency', OLD.wallet_id USING ERRCODE = 'HM003';
    END IF;
    IF OLD.divided AND NOT NEW.divided THEN
        RAISE EXCEPTION 'wallet % stays divided', OLD.wallet_id USING ERRCODE = 'HM003';
    END IF;
    IF NEW.divided AND NOT OLD.divided
       AND (NEW.head_seq, NEW.head_hash) = (OLD.head_seq, OLD.head_hash)
       AND NEW.head_recorded_at IS NOT DISTINCT FROM OLD.head_recorded_at THEN
        RETURN NEW;
    END IF;
    IF NEW.head_seq <= OLD.head_seq THEN
        RAISE EXCEPTION 'the head of wallet % stands at % and can''t go to %', OLD.wallet_id, OLD.head_seq, NEW.head_seq
            USING ERRCODE = 'HM003';
    END IF;
    RETURN NEW;
END;
$$;
DROP TRIGGER wallets_head_moves_forward ON wallets;
CREATE TRIGGER wallets_head_moves_forward BEFORE UPDATE ON wallets
    FOR EACH ROW
    WHEN (NEW.head_seq <= OLD.head_seq
          OR (OLD.divided AND NOT NEW.divided)
          OR (NEW.wallet_id, NEW.tenant_id, NEW.currency, NEW.created_at)
             IS DISTINCT FROM (OLD.wallet_id, OLD.tenant_id, OLD.currency, OLD.created_at))
    EXECUTE FUNCTION refuse_head_moved_back();

-- A pocket with rules of its own. One that isn't here (such as `main`) has none: bought money, spent last, kept for ever.
CREATE TABLE pockets (
    wallet_id  bigint NOT NULL CONSTRAINT pockets_wallet_fkey REFERENCES wallets,
    pocket     text NOT NULL CONSTRAINT pockets_main_has_no_rules CHECK (pocket <> 'main'),
    -- Lower is spent earlier, among pockets that end at the same time.
    priority   smallint NOT NULL CONSTRAINT pockets_priority_range CHECK (priority BETWEEN 0 AND 1000),
    created_at timestamptz NOT NULL,
    -- Its money is there while now < expires_at. Null: for ever, or an allowance whose time hasn't begun.
    expires_at timestamptz,
    -- Taken back by a person or a program before its time.
    voided_at  timestamptz,
    -- When what was left, and not held, was booked as expired.
    expired_at timestamptz,
    CONSTRAINT pockets_pkey PRIMARY KEY (wallet_id, pocket),
    CONSTRAINT pockets_expired_has_an_end CHECK (expired_at IS NULL OR expires_at IS NOT NULL OR voided_at IS NOT NULL)
);
COMMENT ON TABLE pockets IS 'Parts of a wallet that have a priority or an end.';
-- A wallet with an allowance has a pocket for every day that ever was; these are the ones that matter.
CREATE INDEX pockets_open_idx ON pockets (wallet_id) WHERE expired_at IS NULL;
CREATE INDEX pockets_ending_idx ON pockets (expires_at) WHERE expired_at IS NULL AND expires_at IS NOT NULL;
CREATE TRIGGER pockets_write_once BEFORE UPDATE ON pockets
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER pockets_are_not_deleted BEFORE DELETE ON pockets
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER pockets_are_kept BEFORE TRUNCATE ON pockets
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a metered call costs. A book is written whole and never changed; a hold keeps the version it was placed under.
CREATE TABLE price_books (
    version    integer PRIMARY KEY CONSTRAINT price_books_version_positive CHECK (version > 0),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);
CREATE TRIGGER price_books_are_history BEFORE UPDATE OR DELETE ON price_books
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TABLE price_book_models (
    version integer NOT NULL CONSTRAINT price_book_models_book_fkey REFERENCES price_books,
    model   text NOT NULL,
    -- US dollars for a million tokens, which is micro-dollars for one.
    input   numeric(18, 6) NOT NULL CONSTRAINT price_book_models_input_not_negative CHECK (input >= 0),
    output  numeric(18, 6) NOT NULL CONSTRAINT price_book_models_output_not_negative CHECK (output >= 0),
    cached  numeric(18, 6) NOT NULL CONSTRAINT price_book_models_cached_not_negative CHECK (cached >= 0),
    CONSTRAINT price_book_models_pkey PRIMARY KEY (version, model)
);
CREATE TRIGGER price_book_models_are_history BEFORE UPDATE OR DELETE ON price_book_models
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- What a hold of a named tier asks for; the newest row of a tier applies to holds placed from then on.
CREATE TABLE hold_tiers (
    hold_tier_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tier       text NOT NULL CONSTRAINT hold_tiers_tier_shape CHECK (tier ~ '^[A-Za-z0-9._:-]{1,64}$'),
    currency   text NOT NULL CONSTRAINT hold_tiers_currency_fkey REFERENCES currencies,
    amount     bigint NOT NULL CONSTRAINT hold_tiers_amount_not_negative CHECK (amount >= 0),
    created_at timestamptz NOT NULL
);
CREATE INDEX hold_tiers_newest_idx ON hold_tiers (tier, currency, hold_tier_id DESC);
CREATE TRIGGER hold_tiers_are_history BEFORE UPDATE OR DELETE ON hold_tiers
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The decision of a hold: how much from which pocket, at which price. Until `ended_at` is set its amounts are held;
-- readers leave it out once both its time and the worker's lease are over.
CREATE TABLE holds (
    -- The caller's job id.
    hold_id          text PRIMARY KEY CONSTRAINT holds_id_shape CHECK (hold_id ~ '^[A-Za-z0-9._:@+-]{1,64}$'),
    tenant_id        text NOT NULL CONSTRAINT holds_tenant_fkey REFERENCES tenants,
    wallet_id        bigint NOT NULL CONSTRAINT holds_wallet_fkey REFERENCES wallets,
    currency         text NOT NULL,
    -- What was asked, JSON as text, so that another request under the same id is told what differs.
    asked            text NOT NULL,
    -- Minor units, in all and by pocket.
    amount           bigint NOT NULL CONSTRAINT holds_amount_not_negative CHECK (amount >= 0),
    pockets          text[] NOT NULL,
    pocket_amounts   bigint[] NOT NULL,
    -- The most the job may cost, but for its last call.
    cost_cap         bigint NOT NULL CONSTRAINT holds_cost_cap_not_negative CHECK (cost_cap >= 0),
    tier             text,
    price_version    integer CONSTRAINT holds_price_book_fkey REFERENCES price_books,
    session          text,
    dedupe_key       text,
    fingerprint      text,
    queue            text NOT NULL CONSTRAINT holds_queue_known CHECK (queue IN ('priority', 'plain')),
    ttl_secs         integer NOT NULL CONSTRAINT holds_ttl_positive CHECK (ttl_secs > 0),
    placed_by        text NOT NULL,
    placed_at        timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    lease_until      timestamptz,
    started_at       timestamptz,
    waiting_told_at  timestamptz,
    cancel_asked_at  timestamptz,
    ended_at         timestamptz,
    -- settled: the ledger has what it cost. released: it cost nothing.
    outcome          text CONSTRAINT holds_outcome_known CHECK (outcome IN ('settled', 'released')),
    charged          bigint CONSTRAINT holds_charged_not_negative CHECK (charged >= 0),
    -- worker, reconciler, canceller or successor (a new job of the same session).
    ended_by         text CONSTRAINT holds_ended_by_known
                     CHECK (ended_by IN ('worker', 'reconciler', 'canceller', 'successor')),
    -- What the end was asked for, JSON as text.
    end_asked        text,
    CONSTRAINT holds_allocation_complete CHECK (cardinality(pockets) = cardinality(pocket_amounts)),
    CONSTRAINT holds_end_complete CHECK (
        (ended_at IS NULL) = (outcome IS NULL) AND (ended_at IS NULL) = (charged IS NULL)
        AND (ended_at IS NULL) = (ended_by IS NULL) AND (ended_at IS NULL) = (end_asked IS NULL)),
    CONSTRAINT holds_released_costs_nothing CHECK (outcome <> 'released' OR charged = 0)
);
COMMENT ON TABLE holds IS 'Money promised to jobs, keyed by the job''s own id. Rows are kept for ever.';
-- However many old holds a tenant has, these hold only the ones at work.
CREATE INDEX holds_of_wallet_idx ON holds (wallet_id) WHERE ended_at IS NULL;
CREATE INDEX holds_of_tenant_idx ON holds (tenant_id) WHERE ended_at IS NULL;
-- What was held at a moment of the past.
CREATE INDEX holds_ended_idx ON holds (wallet_id, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX holds_expiring_idx ON holds (expires_at) WHERE ended_at IS NULL;
CREATE INDEX holds_waiting_idx ON holds (placed_at)
    WHERE ended_at IS NULL AND started_at IS NULL AND waiting_told_at IS NULL;
-- At most one job at work under a key and in a session.
CREATE UNIQUE INDEX holds_dedupe_key ON holds (tenant_id, dedupe_key) WHERE ended_at IS NULL AND dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX holds_session_key ON holds (tenant_id, session) WHERE ended_at IS NULL AND session IS NOT NULL;
CREATE INDEX holds_fingerprint_idx ON holds (tenant_id, fingerprint, placed_at) WHERE fingerprint IS NOT NULL;
CREATE INDEX holds_list_idx ON holds (tenant_id, placed_at, hold_id);
-- The newest of everybody, and the numbers of the last days.
CREATE INDEX holds_placed_idx ON holds (placed_at, hold_id);
-- The times that move on are excepted.
CREATE TRIGGER holds_write_once BEFORE UPDATE ON holds
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite('expires_at', 'lease_until');
CREATE TRIGGER holds_are_not_deleted BEFORE DELETE ON holds
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER holds_are_kept BEFORE TRUNCATE ON holds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- HM004: an ended hold is history, its times included.
CREATE FUNCTION refuse_change_of_ended_hold() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hold % has ended and changes no more', OLD.hold_id USING ERRCODE = 'HM004';
END;
$$;
CREATE TRIGGER holds_end_once BEFORE UPDATE ON holds
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change_of_ended_hold();

-- The rules and the promises of wallets' pockets at a moment, read for a posting and for a balance alike. Of pockets
-- whose end is booked only the named ones and those that holds keep something of.
CREATE FUNCTION wallet_divisions(of_wallets bigint[], named_pockets text[], moment timestamptz)
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
        SELECT k.wallet_id, k.pocket, k.priority, k.created_at, least(k.expires_at, k.voided_at) AS ends_at
          FROM pockets k
         WHERE k.wallet_id = ANY (of_wallets)
           AND (k.expired_at IS NULL OR k.pocket = ANY (named_pockets)
                OR EXISTS (SELECT FROM promised p WHERE p.wallet_id = k.wallet_id AND p.pocket = k.pocket))
    )
    SELECT coalesce(r.wallet_id, p.wallet_id), coalesce(r.pocket, p.pocket), r.priority, r.created_at, r.ends_at,
           coalesce(p.live, 0), coalesce(p.unended, 0)
      FROM ruled r FULL JOIN promised p ON p.wallet_id = r.wallet_id AND p.pocket = r.pocket
$$;

-- What the work used, call by call.
CREATE TABLE hold_usage (
    hold_id       text NOT NULL CONSTRAINT hold_usage_hold_fkey REFERENCES holds,
    call_id       text NOT NULL CONSTRAINT hold_usage_call_shape CHECK (char_length(call_id) BETWEEN 1 AND 128),
    model         text,
    input_tokens  bigint CONSTRAINT hold_usage_input_not_negative CHECK (input_tokens >= 0),
    output_tokens bigint CONSTRAINT hold_usage_output_not_negative CHECK (output_tokens >= 0),
    cached_tokens bigint CONSTRAINT hold_usage_cached_not_negative CHECK (cached_tokens >= 0),
    -- Millionths of a US dollar.
    cost_micro    bigint NOT NULL CONSTRAINT hold_usage_cost_not_negative CHECK (cost_micro >= 0),
    recorded_at   timestamptz NOT NULL,
    CONSTRAINT hold_usage_pkey PRIMARY KEY (hold_id, call_id)
);
COMMENT ON TABLE hold_usage IS 'The evidence a metered hold is settled by.';
CREATE TRIGGER hold_usage_is_history BEFORE UPDATE OR DELETE ON hold_usage
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER hold_usage_is_kept BEFORE TRUNCATE ON hold_usage
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a tenant gets again and again without paying.
CREATE TABLE allowances (
    allowance_id text PRIMARY KEY
                 CONSTRAINT allowances_id_shape CHECK (allowance_id ~ '^[a-z0-9][a-z0-9_-]{0,31}$'),
    currency     text NOT NULL CONSTRAINT allowances_currency_fkey REFERENCES currencies,
    -- rolling: begins with activity and lasts `window_secs`. calendar_day: the day in `time_zone`.
    window_kind  text NOT NULL CONSTRAINT allowances_window_known CHECK (window_kind IN ('rolling', 'calendar_day')),
    window_secs  integer CONSTRAINT allowances_window_positive CHECK (window_secs > 0),
    -- The tenant's own when null.
    time_zone    text,
    priority     smallint NOT NULL CONSTRAINT allowances_priority_range CHECK (priority BETWEEN 0 AND 1000),
    created_at   timestamptz NOT NULL,
    CONSTRAINT allowances_rolling_lasts CHECK ((window_kind = 'rolling') = (window_secs IS NOT NULL))
);
CREATE TRIGGER allowances_are_history BEFORE UPDATE OR DELETE ON allowances
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TABLE allowance_tiers (
    allowance_id text NOT NULL CONSTRAINT allowance_tiers_allowance_fkey REFERENCES allowances,
    tier         text NOT NULL CONSTRAINT allowance_tiers_tier_shape CHECK (tier ~ '^[A-Za-z0-9._:-]{1,64}$'),
    amount       bigint NOT NULL CONSTRAINT allowance_tiers_amount_positive CHECK (amount > 0),
    CONSTRAINT allowance_tiers_pkey PRIMARY KEY (allowance_id, tier)
);
CREATE TRIGGER allowance_tiers_are_history BEFORE UPDATE OR DELETE ON allowance_tiers
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Who has one: a tenant, or everybody who subscribes to a plan. The newest row for an allowance applies; a tier of
-- null takes it away.
CREATE TABLE allowance_assignments (
    assignment_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    allowance_id  text NOT NULL,
    tier          text,
    tenant_id     text CONSTRAINT allowance_assignments_tenant_fkey REFERENCES tenants,
    plan_id       text CONSTRAINT allowance_assignments_plan_fkey REFERENCES plans,
    created_at    timestamptz NOT NULL,
    CONSTRAINT allowance_assignments_allowance_fkey FOREIGN KEY (allowance_id) REFERENCES allowances,
    CONSTRAINT allowance_assignments_tier_fkey FOREIGN KEY (allowance_id, tier) REFERENCES allowance_tiers,
    CONSTRAINT allowance_assignments_one_owner CHECK ((tenant_id IS NULL) <> (plan_id IS NULL))
);
CREATE INDEX allowance_assignments_tenant_idx ON allowance_assignments (tenant_id, allowance_id, assignment_id DESC)
    WHERE tenant_id IS NOT NULL;
CREATE INDEX allowance_assignments_plan_idx ON allowance_assignments (plan_id, allowance_id, assignment_id DESC)
    WHERE plan_id IS NOT NULL;
CREATE TRIGGER allowance_assignments_are_history BEFORE UPDATE OR DELETE ON allowance_assignments
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Each time an allowance was filled. A cycle has a pocket of its own, whose end is the cycle's.
CREATE TABLE allowance_cycles (
    tenant_id    text NOT NULL CONSTRAINT allowance_cycles_tenant_fkey REFERENCES tenants,
    allowance_id text NOT NULL CONSTRAINT allowance_cycles_allowance_fkey REFERENCES allowances,
    -- 1, 2, 3, … for a rolling window; the day (as days since 1970) for a calendar day.
    cycle        bigint NOT NULL,
    tier         text NOT NULL,
    wallet_id    bigint NOT NULL,
    pocket       text NOT NULL,
    filled_at    timestamptz NOT NULL,
    -- Null: filled for somebody who is away. The window begins with the first activity.
    begun_at     timestamptz,
    ends_at      timestamptz,
    CONSTRAINT allowance_cycles_pkey PRIMARY KEY (tenant_id, allowance_id, cycle),
    CONSTRAINT allowance_cycles_pocket_fkey FOREIGN KEY (wallet_id, pocket) REFERENCES pockets,
    CONSTRAINT allowance_cycles_window_complete CHECK ((begun_at IS NULL) = (ends_at IS NULL))
);
CREATE INDEX allowance_cycles_ended_idx ON allowance_cycles (ends_at);
CREATE INDEX allowance_cycles_waiting_idx ON allowance_cycles (tenant_id) WHERE begun_at IS NULL;
CREATE TRIGGER allowance_cycles_write_once BEFORE UPDATE ON allowance_cycles
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER allowance_cycles_are_not_deleted BEFORE DELETE ON allowance_cycles
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- When a tenant with an allowance was last there. It moves on, and decides nothing about money: the nightly sweep tells
-- those who were away.
CREATE TABLE tenant_activity (
    tenant_id text CONSTRAINT tenant_activity_pkey PRIMARY KEY
              CONSTRAINT tenant_activity_tenant_fkey REFERENCES tenants,
    active_at timestamptz NOT NULL
);

-- The signs of the new kinds.
ALTER TABLE wallet_transactions DROP CONSTRAINT wallet_transactions_sign;
ALTER TABLE wallet_transactions ADD CONSTRAINT wallet_transactions_sign CHECK (
    CASE kind
        WHEN 'top_up'           THEN amount > 0
        WHEN 'top_up_reversal'  THEN amount < 0 AND original_seq IS NOT NULL
        WHEN 'subscription_fee' THEN amount < 0
        WHEN 'refund'           THEN amount > 0 AND original_seq IS NOT NULL
        WHEN 'grant'            THEN amount > 0
        WHEN 'expiry'           THEN amount < 0
        WHEN 'hold_charge'      THEN amount < 0
        ELSE true
    END) NOT VALID;
ALTER TABLE wallet_transactions VALIDATE CONSTRAINT wallet_transactions_sign;

GRANT UPDATE (divided) ON wallets TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (expires_at, voided_at, expired_at) ON pockets TO hamyon_service;
GRANT SELECT, INSERT ON price_books, price_book_models, hold_tiers, hold_usage, allowances, allowance_tiers,
    allowance_assignments TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (expires_at, lease_until, started_at, waiting_told_at, cancel_asked_at, ended_at, outcome,
    charged, ended_by, end_asked) ON holds TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (begun_at, ends_at) ON allowance_cycles TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (active_at) ON tenant_activity TO hamyon_service;
