-- Money from outside, and what the providers said about it.

-- A one-time account: something with a price that is paid once. Whether it is busy or paid is read from
-- its payments, not stored here.
CREATE TABLE orders (
    order_id    text PRIMARY KEY
                CONSTRAINT orders_id_shape CHECK (order_id ~ '^[A-Za-z0-9._:@+-]{1,64}$'),
    tenant_id   text NOT NULL CONSTRAINT orders_tenant_fkey REFERENCES tenants,
    currency    text NOT NULL CONSTRAINT orders_currency_fkey REFERENCES currencies,
    amount      bigint NOT NULL CONSTRAINT orders_amount_positive CHECK (amount > 0),
    title       text NOT NULL,
    created_at  timestamptz NOT NULL,
    -- Not payable from this moment on.
    expires_at  timestamptz,
    -- Withdrawn by the product.
    closed_at   timestamptz
);
CREATE TRIGGER orders_write_once BEFORE UPDATE ON orders
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER orders_are_not_deleted BEFORE DELETE ON orders
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER orders_are_kept BEFORE TRUNCATE ON orders
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- created → performed | cancelled; performed → refunded. The state is which of the times are set:
--   performed_at  cancelled_at   state
--   null          null           created
--   set           null           performed
--   null          set            cancelled
--   set           set            refunded
CREATE TABLE payments (
    payment_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider            text NOT NULL,
    -- A payment made with a provider's test key. It never becomes money, and live calls never see it.
    mode                text NOT NULL CONSTRAINT payments_mode_known CHECK (mode IN ('live', 'test')),
    external_id         text NOT NULL,
    tenant_id           text NOT NULL CONSTRAINT payments_tenant_fkey REFERENCES tenants,
    order_id            text CONSTRAINT payments_order_fkey REFERENCES orders,
    currency            text NOT NULL CONSTRAINT payments_currency_fkey REFERENCES currencies,
    amount              bigint NOT NULL CONSTRAINT payments_amount_positive CHECK (amount > 0),
    -- The account as the provider sent it, to be given back in the same shape: JSON, but as text, since
    -- PostgreSQL's json types refuse some of what a sender may write (NUL, huge exponents).
    account             text NOT NULL
                        CONSTRAINT payments_account_length CHECK (octet_length(account) <= 4096),
    -- The provider's own time of creation; its expiry counts from here.
    external_created_at timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    performed_at        timestamptz,
    cancelled_at        timestamptz,
    cancel_reason       bigint,
    CONSTRAINT payments_external_id_key UNIQUE (provider, mode, external_id),
    CONSTRAINT payments_cancel_complete CHECK ((cancelled_at IS NULL) = (cancel_reason IS NULL)),
    CONSTRAINT payments_times_in_order CHECK (performed_at >= created_at AND cancelled_at >= created_at
                                              AND cancelled_at >= performed_at)
) WITH (fillfactor = 80); -- Every payment is updated once or twice after its insert.

-- At most one payment of an order is open or was ever successful; a cancelled attempt frees the order.
CREATE UNIQUE INDEX payments_one_per_order_key ON payments (order_id, mode)
    WHERE order_id IS NOT NULL AND (cancelled_at IS NULL OR performed_at IS NOT NULL);
-- The provider's statement asks by its own time.
CREATE INDEX payments_statement_idx ON payments (provider, mode, external_created_at, payment_id);
-- The sweep looks only at what is still open.
CREATE INDEX payments_open_idx ON payments (provider, external_created_at)
    WHERE performed_at IS NULL AND cancelled_at IS NULL;
CREATE INDEX payments_tenant_idx ON payments (tenant_id, payment_id);

CREATE TRIGGER payments_write_once BEFORE UPDATE ON payments
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER payments_are_not_deleted BEFORE DELETE ON payments
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payments_are_kept BEFORE TRUNCATE ON payments
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What the tax service's receipt for a payment says. The receipts of the sale and of its return are separate.
CREATE TABLE payment_fiscal_receipts (
    payment_id  bigint NOT NULL CONSTRAINT payment_fiscal_receipts_payment_fkey REFERENCES payments,
    kind        text NOT NULL CONSTRAINT payment_fiscal_receipts_kind_known CHECK (kind IN ('perform', 'cancel')),
    -- JSON as it came, as text.
    receipt     text NOT NULL,
    received_at timestamptz NOT NULL,
    CONSTRAINT payment_fiscal_receipts_pkey PRIMARY KEY (payment_id, kind)
);
CREATE TRIGGER payment_fiscal_receipts_are_history BEFORE UPDATE OR DELETE ON payment_fiscal_receipts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payment_fiscal_receipts_are_kept BEFORE TRUNCATE ON payment_fiscal_receipts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Every call of a provider with our answer: what "I paid and it isn't there" is answered from. A call that
-- changed something is written in the transaction of its effect, the others on their own. No header is
-- kept, so no key can be in it.
CREATE TABLE provider_calls (
    call_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider       text NOT NULL,
    -- Null when the call did not authenticate.
    mode           text CONSTRAINT provider_calls_mode_known CHECK (mode IN ('live', 'test')),
    method         text,
    external_id    text,
    remote_address text,
    request_id     text NOT NULL,
    received_at    timestamptz NOT NULL,
    -- Cut after 16 KiB; `request_bytes` is the full length.
    request        text NOT NULL,
    request_bytes  integer NOT NULL,
    answer         text NOT NULL,
    -- The provider's error code that we answered; null for a result.
    error_code     integer
);
CREATE INDEX provider_calls_external_id_idx ON provider_calls (external_id, provider) WHERE external_id IS NOT NULL;
CREATE TRIGGER provider_calls_are_history BEFORE UPDATE OR DELETE ON provider_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER provider_calls_are_kept BEFORE TRUNCATE ON provider_calls
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT, UPDATE (closed_at) ON orders TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (performed_at, cancelled_at, cancel_reason) ON payments TO hamyon_service;
GRANT SELECT, INSERT ON payment_fiscal_receipts, provider_calls TO hamyon_service;
