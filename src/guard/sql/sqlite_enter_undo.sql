-- Takes Holdfast's guard out of the database, and forgets all marks: a stale holder may pass afterwards.
-- Take it off every table first: a trigger that is left makes each write fail.
DROP VIEW IF EXISTS main.holdfast_reset;
DROP VIEW IF EXISTS main.holdfast_enter;
DROP VIEW IF EXISTS main.holdfast_row;
DROP VIEW IF EXISTS main.holdfast_spelling;
DROP VIEW IF EXISTS main.holdfast_raise;
DROP TABLE IF EXISTS main.holdfast_named;
DROP TABLE IF EXISTS main.holdfast_inserted;
DROP TABLE IF EXISTS main.holdfast_nocase;
DROP TABLE IF EXISTS main.holdfast_rtrim;
DROP TABLE IF EXISTS main.holdfast_resets;
DROP TABLE IF EXISTS main.holdfast_guards;
DROP TABLE IF EXISTS main.holdfast_marks;
