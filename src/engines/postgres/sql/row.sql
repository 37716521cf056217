-- Locks that are open transactions (?mode=row).

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

-- Whoever has the row of a name locked, in another transaction, gets a token. a_pid: its session. code: 0 here it is, -1 that has ended, -2 somebody holds or awaits the name otherwise.
CREATE OR REPLACE FUNCTION @_row_grant@(a_expected text, a_patience_ms integer, a_name bytea, a_lease bytea, a_owner bytea, a_pid integer,
    OUT code integer, OUT incarnation text, OUT token bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was record;
    claim bigint;
BEGIN
    incarnation := @_begin@(a_patience_ms);
    code := 0;
    IF incarnation <> a_expected THEN
        code := -3;
        RETURN;
    END IF;
    INSERT INTO @@ AS l VALUES (a_name, 0, '') ON CONFLICT (name) DO NOTHING;
    SELECT l.token, l.incarnation, l.first_id INTO STRICT was FROM @@ AS l WHERE l.name = a_name FOR UPDATE;
    -- Held up on its way, this may come when that one is dead, and another one has the row.
    IF NOT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = a_pid) THEN
        code := -1;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM @_claims@ AS k WHERE k.name = a_name AND k.mode IN ('x', 's', 'p')) THEN
        code := -2;
        RETURN;
    END IF;
    token := @_next_token@(was.token, was.incarnation, incarnation);
    UPDATE @@ AS l SET token = @!_row_grant@.token, incarnation = @!_row_grant@.incarnation WHERE l.name = a_name;
    DELETE FROM @_claims@ AS k WHERE k.name = a_name AND k.mode = 'r'; -- whoever held it before died
    -- With its session, in delay_ms: somebody else may have the row locked, and not come for his token.
    INSERT INTO @_claims@ AS k (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, incarnation)
        VALUES (a_name, a_lease, a_owner, 'r', 0, @!_row_grant@.token, 0, a_pid, 0, @!_row_grant@.incarnation) RETURNING k.id INTO claim;
    PERFORM @_show_claim@(a_name, claim);
    -- Nobody who waits can go, and whether we hold it is not to be asked of a table that somebody else may be waiting to lock behind us.
    PERFORM @_notify@('o', (SELECT array_agg(k.id) FROM @_claims@ AS k WHERE k.name = a_name AND k.mode = 'o'));
END
$$;
