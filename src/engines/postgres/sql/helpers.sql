-- Which functions these are, for clients: one says so where its own are newer. To be raised with each change that somebody has to apply once more.
CREATE OR REPLACE FUNCTION @_revision@()
RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 2 $$;

-- Which server this is, and since which promotion. A session is with one server for all its life, whoever shares it: the server's identifier, which is in
-- a file, is read once in each. holdfast.server has it.
CREATE OR REPLACE FUNCTION @_server@()
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id text := current_setting('holdfast.server', true);
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'this server is a standby: locks are kept on the primary only';
    END IF;
    IF coalesce(id, '') = '' THEN
        id := set_config('holdfast.server', (pg_control_system()).system_identifier::text, false);
    END IF;
    RETURN id || '.' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
END
$$;

-- The clock in microseconds, for what only has to be large; 0: it is obviously wrong.
CREATE OR REPLACE FUNCTION @_clock@()
RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN us BETWEEN 1577836800000000 AND 4102444800000000 THEN us ELSE 0 END -- 2020 to 2100
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS now
$$;

-- Above this token, and above all that other servers may have given after it, of which this one has not heard. Those began at a clock, or at a floor, and came more
-- slowly than one in a microsecond: they are below the clock now, if the floor moves with it; 2^32 us, 71 minutes, are for clocks that differ. That only depends
-- on when it is asked. Of two copies that are promoted, the later one's tokens are greater, whatever each of them knows of the other.
CREATE OR REPLACE FUNCTION @_above_forgotten@(a_token bigint)
RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT least(CASE WHEN a_token < now.us THEN now.us ELSE a_token + 4294967296 END, 9007199254740991)
        FROM (SELECT @_clock@() + m.ahead + 4294967296 AS us FROM @_meta@ AS m WHERE m.only_one) AS now
$$;

-- The same, and the table with it.
CREATE OR REPLACE FUNCTION @_incarnation@()
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_of text := @_server@();
    m record;
BEGIN
    SELECT n.id, n.era, n.era_of INTO m FROM @_meta@ AS n WHERE n.only_one;
    IF m.era_of <> now_of THEN
        UPDATE @_meta@ AS n SET era = left(replace(gen_random_uuid()::text, '-', ''), 8), era_of = now_of,
            floor = CASE WHEN n.era_of = '' THEN n.floor ELSE @_above_forgotten@(n.floor) END
            WHERE n.only_one AND n.era_of <> now_of;
        SELECT n.id, n.era, n.era_of INTO m FROM @_meta@ AS n WHERE n.only_one; -- somebody else's, if that was quicker
    END IF;
    RETURN m.id || '.' || m.era || '.' || now_of;
END
$$;

-- The beat with which a hold begins.
CREATE OR REPLACE FUNCTION @_first_beat@()
RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT 1 + 1024 * floor(random() * 1000000000000)::bigint $$;

-- What each function begins with: what it reads after it has waited for a row is what is there then; the commit of this transaction is to be durable, whatever
-- the role's defaults; nobody waits for a row longer than the client does.
CREATE OR REPLACE FUNCTION @_settle@(a_patience_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    set_to text; -- an assignment costs a fraction of what PERFORM does
BEGIN
    -- A snapshot from before the row was locked would not show who came or went meanwhile: two who see neither each other nor an error.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'HF003', MESSAGE = 'locks are taken in READ COMMITTED transactions only',
            HINT = 'Say SET TRANSACTION ISOLATION LEVEL READ COMMITTED before it, as the client does.';
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        set_to := set_config('synchronous_commit', 'on', true);
    END IF;
    -- That a standby may not have a commit, the server says in a warning.
    IF current_setting('client_min_messages') = 'error' THEN
        set_to := set_config('client_min_messages', 'warning', true);
    END IF;
    set_to := set_config('lock_timeout', greatest(a_patience_ms, 1)::text, true);
    -- A plan that was made while a table was empty reads all of it, and is kept while that fills with what is deleted and not yet vacuumed.
    set_to := set_config('enable_seqscan', 'off', true);
    RETURN @_server@();
END
$$;

-- The same for those who need not be quick.
CREATE OR REPLACE FUNCTION @_begin@(a_patience_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    server text := @_settle@(a_patience_ms);
BEGIN
    RETURN @_incarnation@();
END
$$;

-- A notification has room for 8,000 bytes, which are 256 ids: of more there are several.
CREATE OR REPLACE FUNCTION @_notify@(a_kind text, a_ids bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(a_ids) > 0 THEN
        PERFORM pg_notify('holdfast_' || m.id, a_kind || array_to_string(a_ids[page:page + 255], ' ', ''))
            FROM @_meta@ AS m, generate_series(1, cardinality(a_ids), 256) AS page WHERE m.only_one;
    END IF;
END
$$;

-- Tells those who can go now, and whoever observes. For a change of holders; the name's row is locked. a_first: NULL where somebody has deleted that row.
CREATE OR REPLACE FUNCTION @_wake@(a_name bytea, a_first bigint, a_holders_changed boolean, a_all boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c record;
    holders integer := 0;
    holder_mode "char";
    observers bigint[] := '{}';
    ready bigint[] := '{}';
BEGIN
    FOR c IN SELECT k.id, k.mode, k.permits, k.token, k.broken FROM @_claims@ AS k
        WHERE k.name = a_name AND k.id >= coalesce(a_first, 0) AND k.mode <> 'e' AND (k.mode <> 'r' OR @_row_is_held@(a_name)) -- what a dead one left is no hold
        ORDER BY k.mode <> 'o', k.token IS NULL, k.id
    LOOP
        IF c.mode = 'o' THEN
            observers := observers || c.id;
        ELSIF c.token IS NOT NULL THEN
            holders := holders + 1;
            holder_mode := CASE WHEN c.broken THEN 'b' ELSE c.mode END;
        ELSIF a_all OR holders = 0 OR (c.mode = holder_mode AND (c.mode = 's' OR (c.mode = 'p' AND holders < c.permits))) THEN
            ready := ready || c.id;
            holders := holders + 1;
            holder_mode := coalesce(holder_mode, c.mode);
        ELSE
            EXIT;
        END IF;
    END LOOP;
    PERFORM @_notify@('w', ready);
    IF a_holders_changed THEN
        PERFORM @_notify@('o', observers);
    END IF;
END
$$;

-- The token that comes after this one. Where the last one is of another incarnation, or there is none, it begins at the clock, and above what may have
-- been given where we cannot see it.
CREATE OR REPLACE FUNCTION @_next_token@(a_last bigint, a_last_incarnation text, a_incarnation text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    floor bigint := (SELECT m.floor FROM @_meta@ AS m WHERE m.only_one);
    token bigint := greatest(a_last, floor) + 1;
BEGIN
    IF a_last_incarnation <> a_incarnation THEN
        token := greatest(token, @_clock@(), CASE WHEN a_last > floor THEN @_above_forgotten@(a_last) ELSE 0 END);
    END IF;
    IF token > 9007199254740991 THEN
        RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = 'the tokens of this name are used up';
    END IF;
    RETURN token;
END
$$;

-- A claim has been made, with this id. They grow, unless somebody has let them begin again: TRUNCATE ... RESTART IDENTITY, the table of claims made
-- anew, tables that came by logical replication, which leaves sequences behind. Nobody would see it below the first. Its name's row is locked.
CREATE OR REPLACE FUNCTION @_show_claim@(a_name bytea, a_id bigint)
RETURNS void LANGUAGE sql AS $$
    UPDATE @@ AS l SET first_id = a_id WHERE l.name = a_name AND l.first_id > a_id
$$;

-- Removes claims that somebody has seen with these beats for their whole span. Returns how many. The name's row is locked.
CREATE OR REPLACE FUNCTION @_bury@(a_name bytea, a_ids bigint[], a_beats bigint[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    c record;
    buried integer := 0;
    leases bytea[];
    tokens bigint[];
BEGIN
    FOR c IN SELECT k.id, k.lease, k.mode, k.token, k.death_ms, k.broken, k.incarnation FROM @_claims@ AS k
        JOIN unnest(a_ids, a_beats) AS d(id, beat) ON d.id = k.id AND d.beat = k.beat
        WHERE k.name = a_name AND k.mode <> 'r' ORDER BY k.id FOR UPDATE OF k SKIP LOCKED -- whoever is renewed now, or has entered with it, lives
    LOOP
        DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id = c.id;
        buried := buried + 1;
        IF c.mode <> 'e' AND (c.broken OR (c.token IS NOT NULL AND c.incarnation <> @_incarnation@())) THEN
            leases := leases || c.lease;
            tokens := tokens || c.token;
        END IF;
        IF c.token IS NOT NULL AND c.death_ms > 0 AND NOT c.broken THEN
            INSERT INTO @_once@ (name, state, token, keep_ms, seen)
                VALUES (a_name, 'x', c.token, c.death_ms, '{}')
                ON CONFLICT (name) DO NOTHING;
        END IF;
    END LOOP;
    PERFORM @_mark_ended@(a_name, leases, tokens);
    RETURN buried;
END
$$;

-- The same for whoever only asks.
CREATE OR REPLACE FUNCTION @_sweep@(a_expected text, a_patience_ms integer, a_name bytea, a_ids bigint[], a_beats bigint[],
    a_forget bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    DELETE FROM @_once@ AS o WHERE o.name = a_name AND o.token = a_forget;
    IF @_bury@(a_name, a_ids, a_beats) > 0 THEN
        PERFORM @_wake@(a_name, first, true, false);
    END IF;
END
$$;

-- A page of a table, whichever; the first ones more often, up to those that are only there because nobody has vacuumed: the last one half as often as if all were
-- drawn alike.
CREATE OR REPLACE FUNCTION @_page@(a_table regclass)
RETURNS tid[] LANGUAGE sql AS $$
    WITH p AS MATERIALIZED (SELECT floor(power(random(), 2) * greatest(pg_relation_size(a_table) / current_setting('block_size')::integer, 1)) AS n)
        SELECT array_agg(format('(%s,%s)', p.n, i)::tid) FROM
            p, generate_series(1, current_setting('block_size')::integer / 28) AS i -- as many as it may have: a header, and a pointer to it
$$;

-- Some of the claims of a page: what died over names that nobody comes to any more is found like this. What an open transaction holds ends with it.
-- Where a server keeps the plans of functions (from version 18 on), one that was made while the table was small is not to read all of it.
CREATE OR REPLACE FUNCTION @_some_claims@(a_count integer, a_host text, OUT name bytea, OUT id bigint, OUT beat bigint, OUT span_ms bigint, OUT at_ms bigint)
RETURNS SETOF record LANGUAGE sql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.name, k.id, k.beat, k.ttl_ms + k.ttl_ms / 100 + 4 + CASE WHEN k.token IS NULL THEN 0 ELSE k.delay_ms END,
            CASE WHEN k.seen_beat = k.beat THEN coalesce((k.seen ->> a_host)::bigint, -1) ELSE -1 END
        FROM @_claims@ AS k WHERE k.ctid = ANY ((SELECT @_page@(@'_claims'@::regclass))::tid[]) AND k.mode <> 'r' ORDER BY random() LIMIT a_count
$$;

-- Notes of claims of several names; see _note.
CREATE OR REPLACE FUNCTION @_note_many@(a_expected text, a_host text, a_names bytea[], a_ids bigint[], a_beats bigint[], a_times bigint[],
    OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    incarnation := @_incarnation@();
    PERFORM set_config('synchronous_commit', 'off', true);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    PERFORM @_take_notes@(d.name, a_host, array_agg(d.id), array_agg(d.beat), array_agg(d.at_ms))
        FROM unnest(a_names, a_ids, a_beats, a_times) AS d(name, id, beat, at_ms) GROUP BY d.name;
END
$$;

-- Removes dead claims of several names; see _sweep. Nobody waits for a name while he has another one locked: those that cannot be had at once stay.
CREATE OR REPLACE FUNCTION @_sweep_many@(a_expected text, a_patience_ms integer, a_names bytea[], a_ids bigint[], a_beats bigint[],
    OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n record;
    first bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    FOR n IN SELECT d.name, array_agg(d.id) AS ids, array_agg(d.beat) AS beats FROM unnest(a_names, a_ids, a_beats) AS d(name, id, beat) GROUP BY d.name
    LOOP
        SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = n.name FOR UPDATE SKIP LOCKED;
        IF FOUND AND @_bury@(n.name, n.ids, n.beats) > 0 THEN
            PERFORM @_wake@(n.name, first, true, false);
        END IF;
    END LOOP;
END
$$;
