-- Keeping a claim, giving it up, and noting when others were seen.

-- Renews those that hold or wait; ids: 0 of one that was adopted. lefts: what is left of each in ms, -1 if it is gone, -2 if somebody has its row locked.
CREATE OR REPLACE FUNCTION @_renew@(a_expected text, a_patience_ms integer, a_names bytea[], a_leases bytea[], a_tokens bigint[],
    a_ids bigint[], a_ttls bigint[], a_known bigint[], a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text, OUT lefts text,
    OUT beats text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    w record;
    found_id bigint;
    new_beat bigint;
    own_note jsonb := jsonb_build_object(a_host, a_boot_ms);
    answers bigint[] := array_fill(-1::bigint, ARRAY[cardinality(a_names)]);
    now_beats bigint[] := array_fill(0::bigint, ARRAY[cardinality(a_names)]);
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    FOR w IN SELECT u.* FROM unnest(a_names, a_leases, a_tokens, a_ids, a_ttls, a_known) WITH ORDINALITY AS u(name, lease, token, id, ttl_ms, known, n)
        ORDER BY u.name, u.lease
    LOOP
        SELECT k.id INTO found_id FROM @_claims@ AS k WHERE k.name = w.name AND (w.id = 0 OR k.id = w.id) AND k.lease = w.lease AND NOT k.broken
            AND k.mode IN ('x', 's', 'p') AND (w.token = 0 OR k.token = w.token) AND (k.token IS NULL OR k.incarnation = @!_renew@.incarnation)
            FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE @_claims@ AS k SET beat = k.beat + CASE WHEN k.token IS NULL THEN -1 ELSE 1 END,
                seen_beat = CASE WHEN k.beat = w.known THEN k.beat + CASE WHEN k.token IS NULL THEN -1 ELSE 1 END END, seen = own_note,
                ttl_ms = greatest(k.ttl_ms, w.ttl_ms)
                WHERE k.name = w.name AND k.id = found_id RETURNING k.beat INTO new_beat;
            now_beats[w.n] := new_beat;
            answers[w.n] := w.ttl_ms;
        ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = w.name AND k.lease = w.lease AND NOT k.broken
            AND k.mode IN ('x', 's', 'p') AND (w.token = 0 OR k.token = w.token) AND (k.token IS NULL OR k.incarnation = @!_renew@.incarnation)) THEN
            answers[w.n] := -2;
        END IF;
    END LOOP;
    lefts := array_to_string(answers, ' ');
    beats := array_to_string(now_beats, ' ');
END
$$;

-- Remembers that a lease is over, for a request that may still arrive; the last few of a name.
CREATE OR REPLACE FUNCTION @_end_lease@(a_name bytea, a_lease bytea, a_ttl_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    claim bigint;
BEGIN
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id IN
        (SELECT e.id FROM @_claims@ AS e WHERE e.name = a_name AND e.mode = 'e' AND NOT e.broken ORDER BY e.id DESC OFFSET 15);
    INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, ttl_ms, delay_ms, death_ms)
        VALUES (a_name, a_lease, '', 'e', 0, a_ttl_ms, 0, 0) RETURNING k.id INTO claim;
    PERFORM @_show_claim@(a_name, claim);
END
$$;

-- Remembers that somebody else had ended these holds, for their holders, who may ask twice because an answer was lost. Longer than any asks: the last of a name,
-- of whom many may have shared it when it was broken. All at once: one by one each would pass by all that the others have deleted.
CREATE OR REPLACE FUNCTION @_mark_ended@(a_name bytea, a_leases bytea[], a_tokens bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
BEGIN
    WITH last AS (SELECT d.lease, d.token FROM unnest(a_leases, a_tokens) AS d(lease, token) ORDER BY d.token DESC LIMIT 256),
        marked AS (INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, broken)
            SELECT a_name, l.lease, '', 'e', 0, l.token, 60000, 0, 0, true FROM last AS l ORDER BY l.token RETURNING k.id)
        SELECT min(m.id) INTO first FROM marked AS m;
    IF first IS NOT NULL THEN
        DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id IN
            (SELECT e.id FROM @_claims@ AS e WHERE e.name = a_name AND e.mode = 'e' AND e.broken ORDER BY e.id DESC OFFSET 256);
        PERFORM @_show_claim@(a_name, first);
    END IF;
END
$$;

-- Gives up what a lease holds with this token (0: whatever it has, also a place in the queue). code: 1 it did, 0 there was nothing, 5: a
-- transaction that entered with it has not ended, 6: somebody else had ended it (a break, a floor, a promotion), 7: as 0, and nothing says that this server has ever
-- known of it: it has not given so great a token, or another one since it is what it is.
CREATE OR REPLACE FUNCTION @_release@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_token bigint,
    a_remember_ms bigint, a_host text, a_noted bigint[], a_noted_beats bigint[], a_noted_ms bigint[], OUT code integer, OUT incarnation text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    at record;
    first bigint;
    era text;
    server text := @_settle@(a_patience_ms);
BEGIN
    SELECT l.first_id, l.token, l.incarnation AS given_by, m.id || '.' || m.era || '.' || m.era_of AS incarnation, m.era_of INTO at
        FROM @_meta@ AS m, @@ AS l WHERE m.only_one AND l.name = a_name FOR UPDATE OF l;
    era := CASE WHEN at.era_of = server THEN at.incarnation ELSE @_incarnation@() END;
    incarnation := era;
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    IF a_remember_ms > 0 AND at.first_id IS NULL THEN
        INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
        SELECT l.first_id, l.token, l.incarnation AS given_by INTO STRICT at FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    END IF;
    first := coalesce(at.first_id, 0);
    IF cardinality(a_noted) > 0 THEN
        PERFORM @_take_notes@(a_name, a_host, a_noted, a_noted_beats, a_noted_ms);
    END IF;
    DELETE FROM @_claims@ AS d WHERE d.name = a_name AND d.id =
        (SELECT k.id FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.lease = a_lease AND k.mode IN ('x', 's', 'p')
            AND (a_token = 0 OR k.token = a_token) FOR UPDATE SKIP LOCKED)
        RETURNING d.id, d.token, d.broken OR (d.token IS NOT NULL AND d.incarnation <> era) AS lost,
            EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.id <> d.id
            AND k.mode <> 'e') AS others INTO own;
    IF FOUND THEN
        code := 1;
        IF own.lost THEN
            code := 6;
            PERFORM @_mark_ended@(a_name, ARRAY[a_lease], ARRAY[own.token]);
        END IF;
    ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.lease = a_lease AND k.mode IN ('x', 's', 'p')
        AND (a_token = 0 OR k.token = a_token)) THEN -- the same rows: of what is not among them no client could ever be rid
        code := 5;
        RETURN;
    ELSIF a_token > 0 AND EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.lease = a_lease AND k.mode = 'e'
        AND k.broken AND k.token = a_token) THEN
        code := 6;
    ELSIF a_token > 0 AND (a_token > coalesce(at.token, 0) OR (a_token < at.token AND at.given_by = era)) THEN
        code := 7;
    END IF;
    IF a_remember_ms > 0 AND NOT EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease) THEN
        PERFORM @_end_lease@(a_name, a_lease, a_remember_ms);
    END IF;
    IF own.others THEN
        PERFORM @_wake@(a_name, first, own.token IS NOT NULL, false);
    END IF;
END
$$;

-- Notes of at most 32 hosts. Beyond that those that are there stay, or no host would be noted for as long as it has to be; only one in 1024 takes the place of
-- another, whichever, because some may never come back.
CREATE OR REPLACE FUNCTION @_add_note@(a_seen jsonb, a_host text, a_time_ms bigint)
RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE WHEN (SELECT count(*) FROM jsonb_object_keys(a_seen)) < 32 THEN a_seen || jsonb_build_object(a_host, a_time_ms)
        WHEN random() < 1.0 / 1024 THEN a_seen - (SELECT h FROM jsonb_object_keys(a_seen) AS h ORDER BY random() LIMIT 1)
            || jsonb_build_object(a_host, a_time_ms)
        ELSE a_seen END
$$;

-- Writes down when this host first saw these beats, for those who come after us.
CREATE OR REPLACE FUNCTION @_take_notes@(a_name bytea, a_host text, a_ids bigint[], a_beats bigint[], a_times bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n record;
BEGIN
    FOR n IN SELECT k.id, k.beat, k.seen_beat, k.seen, d.at_ms FROM @_claims@ AS k
        JOIN unnest(a_ids, a_beats, a_times) AS d(id, beat, at_ms) ON d.id = k.id AND d.beat = k.beat
        WHERE k.name = a_name AND (k.seen_beat IS DISTINCT FROM k.beat OR NOT k.seen ? a_host)
        ORDER BY k.id FOR NO KEY UPDATE OF k SKIP LOCKED
    LOOP
        IF n.seen_beat IS DISTINCT FROM n.beat THEN
            n.seen := '{}';
        END IF;
        n.seen := @_add_note@(n.seen, a_host, n.at_ms);
        CONTINUE WHEN NOT n.seen ? a_host; -- there is no room
        UPDATE @_claims@ AS k SET seen_beat = n.beat, seen = n.seen WHERE k.name = a_name AND k.id = n.id;
    END LOOP;
END
$$;

-- The same by itself. Nothing that would have to survive a crash.
CREATE OR REPLACE FUNCTION @_note@(a_expected text, a_name bytea, a_host text, a_ids bigint[], a_beats bigint[], a_times bigint[],
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
    PERFORM @_take_notes@(a_name, a_host, a_ids, a_beats, a_times);
END
$$;
