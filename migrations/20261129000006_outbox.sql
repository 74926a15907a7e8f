-- What has happened, for those outside who want to know, written in the transaction of the effect.

CREATE TABLE webhook_endpoints (
    endpoint_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url         text NOT NULL,
    -- Signs what is sent, so it has to be readable here. Base64 of 32 random bytes.
    secret      text NOT NULL,
    created_at  timestamptz NOT NULL,
    -- Switched off by the product, or by the receiver's own 410 Gone. Nothing more is sent.
    disabled_at timestamptz
);
CREATE TRIGGER webhook_endpoints_write_once BEFORE UPDATE ON webhook_endpoints
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER webhook_endpoints_are_not_deleted BEFORE DELETE ON webhook_endpoints
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE events (
    event_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Of `tenants`, by the trigger below.
    tenant_id  text NOT NULL,
    kind       text NOT NULL CONSTRAINT events_kind_shape CHECK (kind ~ '^[a-z]+(\.[a-z_]+)+$'),
    -- The body as it is sent, JSON as text: the signature covers these bytes.
    body       text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE TRIGGER events_are_history BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_are_kept BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- An event belongs to a tenant. A foreign key would look up and lock the tenant of each event by itself, which was
-- a tenth of the time of a fee run; this looks them up together and refuses the same. It needs no lock, since a
-- tenant is never deleted and keeps its id.
CREATE FUNCTION refuse_event_of_nobody() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    unknown text;
BEGIN
    SELECT e.tenant_id INTO unknown
      FROM new_events e
     WHERE (SELECT t.tenant_id FROM tenants t WHERE t.tenant_id = e.tenant_id) IS NULL
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'an event names tenant %, who doesn''t exist', unknown
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER events_belong_to_tenants AFTER INSERT ON events
    REFERENCING NEW TABLE AS new_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_of_nobody();

-- One row for each event and each endpoint that was there when it happened. This is the one table of work
-- here: its attempts and its times move on.
CREATE TABLE webhook_deliveries (
    endpoint_id     bigint NOT NULL CONSTRAINT webhook_deliveries_endpoint_fkey REFERENCES webhook_endpoints,
    event_id        bigint NOT NULL CONSTRAINT webhook_deliveries_event_fkey REFERENCES events,
    -- Repeated from the event: the order is kept per tenant.
    tenant_id       text NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    -- Until then one worker has it; after that the worker is taken for dead.
    claimed_until   timestamptz,
    delivered_at    timestamptz,
    -- Given up; somebody may replay it.
    dead_at         timestamptz,
    -- An earlier event of the tenant waits for the same endpoint; whoever ends that one wakes this one. Only
    -- the deliverer parks, so writing an event takes no part in it.
    parked          boolean NOT NULL DEFAULT false,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (endpoint_id, event_id)
);
-- What may be claimed, however much waits behind it.
CREATE INDEX webhook_deliveries_claimable_idx ON webhook_deliveries (endpoint_id, next_attempt_at, event_id)
    WHERE delivered_at IS NULL AND dead_at IS NULL AND NOT parked;
CREATE INDEX webhook_deliveries_claimed_idx ON webhook_deliveries (endpoint_id, claimed_until)
    WHERE claimed_until IS NOT NULL;
-- What is still to be delivered, in its order.
CREATE INDEX webhook_deliveries_waiting_idx ON webhook_deliveries (endpoint_id, tenant_id, event_id)
    WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX webhook_deliveries_dead_idx ON webhook_deliveries (dead_at) WHERE dead_at IS NOT NULL;

-- Every attempt and what came of it.
CREATE TABLE webhook_attempts (
    attempt_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id bigint NOT NULL,
    event_id    bigint NOT NULL,
    attempted_at timestamptz NOT NULL,
    duration_ms integer NOT NULL,
    -- The receiver's HTTP status, if it answered.
    status      integer,
    -- Why there was no answer, or why it doesn't count.
    problem     text,
    CONSTRAINT webhook_attempts_delivery_fkey
        FOREIGN KEY (endpoint_id, event_id) REFERENCES webhook_deliveries (endpoint_id, event_id)
);
CREATE INDEX webhook_attempts_delivery_idx ON webhook_attempts (endpoint_id, event_id, attempt_id);
CREATE TRIGGER webhook_attempts_are_history BEFORE UPDATE OR DELETE ON webhook_attempts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT, UPDATE (disabled_at) ON webhook_endpoints TO hamyon_service;
GRANT SELECT, INSERT ON events, webhook_attempts TO hamyon_service;
GRANT SELECT, INSERT, UPDATE (attempts, next_attempt_at, claimed_until, delivered_at, dead_at, parked)
    ON webhook_deliveries TO hamyon_service;
