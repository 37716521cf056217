-- For operators, and for those who only watch.

-- What a transaction that has entered with a claim (_enter_held) has locked, shared, to its end.
CREATE OR REPLACE FUNCTION @_entered_key@(a_name bytea, a_id bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(@''@ || ' ' || encode(a_name, 'hex') || ' ' || a_id::text, 0::bigint) $$;

-- Has it not ended? Whoever asks locks nothing, and need not be allowed to. It reads all locks of the server: of many claims that is asked at once, as in
-- _break. Clients of before ask like this, of each.
CREATE OR REPLACE FUNCTION @_is_entered@(a_name bytea, a_id bigint)
RETURNS boolean LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory'
        AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = @_entered_key@(a_name, a_id))
$$;

-- Ends all holds of a name. Those that are not removed now are withheld until they would have run out.
CREATE OR REPLACE FUNCTION @_break@(a_expected text, a_patience_ms integer, a_name bytea, a_now boolean,
    OUT code integer, OUT incarnation text, OUT broken integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids bigint[];
    first bigint;
    freed record;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    -- What another incarnation granted is over already: it is no hold that this has ended.
    WITH ended AS (UPDATE @_claims@ AS k SET broken = true WHERE k.name = a_name AND k.token IS NOT NULL AND NOT k.broken
            AND k.mode <> 'r' RETURNING k.id, k.incarnation = @!_break@.incarnation AS held)
        SELECT array_agg(e.id), count(*) FILTER (WHERE e.held) INTO ids, broken FROM ended AS e;
    IF ids IS NULL AND @_row_is_held@(a_name) THEN
        code := 6; -- only its own connection, or whoever ends that, ends an open transaction
        RETURN;
    END IF;
    -- More than one look: whoever leaves a note, or renews, has a row locked for a moment. Whoever has entered with it has it locked for longer.
    FOR look IN 1..CASE WHEN a_now THEN 3 ELSE 0 END LOOP
        WITH gone AS (DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id IN
                (SELECT b.id FROM @_claims@ AS b WHERE b.name = a_name AND b.broken AND b.mode <> 'e' FOR UPDATE SKIP LOCKED) RETURNING k.lease, k.token)
            SELECT array_agg(g.lease) AS leases, array_agg(g.token) AS tokens INTO freed FROM gone AS g;
        PERFORM @_mark_ended@(a_name, freed.leases, freed.tokens);
        EXIT WHEN NOT EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.broken AND k.mode <> 'e' AND @_entered_key@(k.name, k.id) NOT IN
            (SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
                WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 1));
        PERFORM pg_sleep(0.005);
    END LOOP;
    PERFORM @_notify@('b', ids);
    PERFORM @_wake@(a_name, first, ids IS NOT NULL, false);
END
$$;

-- Every later token is greater than this one. at, if a_do: they are greater than that already, or now. ends: all holds are over with it. Unless a_do, it only says so.
CREATE OR REPLACE FUNCTION @_floor@(a_expected text, a_patience_ms integer, a_token bigint, a_do boolean, OUT code integer, OUT incarnation text, OUT at bigint,
    OUT ends boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    IF a_do THEN
        SELECT m.floor INTO STRICT was FROM @_meta@ AS m WHERE m.only_one FOR UPDATE;
    ELSE
        SELECT m.floor INTO STRICT was FROM @_meta@ AS m WHERE m.only_one;
    END IF;
    -- Each name goes on from its own last token, and one that is new begins at the clock (_next_token).
    -- Whether one of these is below is mostly known from the clock, or from the first few names. Else everything is read, once: an index helps as
    -- little as compiling that does.
    PERFORM set_config('enable_seqscan', 'on', true), set_config('jit', 'off', true);
    at := @_clock@();
    IF a_token < at AND a_token > was THEN
        SELECT least(min(l.token), at) INTO at FROM (SELECT n.token FROM @@ AS n WHERE n.token > 0 LIMIT 1000) AS l;
    END IF;
    IF a_token < at THEN
        SELECT least(min(l.token), at) INTO at FROM @@ AS l WHERE l.token > 0;
    END IF;
    -- Below all of them it does not say that a copy was brought back: nobody has seen a token that is not known here.
    ends := a_token > was AND a_token >= at;
    at := greatest(at, was);
    IF a_do AND a_token > was THEN
        -- Said where a copy was brought back, which nothing else shows. By its beats, and its notes of when they were seen, a holder that has renewed
        -- since is dead. In another era whatever was held or seen before counts no more: holders are told, and each claim is counted anew.
        -- Where nothing ends it is kept all the same: the clock may be set back.
        -- A floor above the clock moves with it from now on (_above_forgotten); 4.9e15 leave room for tokens until the year 2100. By a clock that is obviously
        -- wrong nobody knows whether it is.
        UPDATE @_meta@ AS m SET floor = a_token, ahead = greatest(m.ahead, CASE WHEN @_clock@() > 0 THEN least(a_token - @_clock@(), 4900000000000000) END),
            era = CASE WHEN ends THEN left(replace(gen_random_uuid()::text, '-', ''), 8) ELSE m.era END WHERE m.only_one;
        at := greatest(at, a_token);
        -- Those who hold something and listen hear of it now, all others with their next renewal.
        PERFORM pg_notify('holdfast_' || m.id, 'f' || m.id || '.' || m.era || '.' || m.era_of) FROM @_meta@ AS m WHERE m.only_one AND ends;
        -- Whoever waits begins to count what is left of those holds now, and not when it looks by itself.
        PERFORM @_notify@('w', p.ids) FROM (SELECT array_agg(w.id) AS ids FROM (SELECT k.id, row_number() OVER () / 256 AS page FROM @_claims@ AS k
            WHERE k.token IS NULL AND k.mode IN ('x', 's', 'p')) AS w GROUP BY w.page) AS p WHERE ends;
    END IF;
END
$$;

-- An observer's place, and its renewal. It is told of each change of holders. code 1: it was not there.
CREATE OR REPLACE FUNCTION @_observe@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea, a_ttl_ms bigint,
    a_id bigint, a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text, OUT claim bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first_beat bigint := 1 - @_first_beat@();
    own_note jsonb := jsonb_build_object(a_host, a_boot_ms);
BEGIN
    incarnation := @_begin@(a_patience_ms);
    PERFORM set_config('synchronous_commit', 'off', true);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    UPDATE @_claims@ AS k SET beat = k.beat - 1, seen_beat = k.beat - 1, seen = own_note
        WHERE k.name = a_name AND k.id = a_id AND k.lease = a_lease RETURNING k.id INTO claim;
    IF NOT FOUND THEN
        code := 1;
        -- Its id must not come behind one that is drawn after it.
        INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
        PERFORM FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
        INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen)
            VALUES (a_name, a_lease, a_owner, 'o', 0, a_ttl_ms, 0, 0, first_beat, first_beat, own_note) RETURNING k.id INTO claim;
        PERFORM @_show_claim@(a_name, claim);
    END IF;
END
$$;
