-- For operators, and for those who only watch.

-- Ends all holds of a name. Those that are not removed now are withheld until they would have run out.
CREATE OR REPLACE FUNCTION @_break@(a_expected text, a_patience_ms integer, a_name bytea, a_now boolean,
    OUT code integer, OUT incarnation text, OUT broken integer)
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    first bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    WITH ended AS (UPDATE @_claims@ AS k SET broken = true WHERE k.name = a_name AND k.token IS NOT NULL AND NOT k.broken
            AND k.mode <> 'r' RETURNING k.id)
        SELECT array_agg(e.id) INTO ids FROM ended AS e;
    broken := coalesce(cardinality(ids), 0);
    IF broken = 0 AND @_row_is_held@(a_name) THEN
        code := 6; -- only its own connection, or whoever ends that, ends an open transaction
        RETURN;
    END IF;
    IF a_now THEN
        DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id IN
            (SELECT b.id FROM @_claims@ AS b WHERE b.name = a_name AND b.broken FOR UPDATE SKIP LOCKED);
    END IF;
    PERFORM @_notify@('b', ids);
    PERFORM @_wake@(a_name, first, broken > 0, false);
END
$$;

CREATE OR REPLACE FUNCTION @_floor@(a_expected text, a_patience_ms integer, a_token bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql AS $$
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    -- Said where a copy was brought back, which nothing else shows. By its beats, and its notes of when they were seen, a holder that has renewed
    -- since is dead. In another era whatever was held or seen before counts no more: holders are told, and each claim is counted anew.
    UPDATE @_meta@ AS m SET floor = a_token, era = left(replace(gen_random_uuid()::text, '-', ''), 8) WHERE m.floor < a_token;
END
$$;

-- An observer's place, and its renewal. It is told of each change of holders. code 1: it was not there.
CREATE OR REPLACE FUNCTION @_observe@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea, a_ttl_ms bigint,
    a_id bigint, a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text, OUT claim bigint)
LANGUAGE plpgsql AS $$
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
