-- The guards every later table stands behind.
--
-- Two roles exist before this file runs (the migration command creates them):
--   hamyon_owner    owns every object; nobody logs in as it.
--   hamyon_service  what the running service is. It owns nothing, so it can't disable a trigger,
--                   drop a table or change a grant.
-- Each refusal below has a private SQLSTATE of class HM, so that callers recognise it by code, never by text.

-- HM001: the row is history. Used for tables that only ever grow.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: its rows are never changed and never deleted', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'HM001',
              HINT = 'Write a new row that corrects the old one.';
END;
$$;

-- HM002: the row passes through states, and a column that has a value keeps it. Columns whose names are
-- given as trigger arguments are excepted (a lease that is prolonged, for example).
CREATE FUNCTION refuse_overwrite() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after  jsonb := to_jsonb(NEW);
    changed text;
BEGIN
    SELECT column_name INTO changed
      FROM jsonb_each(before) AS old_value(column_name, value)
     WHERE value <> 'null'::jsonb
       AND value IS DISTINCT FROM after -> column_name
       -- Without arguments TG_ARGV is null, and a comparison with null would let everything through.
       AND column_name <> ALL (coalesce(TG_ARGV, '{}'))
     ORDER BY column_name
     LIMIT 1;
    IF changed IS NOT NULL THEN
        RAISE EXCEPTION 'column % of % already has a value and keeps it', changed, TG_TABLE_NAME
            USING ERRCODE = 'HM002';
    END IF;
    RETURN NEW;
END;
$$;

-- One row a fact about this database. `demo` marks it as filled by the demonstration, so that real rows
-- and invented ones never stand side by side.
CREATE TABLE installation (
    name  text PRIMARY KEY,
    value text NOT NULL
);
COMMENT ON TABLE installation IS 'Facts about this database, each written once.';

CREATE TRIGGER installation_is_history BEFORE UPDATE OR DELETE ON installation
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER installation_is_kept BEFORE TRUNCATE ON installation
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT ON installation TO hamyon_service;
