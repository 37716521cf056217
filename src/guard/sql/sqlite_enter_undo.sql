-- Takes Holdfast's guard out of the database, and forgets all marks: a stale holder may pass afterwards.
-- Take it off every table first: a trigger that is left makes each write fail.
DROP VIEW IF EXISTS holdfast_reset;
DROP VIEW IF EXISTS holdfast_enter;
DROP VIEW IF EXISTS holdfast_raise;
DROP TABLE IF EXISTS holdfast_named;
DROP TABLE IF EXISTS holdfast_resets;
DROP TABLE IF EXISTS holdfast_marks;
