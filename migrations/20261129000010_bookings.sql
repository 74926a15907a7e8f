-- Slots that two people want at once, what is paid for them before we are told, and what goes back.

-- The time that decides about slots: the database's own, so that many processes with many clocks decide alike. It is
-- the time at which the calling statement arrived, so whoever waits for a lock asks in a statement after it. A
-- function of our own, since a test has to stand five minutes later without waiting for them.
CREATE FUNCTION database_now() RETURNS timestamptz
LANGUAGE sql VOLATILE
RETURN statement_timestamp();

-- What has slots: a person, a room, a court.
CREATE TABLE resources (
    resource_id       text PRIMARY KEY
                      CONSTRAINT resources_id_shape CHECK (resource_id ~ '^[A-Za-z0-9._:@+-]{1,64}$'),
    -- A number beside the name, for the constraint below.
    resource_no       bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT resources_no_key UNIQUE,
    name              text NOT NULL,
    -- IANA name; a weekly pattern's hours are hours of this zone.
    time_zone         text NOT NULL,
    -- Who cancels at least so long before the start gets everything back.
    refund_until_secs bigint NOT NULL CONSTRAINT resources_refund_until_not_negative CHECK (refund_until_secs >= 0),
    created_at        timestamptz NOT NULL
);
CREATE TRIGGER resources_are_history BEFORE UPDATE OR DELETE ON resources
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER resources_are_kept BEFORE TRUNCATE ON resources
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A piece of a resource's time that is sold once. This row is what everybody who wants the slot locks, after the
-- order; whether it is free is read from its holds and bookings, in a statement after the lock.
CREATE TABLE slots (
    slot_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_no bigint NOT NULL CONSTRAINT slots_resource_fkey REFERENCES resources (resource_no),
    starts_at   timestamptz NOT NULL,
    ends_at     timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    -- Nothing of a slot may change, but locking a row needs the right to update a column of it. This one says
    -- nothing, and the trigger refuses even it.
    lockable    boolean NOT NULL DEFAULT true,
    CONSTRAINT slots_end_after_start CHECK (ends_at > starts_at),
    -- No two slots of a resource overlap. A range of one number stands for "the same resource": an index of ranges
    -- needs no extension, and whoever migrates may not be allowed to install one.
    CONSTRAINT slots_do_not_overlap EXCLUDE USING gist
        (int8range(resource_no, resource_no, '[]') WITH &&, tstzrange(starts_at, ends_at) WITH &&)
);
CREATE INDEX slots_starts_at_idx ON slots (starts_at, slot_id);
CREATE TRIGGER slots_are_history BEFORE UPDATE OR DELETE ON slots
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER slots_are_kept BEFORE TRUNCATE ON slots
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a slot costs, in each currency it is sold in. An order freezes it.
CREATE TABLE slot_prices (
    slot_id  bigint NOT NULL CONSTRAINT slot_prices_slot_fkey REFERENCES slots,
    currency text NOT NULL CONSTRAINT slot_prices_currency_fkey REFERENCES currencies,
    amount   bigint NOT NULL CONSTRAINT slot_prices_amount_positive CHECK (amount > 0),
    CONSTRAINT slot_prices_pkey PRIMARY KEY (slot_id, currency)
);
CREATE TRIGGER slot_prices_are_history BEFORE UPDATE OR DELETE ON slot_prices
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER slot_prices_are_kept BEFORE TRUNCATE ON slot_prices
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- An order may be one attempt to get a slot: each attempt is an order of its own, so that a late payment of an old
-- one never confirms a new one. And it may say who alone may pay it, by the provider's id of a payer.
ALTER TABLE orders
    ADD COLUMN slot_id bigint CONSTRAINT orders_slot_fkey REFERENCES slots,
    ADD COLUMN payer   text CONSTRAINT orders_payer_length CHECK (char_length(payer) BETWEEN 1 AND 64);
CREATE INDEX orders_slot_idx ON orders (slot_id) WHERE slot_id IS NOT NULL;

-- Who has a slot for a while. A hold that is past its time holds nothing, whether or not anybody says so.
CREATE TABLE slot_holds (
    hold_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_id    bigint NOT NULL CONSTRAINT slot_holds_slot_fkey REFERENCES slots,
    order_id   text NOT NULL CONSTRAINT slot_holds_order_fkey REFERENCES orders,
    -- The payment whose life the hold has; null for a checkout, which has a few minutes.
    payment_id bigint CONSTRAINT slot_holds_payment_fkey REFERENCES payments,
    held_at    timestamptz NOT NULL,
    held_until timestamptz NOT NULL,
    -- Ended before its time: it became a booking, or its payment was cancelled.
    ended_at   timestamptz,
    CONSTRAINT slot_holds_until_after_at CHECK (held_until > held_at),
    CONSTRAINT slot_holds_ended_after_at CHECK (ended_at >= held_at),
    -- The lock of the slot's row is what decides; this is what stands behind it: one slot is never held twice at
    -- any moment.
    CONSTRAINT slot_holds_do_not_overlap EXCLUDE USING gist
        (int8range(slot_id, slot_id, '[]') WITH &&, tstzrange(held_at, least(ended_at, held_until)) WITH &&)
);
-- B2: an order that was approved once can't take the slot again.
CREATE UNIQUE INDEX slot_holds_once_per_order_key ON slot_holds (order_id) WHERE payment_id IS NULL;
CREATE UNIQUE INDEX slot_holds_once_per_payment_key ON slot_holds (payment_id) WHERE payment_id IS NOT NULL;
CREATE INDEX slot_holds_open_idx ON slot_holds (slot_id, held_until) WHERE ended_at IS NULL;
CREATE TRIGGER slot_holds_write_once BEFORE UPDATE ON slot_holds
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER slot_holds_are_not_deleted BEFORE DELETE OR TRUNCATE ON slot_holds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Who has a slot for good, until the booking is cancelled.
CREATE TABLE bookings (
    booking_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_id       bigint NOT NULL CONSTRAINT bookings_slot_fkey REFERENCES slots,
    order_id      text NOT NULL CONSTRAINT bookings_order_fkey REFERENCES orders
                  CONSTRAINT bookings_order_key UNIQUE,
    payment_id    bigint NOT NULL CONSTRAINT bookings_payment_fkey REFERENCES payments
                  CONSTRAINT bookings_payment_key UNIQUE,
    booked_at     timestamptz NOT NULL,
    cancelled_at  timestamptz,
    cancelled_by  text,
    cancel_reason text,
    -- Where the money went: back to the payer through the provider, into the wallet, or nowhere.
    refund        text CONSTRAINT bookings_refund_known CHECK (refund IN ('payer', 'wallet', 'none')),
    CONSTRAINT bookings_cancelled_at_once CHECK
        ((cancelled_at IS NULL) = (cancelled_by IS NULL) AND (cancelled_at IS NULL) = (cancel_reason IS NULL)
         AND (cancelled_at IS NULL) = (refund IS NULL))
);
-- Two buyers, one slot.
CREATE UNIQUE INDEX bookings_one_per_slot_key ON bookings (slot_id) WHERE cancelled_at IS NULL;
CREATE TRIGGER bookings_write_once BEFORE UPDATE ON bookings
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER bookings_are_not_deleted BEFORE DELETE OR TRUNCATE ON bookings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a provider asked before it took a payer's money, and what we said. A repeat of the question gets the same
-- answer, and takes nothing once more.
CREATE TABLE checkouts (
    provider   text NOT NULL,
    -- The provider's id of the question; Telegram's is <bot>:<pre_checkout_query.id>.
    query_id   text NOT NULL,
    -- What the question named; there may be no such order.
    named_order text NOT NULL,
    payer      text NOT NULL,
    -- Why not; null for a yes.
    refusal    text,
    -- Until when a yes may be repeated; null for a no, and for an order without a slot.
    held_until timestamptz,
    decided_at timestamptz NOT NULL,
    CONSTRAINT checkouts_pkey PRIMARY KEY (provider, query_id),
    CONSTRAINT checkouts_no_holds_nothing CHECK (refusal IS NULL OR held_until IS NULL)
);
CREATE INDEX checkouts_named_order_idx ON checkouts (named_order);
CREATE TRIGGER checkouts_are_history BEFORE UPDATE OR DELETE ON checkouts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkouts_are_kept BEFORE TRUNCATE ON checkouts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Money that had come before we were told, one row a payment, with what was decided about it in the same
-- transaction. The payment's own key (provider, external id) is the key of the money: Telegram's external id is
-- <bot>:<telegram_payment_charge_id>.
CREATE TABLE receipts (
    payment_id  bigint PRIMARY KEY CONSTRAINT receipts_payment_fkey REFERENCES payments,
    payer       text NOT NULL,
    -- What the payment named; there may be no such order.
    named_order text NOT NULL,
    -- booked: it bought its slot. credited: it is the tenant's, in the wallet. refund: it goes back. person:
    -- somebody has to look.
    decision    text NOT NULL CONSTRAINT receipts_decision_known
                CHECK (decision IN ('booked', 'credited', 'refund', 'person')),
    why         text,
    -- The provider told us, or we found it in the provider's list.
    source      text NOT NULL CONSTRAINT receipts_source_known CHECK (source IN ('update', 'statement')),
    received_at timestamptz NOT NULL,
    CONSTRAINT receipts_say_why CHECK ((decision IN ('refund', 'person')) = (why IS NOT NULL))
);
CREATE INDEX receipts_named_order_idx ON receipts (named_order);
CREATE TRIGGER receipts_are_history BEFORE UPDATE OR DELETE ON receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER receipts_are_kept BEFORE TRUNCATE ON receipts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Money that has to go back to its payer through the provider. Written with the decision, done after its commit.
--   confirmed_at  failed_at  checking_since   state
--   null          null       null             waiting
--   null          null       set              checking: a call's outcome is unknown
--   set           null                        refunded
--   null          set                         failed for good; a person looks at it
CREATE TABLE refund_tasks (
    task_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id      bigint NOT NULL CONSTRAINT refund_tasks_payment_fkey REFERENCES payments,
    why             text NOT NULL,
    requested_by    text NOT NULL,
    created_at      timestamptz NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    -- Until then one worker has it. A claim that ran out is a call whose outcome nobody knows.
    claimed_until   timestamptz,
    -- When the last call with an unknown outcome ended. The provider's list is read after it, before another call.
    unknown_at      timestamptz,
    last_problem    text,
    checking_since  timestamptz,
    confirmed_at    timestamptz,
    -- answer: the provider said so. statement: its list does. update: it told us by itself.
    confirmed_by    text CONSTRAINT refund_tasks_confirmed_by_known
                    CHECK (confirmed_by IN ('answer', 'statement', 'update')),
    failed_at       timestamptz,
    failure         text,
    CONSTRAINT refund_tasks_confirmed_by_somebody CHECK ((confirmed_at IS NULL) = (confirmed_by IS NULL)),
    CONSTRAINT refund_tasks_failed_with_why CHECK ((failed_at IS NULL) = (failure IS NULL))
);
-- A payment goes back once. After a failure a person may have it tried again.
CREATE UNIQUE INDEX refund_tasks_one_per_payment_key ON refund_tasks (payment_id) WHERE failed_at IS NULL;
CREATE INDEX refund_tasks_payment_idx ON refund_tasks (payment_id);
CREATE INDEX refund_tasks_open_idx ON refund_tasks (next_attempt_at, task_id)
    WHERE confirmed_at IS NULL AND failed_at IS NULL;
CREATE TRIGGER refund_tasks_write_once BEFORE UPDATE ON refund_tasks
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite('attempts', 'next_attempt_at', 'claimed_until', 'unknown_at',
                                                   'last_problem');
CREATE TRIGGER refund_tasks_are_not_deleted BEFORE DELETE OR TRUNCATE ON refund_tasks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a person has to look at.
CREATE TABLE payment_cases (
    case_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider    text NOT NULL,
    kind        text NOT NULL CONSTRAINT payment_cases_kind_known
                CHECK (kind IN ('mismatch', 'foreign_currency', 'refund_failed', 'lost_payment', 'unasked_refund',
                                'negative_balance', 'unread_update', 'unread_line')),
    -- What it is about, in the provider's own ids; the same thing is not a second case while the first is open.
    subject     text NOT NULL,
    payment_id  bigint CONSTRAINT payment_cases_payment_fkey REFERENCES payments,
    -- What happened, and what somebody may do about it.
    why         text NOT NULL,
    opened_at   timestamptz NOT NULL,
    resolved_at timestamptz,
    resolved_by text,
    resolution  text CONSTRAINT payment_cases_resolution_known CHECK (resolution IN ('refund', 'keep', 'closed')),
    note        text,
    CONSTRAINT payment_cases_resolved_at_once CHECK
        ((resolved_at IS NULL) = (resolved_by IS NULL) AND (resolved_at IS NULL) = (resolution IS NULL))
);
CREATE UNIQUE INDEX payment_cases_open_key ON payment_cases (provider, kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX payment_cases_subject_idx ON payment_cases (provider, kind, subject);
CREATE INDEX payment_cases_payment_idx ON payment_cases (payment_id) WHERE payment_id IS NOT NULL;
CREATE TRIGGER payment_cases_write_once BEFORE UPDATE ON payment_cases
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER payment_cases_are_not_deleted BEFORE DELETE OR TRUNCATE ON payment_cases
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Every update about a payment, as it came. Its number is remembered, but it is no key of money. Updates about
-- anything else are none of ours and are not kept.
CREATE TABLE telegram_updates (
    bot_id      bigint NOT NULL,
    update_id   bigint NOT NULL,
    kind        text NOT NULL,
    -- JSON as it came, as text.
    body        text NOT NULL,
    received_at timestamptz NOT NULL,
    CONSTRAINT telegram_updates_pkey PRIMARY KEY (bot_id, update_id)
);
CREATE TRIGGER telegram_updates_are_history BEFORE UPDATE OR DELETE ON telegram_updates
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER telegram_updates_are_kept BEFORE TRUNCATE ON telegram_updates
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Bodies that could be about a payment and could not be read, each once however often it is sent.
CREATE TABLE telegram_unread_updates (
    bot_id      bigint NOT NULL,
    body_hash   bytea NOT NULL CONSTRAINT telegram_unread_updates_hash_is_sha256 CHECK (octet_length(body_hash) = 32),
    body        bytea NOT NULL,
    why         text NOT NULL,
    received_at timestamptz NOT NULL,
    CONSTRAINT telegram_unread_updates_pkey PRIMARY KEY (bot_id, body_hash)
);
CREATE TRIGGER telegram_unread_updates_are_history BEFORE UPDATE OR DELETE ON telegram_unread_updates
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER telegram_unread_updates_are_kept BEFORE TRUNCATE ON telegram_unread_updates
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- How far getStarTransactions of each bot has been read. The list only grows, so a count of lines is a place in it.
CREATE TABLE telegram_statements (
    bot_id     bigint PRIMARY KEY,
    lines_read bigint NOT NULL CONSTRAINT telegram_statements_lines_not_negative CHECK (lines_read >= 0),
    -- When the last reading that came to the end began: what had happened by then has been seen.
    read_at    timestamptz
);
CREATE TRIGGER telegram_statements_are_not_deleted BEFORE DELETE OR TRUNCATE ON telegram_statements
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The ledger's own kind for what a slot cost.
ALTER TABLE wallet_transactions
    ADD CONSTRAINT wallet_transactions_booking_is_debit CHECK (kind <> 'booking' OR amount < 0) NOT VALID;

GRANT SELECT, INSERT ON resources, slot_prices, checkouts, receipts, telegram_updates, telegram_unread_updates
    TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (lockable) ON slots TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (ended_at) ON slot_holds TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (cancelled_at, cancelled_by, cancel_reason, refund) ON bookings TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (attempts, next_attempt_at, claimed_until, unknown_at, last_problem, checking_since,
                              confirmed_at, confirmed_by, failed_at, failure) ON refund_tasks TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (resolved_at, resolved_by, resolution, note) ON payment_cases TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (lines_read, read_at) ON telegram_statements TO hamyon_service;
