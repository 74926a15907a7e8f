-- A bot may have sold before this book began. Its list has those payments, too, and they are none of ours: since when
-- the book answers for a bot's payments is written when the bot is first heard of. Null, in rows from before this
-- file, is from the first line on.
ALTER TABLE telegram_statements ADD COLUMN begins_at timestamptz;
CREATE TRIGGER telegram_statements_write_once BEFORE UPDATE ON telegram_statements
    FOR EACH ROW EXECUTE FUNCTION refuse_overwrite('lines_read', 'read_at');
