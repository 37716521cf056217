-- Holdfast's guard for PostgreSQL 14 or later: it refuses whoever comes with an older token.
-- One statement, all of it or nothing. Applying it again is harmless, and forgets nothing.
DO @outer@
@if_table@DECLARE
@if_table@    other name;
@if_table@    known boolean;
BEGIN

@if_table@-- The marks of a table are in one schema: here they would be unknown, and forgotten.
@if_table@FOR other IN SELECT n.nspname FROM pg_class AS m JOIN pg_class AS g USING (relnamespace) JOIN pg_namespace AS n ON n.oid = relnamespace
@if_table@    WHERE m.relname = 'holdfast_marks' AND g.relname = 'holdfast_guards' AND n.oid IS DISTINCT FROM to_regnamespace(@own_name@)
@if_table@    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(m.oid, 'SELECT') AND has_table_privilege(g.oid, 'SELECT')
@if_table@LOOP
@if_table@    EXECUTE format('SELECT EXISTS (SELECT FROM %1$I.holdfast_marks WHERE guard = %2$L)'
@if_table@        ' OR EXISTS (SELECT FROM %1$I.holdfast_guards WHERE guard = %2$L AND target <> 0)', other, @guard@) INTO known;
@if_table@    IF known THEN
@if_table@        RAISE EXCEPTION 'the marks of % are in the schema %', @guard@, quote_ident(other)
@if_table@            USING HINT = format('Say --schema %1$s. Or, to move them: undo its guard there, apply what --schema %2$s prints without a table, and say'
@if_table@                ' WITH m AS (DELETE FROM %1$s.holdfast_marks WHERE guard = %3$L RETURNING *) INSERT INTO %2$s.holdfast_marks SELECT * FROM m',
@if_table@                quote_ident(other), @own_name@, @guard@);
@if_table@    END IF;
@if_table@END LOOP;

-- The greatest token seen, for each key. guard: '' for holdfast_enter, else the table.
-- xact: the transaction that wrote it last.
IF to_regclass(@marks_name@) IS NULL THEN
    CREATE TABLE @own@.holdfast_marks (
        guard text NOT NULL DEFAULT '',
        key text NOT NULL,
        token bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
        xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (guard, key)
    ) WITH (fillfactor = 70);
    -- Which tables have triggers, and what their columns are called. guard: the name that the table had then. target: 0 if
    -- the guard was undone; its marks are still of the keys in that column.
    CREATE TABLE @own@.holdfast_guards (
        guard text PRIMARY KEY,
        target regclass NOT NULL,
        key_column text NOT NULL,
        token_column text NOT NULL
    );
    -- Every mark that was lowered.
    CREATE TABLE @own@.holdfast_resets (
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        who text NOT NULL DEFAULT session_user,
        guard text NOT NULL,
        key text NOT NULL,
        old_mark bigint NOT NULL,
        new_mark bigint NOT NULL
    );
END IF;

CREATE OR REPLACE FUNCTION @own@.holdfast_refuse(guard text, key text, token bigint, seen bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'HF001',
        MESSAGE = format('stale fencing token %s for "%s": %s was seen', token, concat_ws(':', nullif(guard, ''), key), seen),
        DETAIL = CASE WHEN token = seen THEN 'This guard takes a newer token only: a step that must happen once has happened.'
                 ELSE 'Somebody has entered with a greater token: a later holder, or a mistake, which holdfast_reset() takes back.' END,
        HINT = 'Do not try again with this token: take the lock again, read again, and decide again. '
            'Or the mark is from another store, whose tokens cannot be compared with these: docs/fencing.md says what to do then.';
END
@inner@;

CREATE OR REPLACE FUNCTION @own@.holdfast_no_token(token bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = format('%s is not a fencing token: a number from 1 to 9007199254740991', coalesce(token::text, 'NULL'));
END
@inner@;

-- Raises a mark and holds it until the transaction ends; returns the mark as it is then. mode 'keep' never refuses.
--
-- It writes the row even if the token is the one that is there, once in a transaction: whoever waited for the row
-- with a snapshot from before (REPEATABLE READ and SERIALIZABLE) must get a serialization failure, because it would not
-- see what was written meanwhile. A row that was only locked would let it pass.
CREATE OR REPLACE FUNCTION @own@.holdfast_raise(a_guard text, a_key text, a_token bigint, a_mode text)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    me xid8 := pg_current_xact_id();
    seen bigint;
    writer xid8;
BEGIN
    IF a_guard IS NULL OR a_key IS NULL OR octet_length(a_key) NOT BETWEEN 1 AND 400 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('%s is not a key: 1 to 400 bytes', coalesce(quote_literal(left(a_key, 40)), 'NULL'));
    ELSIF a_mode IS NULL OR a_mode NOT IN ('not-older', 'newer', 'keep') THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('%s is not a mode: there are ''not-older'' and ''newer''', coalesce(quote_literal(a_mode), 'NULL'));
    ELSIF a_token IS NULL OR a_token > 9007199254740991 OR a_token < (a_mode <> 'keep')::integer THEN
        PERFORM @own@.holdfast_no_token(a_token);
    END IF;
    FOR i IN 1 .. 100 LOOP
        UPDATE @own@.holdfast_marks AS m SET token = greatest(m.token, a_token), xact = me
            WHERE m.guard = a_guard AND m.key = a_key
            AND (m.token < a_token OR a_mode = 'keep' OR (m.token = a_token AND a_mode = 'not-older' AND m.xact <> me))
            RETURNING m.token INTO seen;
        IF FOUND THEN
            RETURN seen;
        END IF;
        SELECT m.token, m.xact INTO seen, writer FROM @own@.holdfast_marks AS m WHERE m.guard = a_guard AND m.key = a_key;
        IF NOT FOUND THEN
            INSERT INTO @own@.holdfast_marks (guard, key, token, xact) VALUES (a_guard, a_key, a_token, me)
                ON CONFLICT (guard, key) DO NOTHING;
            IF FOUND AND a_token = 0 THEN -- nothing to remember; it was there to wait for whoever is raising this mark
                DELETE FROM @own@.holdfast_marks AS m WHERE m.guard = a_guard AND m.key = a_key AND m.token = 0;
                RETURN 0;
            ELSIF FOUND THEN
                RETURN a_token;
            END IF;
        ELSIF seen > a_token OR (seen = a_token AND a_mode = 'newer') THEN
            PERFORM @own@.holdfast_refuse(a_guard, a_key, a_token, seen);
        ELSIF seen = a_token AND writer = me THEN -- written before in this transaction; the lock makes sure that it was this one
            SELECT m.token INTO seen FROM @own@.holdfast_marks AS m WHERE m.guard = a_guard AND m.key = a_key FOR NO KEY UPDATE;
            IF seen = a_token THEN
                RETURN seen;
            END IF;
        END IF;
        -- Somebody else was faster: look again.
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('the mark of "%s" keeps changing: try again', a_key);
END
@inner@;

-- SELECT holdfast_enter('batch:4472', 35): first in the transaction, before anything is read.
CREATE OR REPLACE FUNCTION @own@.holdfast_enter(key text, token bigint, mode text DEFAULT 'not-older')
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    IF mode = 'keep' THEN
        mode := NULL;
    END IF;
    RETURN @own@.holdfast_raise('', key, token, mode);
END
@inner@;

-- For the triggers of tables: what the transaction brings for a row whose statement names no token; NULL if nothing.
CREATE OR REPLACE FUNCTION @own@.holdfast_brought(a_row text)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    -- INSERT ... ON CONFLICT DO UPDATE: the token that the INSERT named counts for its UPDATE.
    inserted text := current_setting('holdfast.inserted', true);
    setting text := current_setting('holdfast.token', true);
BEGIN
    IF inserted <> '' AND substr(inserted, strpos(inserted, ' ') + 1) = a_row THEN
        setting := split_part(inserted, ' ', 1);
    ELSIF setting IS NULL OR setting = '' THEN
        RETURN NULL;
    END IF;
    IF setting !~ '^[0-9]{1,16}$' OR setting::bigint NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('holdfast.token is %L: that is not a fencing token, a number from 1 to 9007199254740991', setting),
            HINT = 'SET LOCAL holdfast.token = ''35''';
    END IF;
    RETURN setting::bigint;
END
@inner@;

-- Is this a part of an UPDATE that moves its row to another partition? PostgreSQL fires the triggers of three statements then:
-- UPDATE, DELETE of the row where it was, INSERT where it goes. The UPDATE was compared, and leaves a note for the other two.
-- The DELETE must be of the very same row: an UPDATE that stays leaves another one. The INSERT must come next, with the key
-- that the UPDATE gave. A note is good once, at the depth of triggers at which it was left, and only while the UPDATE lasts, for
-- which holdfast_moving() sees to it: it is '{}' then, and else ''. Where a token is required, the mark must say, too, that
-- this transaction has brought one, and the INSERT must have it.
CREATE OR REPLACE FUNCTION @own@.holdfast_moves(a_step text, a_guard text, a_row text, a_key text, a_token bigint, a_require boolean)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    setting text := 'holdfast.moving_' || pg_trigger_depth();
    note text[] := nullif(current_setting(setting, true), '')::text[];
    statement text := extract(epoch FROM statement_timestamp());
BEGIN
    IF note IS NULL THEN
        RETURN false;
    ELSIF a_step = 'UPDATE' THEN
        PERFORM set_config(setting, ARRAY['DELETE', a_guard, statement, a_row, a_key]::text, true);
        RETURN false;
    ELSIF a_step = 'DELETE' AND note[1:4] = ARRAY['DELETE', a_guard, statement, a_row] THEN
        PERFORM set_config(setting, ARRAY['INSERT', a_guard, statement, note[5]]::text, true);
    ELSE
        PERFORM set_config(setting, '{}', true);
        IF a_step <> 'INSERT' OR note <> ARRAY['INSERT', a_guard, statement, a_key] THEN
            RETURN false;
        END IF;
    END IF;
    RETURN NOT a_require OR EXISTS (SELECT FROM @own@.holdfast_marks AS m WHERE m.guard = a_guard AND m.key = a_key
        AND m.xact = pg_current_xact_id() AND (a_step = 'DELETE' OR m.token = a_token));
END
@inner@;

-- Before and after each UPDATE of a table with partitions: a DELETE and an INSERT have no such triggers.
CREATE OR REPLACE FUNCTION @own@.holdfast_moving()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    PERFORM set_config('holdfast.moving_' || pg_trigger_depth(), CASE TG_WHEN WHEN 'BEFORE' THEN '{}' ELSE '' END, true);
    RETURN NULL;
END
@inner@;

-- For the triggers of tables: an INSERT notes the keys whose row it found, for when its statement is over.
CREATE OR REPLACE FUNCTION @own@.holdfast_found(a_guard text, a_key text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    PERFORM set_config('holdfast.found', concat(current_setting('holdfast.found', true),
        encode(convert_to(a_guard, 'UTF8'), 'hex'), ':', encode(convert_to(a_key, 'UTF8'), 'hex'), ' '), true);
END
@inner@;

-- Functions that look for rows of guarded tables must see them all: with row_security off PostgreSQL lets them fail where a
-- policy would hide some.

-- For the triggers of tables: which table a guard is of. Nothing that would be a secret.
CREATE OR REPLACE FUNCTION @own@.holdfast_guarded(a_guard text, OUT target regclass, OUT key_column text, OUT token_column text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS @inner@
BEGIN
    SELECT g.target, g.key_column, g.token_column INTO target, key_column, token_column FROM @own@.holdfast_guards AS g WHERE g.guard = a_guard;
END
@inner@;

-- Before an UPDATE with the rights of this function's owner: refuses where a trigger of somebody else would run with them. None can come as long as the
-- table is locked like this.
CREATE OR REPLACE FUNCTION @own@.holdfast_refuse_triggers(target regclass, a_hint text)
RETURNS void LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    alien record;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', target); -- with its partitions
    SELECT t.tgname, t.tgrelid::regclass AS at, p.oid::regprocedure AS function, r.rolname INTO alien FROM pg_trigger AS t
        JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_roles AS r ON r.oid = p.proowner
        WHERE (t.tgrelid = target OR t.tgrelid IN (SELECT i.relid FROM pg_partition_tree(target) AS i)) AND NOT t.tgisinternal
        AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0 AND NOT r.rolsuper AND r.rolname <> current_user -- 16: of UPDATE
        LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('%s has the trigger "%s", whose function is %s''s: it would run with the rights of %s', alien.at, alien.tgname, alien.rolname, current_user),
            HINT = a_hint || format('ALTER TABLE %1$s DISABLE TRIGGER %2$I for the moment; or ALTER FUNCTION %3$s OWNER TO %4$I, if what it does is right for that role.',
                alien.at, alien.tgname, alien.function, current_user);
    END IF;
END
@inner@;

-- For a role that may not change the row which its INSERT found, or not see it: the row carries the mark of its key all the same.
CREATE OR REPLACE FUNCTION @own@.holdfast_carry(a_guard text, a_key text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS @inner@
DECLARE
    about record;
    mark bigint := (SELECT m.token FROM @own@.holdfast_marks AS m WHERE m.guard = a_guard AND m.key = a_key);
BEGIN
    SELECT * INTO about FROM @own@.holdfast_guarded(a_guard);
    PERFORM @own@.holdfast_refuse_triggers(about.target, format('GRANT SELECT, UPDATE (%I) ON %s to the role that says INSERT, which then runs it itself; or ',
        about.token_column, about.target));
    EXECUTE format('UPDATE %1$s SET %2$I = %3$L WHERE %4$I = %5$L AND coalesce(%2$I, 0) < %3$L',
        about.target, about.token_column, mark, about.key_column, a_key);
EXCEPTION WHEN raise_exception THEN
    NULL; -- the table has a trigger that lets nobody change this row
END
@inner@;

-- The statement is over, and nothing may have come of it (ON CONFLICT DO NOTHING). Its token was seen: these rows carry it. The UPDATE fires whatever triggers
-- others have put on the table, so it has the rights of whoever said INSERT; those of the functions' owner only where there is no such trigger.
CREATE OR REPLACE FUNCTION @own@.holdfast_found_rows()
RETURNS trigger LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    a_guard text := TG_ARGV[0];
    mine text := encode(convert_to(a_guard, 'UTF8'), 'hex') || ':';
    notes text[] := string_to_array(rtrim(current_setting('holdfast.found', true)), ' ');
    about record;
    a_key text;
    mark bigint;
    allowed boolean;
BEGIN
    PERFORM set_config('holdfast.found', coalesce((SELECT string_agg(n || ' ', '') FROM unnest(notes) AS n
        WHERE NOT starts_with(n, mine)), ''), true); -- those of other tables: this is inside of a trigger of theirs
    SELECT * INTO about FROM @own@.holdfast_guarded(a_guard);
    FOR a_key IN SELECT DISTINCT convert_from(decode(split_part(n, ':', 2), 'hex'), 'UTF8') FROM unnest(notes) AS n WHERE starts_with(n, mine)
    LOOP
        mark := @own@.holdfast_raise(a_guard, a_key, 0, 'keep'); -- what it is, after this INSERT
        BEGIN
            EXECUTE format('UPDATE %1$s SET %2$I = %3$L WHERE %4$I = %5$L AND coalesce(%2$I, 0) < %3$L',
                about.target, about.token_column, mark, about.key_column, a_key);
            -- A row that a policy hides from this role was not changed, and nobody said so.
            allowed := NOT row_security_active(about.target) OR coalesce(@own@.holdfast_in_row(a_guard, a_key), mark) >= mark;
        EXCEPTION
            WHEN raise_exception THEN
                allowed := true; -- the table has a trigger that lets nobody change this row
            WHEN insufficient_privilege THEN
                allowed := false;
        END;
        IF NOT allowed THEN
            PERFORM @own@.holdfast_carry(a_guard, a_key);
        END IF;
    END LOOP;
    RETURN NULL;
END
@inner@;

-- The mark that the row of a key carries: 0 if none, NULL if there is no row. The row is held until the transaction ends.
CREATE OR REPLACE FUNCTION @own@.holdfast_in_row(a_guard text, a_key text)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS @inner@
DECLARE
    about record;
    mark bigint;
BEGIN
    SELECT g.* INTO about FROM @own@.holdfast_guards AS g JOIN pg_class AS c ON c.oid = g.target WHERE g.guard = a_guard;
    IF FOUND THEN
        EXECUTE format('SELECT max(t.mark) FROM (SELECT coalesce(%I, 0) AS mark FROM %s WHERE %I = %L FOR NO KEY UPDATE) AS t',
            about.token_column, about.target, about.key_column, a_key) INTO mark;
    END IF;
    RETURN mark;
END
@inner@;

-- For rows that go without a DELETE: the marks that they carry go to holdfast_marks.
CREATE OR REPLACE FUNCTION @own@.holdfast_remember(a_guard text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS @inner@
DECLARE
    about record;
BEGIN
    SELECT * INTO about FROM @own@.holdfast_guards AS g WHERE g.guard = a_guard;
    EXECUTE format('INSERT INTO %1$s AS m (guard, key, token) SELECT %2$L, %3$I::text, max(%4$I) FROM %5$s'
        ' WHERE %3$I IS NOT NULL AND %4$I IS NOT NULL GROUP BY 2'
        ' ON CONFLICT (guard, key) DO UPDATE SET token = greatest(m.token, excluded.token)',
        @marks_name@::regclass, a_guard, about.key_column, about.token_column, about.target);
END
@inner@;

-- For operators: lowers a mark, and writes down who did. guard: '' for holdfast_enter, else the table.
CREATE OR REPLACE FUNCTION @own@.holdfast_reset(key text, mark bigint DEFAULT 0, guard text DEFAULT '')
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS @inner@
DECLARE
    old_mark bigint;
    in_row bigint;
    about record;
BEGIN
    SELECT m.token INTO old_mark FROM @own@.holdfast_marks AS m
        WHERE m.guard = holdfast_reset.guard AND m.key = holdfast_reset.key FOR UPDATE;
    in_row := @own@.holdfast_in_row(guard, key);
    old_mark := greatest(old_mark, nullif(in_row, 0));
    IF old_mark IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('"%s" has no mark', concat_ws(':', nullif(guard, ''), key));
    ELSIF mark IS NULL OR mark < 0 OR mark > old_mark THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('the mark of "%s" is %s: it can be set to a number from 0 to that', key, old_mark);
    END IF;
    UPDATE @own@.holdfast_marks AS m SET token = mark
        WHERE m.guard = holdfast_reset.guard AND m.key = holdfast_reset.key AND m.token > mark;
    IF in_row > mark THEN
        SELECT * INTO about FROM @own@.holdfast_guards AS g WHERE g.guard = holdfast_reset.guard;
        PERFORM @own@.holdfast_refuse_triggers(about.target, '');
        PERFORM set_config('holdfast.reset', guard || ':' || key, true);
        EXECUTE format('UPDATE %s SET %I = %L WHERE %I = %L', about.target, about.token_column, nullif(mark, 0),
            about.key_column, key);
        PERFORM set_config('holdfast.reset', '', true);
    END IF;
    INSERT INTO @own@.holdfast_resets (guard, key, old_mark, new_mark) VALUES (guard, key, old_mark, mark);
    RETURN old_mark;
END
@inner@;
REVOKE ALL ON FUNCTION @own@.holdfast_reset(text, bigint, text) FROM PUBLIC;

END
@outer@;
