-- Acquire. code: 0 held, 1 busy, 2 queued, 3 done, 4 its runner died, -1 this lease is over, -2 in use in another mode, -3 another incarnation.
-- others: of each claim that is in the way, its id, beat, span in ms, and when this host first saw that beat (-1: not noted).
CREATE OR REPLACE FUNCTION @_acquire@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea,
    a_mode "char", a_permits integer, a_ttl_ms bigint, a_delay_ms bigint, a_death_ms bigint, a_waits boolean, a_no_heir boolean,
    a_queued boolean, a_beats boolean, a_known bigint, a_host text, a_boot_ms bigint, a_dead bigint[], a_dead_beats bigint[],
    a_forget bigint, OUT code integer, OUT incarnation text, OUT claim bigint, OUT token bigint, OUT others text, OUT result bytea, OUT keep_ms bigint,
    OUT seen_ms bigint, OUT beat bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    once boolean := get_byte(a_name, 0) = 0;
    was record;
    own record;
    queue record;
    known record;
    at record;
    buried integer := 0;
    by_row boolean := false;
    first_beat bigint := @_first_beat@();
    own_note jsonb := jsonb_build_object(a_host, a_boot_ms);
    server text := @_settle@(a_patience_ms);
BEGIN
    -- Twice: whoever would only learn that somebody is in the way looks without locking anything, and writes nothing.
    FOR locked IN CASE WHEN a_queued OR once OR NOT a_waits THEN 0 ELSE 1 END .. 1 LOOP
        IF locked = 0 THEN
            incarnation := @_incarnation@();
            IF incarnation <> a_expected THEN
                code := -3;
                RETURN;
            END IF;
            SELECT l.first_id INTO was FROM @@ AS l WHERE l.name = a_name;
        ELSE
            SELECT l.token, l.incarnation, l.first_id INTO was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
            IF NOT FOUND THEN
                incarnation := @_incarnation@();
                IF incarnation <> a_expected THEN
                    code := -3;
                    RETURN;
                END IF;
                INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
                SELECT l.token, l.incarnation, l.first_id INTO STRICT was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
            END IF;
            -- Most often there is nobody.
            SELECT m.floor, m.id || '.' || m.era || '.' || m.era_of AS incarnation, m.era_of, EXISTS (SELECT FROM @_rows@ AS r WHERE r.name = a_name) AS by_rows,
                EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= was.first_id) AS claimed INTO at FROM @_meta@ AS m WHERE m.only_one;
            incarnation := CASE WHEN at.era_of = server THEN at.incarnation ELSE @_incarnation@() END;
            IF incarnation <> a_expected THEN
                code := -3;
                RETURN;
            END IF;
            IF NOT (at.claimed OR at.by_rows OR once OR a_queued) THEN
                code := 0;
                token := CASE WHEN was.incarnation = incarnation THEN greatest(was.token, at.floor) + 1
                    ELSE @_next_token@(was.token, was.incarnation, incarnation) END;
                beat := first_beat;
                IF token <= 9007199254740991 THEN
                    WITH made AS (
                        INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen, incarnation)
                        VALUES (a_name, a_lease, a_owner, a_mode, a_permits, @!_acquire@.token, a_ttl_ms, a_delay_ms, a_death_ms, first_beat,
                            first_beat, own_note, @!_acquire@.incarnation)
                        RETURNING k.id)
                    UPDATE @@ AS l SET token = @!_acquire@.token, incarnation = @!_acquire@.incarnation, first_id = made.id FROM made
                        WHERE l.name = a_name RETURNING made.id INTO claim;
                    RETURN;
                END IF;
            END IF;
            IF cardinality(a_dead) > 0 THEN
                buried := @_bury@(a_name, a_dead, a_dead_beats);
            END IF;
            IF a_forget > 0 THEN
                DELETE FROM @_once@ AS o WHERE o.name = a_name AND o.token = a_forget;
            END IF;
        END IF;
        SELECT k.id, k.mode, k.token, k.broken, k.incarnation INTO own FROM @_claims@ AS k
            WHERE k.name = a_name AND k.id >= coalesce(was.first_id, 0) AND k.lease = a_lease;
        claim := own.id;
        IF own.mode = 'e' OR own.broken OR (own.id IS NULL AND a_queued) OR (own.token IS NOT NULL AND own.incarnation <> incarnation) THEN
            code := -1;
            RETURN;
        ELSIF own.token IS NOT NULL THEN -- an answer was lost
            UPDATE @_claims@ AS k SET beat = k.beat + 1, seen_beat = NULL, seen = NULL
                WHERE k.name = a_name AND k.id = own.id AND NOT k.broken RETURNING k.beat INTO beat;
            code := CASE WHEN FOUND THEN 0 ELSE -1 END;
            token := own.token;
            RETURN;
        END IF;
        IF once THEN
            SELECT o.state, o.token, o.result, o.keep_ms, (o.seen ->> a_host)::bigint AS at_ms INTO known FROM @_once@ AS o
                WHERE o.name = a_name AND o.token <> a_forget;
            IF known.state = 'd' OR (known.state = 'x' AND a_no_heir) THEN
                IF known.state = 'd' THEN
                    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id = own.id;
                END IF;
                PERFORM @_await_standby@(a_name);
                code := CASE known.state WHEN 'd' THEN 3 ELSE 4 END;
                token := known.token;
                result := known.result;
                keep_ms := known.keep_ms;
                seen_ms := coalesce(known.at_ms, -1);
                RETURN;
            END IF;
        END IF;
        -- Holders, and whoever came before us: all of them decide. Who is told of are the first few thousand.
        SELECT count(*) FILTER (WHERE q.stands) AS standing, coalesce(bool_or(q.k_broken AND q.stands), false) AS broken,
            coalesce(bool_or(q.stands AND NOT q.k_broken AND ((q.k_mode = 'p') <> (a_mode = 'p') OR (a_mode = 'p' AND q.k_permits <> a_permits))),
                false) AS otherwise,
            coalesce(bool_or(q.stands AND q.k_mode <> 's'), false) AS unshared,
            coalesce(bool_or(q.dead), false) AS dead,
            array_agg(q.k_id) FILTER (WHERE q.k_mode = 'o') AS observers,
            min(q.k_permits) FILTER (WHERE q.stands AND q.k_mode = 'p') AS pool,
            string_agg(concat_ws(' ', q.k_id, q.k_beat, q.span_ms, q.at_ms), ' ' ORDER BY q.k_id) FILTER (WHERE q.told) AS listed
            INTO queue
            -- Of those who wait as many as of those who hold: who is dead is found behind thousands of the others.
            FROM (SELECT p.*, row_number() OVER (ORDER BY p.place, p.waits) <= 4096 AS told
                FROM (SELECT k.id AS k_id, k.mode AS k_mode, k.permits AS k_permits, k.broken AS k_broken, k.beat AS k_beat, k.token IS NULL AS waits,
                        k.mode IN ('x', 's', 'p') AND (k.token IS NOT NULL OR own.id IS NULL OR k.id < own.id) AS stands,
                        k.id = ANY (a_dead) AND EXISTS (SELECT FROM unnest(a_dead, a_dead_beats) AS d(id, beat) WHERE d.id = k.id AND d.beat = k.beat) AS dead,
                        k.ttl_ms + k.ttl_ms / 100 + 4 + CASE WHEN k.token IS NULL THEN 0 ELSE k.delay_ms END AS span_ms,
                        CASE WHEN k.seen_beat = k.beat THEN coalesce((k.seen ->> a_host)::bigint, -1) ELSE -1 END AS at_ms,
                        row_number() OVER (PARTITION BY k.token IS NULL ORDER BY k.id) AS place
                    FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= coalesce(was.first_id, 0) AND k.id IS DISTINCT FROM own.id AND k.mode <> 'r') AS p) AS q;
        others := queue.listed;
        IF locked = 0 AND NOT queue.dead AND a_forget = 0 AND (own.id IS NOT NULL OR NOT a_waits) AND
            (queue.otherwise OR queue.broken OR (queue.standing > 0 AND a_mode = 'x') OR (queue.unshared AND a_mode = 's') OR
            (queue.standing >= a_permits AND a_mode = 'p')) THEN
            IF own.id IS NOT NULL AND a_beats THEN -- a place in a queue is nothing that would have to survive a crash
                PERFORM set_config('synchronous_commit', 'off', true);
                UPDATE @_claims@ AS k SET beat = k.beat - 1, seen_beat = CASE WHEN k.beat = a_known THEN k.beat - 1 END, seen = own_note
                    WHERE k.name = a_name AND k.id = own.id AND k.token IS NULL RETURNING k.beat INTO beat;
            END IF;
            code := CASE WHEN own.id IS NOT NULL THEN 2 WHEN queue.otherwise THEN -2 ELSE 1 END;
            EXIT;
        END IF;
        CONTINUE WHEN locked = 0;
        by_row := @_row_is_held@(a_name);
        -- Whoever has a place keeps it behind an open transaction: that may have the row only to look, and give up.
        IF (by_row OR queue.otherwise) AND own.id IS NULL THEN
            code := -2;
        ELSIF by_row OR queue.broken OR (queue.standing > 0 AND a_mode = 'x') OR (queue.unshared AND a_mode = 's') OR
            (queue.standing >= a_permits AND a_mode = 'p') THEN
            code := CASE WHEN a_waits THEN 2 ELSE 1 END;
            IF own.id IS NOT NULL THEN
                UPDATE @_claims@ AS k SET beat = k.beat - 1, seen_beat = CASE WHEN k.beat = a_known THEN k.beat - 1 END, seen = own_note
                    WHERE k.name = a_name AND k.id = own.id RETURNING k.beat INTO beat;
            ELSIF a_waits THEN
                INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen)
                    VALUES (a_name, a_lease, a_owner, a_mode, a_permits, a_ttl_ms, a_delay_ms, a_death_ms, 1 - first_beat, 1 - first_beat, own_note)
                    RETURNING k.id INTO claim;
                PERFORM @_show_claim@(a_name, claim) WHERE claim < was.first_id;
                beat := 1 - first_beat;
            END IF;
        ELSE
            code := 0;
            beat := first_beat;
            token := @_next_token@(was.token, was.incarnation, incarnation);
            UPDATE @@ AS l SET token = @!_acquire@.token, incarnation = @!_acquire@.incarnation, first_id = coalesce(
                    (SELECT k.id FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= was.first_id ORDER BY k.id LIMIT 1), was.first_id)
                WHERE l.name = a_name;
            IF own.id IS NOT NULL THEN
                UPDATE @_claims@ AS k SET token = @!_acquire@.token, beat = first_beat, seen_beat = first_beat, seen = own_note,
                    since = clock_timestamp(), incarnation = @!_acquire@.incarnation WHERE k.name = a_name AND k.id = own.id;
            ELSE
                INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen, incarnation)
                    VALUES (a_name, a_lease, a_owner, a_mode, a_permits, @!_acquire@.token, a_ttl_ms, a_delay_ms, a_death_ms, first_beat, first_beat,
                        own_note, @!_acquire@.incarnation)
                    RETURNING k.id INTO claim;
                PERFORM @_show_claim@(a_name, claim); -- first_id is above what it was
            END IF;
            IF at.by_rows THEN
                DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.mode = 'r'; -- whoever held it so died
            END IF;
            IF once THEN
                DELETE FROM @_once@ AS o WHERE o.name = a_name;
            END IF;
        END IF;
        IF buried > 0 THEN
            PERFORM @_wake@(a_name, was.first_id, true, false);
        ELSIF code = 0 AND queue.observers IS NOT NULL THEN
            PERFORM @_notify@('o', queue.observers);
        END IF;
    END LOOP;
    IF code = -2 THEN
        result := convert_to(CASE WHEN by_row THEN 'an open transaction holds it (mode=row)' WHEN a_mode <> 'p' THEN 'it is a pool of permits' WHEN queue.pool IS NULL THEN 'it is not a pool of permits'
            ELSE 'with ' || queue.pool || ' permits' END, 'UTF8');
    END IF;
END
$$;
