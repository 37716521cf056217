-- Takes the guard off the table. The column stays, and so do the marks: applying the guard again goes on where it was.
DROP TRIGGER IF EXISTS main.@insert_trigger@;
DROP TRIGGER IF EXISTS main.@upsert_trigger@;
DROP TRIGGER IF EXISTS main.@named_trigger@;
DROP TRIGGER IF EXISTS main.@clear_trigger@;
DROP TRIGGER IF EXISTS main.@update_trigger@;
DROP TRIGGER IF EXISTS main.@delete_trigger@;
-- If nothing else uses the column:  ALTER TABLE @table@ DROP COLUMN @column@;
