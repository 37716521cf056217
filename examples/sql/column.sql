-- PostgreSQL: the triggers of a table look at its column fence_token, or at the setting of the transaction.
--
--     holdfast guard sql --dialect postgres --table batches | psql -v ON_ERROR_STOP=1 shop
--     holdfast run batch-4472 -- sh -c 'psql -v ON_ERROR_STOP=1 -v token=$HOLDFAST_TOKEN shop <column.sql'
BEGIN;
-- Enters and reads, in one statement.
UPDATE batches SET fence_token = :token WHERE id = 4472 RETURNING state;
UPDATE batches SET state = 'done', fence_token = :token WHERE id = 4472;
COMMIT;

-- The same for statements that cannot be changed.
BEGIN;
SET LOCAL holdfast.token = :'token';
UPDATE batches SET state = 'archived' WHERE id = 4472;
COMMIT;
