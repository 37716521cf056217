-- The locks of Holdfast in PostgreSQL: tables, and a function for each operation. Made with the first use of
-- postgres://…?table=…, or by whoever may: holdfast guard sql --dialect postgres --locks.
--
-- Each operation is one statement that commits by itself, so a transaction pooler is fine. No function believes a clock: whoever
-- has seen the same beat of a claim for its whole span, by his own, hands in its id and that beat, and exactly that is removed. The one
-- use of the time: tokens of a name that is new here, or came from another timeline, begin at the clock. Columns of
-- type timestamptz are for people.
--
-- Nobody waits for more than one name: whoever changes who holds or waits for one has its row in @@ locked.
SELECT pg_advisory_xact_lock(hashtext(@''@)); -- two who make this at once: one after the other, to the end of the transaction

CREATE TABLE IF NOT EXISTS @_meta@ (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version integer NOT NULL,
    id text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 16), -- whoever makes it anew has another store
    floor bigint NOT NULL DEFAULT 0, -- all tokens are greater
    era text NOT NULL DEFAULT '', -- drawn anew with the first use on another server or timeline: two promotions may have the same number
    era_of text NOT NULL DEFAULT '' -- the server and timeline that it was drawn on
);

-- One row for each name that was ever held. Never deleted: it has the last token. A name that begins with a zero byte is the key of
-- a once-record.
CREATE TABLE IF NOT EXISTS @@ (
    name bytea PRIMARY KEY,
    token bigint NOT NULL,
    incarnation text NOT NULL, -- of the server that gave it
    -- No claim on this name has a lower id. Whoever looks begins here, behind what is deleted and not yet vacuumed.
    first_id bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- Whoever holds a name, or waits for it. The order of the queue is that of the ids.
CREATE TABLE IF NOT EXISTS @_claims@ (
    id bigint GENERATED ALWAYS AS IDENTITY,
    name bytea NOT NULL,
    lease bytea NOT NULL, -- its SHA-256: the lease itself is the holder's secret
    owner bytea NOT NULL,
    mode "char" NOT NULL, -- x: exclusive, s: shared, p: permit; r: by an open transaction; o: an observer; e: a lease that is over and must not come back
    permits integer NOT NULL,
    token bigint, -- NULL: it waits
    ttl_ms bigint NOT NULL,
    delay_ms bigint NOT NULL, -- lock-delay
    death_ms bigint NOT NULL, -- of a once-record: how long a death is known
    -- Of a holder it grows with each renewal, and is positive; of all others it falls, and is not. What is not held is renewed without waiting for the disk: a crash
    -- may forget that, and the same number come again. Nobody may take that for the beat of a hold that he has seen before. Both begin at random:
    -- where a dump is restored or a standby promoted, ids come again, and are not to be taken for those that somebody saw before.
    beat bigint NOT NULL DEFAULT -1024 * floor(random() * 1000000000000)::bigint,
    broken boolean NOT NULL DEFAULT false, -- by an operator: withheld until it would have run out
    seen_beat bigint, -- the beat that the notes in `seen` are about
    -- Which host saw it first at which time of that host's CLOCK_BOOTTIME, in ms. The claim's own host begins: it has seen what it sends, and the
    -- claim itself counts from before that.
    seen jsonb,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, id)
) WITH (fillfactor = 70);

-- What came out of once-records (d), and those whose runner died over them (x).
CREATE TABLE IF NOT EXISTS @_once@ (
    name bytea PRIMARY KEY,
    state "char" NOT NULL,
    token bigint NOT NULL,
    keep_ms bigint NOT NULL,
    result bytea,
    seen jsonb NOT NULL, -- as above
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Names of locks that are open transactions (?mode=row): whoever has the row locked holds it.
CREATE TABLE IF NOT EXISTS @_rows@ (
    name bytea PRIMARY KEY
);

CREATE OR REPLACE VIEW @_shown@ AS
    SELECT encode(name, 'escape') AS name, CASE WHEN token IS NULL THEN 'waits' WHEN broken THEN 'broken' ELSE 'holds' END AS state,
        CASE mode WHEN 'x' THEN 'exclusive' WHEN 's' THEN 'shared' WHEN 'p' THEN 'one of ' || permits END AS mode,
        token, encode(owner, 'escape') AS owner, since
    FROM @_claims@ WHERE mode IN ('x', 's', 'p') ORDER BY 1, id;

-- Which server this is, and since which promotion; the table with it.
CREATE OR REPLACE FUNCTION @_incarnation@()
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now_of text;
    m record;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'this server is a standby: locks are kept on the primary only';
    END IF;
    now_of := (pg_control_system()).system_identifier || '.' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
    SELECT n.id, n.era, n.era_of INTO m FROM @_meta@ AS n;
    IF m.era_of <> now_of THEN
        UPDATE @_meta@ AS n SET era = left(replace(gen_random_uuid()::text, '-', ''), 8), era_of = now_of WHERE n.era_of <> now_of;
        SELECT n.id, n.era, n.era_of INTO m FROM @_meta@ AS n; -- somebody else's, if that was quicker
    END IF;
    RETURN m.id || '.' || m.era || '.' || now_of;
END
$$;

-- The beat with which a hold begins.
CREATE OR REPLACE FUNCTION @_first_beat@()
RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT 1 + 1024 * floor(random() * 1000000000000)::bigint $$;

-- What each function begins with: the commit of this transaction is to be durable, whatever the role's defaults; nobody waits for
-- a row longer than the client does.
CREATE OR REPLACE FUNCTION @_begin@(a_patience_ms integer)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- That a standby may not have a commit, the server says in a warning.
    IF current_setting('client_min_messages') = 'error' THEN
        PERFORM set_config('client_min_messages', 'warning', true);
    END IF;
    PERFORM set_config('lock_timeout', greatest(a_patience_ms, 1)::text, true);
    RETURN @_incarnation@();
END
$$;

CREATE OR REPLACE FUNCTION @_notify@(a_kind text, a_ids bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(a_ids) > 0 THEN
        PERFORM pg_notify('holdfast_' || (SELECT m.id FROM @_meta@ AS m), a_kind || array_to_string(a_ids[1:256], ' ', ''));
    END IF;
END
$$;

-- Tells those who can go now, and whoever observes. For a change of holders; the name's row is locked.
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
        WHERE k.name = a_name AND k.id >= a_first AND k.mode <> 'e' AND (k.mode <> 'r' OR @_row_is_held@(a_name)) -- what a dead one left is no hold
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

-- Does an open transaction hold this name?
CREATE OR REPLACE FUNCTION @_row_is_held@(a_name bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM @_rows@ AS r WHERE r.name = a_name) THEN
        RETURN false;
    END IF;
    PERFORM FROM @_rows@ AS r WHERE r.name = a_name FOR KEY SHARE SKIP LOCKED;
    RETURN NOT FOUND;
END
$$;

-- The token that comes after this one. Where the last one is of another incarnation, or there is none, it begins at the clock, so that it is greater
-- than what may have been given where we cannot see it.
CREATE OR REPLACE FUNCTION @_next_token@(a_last bigint, a_last_incarnation text, a_incarnation text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    token bigint := greatest(a_last, (SELECT m.floor FROM @_meta@ AS m)) + 1;
    clock_us bigint;
BEGIN
    IF a_last_incarnation <> a_incarnation THEN
        clock_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
        IF clock_us BETWEEN 1577836800000000 AND 4102444800000000 THEN -- 2020 to 2100: else it is obviously wrong
            token := greatest(token, clock_us);
        END IF;
    END IF;
    IF token > 9007199254740991 THEN
        RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = 'the tokens of this name are used up';
    END IF;
    RETURN token;
END
$$;

-- Removes claims that somebody has seen with these beats for their whole span. Returns how many. The name's row is locked.
CREATE OR REPLACE FUNCTION @_bury@(a_name bytea, a_ids bigint[], a_beats bigint[], a_host text, a_boot_ms bigint)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    c record;
    buried integer := 0;
BEGIN
    FOR c IN SELECT k.id, k.token, k.death_ms, k.broken FROM @_claims@ AS k
        JOIN unnest(a_ids, a_beats) AS d(id, beat) ON d.id = k.id AND d.beat = k.beat
        WHERE k.name = a_name AND k.mode <> 'r' ORDER BY k.id FOR UPDATE OF k SKIP LOCKED -- whoever is renewed now, or has entered with it, lives
    LOOP
        DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id = c.id;
        buried := buried + 1;
        IF c.token IS NOT NULL AND c.death_ms > 0 AND NOT c.broken THEN
            INSERT INTO @_once@ (name, state, token, keep_ms, seen)
                VALUES (a_name, 'x', c.token, c.death_ms, jsonb_build_object(a_host, a_boot_ms))
                ON CONFLICT (name) DO NOTHING;
        END IF;
    END LOOP;
    RETURN buried;
END
$$;

-- The same for whoever only asks.
CREATE OR REPLACE FUNCTION @_sweep@(a_expected text, a_patience_ms integer, a_name bytea, a_ids bigint[], a_beats bigint[],
    a_forget bigint, a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql AS $$
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
    IF @_bury@(a_name, a_ids, a_beats, a_host, a_boot_ms) > 0 THEN
        PERFORM @_wake@(a_name, first, true, false);
    END IF;
END
$$;

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

-- Acquire. code: 0 held, 1 busy, 2 queued, 3 done, 4 its runner died, -1 this lease is over, -2 in use in another mode, -3 another incarnation.
-- others: of each claim that is in the way, its id, beat, span in ms, and when this host first saw that beat (-1: not noted).
CREATE OR REPLACE FUNCTION @_acquire@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea,
    a_mode "char", a_permits integer, a_ttl_ms bigint, a_delay_ms bigint, a_death_ms bigint, a_waits boolean, a_no_heir boolean,
    a_queued boolean, a_beats boolean, a_host text, a_boot_ms bigint, a_dead bigint[], a_dead_beats bigint[], a_forget bigint,
    OUT code integer, OUT incarnation text, OUT claim bigint, OUT token bigint, OUT others text, OUT result bytea, OUT keep_ms bigint,
    OUT seen_ms bigint)
LANGUAGE plpgsql AS $$
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
BEGIN
    incarnation := @_begin@(a_patience_ms);
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    -- Twice: whoever would only learn that somebody is in the way looks without locking anything, and writes nothing.
    FOR locked IN CASE WHEN a_queued OR once OR NOT a_waits THEN 0 ELSE 1 END .. 1 LOOP
        IF locked = 0 THEN
            SELECT l.first_id INTO was FROM @@ AS l WHERE l.name = a_name;
        ELSE
            SELECT l.token, l.incarnation, l.first_id INTO was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
            IF NOT FOUND THEN
                INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
                SELECT l.token, l.incarnation, l.first_id INTO STRICT was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
            END IF;
            -- Most often there is nobody.
            SELECT m.floor, EXISTS (SELECT FROM @_rows@ AS r WHERE r.name = a_name) AS by_rows,
                EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= was.first_id) AS claimed INTO at FROM @_meta@ AS m;
            IF NOT (at.claimed OR at.by_rows OR once OR a_queued) THEN
                code := 0;
                token := CASE WHEN was.incarnation = incarnation THEN greatest(was.token, at.floor) + 1
                    ELSE @_next_token@(was.token, was.incarnation, incarnation) END;
                IF token <= 9007199254740991 THEN
                    WITH made AS (
                        INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen)
                        VALUES (a_name, a_lease, a_owner, a_mode, a_permits, @!_acquire@.token, a_ttl_ms, a_delay_ms, a_death_ms, first_beat,
                            first_beat, own_note)
                        RETURNING k.id)
                    UPDATE @@ AS l SET token = @!_acquire@.token, incarnation = @!_acquire@.incarnation, first_id = made.id FROM made
                        WHERE l.name = a_name RETURNING made.id INTO claim;
                    RETURN;
                END IF;
            END IF;
            IF cardinality(a_dead) > 0 THEN
                buried := @_bury@(a_name, a_dead, a_dead_beats, a_host, a_boot_ms);
            END IF;
            IF a_forget > 0 THEN
                DELETE FROM @_once@ AS o WHERE o.name = a_name AND o.token = a_forget;
            END IF;
        END IF;
        SELECT k.id, k.mode, k.token, k.broken INTO own FROM @_claims@ AS k
            WHERE k.name = a_name AND k.id >= coalesce(was.first_id, 0) AND k.lease = a_lease;
        claim := own.id;
        IF own.mode = 'e' OR own.broken OR (own.id IS NULL AND a_queued) THEN
            code := -1;
            RETURN;
        ELSIF own.token IS NOT NULL THEN -- an answer was lost
            UPDATE @_claims@ AS k SET beat = k.beat + 1, seen_beat = k.beat + 1, seen = own_note
                WHERE k.name = a_name AND k.id = own.id AND NOT k.broken;
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
        -- Holders, and whoever came before us.
        SELECT count(*) FILTER (WHERE q.stands) AS standing, coalesce(bool_or(q.k_broken AND q.stands), false) AS broken,
            coalesce(bool_or(q.stands AND NOT q.k_broken AND ((q.k_mode = 'p') <> (a_mode = 'p') OR (a_mode = 'p' AND q.k_permits <> a_permits))),
                false) AS otherwise,
            coalesce(bool_or(q.stands AND q.k_mode <> 's'), false) AS unshared,
            coalesce(bool_or(q.dead), false) AS dead,
            array_agg(q.k_id) FILTER (WHERE q.k_mode = 'o') AS observers,
            min(q.k_permits) FILTER (WHERE q.stands AND q.k_mode = 'p') AS pool,
            string_agg(concat_ws(' ', q.k_id, q.k_beat, q.span_ms, q.at_ms), ' ' ORDER BY q.k_id) AS listed
            INTO queue
            FROM (SELECT k.id AS k_id, k.mode AS k_mode, k.permits AS k_permits, k.broken AS k_broken, k.beat AS k_beat,
                    k.mode IN ('x', 's', 'p') AND (k.token IS NOT NULL OR own.id IS NULL OR k.id < own.id) AS stands,
                    k.id = ANY (a_dead) AND EXISTS (SELECT FROM unnest(a_dead, a_dead_beats) AS d(id, beat) WHERE d.id = k.id AND d.beat = k.beat) AS dead,
                    k.ttl_ms + k.ttl_ms / 100 + 4 + CASE WHEN k.token IS NULL THEN 0 ELSE k.delay_ms END AS span_ms,
                    CASE WHEN k.seen_beat = k.beat THEN coalesce((k.seen ->> a_host)::bigint, -1) ELSE -1 END AS at_ms
                FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= coalesce(was.first_id, 0) AND k.id IS DISTINCT FROM own.id AND k.mode <> 'r'
                ORDER BY k.token IS NULL, k.id LIMIT 4096) AS q;
        others := queue.listed;
        IF locked = 0 AND NOT queue.dead AND a_forget = 0 AND (own.id IS NOT NULL OR NOT a_waits) AND
            (queue.otherwise OR queue.broken OR (queue.standing > 0 AND a_mode = 'x') OR (queue.unshared AND a_mode = 's') OR
            (queue.standing >= a_permits AND a_mode = 'p')) THEN
            IF own.id IS NOT NULL AND a_beats THEN -- a place in a queue is nothing that would have to survive a crash
                PERFORM set_config('synchronous_commit', 'off', true);
                UPDATE @_claims@ AS k SET beat = k.beat - 1, seen_beat = k.beat - 1, seen = own_note
                    WHERE k.name = a_name AND k.id = own.id AND k.token IS NULL;
            END IF;
            code := CASE WHEN own.id IS NOT NULL THEN 2 WHEN queue.otherwise THEN -2 ELSE 1 END;
            EXIT;
        END IF;
        CONTINUE WHEN locked = 0;
        by_row := @_row_is_held@(a_name);
        IF by_row OR (queue.otherwise AND own.id IS NULL) THEN
            code := -2;
        ELSIF queue.broken OR (queue.standing > 0 AND a_mode = 'x') OR (queue.unshared AND a_mode = 's') OR
            (queue.standing >= a_permits AND a_mode = 'p') THEN
            code := CASE WHEN a_waits THEN 2 ELSE 1 END;
            IF own.id IS NOT NULL THEN
                UPDATE @_claims@ AS k SET beat = k.beat - 1, seen_beat = k.beat - 1, seen = own_note
                    WHERE k.name = a_name AND k.id = own.id;
            ELSIF a_waits THEN
                INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen)
                    VALUES (a_name, a_lease, a_owner, a_mode, a_permits, a_ttl_ms, a_delay_ms, a_death_ms, 1 - first_beat, 1 - first_beat, own_note)
                    RETURNING k.id INTO claim;
            END IF;
        ELSE
            code := 0;
            token := @_next_token@(was.token, was.incarnation, incarnation);
            UPDATE @@ AS l SET token = @!_acquire@.token, incarnation = @!_acquire@.incarnation, first_id = coalesce(
                    (SELECT k.id FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= was.first_id ORDER BY k.id LIMIT 1), was.first_id)
                WHERE l.name = a_name;
            IF own.id IS NOT NULL THEN
                UPDATE @_claims@ AS k SET token = @!_acquire@.token, beat = first_beat, seen_beat = first_beat, seen = own_note,
                    since = clock_timestamp() WHERE k.name = a_name AND k.id = own.id;
            ELSE
                INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, seen_beat, seen)
                    VALUES (a_name, a_lease, a_owner, a_mode, a_permits, @!_acquire@.token, a_ttl_ms, a_delay_ms, a_death_ms, first_beat, first_beat,
                        own_note)
                    RETURNING k.id INTO claim;
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

-- Renews those that hold or wait. lefts: what is left of each in ms, -1 if it is gone, -2 if somebody has its row locked.
CREATE OR REPLACE FUNCTION @_renew@(a_expected text, a_patience_ms integer, a_names bytea[], a_leases bytea[], a_tokens bigint[],
    a_ids bigint[], a_ttls bigint[], a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text, OUT lefts text)
LANGUAGE plpgsql AS $$
DECLARE
    w record;
    found_id bigint;
    own_note jsonb := jsonb_build_object(a_host, a_boot_ms);
    answers bigint[] := array_fill(-1::bigint, ARRAY[cardinality(a_names)]);
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    FOR w IN SELECT u.* FROM unnest(a_names, a_leases, a_tokens, a_ids, a_ttls) WITH ORDINALITY AS u(name, lease, token, id, ttl_ms, n)
        ORDER BY u.name, u.lease
    LOOP
        IF w.id > 0 THEN
            SELECT k.id INTO found_id FROM @_claims@ AS k WHERE k.name = w.name AND k.id = w.id AND k.lease = w.lease AND NOT k.broken
                AND k.mode IN ('x', 's', 'p') AND (w.token = 0 OR k.token = w.token) FOR NO KEY UPDATE SKIP LOCKED;
        ELSE
            SELECT k.id INTO found_id FROM @_claims@ AS k WHERE k.name = w.name AND k.lease = w.lease AND NOT k.broken
                AND k.mode IN ('x', 's', 'p') AND (w.token = 0 OR k.token = w.token) FOR NO KEY UPDATE SKIP LOCKED;
        END IF;
        IF FOUND THEN
            UPDATE @_claims@ AS k SET beat = k.beat + CASE WHEN k.token IS NULL THEN -1 ELSE 1 END,
                seen_beat = k.beat + CASE WHEN k.token IS NULL THEN -1 ELSE 1 END, seen = own_note, ttl_ms = greatest(k.ttl_ms, w.ttl_ms)
                WHERE k.name = w.name AND k.id = found_id;
            answers[w.n] := w.ttl_ms;
        ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = w.name AND k.lease = w.lease AND NOT k.broken
            AND k.mode IN ('x', 's', 'p') AND (w.token = 0 OR k.token = w.token)) THEN
            answers[w.n] := -2;
        END IF;
    END LOOP;
    lefts := array_to_string(answers, ' ');
END
$$;

-- Remembers that a lease is over, for a request that may still arrive; the last few of a name.
CREATE OR REPLACE FUNCTION @_end_lease@(a_name bytea, a_lease bytea, a_ttl_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id IN
        (SELECT e.id FROM @_claims@ AS e WHERE e.name = a_name AND e.mode = 'e' ORDER BY e.id DESC OFFSET 15);
    INSERT INTO @_claims@ (name, lease, owner, mode, permits, ttl_ms, delay_ms, death_ms)
        VALUES (a_name, a_lease, '', 'e', 0, a_ttl_ms, 0, 0);
END
$$;

-- Gives up what a lease holds with this token (0: whatever it has, also a place in the queue). code: 1 it did, 0 there was nothing, 5: a
-- transaction that entered with it has not ended.
CREATE OR REPLACE FUNCTION @_release@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_token bigint,
    a_remember_ms bigint, a_host text, a_noted bigint[], a_noted_beats bigint[], a_noted_ms bigint[], OUT code integer, OUT incarnation text)
LANGUAGE plpgsql AS $$
DECLARE
    own record;
    first bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    IF a_remember_ms > 0 THEN
        INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
    END IF;
    SELECT l.first_id INTO first FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    IF cardinality(a_noted) > 0 THEN
        PERFORM @_take_notes@(a_name, a_host, a_noted, a_noted_beats, a_noted_ms);
    END IF;
    DELETE FROM @_claims@ AS d WHERE d.name = a_name AND d.id =
        (SELECT k.id FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.lease = a_lease AND k.mode IN ('x', 's', 'p')
            AND (a_token = 0 OR k.token = a_token) FOR UPDATE SKIP LOCKED)
        RETURNING d.id, d.token, d.broken INTO own;
    IF FOUND THEN
        code := CASE WHEN own.broken THEN 0 ELSE 1 END;
    ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease AND k.mode IN ('x', 's', 'p')
        AND (a_token = 0 OR k.token = a_token)) THEN
        code := 5;
        RETURN;
    END IF;
    IF a_remember_ms > 0 AND NOT EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease) THEN
        PERFORM @_end_lease@(a_name, a_lease, a_remember_ms);
    END IF;
    IF own.id IS NOT NULL AND EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.id >= first AND k.mode <> 'e') THEN
        PERFORM @_wake@(a_name, first, own.token IS NOT NULL, false);
    END IF;
END
$$;

-- Notes of at most 32 hosts; beyond that one of them goes, whichever, because some may never come back.
CREATE OR REPLACE FUNCTION @_add_note@(a_seen jsonb, a_host text, a_time_ms bigint)
RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE WHEN (SELECT count(*) FROM jsonb_object_keys(a_seen)) < 32 THEN a_seen
        ELSE a_seen - (SELECT h FROM jsonb_object_keys(a_seen) AS h ORDER BY random() LIMIT 1) END || jsonb_build_object(a_host, a_time_ms)
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
        UPDATE @_claims@ AS k SET seen_beat = n.beat, seen = @_add_note@(n.seen, a_host, n.at_ms)
            WHERE k.name = a_name AND k.id = n.id;
    END LOOP;
END
$$;

-- The same by itself, and of a once-record. Nothing that would have to survive a crash.
CREATE OR REPLACE FUNCTION @_note@(a_expected text, a_name bytea, a_host text, a_ids bigint[], a_beats bigint[], a_times bigint[],
    a_record bigint, a_record_ms bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql AS $$
BEGIN
    incarnation := @_incarnation@();
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM set_config('lock_timeout', '100', true);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    PERFORM @_take_notes@(a_name, a_host, a_ids, a_beats, a_times);
    IF a_record > 0 THEN
        UPDATE @_once@ AS o SET seen = @_add_note@(o.seen, a_host, a_record_ms)
            WHERE o.name = a_name AND o.token = a_record AND NOT o.seen ? a_host;
    END IF;
END
$$;

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
    -- Said where a copy was brought back: whatever was held or seen before that counts no more.
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
    END IF;
END
$$;

-- Keeps what came out of a once-record, and gives up the hold. code: 1 kept, 0 this token holds it no more, 5 as of a release.
CREATE OR REPLACE FUNCTION @_finish@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_token bigint,
    a_result bytea, a_keep_ms bigint, a_host text, a_boot_ms bigint, OUT code integer, OUT incarnation text)
LANGUAGE plpgsql AS $$
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
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM @_once@ AS o WHERE o.name = a_name AND o.state = 'd' AND o.token = a_token) THEN
            code := 1; -- an answer was lost
            PERFORM @_await_standby@(a_name);
        ELSIF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.lease = a_lease AND k.token = a_token AND NOT k.broken) THEN
            code := 5;
        END IF;
        RETURN;
    END IF;
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.id = own.id;
    INSERT INTO @_once@ AS o (name, state, token, keep_ms, result, seen)
        VALUES (a_name, 'd', a_token, a_keep_ms, a_result, jsonb_build_object(a_host, a_boot_ms))
        ON CONFLICT (name) DO UPDATE SET state = 'd', token = excluded.token, keep_ms = excluded.keep_ms, result = excluded.result,
            seen = excluded.seen, since = clock_timestamp();
    code := 1;
    PERFORM @_wake@(a_name, first, true, true);
    -- A page of the others, whichever: those that this host has seen for as long as they must be kept go, and of a few that it has not seen
    -- before it notes that. So all of them are looked at again and again, and nobody has to know how old they are.
    page := ARRAY(SELECT format('(%s,%s)', p.n, i)::tid FROM generate_series(1, 64) AS i,
        (SELECT floor(random() * greatest(pg_relation_size(@'_once'@) / current_setting('block_size')::integer, 1)) AS n) AS p);
    DELETE FROM @_once@ AS o WHERE o.ctid = ANY (page) AND (o.seen ->> a_host)::bigint + o.keep_ms < a_boot_ms AND o.name <> a_name;
    UPDATE @_once@ AS o SET seen = @_add_note@(o.seen, a_host, a_boot_ms) WHERE o.ctid IN
        (SELECT s.ctid FROM @_once@ AS s WHERE s.ctid = ANY (page) AND NOT s.seen ? a_host LIMIT 4 FOR UPDATE SKIP LOCKED);
END
$$;

-- Whoever has the row of a name locked, in another transaction, gets a token. code: 0 here it is, -2 somebody holds or awaits the name otherwise.
CREATE OR REPLACE FUNCTION @_row_grant@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea,
    OUT code integer, OUT incarnation text, OUT token bigint)
LANGUAGE plpgsql AS $$
DECLARE
    was record;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
    SELECT l.token, l.incarnation, l.first_id INTO STRICT was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    IF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.mode IN ('x', 's', 'p')) THEN
        code := -2;
        RETURN;
    END IF;
    token := @_next_token@(was.token, was.incarnation, incarnation);
    UPDATE @@ AS l SET token = @!_row_grant@.token, incarnation = @!_row_grant@.incarnation WHERE l.name = a_name;
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.mode = 'r'; -- whoever held it before died
    INSERT INTO @_claims@ (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms)
        VALUES (a_name, a_lease, a_owner, 'r', 0, @!_row_grant@.token, 0, 0, 0);
    PERFORM @_wake@(a_name, was.first_id, true, false);
END
$$;

-- For the transaction of whoever holds a lock, first in it: checks that the hold is alive, keeps it from being taken over
-- until the transaction ends, and enters the guard (holdfast guard sql --dialect postgres). Renewals go on meanwhile.
CREATE OR REPLACE FUNCTION @^_enter_held@(name text, lease text, token bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    guard regprocedure := coalesce(to_regprocedure(@'%holdfast_enter(text,bigint,text)'@),
        to_regprocedure('public.holdfast_enter(text,bigint,text)'));
    mark bigint;
BEGIN
    IF guard IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42883', MESSAGE = 'there is no guard in this database to enter',
            HINT = 'Apply what "holdfast guard sql --dialect postgres" prints.';
    END IF;
    PERFORM FROM @_claims@ AS k WHERE k.name = convert_to(@!^_enter_held@.name, 'UTF8')
        AND k.id >= (SELECT l.first_id FROM @@ AS l WHERE l.name = convert_to(@!^_enter_held@.name, 'UTF8')) AND k.lease = sha256(convert_to(@!^_enter_held@.lease, 'UTF8'))
        AND k.token = @!^_enter_held@.token AND k.mode = 'x' AND NOT k.broken FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'HF001',
            MESSAGE = format('stale fencing token %s for "%s": that hold is over, or is not an exclusive one of this lease', token, name),
            HINT = 'Somebody else may hold the lock by now. Take it again, read again, and decide again.';
    END IF;
    EXECUTE format('SELECT %s($1, $2, ''not-older'')', guard::oid::regproc) INTO mark USING name, token;
    RETURN mark;
END
$$;

INSERT INTO @_meta@ (version) VALUES (1) ON CONFLICT (only_one) DO NOTHING;
