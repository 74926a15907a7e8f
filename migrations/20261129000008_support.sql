-- The support desk: who works there, what they did, and what waits for a second person.

-- People. A name is never given twice, since the ledger's rows and the audit say `staff:<username>`.
CREATE TABLE staff (
    staff_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    username      text NOT NULL
                  CONSTRAINT staff_username_key UNIQUE
                  CONSTRAINT staff_username_shape CHECK (username ~ '^[a-z0-9._-]{1,64}$'),
    -- Argon2id in the PHC string format, with its salt and costs.
    password_hash text NOT NULL CONSTRAINT staff_password_is_hashed CHECK (password_hash LIKE '$argon2id$%'),
    -- What the second factor is made of; null without one.
    totp_secret   bytea,
    -- The time step of the last code that was taken, so that a code seen over a shoulder is worth nothing.
    totp_step     bigint,
    role          text NOT NULL CONSTRAINT staff_role_known CHECK (role IN ('viewer', 'agent', 'approver', 'admin')),
    created_at    timestamptz NOT NULL,
    disabled_at   timestamptz
);
CREATE TRIGGER staff_are_not_deleted BEFORE DELETE OR TRUNCATE ON staff
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Who is logged in. Only the token's SHA-256 is kept.
CREATE TABLE staff_sessions (
    token_hash   bytea PRIMARY KEY CONSTRAINT staff_sessions_hash_length CHECK (length(token_hash) = 32),
    staff_id     bigint NOT NULL CONSTRAINT staff_sessions_staff_fkey REFERENCES staff,
    -- What every form of this session carries. Another site can't read it, so it can't send our forms.
    csrf_token   text NOT NULL,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    -- The end however busy it is.
    expires_at   timestamptz NOT NULL,
    ended_at     timestamptz
);
CREATE TRIGGER staff_sessions_write_once BEFORE UPDATE ON staff_sessions
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite('last_seen_at');
CREATE INDEX staff_sessions_staff_idx ON staff_sessions (staff_id) WHERE ended_at IS NULL;

-- Attempts to log in that failed, by name and by address, for the throttle. Rows older than a day say nothing
-- any more and are removed.
CREATE TABLE login_failures (
    username text NOT NULL,
    address  text NOT NULL,
    at       timestamptz NOT NULL
);
CREATE INDEX login_failures_username_idx ON login_failures (username, at);
CREATE INDEX login_failures_address_idx ON login_failures (address, at);
CREATE INDEX login_failures_at_idx ON login_failures (at);

-- Every refund and adjustment that was asked for. One within the limit of whoever asks is decided in the same
-- moment; a larger one waits for somebody else.
--   decision      decided_by
--   null          null        waits, until expires_at
--   within_limit  the asker   posted at once
--   approved      another     posted by the approval
--   rejected      another     never posted
--   withdrawn     the asker   never posted
CREATE TABLE support_requests (
    request_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          text NOT NULL CONSTRAINT support_requests_kind_known CHECK (kind IN ('refund', 'adjustment')),
    tenant_id     text NOT NULL CONSTRAINT support_requests_tenant_fkey REFERENCES tenants,
    currency      text NOT NULL CONSTRAINT support_requests_currency_fkey REFERENCES currencies,
    -- Minor units with the sign of the row they become.
    amount        bigint NOT NULL CONSTRAINT support_requests_amount_not_zero CHECK (amount <> 0),
    -- The row that a refund gives back.
    original_seq  bigint,
    -- A code of the list, for adjustments; free words for refunds.
    reason        text NOT NULL,
    note          text NOT NULL,
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    decision      text CONSTRAINT support_requests_decision_known
                  CHECK (decision IN ('within_limit', 'approved', 'rejected', 'withdrawn')),
    decided_by    text,
    decided_at    timestamptz,
    decision_note text,
    -- The ledger's row.
    posted_seq    bigint,
    CONSTRAINT support_requests_refund_names_original CHECK ((kind = 'refund') = (original_seq IS NOT NULL)),
    CONSTRAINT support_requests_refund_is_credit CHECK (kind <> 'refund' OR amount > 0),
    CONSTRAINT support_requests_decided_at_once CHECK
        ((decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL)),
    CONSTRAINT support_requests_posted_when_granted CHECK
        ((decision IS NOT NULL AND decision IN ('within_limit', 'approved')) = (posted_seq IS NOT NULL)),
    -- S2: nobody decides about what they asked for themselves.
    CONSTRAINT support_requests_second_person CHECK
        (decision IS NULL OR (decision IN ('approved', 'rejected')) = (decided_by <> requested_by)),
    CONSTRAINT support_requests_in_time CHECK (decision IS DISTINCT FROM 'approved' OR decided_at < expires_at)
);
-- The queue.
CREATE INDEX support_requests_waiting_idx ON support_requests (request_id) WHERE decision IS NULL;
-- What one person moved in one wallet lately, for the limit.
CREATE INDEX support_requests_limit_idx ON support_requests (tenant_id, currency, requested_by, decided_at)
    WHERE decision = 'within_limit';
CREATE INDEX support_requests_tenant_idx ON support_requests (tenant_id, request_id DESC);
CREATE TRIGGER support_requests_write_once BEFORE UPDATE ON support_requests
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
-- Nothing is added to a decision either.
CREATE TRIGGER support_requests_writes_end BEFORE UPDATE ON support_requests
    FOR EACH ROW WHEN (OLD.decision IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER support_requests_are_not_deleted BEFORE DELETE OR TRUNCATE ON support_requests
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What anybody at the desk did or was refused, in a hash chain of its own. The service may only add.
CREATE TABLE audit_log (
    seq            bigint PRIMARY KEY CONSTRAINT audit_log_seq_from_one CHECK (seq > 0),
    at             timestamptz NOT NULL,
    actor          text NOT NULL,
    -- The role at that moment; null for programs and for people nobody knows.
    role           text,
    remote_address text,
    http_request_id text,
    action         text NOT NULL,
    allowed        boolean NOT NULL,
    tenant_id      text,
    -- What happened, or why it was refused, with the numbers before and after.
    words          text NOT NULL,
    hash           bytea NOT NULL CONSTRAINT audit_log_hash_length CHECK (length(hash) = 32)
);
CREATE INDEX audit_log_actor_idx ON audit_log (actor, seq DESC);
CREATE INDEX audit_log_tenant_idx ON audit_log (tenant_id, seq DESC) WHERE tenant_id IS NOT NULL;
CREATE INDEX audit_log_action_idx ON audit_log (action, seq DESC);
CREATE TRIGGER audit_log_is_history BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_is_kept BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The last line of the audit. Whoever adds one locks it, last of all locks, so lines have no gaps and one order.
CREATE TABLE audit_head (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT audit_head_one_row CHECK (only_row),
    seq      bigint NOT NULL,
    hash     bytea NOT NULL
);
INSERT INTO audit_head (seq, hash) VALUES (0, decode(repeat('00', 32), 'hex'));
-- The head moves with the lines and never back.
CREATE FUNCTION refuse_other_audit_head() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.seq <> OLD.seq + 1 OR NOT EXISTS (SELECT FROM audit_log WHERE seq = NEW.seq AND hash = NEW.hash) THEN
        RAISE EXCEPTION 'the head of the audit moves line by line' USING ERRCODE = 'HM001';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER audit_head_follows BEFORE UPDATE ON audit_head
    FOR EACH ROW EXECUTE FUNCTION refuse_other_audit_head();
-- A line comes right behind the last one and moves the head by itself. So no line that somebody else put there
-- stands in the way of the next, and one with a hash of its own invention is found by `hamyon verify`.
CREATE FUNCTION move_audit_head() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE audit_head SET seq = NEW.seq, hash = NEW.hash WHERE seq = NEW.seq - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a line of the audit comes right behind the last one' USING ERRCODE = 'HM001';
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER audit_log_moves_head AFTER INSERT ON audit_log
    FOR EACH ROW EXECUTE FUNCTION move_audit_head();
CREATE TRIGGER audit_head_is_kept BEFORE DELETE OR TRUNCATE ON audit_head
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What support types into the search field.
-- Words of a name, by their beginnings.
CREATE INDEX tenants_name_words_idx ON tenants USING gin (to_tsvector('simple', name));
-- Rows come in the order of time, so a small index of block ranges finds a day.
CREATE INDEX wallet_transactions_recorded_idx ON wallet_transactions USING brin (recorded_at);
-- What a payment's account said beside the fields that name the wallet or the order: a phone number, for example.
CREATE TABLE payment_account_values (
    value      text NOT NULL,
    payment_id bigint NOT NULL CONSTRAINT payment_account_values_payment_fkey REFERENCES payments,
    CONSTRAINT payment_account_values_pkey PRIMARY KEY (value, payment_id)
);

-- What may change is named: a person keeps the name, a session its person, a request what was asked and by whom.
GRANT SELECT, INSERT, UPDATE (password_hash, totp_secret, totp_step, role, disabled_at) ON staff TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (last_seen_at, ended_at) ON staff_sessions TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (decision, decided_by, decided_at, decision_note, posted_seq) ON support_requests
    TO hamyon_service;
GRANT SELECT, INSERT, DELETE ON login_failures TO hamyon_service;
GRANT SELECT, INSERT ON audit_log, payment_account_values TO hamyon_service;
GRANT SELECT, UPDATE (seq, hash) ON audit_head TO hamyon_service;

-- What `explain` looks for: what happened in the moment of a row.
CREATE INDEX events_tenant_created_idx ON events (tenant_id, created_at);
CREATE INDEX dues_tenant_idx ON dues (tenant_id, month DESC, due_id);
