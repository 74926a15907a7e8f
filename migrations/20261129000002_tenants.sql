-- Who owns money, and in which units it is counted.

CREATE TABLE currencies (
    code       text PRIMARY KEY
               CONSTRAINT currencies_code_shape CHECK (code ~ '^[A-Z][A-Z0-9_]{0,15}$'),
    -- Digits after the point: 1 UZS = 10^2 tiyin.
    exponent   smallint NOT NULL
               CONSTRAINT currencies_exponent_range CHECK (exponent BETWEEN 0 AND 8),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE currencies IS 'Units of account. A code keeps its exponent for ever: changing it would change every amount already written.';

INSERT INTO currencies (code, exponent) VALUES
    ('UZS', 2),    -- so'm, counted in tiyin
    ('USD', 2),
    ('XTR', 0),    -- Telegram Stars, whole
    ('CREDIT', 0); -- metered work

CREATE TABLE tenants (
    tenant_id  text PRIMARY KEY
               CONSTRAINT tenants_id_shape CHECK (tenant_id ~ '^[A-Za-z0-9._:@+-]{1,64}$'),
    name       text NOT NULL,
    -- IANA name; "the first of the month" is the first in this zone.
    time_zone  text NOT NULL,
    locale     text NOT NULL CONSTRAINT tenants_locale_known CHECK (locale IN ('uz', 'ru', 'en')),
    status     text NOT NULL DEFAULT 'active'
               CONSTRAINT tenants_status_known CHECK (status IN ('active', 'suspended', 'closed')),
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE tenants IS 'Customers of the product that embeds the ledger. The id is the product''s own.';

-- The row of a wallet is what a posting locks, and it carries the head of the wallet's chain. The head
-- says how many rows there must be and what the last one hashes to, so that a cut tail is found. It holds
-- no balance: a balance is the SUM of the rows.
CREATE TABLE wallets (
    wallet_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id        text NOT NULL CONSTRAINT wallets_tenant_fkey REFERENCES tenants,
    currency         text NOT NULL CONSTRAINT wallets_currency_fkey REFERENCES currencies,
    created_at       timestamptz NOT NULL,
    head_seq         bigint NOT NULL DEFAULT 0,
    head_hash        bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex')
                     CONSTRAINT wallets_head_hash_is_sha256 CHECK (octet_length(head_hash) = 32),
    head_recorded_at timestamptz,
    CONSTRAINT wallets_tenant_currency_key UNIQUE (tenant_id, currency),
    CONSTRAINT wallets_head_complete CHECK ((head_seq = 0) = (head_recorded_at IS NULL))
) WITH (fillfactor = 45); -- A HOT update of the head needs room in the page, and a fee run updates every head at once.

-- HM003: the head only ever moves forward, and nothing else of a wallet changes.
CREATE FUNCTION refuse_head_moved_back() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.wallet_id, NEW.tenant_id, NEW.currency, NEW.created_at)
       IS DISTINCT FROM (OLD.wallet_id, OLD.tenant_id, OLD.currency, OLD.created_at) THEN
        RAISE EXCEPTION 'wallet % keeps its tenant and its currency', OLD.wallet_id USING ERRCODE = 'HM003';
    END IF;
    IF NEW.head_seq <= OLD.head_seq THEN
        RAISE EXCEPTION 'the head of wallet % stands at % and can''t go to %', OLD.wallet_id, OLD.head_seq, NEW.head_seq
            USING ERRCODE = 'HM003';
    END IF;
    RETURN NEW;
END;
$$;
-- Every posting updates a head, and a call of the function is a quarter of what that costs. The condition calls
-- it only for what it refuses.
CREATE TRIGGER wallets_head_moves_forward BEFORE UPDATE ON wallets
    FOR EACH ROW
    WHEN (NEW.head_seq <= OLD.head_seq
          OR (NEW.wallet_id, NEW.tenant_id, NEW.currency, NEW.created_at)
             IS DISTINCT FROM (OLD.wallet_id, OLD.tenant_id, OLD.currency, OLD.created_at))
    EXECUTE FUNCTION refuse_head_moved_back();

CREATE TRIGGER wallets_are_not_deleted BEFORE DELETE ON wallets
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER wallets_are_kept BEFORE TRUNCATE ON wallets
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tenants_are_not_deleted BEFORE DELETE ON tenants
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tenants_keep_their_ids BEFORE UPDATE OF tenant_id ON tenants
    FOR EACH ROW WHEN (NEW.tenant_id IS DISTINCT FROM OLD.tenant_id) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tenants_are_kept BEFORE TRUNCATE ON tenants
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER currencies_are_history BEFORE UPDATE OR DELETE ON currencies
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER currencies_are_kept BEFORE TRUNCATE ON currencies
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT ON currencies, tenants TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (head_seq, head_hash, head_recorded_at) ON wallets TO hamyon_service;
