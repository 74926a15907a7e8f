-- Monthly fees: what is owed by whom for which month, and whether it is paid.

CREATE TABLE plans (
    plan_id    text PRIMARY KEY
               CONSTRAINT plans_id_shape CHECK (plan_id ~ '^[A-Za-z0-9._:@+-]{1,64}$'),
    name       text NOT NULL,
    currency   text NOT NULL CONSTRAINT plans_currency_fkey REFERENCES currencies,
    created_at timestamptz NOT NULL
);
CREATE TRIGGER plans_are_history BEFORE UPDATE OR DELETE ON plans
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A plan's price from a month on. The price of a due is frozen when it falls due, so a later change says
-- nothing about the past.
CREATE TABLE plan_prices (
    plan_id    text NOT NULL CONSTRAINT plan_prices_plan_fkey REFERENCES plans,
    from_month date NOT NULL CONSTRAINT plan_prices_month_is_first CHECK (extract(day FROM from_month) = 1),
    amount     bigint NOT NULL CONSTRAINT plan_prices_amount_positive CHECK (amount > 0),
    created_at timestamptz NOT NULL,
    CONSTRAINT plan_prices_pkey PRIMARY KEY (plan_id, from_month)
);
CREATE TRIGGER plan_prices_are_history BEFORE UPDATE OR DELETE ON plan_prices
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE subscriptions (
    subscription_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       text NOT NULL CONSTRAINT subscriptions_tenant_fkey REFERENCES tenants,
    plan_id         text NOT NULL CONSTRAINT subscriptions_plan_fkey REFERENCES plans,
    -- A day in the tenant's own zone.
    started_on      date NOT NULL,
    -- What the first month costs when it doesn't begin on the first: the whole price, the part of its
    -- remaining days, or nothing.
    first_month     text NOT NULL CONSTRAINT subscriptions_first_month_known
                    CHECK (first_month IN ('full', 'prorated', 'free')),
    -- The first month that costs anything.
    first_owed_month date NOT NULL
                    CONSTRAINT subscriptions_first_owed_is_first CHECK (extract(day FROM first_owed_month) = 1),
    created_at      timestamptz NOT NULL,
    -- The last day. Months that begin after it are not owed.
    ended_on        date,
    CONSTRAINT subscriptions_tenant_plan_start_key UNIQUE (tenant_id, plan_id, started_on),
    CONSTRAINT subscriptions_ends_after_start CHECK (ended_on >= started_on)
);
CREATE INDEX subscriptions_tenant_idx ON subscriptions (tenant_id);
CREATE TRIGGER subscriptions_write_once BEFORE UPDATE ON subscriptions
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER subscriptions_are_not_deleted BEFORE DELETE ON subscriptions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER subscriptions_are_kept BEFORE TRUNCATE ON subscriptions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The last month that a subscription owes by a local day; null when it hasn't begun. Said here once, since a
-- run, its numbers and its status must never differ about it.
CREATE FUNCTION owed_through(started_on date, ended_on date, today date, month date) RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN started_on <= today THEN least(month, date_trunc('month', ended_on::timestamp)::date) END;

-- How many months there are from the first to the last, both counted.
CREATE FUNCTION months_between(first_month date, last_month date) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(year FROM last_month) - extract(year FROM first_month))::integer * 12
     + (extract(month FROM last_month) - extract(month FROM first_month))::integer + 1;

-- One row for a subscription and a local month: the key that makes a second charge impossible. The row is
-- written when the month is decided, with the ledger row or without it.
--   charged_at  overdue_at   state
--   set         null         paid when it fell due
--   null        set          overdue
--   set         set          overdue once, paid later
CREATE TABLE dues (
    due_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Of `subscriptions`, by the trigger below.
    subscription_id bigint NOT NULL,
    month           date NOT NULL CONSTRAINT dues_month_is_first CHECK (extract(day FROM month) = 1),
    tenant_id       text NOT NULL,
    currency        text NOT NULL,
    -- Frozen.
    amount          bigint NOT NULL CONSTRAINT dues_amount_not_negative CHECK (amount >= 0),
    -- When it fell due.
    due_at          timestamptz NOT NULL,
    decided_at      timestamptz NOT NULL,
    overdue_at      timestamptz,
    charged_at      timestamptz,
    -- The row of the wallet that pays it; none for a due of nothing.
    charged_seq     bigint,
    CONSTRAINT dues_subscription_month_key UNIQUE (subscription_id, month),
    CONSTRAINT dues_decided CHECK (charged_at IS NOT NULL OR overdue_at IS NOT NULL),
    CONSTRAINT dues_charged_by_a_row CHECK (charged_at IS NULL OR charged_seq IS NOT NULL OR amount = 0)
);
CREATE INDEX dues_unpaid_idx ON dues (tenant_id, currency, month, due_id) WHERE charged_at IS NULL;
CREATE INDEX dues_month_idx ON dues (month);
CREATE TRIGGER dues_write_once BEFORE UPDATE ON dues
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER dues_are_not_deleted BEFORE DELETE ON dues
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER dues_are_kept BEFORE TRUNCATE ON dues
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A due is one of a subscription, looked up for all new dues together like the tenants of events. A subscription
-- is never deleted and keeps its number.
CREATE FUNCTION refuse_due_of_nothing() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    unknown bigint;
BEGIN
    SELECT d.subscription_id INTO unknown
      FROM new_dues d
     WHERE (SELECT s.subscription_id FROM subscriptions s WHERE s.subscription_id = d.subscription_id) IS NULL
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a due names subscription %, which doesn''t exist', unknown
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER dues_belong_to_subscriptions AFTER INSERT ON dues
    REFERENCING NEW TABLE AS new_dues
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_due_of_nothing();

-- What the tenant was told about an unpaid due, each step once.
CREATE TABLE due_reminders (
    due_id    bigint NOT NULL CONSTRAINT due_reminders_due_fkey REFERENCES dues,
    -- A number of days, or the one at which access is suspended.
    step      text NOT NULL CONSTRAINT due_reminders_step_shape CHECK (step ~ '^(day_[0-9]{1,3}|suspended)$'),
    queued_at timestamptz NOT NULL,
    CONSTRAINT due_reminders_pkey PRIMARY KEY (due_id, step)
);
CREATE TRIGGER due_reminders_are_history BEFORE UPDATE OR DELETE ON due_reminders
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- One row a month: the run of that month, however often it was started. Its numbers are counted from the
-- dues, never stored.
CREATE TABLE fee_runs (
    period           date PRIMARY KEY CONSTRAINT fee_runs_period_is_first CHECK (extract(day FROM period) = 1),
    first_started_at timestamptz NOT NULL
);
CREATE TRIGGER fee_runs_are_history BEFORE UPDATE OR DELETE ON fee_runs
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Tenants may move.
GRANT UPDATE (name, time_zone, locale) ON tenants TO hamyon_service;
GRANT SELECT, INSERT ON plans, plan_prices, due_reminders, fee_runs TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (ended_on) ON subscriptions TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (charged_at, charged_seq) ON dues TO hamyon_service;
