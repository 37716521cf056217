-- PostgreSQL: enter, read, decide, write, in one transaction.
--
--     holdfast guard sql --dialect postgres | psql -v ON_ERROR_STOP=1 shop
--     holdfast run batch-4472 -- sh -c 'psql -v ON_ERROR_STOP=1 -v token=$HOLDFAST_TOKEN shop <enter.sql'
BEGIN;
SELECT holdfast_enter('batch:4472', :token);
UPDATE batches SET state = 'done' WHERE id = 4472 AND state = 'open';
COMMIT;
