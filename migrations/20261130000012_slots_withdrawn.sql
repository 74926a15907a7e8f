-- A slot that was made by mistake, or whose hour is needed for something else, is taken out of sale: nobody can order
-- it any more, and another slot may stand in its place. Only a slot that nobody holds and nobody has booked; that is
-- decided under the slot's lock, like everything about it.
ALTER TABLE slots
    ADD COLUMN withdrawn_at timestamptz,
    ADD COLUMN withdrawn_by text,
    ADD CONSTRAINT slots_withdrawn_by_somebody CHECK ((withdrawn_at IS NULL) = (withdrawn_by IS NULL));
ALTER TABLE slots DROP CONSTRAINT slots_do_not_overlap;
ALTER TABLE slots ADD CONSTRAINT slots_do_not_overlap EXCLUDE USING gist
    (int8range(resource_no, resource_no, '[]') WITH &&, tstzrange(starts_at, ends_at) WITH &&)
    WHERE (withdrawn_at IS NULL);

DROP TRIGGER slots_are_history ON slots;
CREATE TRIGGER slots_write_once BEFORE UPDATE ON slots
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite();
CREATE TRIGGER slots_are_not_deleted BEFORE DELETE ON slots
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

GRANT UPDATE (withdrawn_at, withdrawn_by) ON slots TO hamyon_service;
