-- The only truth about money.

CREATE TABLE wallet_transactions (
    wallet_id    bigint NOT NULL CONSTRAINT wallet_transactions_wallet_fkey REFERENCES wallets,
    -- Dense within the wallet: 1, 2, 3, … A gap is a missing row.
    seq          bigint NOT NULL CONSTRAINT wallet_transactions_seq_positive CHECK (seq > 0),
    -- Repeated from the wallet so that `SELECT SUM(amount) … WHERE tenant_id = …` is a question anybody
    -- with psql can ask.
    tenant_id    text NOT NULL,
    currency     text NOT NULL,
    kind         text NOT NULL
                 CONSTRAINT wallet_transactions_kind_shape CHECK (kind ~ '^[a-z][a-z0-9_]{0,31}$'),
    -- Minor units of the currency; positive is a credit, negative a debit.
    amount       bigint NOT NULL CONSTRAINT wallet_transactions_amount_not_zero CHECK (amount <> 0),
    pocket       text NOT NULL,
    -- What this row books, in the words of its source: the payment, the due, the job.
    reference    text NOT NULL,
    -- The row of the same wallet that this one gives back (refund, top_up_reversal).
    original_seq bigint,
    reason       text,
    -- Who: api:<client>, payme, job:<name>, staff:<name>. Never empty.
    actor        text NOT NULL CONSTRAINT wallet_transactions_actor_named CHECK (actor <> ''),
    -- `json`, not `jsonb`: the chain covers these bytes, and jsonb would rewrite them.
    metadata     json NOT NULL
                 CONSTRAINT wallet_transactions_metadata_object CHECK (json_typeof(metadata) = 'object'),
    -- Never earlier than the row before it, so "the balance at a moment" is a prefix of the wallet.
    recorded_at  timestamptz NOT NULL,
    -- SHA-256 over the hash of the row before and every column above; see src/ledger/chain.rs.
    hash         bytea NOT NULL CONSTRAINT wallet_transactions_hash_is_sha256 CHECK (octet_length(hash) = 32),

    CONSTRAINT wallet_transactions_pkey PRIMARY KEY (wallet_id, seq),
    -- The same event can't be booked twice by any path.
    CONSTRAINT wallet_transactions_reference_key UNIQUE (wallet_id, kind, reference),
    CONSTRAINT wallet_transactions_original_fkey
        FOREIGN KEY (wallet_id, original_seq) REFERENCES wallet_transactions (wallet_id, seq),
    CONSTRAINT wallet_transactions_original_earlier CHECK (original_seq < seq),
    -- The signs of the kinds the ledger knows. Other kinds are the product's and may go either way.
    CONSTRAINT wallet_transactions_sign CHECK (
        CASE kind
            WHEN 'top_up'           THEN amount > 0
            WHEN 'top_up_reversal'  THEN amount < 0 AND original_seq IS NOT NULL
            WHEN 'subscription_fee' THEN amount < 0
            WHEN 'refund'           THEN amount > 0 AND original_seq IS NOT NULL
            ELSE true
        END)
);
COMMENT ON TABLE wallet_transactions IS 'Every movement of money, one signed row each. A balance is SUM(amount).';

-- "How much of this row was already given back" looks only at the few rows that give something back.
CREATE INDEX wallet_transactions_original_idx ON wallet_transactions (wallet_id, original_seq)
    WHERE original_seq IS NOT NULL;

CREATE TRIGGER wallet_transactions_are_history BEFORE UPDATE OR DELETE ON wallet_transactions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER wallet_transactions_are_kept BEFORE TRUNCATE ON wallet_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A shorter way to the sum: what every pocket of the wallet held after row `seq`. One row a checkpoint,
-- so that dropping any of them leaves no half behind. Derived: it may vanish at any time and no answer changes.
CREATE TABLE wallet_checkpoints (
    wallet_id   bigint NOT NULL CONSTRAINT wallet_checkpoints_wallet_fkey REFERENCES wallets,
    seq         bigint NOT NULL,
    -- {"main": 1500050, …} in minor units; empty pockets are left out.
    pocket_sums jsonb NOT NULL
                CONSTRAINT wallet_checkpoints_sums_object CHECK (jsonb_typeof(pocket_sums) = 'object'),
    recorded_at timestamptz NOT NULL,
    CONSTRAINT wallet_checkpoints_pkey PRIMARY KEY (wallet_id, seq)
);
COMMENT ON TABLE wallet_checkpoints IS 'Derived sums at a seq. Never authoritative; verified by `hamyon verify`.';
-- The balance at a moment in the past starts from the last checkpoint before it.
CREATE INDEX wallet_checkpoints_recorded_at_idx ON wallet_checkpoints (wallet_id, recorded_at, seq);

GRANT SELECT, INSERT ON wallet_transactions TO hamyon_service;
GRANT SELECT, INSERT, DELETE ON wallet_checkpoints TO hamyon_service;
