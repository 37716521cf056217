-- Once-records.

-- What is known of a once-record may not be on a synchronous standby yet, if the wait for that was cut off, and is not to be believed before: this
-- commit waits for it, behind that one.
CREATE OR REPLACE FUNCTION @_await_standby@(a_name bytea)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_standby_names') <> '' THEN
        UPDATE @_once@ AS o SET since = o.since WHERE o.name = a_name;
    END IF;
END
$$;

-- What is known of one. state: d, x, or NULL.
CREATE OR REPLACE FUNCTION @_once_read@(a_name bytea, a_patience_ms integer, a_host text, OUT incarnation text, OUT state "char", OUT token bigint,
    OUT keep_ms bigint, OUT seen_ms bigint, OUT result bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    incarnation := @_begin@(a_patience_ms);
    SELECT o.state, o.token, o.keep_ms, coalesce((o.seen ->> a_host)::bigint, -1), o.result
        INTO state, token, keep_ms, seen_ms, result FROM @_once@ AS o WHERE o.name = a_name;
    IF FOUND THEN
        PERFORM @_await_standby@(a_name);
    END IF;
END
$$;

-- A page of them, whichever. So all of them are looked at again and again, and nobody has to know how old they are.
CREATE OR REPLACE FUNCTION @_once_page@()
RETURNS tid[] LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT @_page@(@'_once'@::regclass) $$;

-- Those of it that this host has not noted. Clients of before ask for the page, and read all of the table for it.
CREATE OR REPLACE FUNCTION @_once_unnoted@(a_host text, OUT name bytea, OUT token bigint)
RETURNS SETOF record LANGUAGE sql SET enable_seqscan = off SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.name, o.token FROM @_once@ AS o WHERE o.ctid = ANY ((SELECT @_once_page@())::tid[]) AND NOT o.seen ? a_host LIMIT 64
$$;

-- Writes down when this host saw these. Nothing that would have to survive a crash.
CREATE OR REPLACE FUNCTION @_note_records@(a_expected text, a_host text, a_names bytea[], a_tokens bigint[], a_time_ms bigint,
    OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    incarnation := @_incarnation@();
    PERFORM set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true); -- as in _settle
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    UPDATE @_once@ AS o SET seen = @_add_note@(o.seen, a_host, a_time_ms) FROM
        (SELECT s.name FROM @_once@ AS s JOIN unnest(a_names, a_tokens) AS d(name, token) ON d.name = s.name AND d.token = s.token
            WHERE NOT s.seen ? a_host ORDER BY s.name FOR NO KEY UPDATE OF s SKIP LOCKED) AS n
        WHERE o.name = n.name;
END
$$;

-- Keeps what came out of a once-record, and gives up the hold. code: 1 kept, 0 this token holds it no more, 5 as of a release.
CREATE OR REPLACE FUNCTION @_finish@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_token bigint,
    a_result bytea, a_keep_ms bigint, a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    first bigint;
    page tid[];
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    SELECT k.id INTO own FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease AND k.token = a_token AND NOT k.broken
        AND k.incarnation = @!_finish@.incarnation FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM @_once@ AS o WHERE o.name = a_name AND o.state = 'd' AND o.token = a_token) THEN
            code := 1; -- an answer was lost
            PERFORM @_await_standby@(a_name);
        ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease AND k.token = a_token AND NOT k.broken
            AND k.incarnation = @!_finish@.incarnation) THEN
            code := 5;
        END IF;
        RETURN;
    END IF;
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id = own.id;
    INSERT INTO @_once@ AS o (name, state, token, keep_ms, result, seen)
        VALUES (a_name, 'd', a_token, a_keep_ms, a_result, '{}') -- counted from when it is seen: this may have been held up on its way
        ON CONFLICT (name) DO UPDATE SET state = 'd', token = excluded.token, keep_ms = excluded.keep_ms, result = excluded.result,
            seen = excluded.seen, since = clock_timestamp();
    code := 1;
    PERFORM @_wake@(a_name, first, true, true);
    -- Of the others, those that this host has seen for as long as they must be kept go. What it has not seen before is not noted here: all that is
    -- known here is when this was sent, and the host had not seen what came meanwhile.
    page := @_once_page@();
    DELETE FROM @_once@ AS o WHERE o.name IN
        (SELECT s.name FROM @_once@ AS s WHERE s.ctid = ANY (page) AND (s.seen ->> a_host)::bigint + s.keep_ms < a_boot_ms AND s.name <> a_name
            FOR UPDATE SKIP LOCKED); -- two who finish must not wait for each other
END
$$;
