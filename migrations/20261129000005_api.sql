-- Who may call /v1, and what each of its money-changing calls was answered.

CREATE TABLE api_tokens (
    token_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The program that calls. Idempotency keys belong to the client, so a token can be replaced while
    -- its retries are still on the way.
    client     text NOT NULL CONSTRAINT api_tokens_client_shape CHECK (client ~ '^[A-Za-z0-9._-]{1,64}$'),
    scopes     text[] NOT NULL,
    -- SHA-256 of the token. Enough, because a token is 256 random bits and not a password.
    token_hash bytea NOT NULL CONSTRAINT api_tokens_hash_key UNIQUE
               CONSTRAINT api_tokens_hash_is_sha256 CHECK (octet_length(token_hash) = 32),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE TRIGGER api_tokens_write_once BEFORE UPDATE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER api_tokens_are_not_deleted BEFORE DELETE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER api_tokens_are_kept BEFORE TRUNCATE ON api_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The claim is the first statement of the transaction that has the effect, so a concurrent repeat waits
-- on the unique index, and a crash leaves neither key nor effect. Kept for ever: a replay after forty
-- days is still a replay.
CREATE TABLE idempotency_keys (
    client       text NOT NULL,
    key          text NOT NULL CONSTRAINT idempotency_keys_key_length CHECK (char_length(key) BETWEEN 1 AND 255),
    -- Method and path.
    operation    text NOT NULL,
    request_hash bytea NOT NULL,
    -- The request itself, so that a conflict can name the fields that differ. JSON as text, and so is the
    -- answer: a replay gives the same bytes.
    request      text NOT NULL,
    status       smallint,
    answer       text,
    created_at   timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (client, key),
    CONSTRAINT idempotency_keys_answer_complete CHECK ((status IS NULL) = (answer IS NULL))
);
CREATE TRIGGER idempotency_keys_write_once BEFORE UPDATE ON idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER idempotency_keys_are_not_deleted BEFORE DELETE ON idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER idempotency_keys_are_kept BEFORE TRUNCATE ON idempotency_keys
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT, UPDATE (revoked_at) ON api_tokens TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (status, answer) ON idempotency_keys TO hamyon_service;
