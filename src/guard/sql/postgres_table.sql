
-- The table: triggers that refuse stale tokens. A row that is there carries the mark of its key in the column. holdfast_marks
-- has the marks of keys whose row is gone: INSERT and DELETE raise them there. Where rows can vanish without a DELETE, it has
-- all marks, and a key's mark is the greater one of both.
DO @outer@
#variable_conflict use_column
DECLARE
    target regclass := @table_name@::regclass;
    kind "char" := (SELECT relkind FROM pg_class WHERE oid = target);
    -- Can the mark that a row carries get lost, or not be the only one? Partitions come and go, and one key may be in several;
    -- an unlogged table is empty after a crash.
    shared boolean := (SELECT relkind = 'p' OR relpersistence = 'u' FROM pg_class WHERE oid = target);
    key_number smallint := (SELECT attnum FROM pg_attribute WHERE attrelid = target AND attname = @key_name@ AND NOT attisdropped);
    key_type regtype := (SELECT coalesce(nullif(t.typbasetype, 0), t.oid) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                         WHERE a.attrelid = target AND a.attnum = key_number);
    token_type regtype := (SELECT atttypid FROM pg_attribute WHERE attrelid = target AND attname = @column_name@ AND NOT attisdropped);
    old_key text := (SELECT key_column FROM @own@.holdfast_guards WHERE guard = @guard@);
    old_column text := (SELECT token_column FROM @own@.holdfast_guards WHERE guard = @guard@);
    old_name text := (SELECT guard FROM @own@.holdfast_guards AS g WHERE g.target = to_regclass(@table_name@) AND guard <> @guard@);
    other_table regclass := (SELECT oid FROM @own@.holdfast_guards AS g JOIN pg_class AS c ON c.oid = g.target
                             WHERE guard = @guard@ AND c.oid <> to_regclass(@table_name@));
    -- Does a policy hide rows from whoever applies this, or from the owner of the functions that look for rows?
    hidden boolean := (SELECT c.relrowsecurity AND EXISTS (SELECT FROM pg_roles AS r
            WHERE r.oid IN (current_user::regrole, (SELECT proowner FROM pg_proc WHERE oid = (@own_name@ || '.holdfast_in_row(text, text)')::regprocedure))
            AND NOT (r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE')))
        FROM pg_class AS c WHERE c.oid = @table_name@::regclass);
BEGIN

IF kind NOT IN ('r', 'p') THEN
    RAISE EXCEPTION '% is not a table', target;
ELSIF (SELECT relispartition FROM pg_class WHERE oid = target) THEN
    RAISE EXCEPTION '% is a partition', target USING HINT = 'Guard the table that it is a part of.';
ELSIF kind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = target) THEN
    RAISE EXCEPTION '% has children, which inherit no triggers', target
        USING HINT = 'Make them partitions, or call holdfast_enter() first in each transaction.';
ELSIF hidden THEN
    RAISE EXCEPTION 'the owner of this guard does not see all rows of %: it has row level security', target
        USING HINT = format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, or let a role with BYPASSRLS own the functions of the guard.', target);
ELSIF old_name IS NOT NULL THEN
    RAISE EXCEPTION '% is guarded as %: it was renamed', target, old_name
        USING HINT = format('Undo the guard of that name, then say UPDATE %s SET guard = %L WHERE guard = %L', @marks_name@, @guard@, old_name);
ELSIF other_table IS NOT NULL THEN
    RAISE EXCEPTION '% is the guard of %, which was renamed', @guard@, other_table USING HINT = 'Undo it first.';
ELSIF old_key <> @key_name@ AND EXISTS (SELECT FROM @own@.holdfast_marks WHERE guard = @guard@) THEN
    RAISE EXCEPTION 'the marks of % are of the keys in its column "%", not "%"', @guard@, old_key, @key_name@
        USING HINT = format('If that is what it was called before, say UPDATE %s SET key_column = %L WHERE guard = %L. Else make sure that'
            ' no holder of before is left, and forget the marks: DELETE FROM %s WHERE guard = %3$L',
            @guards_name@, @key_name@, @guard@, @marks_name@);
ELSIF key_number IS NULL THEN
    RAISE EXCEPTION '% has no column "%"', target, @key_name@ USING HINT = 'Say which column has the key: --key-column';
ELSIF key_type NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'text'::regtype, 'varchar'::regtype,
                       'char'::regtype, 'uuid'::regtype) THEN
    RAISE EXCEPTION 'the key column "%" is a %: it must be of whole numbers, text or uuid', @key_name@, key_type
        USING DETAIL = 'The text of other types depends on settings, or differs for equal values.';
ELSIF EXISTS (SELECT FROM pg_attribute WHERE attrelid = target AND attnum = key_number AND attgenerated <> '') THEN
    RAISE EXCEPTION 'the key column "%" is generated: triggers do not see its value', @key_name@;
ELSIF EXISTS (SELECT FROM pg_attribute WHERE attrelid = target AND attname = @column_name@ AND attgenerated <> '') THEN
    RAISE EXCEPTION 'the column "%" of % is generated: no statement can bring a token', @column_name@, target;
ELSIF EXISTS (SELECT FROM pg_attribute WHERE attrelid = target AND attnum = key_number AND attcollation IN (
                  SELECT oid FROM pg_collation WHERE NOT collisdeterministic))
   OR EXISTS (SELECT FROM pg_index WHERE indrelid = target AND indisunique AND key_number = ANY (indkey::smallint[])
              AND indcollation::oid[] && ARRAY (SELECT oid FROM pg_collation WHERE NOT collisdeterministic)) THEN
    RAISE EXCEPTION 'the key column "%" has a nondeterministic collation', @key_name@
        USING DETAIL = 'Keys that are equal have different texts then.';
ELSIF NOT EXISTS (SELECT FROM pg_index WHERE indrelid = target AND indisunique AND indisvalid AND indpred IS NULL
                  AND (kind = 'p' AND key_number = ANY (indkey::smallint[]) OR indnkeyatts = 1 AND indkey[0] = key_number)) THEN
    RAISE EXCEPTION 'the key column "%" of % is not unique', @key_name@, target
        USING HINT = 'Guard the table in which it is, or call holdfast_enter() first in each transaction.';
ELSIF token_type IS NULL THEN
    ALTER TABLE @table@ ADD COLUMN @column@ bigint;
ELSIF token_type <> 'bigint'::regtype THEN
    RAISE EXCEPTION 'the column "%" of % is a %: it must be a bigint', @column_name@, target, token_type;
ELSIF EXISTS (SELECT FROM @table@ WHERE @column@ NOT BETWEEN 1 AND 9007199254740991) THEN
    RAISE EXCEPTION 'the column "%" of % has values that are no tokens, from 1 to 9007199254740991', @column_name@, target;
END IF;

CREATE OR REPLACE FUNCTION @guard_function@()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @inner@
DECLARE
    name text;
    brought bigint;
    in_row bigint;
    shared boolean := TG_NARGS > 0;
    named boolean := shared OR @named@; -- is there the trigger that knows whether a statement names the column?
BEGIN
    IF shared AND TG_ARGV[0] = 'partitioned' THEN
        IF TG_OP = 'UPDATE' THEN
            PERFORM @own@.holdfast_moves(TG_OP, @guard@, TG_RELID || ' ' || OLD.ctid, NEW.@key@::text, NULL, @require@);
        ELSIF TG_OP = 'DELETE' THEN
            IF @own@.holdfast_moves(TG_OP, @guard@, TG_RELID || ' ' || OLD.ctid, OLD.@key@::text, NULL, @require@) THEN
                IF OLD.@key@ IS NOT NULL THEN
                    PERFORM @own@.holdfast_raise(@guard@, OLD.@key@::text, coalesce(OLD.@column@, 0), 'keep');
                END IF;
                RETURN OLD;
            END IF;
        ELSIF @own@.holdfast_moves(TG_OP, @guard@, NULL, NEW.@key@::text, NEW.@column@, @require@) THEN
            IF NEW.@key@ IS NOT NULL THEN
                NEW.@column@ := nullif(@own@.holdfast_raise(@guard@, NEW.@key@::text, coalesce(NEW.@column@, 0), 'keep'), 0);
            END IF;
            RETURN NEW;
        END IF;
    END IF;
    -- Only this trigger knows that the statement names the column, should it name the value that is there: it tells the
    -- other trigger by the sign.
    IF TG_NAME = 'zz_holdfast_1_named' THEN
        IF NEW.@column@ < 1 THEN
            PERFORM @own@.holdfast_no_token(NEW.@column@);
        ELSIF NEW.@column@ = OLD.@column@ THEN
            NEW.@column@ := -NEW.@column@;
        END IF;
        RETURN NEW;
    END IF;
    name := @guard@ || ':' || CASE TG_OP WHEN 'INSERT' THEN NEW.@key@ ELSE OLD.@key@ END;
    IF current_setting('holdfast.reset', true) IN (name, @guard@) AND has_table_privilege(@marks_name@, 'UPDATE') THEN
        RETURN NEW; -- holdfast_reset(), or this guard, as it is applied
    END IF;

    IF TG_OP = 'INSERT' THEN
        brought := NEW.@column@;
        IF brought IS NOT NULL THEN
            PERFORM set_config('holdfast.inserted', brought || ' ' || name, true);
        END IF;
    ELSIF TG_OP = 'UPDATE' THEN
        IF named AND NEW.@column@ = -OLD.@column@ THEN
            NEW.@column@ := OLD.@column@;
            brought := OLD.@column@;
        END IF;
        IF NEW.@column@ IS DISTINCT FROM OLD.@column@ THEN
            brought := NEW.@column@;
        END IF;
    END IF;
    brought := coalesce(brought, @own@.holdfast_brought(name));

@if_require@    IF brought IS NULL THEN
@if_require@        RAISE EXCEPTION USING ERRCODE = 'HF002', MESSAGE = format('no fencing token for "%s"', name),
@if_require@            HINT = @require_hint@;
@if_require@    END IF;
    IF brought < 1 OR brought > 9007199254740991 THEN
        PERFORM @own@.holdfast_no_token(brought);
    ELSIF TG_OP <> 'INSERT' AND brought @too_old@ OLD.@column@ THEN
        PERFORM @own@.holdfast_refuse(@guard@, OLD.@key@::text, brought, OLD.@column@);
    END IF;

    -- The key that a row leaves keeps its mark.
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND NEW.@key@ IS DISTINCT FROM OLD.@key@) THEN
        IF brought IS NOT NULL THEN
            PERFORM @own@.holdfast_raise(@guard@, OLD.@key@::text, brought, @mode@);
        ELSIF OLD.@column@ IS NOT NULL THEN
            PERFORM @own@.holdfast_raise(@guard@, OLD.@key@::text, OLD.@column@, 'keep');
        END IF;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;

    IF TG_OP = 'UPDATE' AND NEW.@key@ IS NOT DISTINCT FROM OLD.@key@ THEN
        NEW.@column@ := coalesce(brought, OLD.@column@);
@if_newer@        IF current_setting('holdfast.inserted', true) = brought || ' ' || name THEN
@if_newer@            RETURN NEW; -- ON CONFLICT DO UPDATE: this token was let in by the INSERT
@if_newer@        END IF;
        IF shared AND brought IS NOT NULL AND NEW.@key@ IS NOT NULL THEN
            PERFORM @own@.holdfast_raise(@guard@, NEW.@key@::text, brought, @mode@);
        END IF;
        RETURN NEW;
    END IF;

    -- INSERT, or another key. A row that is there already carries the mark; one may come while holdfast_raise() waits for whoever
    -- brings it. This row takes over the mark of the key, also if it brings no token.
    IF brought IS NOT NULL THEN
        in_row := @own@.holdfast_in_row(@guard@, NEW.@key@::text);
        IF brought @too_old@ in_row THEN
            PERFORM @own@.holdfast_refuse(@guard@, NEW.@key@::text, brought, in_row);
        END IF;
        NEW.@column@ := @own@.holdfast_raise(@guard@, NEW.@key@::text, brought, @mode@);
        in_row := coalesce(in_row, @own@.holdfast_in_row(@guard@, NEW.@key@::text));
        IF in_row < brought AND TG_OP = 'INSERT' AND NOT shared THEN
            PERFORM @own@.holdfast_found(@guard@, NEW.@key@::text);
        END IF;
    ELSIF NEW.@key@ IS NOT NULL THEN
        NEW.@column@ := nullif(@own@.holdfast_raise(@guard@, NEW.@key@::text, 0, 'keep'), 0);
    END IF;
    RETURN NEW;
END
@inner@;

-- TRUNCATE names no key, so no token of a row can be compared.
CREATE OR REPLACE FUNCTION @truncate_function@()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS @inner@
BEGIN
@if_require@    RAISE EXCEPTION USING ERRCODE = 'HF002', MESSAGE = format('no fencing token for TRUNCATE of %s', @guard@),
@if_require@        HINT = 'TRUNCATE cannot bring one: use DELETE.';
@if_lax@    PERFORM @own@.holdfast_remember(@guard@);
@if_lax@    RETURN NULL;
END
@inner@;

-- Triggers fire in the order of their names: these should be the last ones.
IF shared OR @named@ THEN
    CREATE OR REPLACE TRIGGER zz_holdfast_1_named BEFORE UPDATE OF @column@ ON @table@
        FOR EACH ROW EXECUTE FUNCTION @guard_function@();
ELSIF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'zz_holdfast_1_named') THEN
    DROP TRIGGER zz_holdfast_1_named ON @table@;
END IF;
IF kind = 'p' THEN
    CREATE OR REPLACE TRIGGER zz_holdfast_0_moving BEFORE UPDATE ON @table@ FOR EACH STATEMENT EXECUTE FUNCTION @own@.holdfast_moving();
    CREATE OR REPLACE TRIGGER zz_holdfast_5_moved AFTER UPDATE ON @table@ FOR EACH STATEMENT EXECUTE FUNCTION @own@.holdfast_moving();
    CREATE OR REPLACE TRIGGER zz_holdfast_2 BEFORE INSERT OR DELETE ON @table@ FOR EACH ROW
        EXECUTE FUNCTION @guard_function@('partitioned');
    CREATE OR REPLACE TRIGGER zz_holdfast_2_update BEFORE UPDATE ON @table@ FOR EACH ROW
        EXECUTE FUNCTION @guard_function@('partitioned');
ELSIF shared THEN
    CREATE OR REPLACE TRIGGER zz_holdfast_2 BEFORE INSERT OR DELETE ON @table@ FOR EACH ROW
        EXECUTE FUNCTION @guard_function@('shared');
    CREATE OR REPLACE TRIGGER zz_holdfast_2_update BEFORE UPDATE ON @table@ FOR EACH ROW
        EXECUTE FUNCTION @guard_function@('shared');
ELSE
    CREATE OR REPLACE TRIGGER zz_holdfast_2 BEFORE INSERT OR DELETE ON @table@ FOR EACH ROW
        EXECUTE FUNCTION @guard_function@();
    -- An UPDATE that is plainly fine does not even call the function. (PostgreSQL reads this anew for each statement: it is short.)
    CREATE OR REPLACE TRIGGER zz_holdfast_2_update BEFORE UPDATE ON @table@ FOR EACH ROW WHEN ((
            NEW.@key@ OPERATOR(pg_catalog.=) OLD.@key@ AND NEW.@column@ OPERATOR(pg_catalog.<=) 9007199254740991
            AND (NEW.@column@ OPERATOR(pg_catalog.>) OLD.@column@
@if_unnamed@                 OR NEW.@column@ OPERATOR(pg_catalog.=) OLD.@column@ AND pg_catalog.concat(
@if_unnamed@                     pg_catalog.current_setting('holdfast.token', true), pg_catalog.current_setting('holdfast.inserted', true)) OPERATOR(pg_catalog.=) ''
            )
        ) IS NOT TRUE)
        EXECUTE FUNCTION @guard_function@();
END IF;
CREATE OR REPLACE TRIGGER zz_holdfast_3_truncate BEFORE TRUNCATE ON @table@
    FOR EACH STATEMENT EXECUTE FUNCTION @truncate_function@();
CREATE OR REPLACE TRIGGER zz_holdfast_4_found AFTER INSERT ON @table@ FOR EACH STATEMENT
    WHEN (pg_catalog.current_setting('holdfast.found', true) OPERATOR(pg_catalog.<>) '')
    EXECUTE FUNCTION @own@.holdfast_found_rows(@guard@);

INSERT INTO @own@.holdfast_guards VALUES (@guard@, target, @key_name@, @column_name@) ON CONFLICT (guard) DO UPDATE
    SET target = excluded.target, key_column = excluded.key_column, token_column = excluded.token_column;

-- A guard that was here before: what it knew stays known, whatever its column was called.
PERFORM set_config('holdfast.reset', @guard@, true);
IF old_column <> @column_name@ AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = target AND attname = old_column AND NOT attisdropped) THEN
    EXECUTE format('UPDATE %s SET %I = %I WHERE %I > coalesce(%I, 0)', target, @column_name@, old_column, old_column, @column_name@);
END IF;
IF shared THEN
    PERFORM @own@.holdfast_remember(@guard@);
END IF;
UPDATE @table@ AS t SET @column@ = m.token FROM @own@.holdfast_marks AS m
    WHERE m.guard = @guard@ AND m.key = t.@key@::text AND m.token > coalesce(t.@column@, 0);
PERFORM set_config('holdfast.reset', '', true);

END
@outer@;
