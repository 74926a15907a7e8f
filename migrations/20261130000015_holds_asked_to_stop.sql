-- A job that somebody asked to stop has left its session, and its key finds no double any more: the next question of the
-- session is placed beside it, and the same question may be asked anew. It stays at work, and keeps its money, until its
-- worker or the reconciler ends it by what it used.
--
-- The two keys are built in place: both hold only the jobs at work, which are few.
DROP INDEX holds_dedupe_key;
CREATE UNIQUE INDEX holds_dedupe_key ON holds (tenant_id, dedupe_key)
    WHERE ended_at IS NULL AND cancel_asked_at IS NULL AND dedupe_key IS NOT NULL;
DROP INDEX holds_session_key;
CREATE UNIQUE INDEX holds_session_key ON holds (tenant_id, session)
    WHERE ended_at IS NULL AND cancel_asked_at IS NULL AND session IS NOT NULL;
