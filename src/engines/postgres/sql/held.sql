-- For the transaction of whoever holds a lock, first in it: checks that the hold is alive, keeps it from being taken over
-- until the transaction ends, and enters the guard (holdfast guard sql --dialect postgres). Renewals go on meanwhile.
CREATE OR REPLACE FUNCTION @^_enter_held@(name text, lease text, token bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    guard regprocedure := coalesce(to_regprocedure(@'%holdfast_enter(text,bigint,text)'@),
        to_regprocedure('public.holdfast_enter(text,bigint,text)'));
    mark bigint;
    claim bigint;
    own_name bytea := convert_to(@!^_enter_held@.name, 'UTF8');
BEGIN
    IF guard IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42883', MESSAGE = 'there is no guard in this database to enter',
            HINT = 'Apply what "holdfast guard sql --dialect postgres" prints.';
    END IF;
    -- A statement sees the row as it was when it began, and locking it like this lets pass who has broken or renewed it since. So it is looked at once more, when
    -- nobody can take it away; and where all of a transaction sees what its first statement saw, whether it has changed since then: as a serialization failure.
    FOR look IN 1..2 LOOP
        SELECT k.id INTO claim FROM @_claims@ AS k WHERE k.name = own_name
            AND k.id >= coalesce((SELECT l.first_id FROM @@ AS l WHERE l.name = own_name), 0) AND k.lease = sha256(convert_to(@!^_enter_held@.lease, 'UTF8'))
            AND k.token = @!^_enter_held@.token AND k.mode = 'x' AND NOT k.broken
            AND k.incarnation = (SELECT m.id || '.' || m.era || '.' || @_server@() FROM @_meta@ AS m WHERE m.only_one) FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'HF001',
                MESSAGE = format('stale fencing token %s for "%s": that hold is over, or is not an exclusive one of this lease', token, name),
                HINT = 'Somebody else may hold the lock by now. Take it again, read again, and decide again.';
        END IF;
    END LOOP;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        BEGIN
            PERFORM FROM @_claims@ AS k WHERE k.name = own_name AND k.id = claim FOR NO KEY UPDATE;
            PERFORM FROM @_meta@ AS m WHERE m.only_one FOR SHARE;
            RAISE EXCEPTION USING ERRCODE = 'HF004'; -- gives both locks back: renewals go on meanwhile
        EXCEPTION WHEN SQLSTATE 'HF004' THEN
            NULL;
        END;
    END IF;
    -- For those who look, and no more: that nobody takes the name over is what the row is locked for. Everybody who can connect can lock such a key, and see it
    -- in pg_locks; whoever has done so keeps nobody from entering, and those who look see that lock.
    PERFORM pg_try_advisory_xact_lock_shared(@_entered_key@(own_name, claim));
    EXECUTE format('SELECT %s($1, $2, ''not-older''::text)', guard::oid::regproc) INTO mark USING name, token;
    RETURN mark;
END
$$;
