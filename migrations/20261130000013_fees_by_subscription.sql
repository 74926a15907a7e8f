-- A person said yes to the overdue dues of a month; until then a run that stopped there stays stopped.
CREATE TABLE fee_run_confirmations (
    period       date PRIMARY KEY
                 CONSTRAINT fee_run_confirmations_period_is_first CHECK (extract(day FROM period) = 1),
    confirmed_at timestamptz NOT NULL
);
CREATE TRIGGER fee_run_confirmations_are_history BEFORE UPDATE OR DELETE ON fee_run_confirmations
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON fee_run_confirmations TO hamyon_service;

-- How many months a subscription would pay at once from the first to the last of those it owes. The rest of the month
-- it began in comes with the next one for whoever signs up at a month's end, which is nothing to ask a person about.
CREATE FUNCTION months_at_once(started_on date, first_month date, last_month date) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN months_between(first_month, last_month)
     - CASE WHEN started_on > first_month AND last_month > first_month
             AND date_trunc('month', started_on::timestamp)::date = first_month THEN 1 ELSE 0 END;

-- A subscription that ends before it begins never begins, and owes nothing.
ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_ends_after_start;
CREATE OR REPLACE FUNCTION owed_through(started_on date, ended_on date, today date, month date) RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN started_on <= today AND (ended_on IS NULL OR ended_on >= started_on)
            THEN least(month, date_trunc('month', ended_on::timestamp)::date) END;

-- A price of a month that hasn't begun anywhere may be corrected: the one that was set last counts, and what it was
-- before stays to be read.
ALTER TABLE plan_prices DROP CONSTRAINT plan_prices_pkey;
ALTER TABLE plan_prices ADD COLUMN price_id bigint GENERATED ALWAYS AS IDENTITY
    CONSTRAINT plan_prices_pkey PRIMARY KEY;
CREATE INDEX plan_prices_plan_idx ON plan_prices (plan_id, from_month, price_id);
