-- The locks of Holdfast in PostgreSQL: tables, and a function for each operation. Made with the first use of
-- postgres://...?table=..., or by whoever may: holdfast guard sql --dialect postgres --locks.
--
-- Each operation is one statement that commits by itself, so a transaction pooler is fine. No function believes a clock: whoever
-- has seen the same beat of a claim for its whole span, by his own, hands in its id and that beat, and exactly that is removed. The one
-- use of the time: tokens of a name that is new here, or came from another timeline, begin at the clock. Columns of
-- type timestamptz are for people.
--
-- Nobody waits for more than one name: whoever changes who holds or waits for one has its row in @@ locked.

-- All names below say their schema, or are PostgreSQL's own, whatever the path of whoever applies this. Each function that a client calls says so, too; what
-- these call runs with it. Else whoever may make functions in a schema of somebody's path could make one that PostgreSQL takes for a better match of the
-- arguments than its own (cardinality(bigint[])), which then runs as whoever takes a lock.
DO $$
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    PERFORM pg_advisory_xact_lock(hashtext(@''@)::bigint);
END
$$; -- two who make this at once: one after the other, to the end of the transaction

CREATE TABLE IF NOT EXISTS @_meta@ (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version integer NOT NULL,
    id text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 16) CHECK (id ~ '^[0-9a-f]{16}$'), -- whoever makes it anew has another store
    floor bigint NOT NULL DEFAULT 0, -- all tokens are greater
    ahead bigint NOT NULL DEFAULT 0, -- of the clock: by how much an operator has put the floor above it
    era text NOT NULL DEFAULT '' CHECK (era ~ '^([0-9a-f]{8})?$'), -- drawn anew with the first use on another server or timeline: two promotions may have the same number
    era_of text NOT NULL DEFAULT '' -- the server and timeline that it was drawn on
);
INSERT INTO @_meta@ (version) VALUES (3) ON CONFLICT (only_one) DO NOTHING RETURNING version AS made; -- nothing, if it was there

-- Functions of one version over tables of another would serve nobody.
DO $$
DECLARE
    there integer := (SELECT m.version FROM @_meta@ AS m WHERE m.only_one);
BEGIN
    IF there <> 3 THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the tables of the locks are of version ' || there || ', and this is version 3: nothing was changed',
            HINT = 'Take another table, or undo these when nobody uses them (holdfast guard sql --dialect postgres --locks --undo, of their version).';
    END IF;
END
$$;

-- One row for each name that was ever held. Never deleted: it has the last token. A name that begins with a zero byte is the key of
-- a once-record.
CREATE TABLE IF NOT EXISTS @@ (
    name bytea PRIMARY KEY,
    token bigint NOT NULL,
    incarnation text NOT NULL, -- of the server that gave it
    -- No claim on this name has a lower id (_show_claim). Whoever looks begins here, behind what is deleted and not yet vacuumed.
    first_id bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- Whoever holds a name, or waits for it. The order of the queue is that of the ids.
CREATE TABLE IF NOT EXISTS @_claims@ (
    id bigint GENERATED ALWAYS AS IDENTITY,
    name bytea NOT NULL,
    lease bytea NOT NULL, -- its SHA-256: the lease itself is the holder's secret
    owner bytea NOT NULL,
    mode "char" NOT NULL, -- x: exclusive, s: shared, p: permit; r: by an open transaction; o: an observer; e: a lease that is over and must not come back; broken: it was ended by somebody else
    permits integer NOT NULL,
    token bigint, -- NULL: it waits
    ttl_ms bigint NOT NULL,
    delay_ms bigint NOT NULL, -- lock-delay; of an open transaction (r): its session
    death_ms bigint NOT NULL, -- of a once-record: how long a death is known
    -- Of a holder it grows with each renewal, and is positive; of all others it falls, and is not. What is not held is renewed without waiting for the disk: a crash
    -- may forget that, and the same number come again. Nobody may take that for the beat of a hold that he has seen before. Both begin at random:
    -- where a dump is restored or a standby promoted, ids come again, and are not to be taken for those that somebody saw before.
    beat bigint NOT NULL DEFAULT -1024 * floor(random() * 1000000000000)::bigint,
    broken boolean NOT NULL DEFAULT false, -- by an operator: withheld until it would have run out
    seen_beat bigint, -- the beat that the notes in `seen` are about
    -- Which host saw it first at which time of that host's CLOCK_BOOTTIME, in ms. The claim's own host begins: it has seen what it sends, and the
    -- claim itself counts from before that. But only with a statement that knows the beat before it: one that was held up on its way, and
    -- comes behind a later one, or behind one of another host, must not turn that back. It leaves no note, and whoever looks begins to count.
    seen jsonb,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    incarnation text NOT NULL DEFAULT '', -- of the server that gave the token. A hold of another one is lost: it only withholds its name until it has run out
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
