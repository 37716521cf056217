-- Takes the guard off the table. The column stays, and so do the marks: applying the guard again goes on where it was.
DROP TRIGGER IF EXISTS @insert_trigger@;
DROP TRIGGER IF EXISTS @upsert_trigger@;
DROP TRIGGER IF EXISTS @named_trigger@;
DROP TRIGGER IF EXISTS @update_trigger@;
DROP TRIGGER IF EXISTS @delete_trigger@;
-- If nothing else uses the column:  ALTER TABLE @table@ DROP COLUMN @column@;
