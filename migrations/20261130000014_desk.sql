-- For the support desk: how payments are found, and what the audit is told once.
--
-- What a buyer can say about a payment has to lead to it: the charge id on Telegram's receipt, which is what stands
-- behind the bot's number in `external_id`, and an amount with the day.
--
-- Built in the migration's own transaction, not CONCURRENTLY: that would wait for every session with a snapshot, and
-- a second process that starts meanwhile has one while it waits for the lock under which we migrate. A payment is a
-- short row and is written by a provider, who asks again.
CREATE INDEX payments_charge_idx ON payments (substr(external_id, strpos(external_id, ':') + 1))
    WHERE strpos(external_id, ':') > 0;
-- Payments come in the order of time, so a summary of each stretch is enough, as for the wallets' rows.
CREATE INDEX payments_created_idx ON payments USING brin (created_at);

-- Which throttled names and addresses the audit has been told of. Without it a stranger who goes on trying would add
-- a line to the audit with every attempt, and the audit is never shortened. Rows older than a day say nothing any
-- more and are removed.
CREATE TABLE login_throttles (
    -- `name ann` or `address 10.0.0.1`.
    subject text NOT NULL,
    told_at timestamptz NOT NULL
);
CREATE INDEX login_throttles_subject_idx ON login_throttles (subject, told_at);
CREATE INDEX login_throttles_told_at_idx ON login_throttles (told_at);

GRANT SELECT, INSERT, DELETE ON login_throttles TO hamyon_service;
