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
