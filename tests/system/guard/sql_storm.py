"""Many connections that write with stale tokens, while others write with fresh ones, for test_sql_storm.py.

Each row has one fresh writer, whose tokens rise. What it was told to be done is in `acked`, which all processes share; so a
token below that is stale for certain, whatever else is under way. A stale write must be refused, a fresh one not, and in the
end each row must hold what its fresh writer left there.
"""
import contextlib
import multiprocessing
import queue
import random
import sqlite3

ROWS = 16
FRESH_PROCESSES, STALE_PROCESSES, CONNECTIONS = 2, 4, 4  # connections of each process
FRESH_MIN = 300  # of each process, however fast the others are
FIRST = 100  # the first token
BATCH = 20  # stale writes of a connection before the next one's turn
PATIENCE = 120
STALE, DEADLOCK = "HF001", "40P01"


class Postgres:
    """guard: "enter" or "column"."""

    def __init__(self, guard, server, database):
        self.guard, self.server, self.database = guard, server, database

    def connect(self):
        connection = self.server.connect(self.database)
        connection.autocommit = True
        return connection

    def prepare(self, apply):
        """apply: called with options of `holdfast guard sql`."""
        cursor = self.connect().cursor()
        cursor.execute("CREATE TABLE stock (id int PRIMARY KEY, n bigint, fence_token bigint)")
        apply(*(["--table", "stock"] if self.guard == "column" else []))
        cursor.execute("INSERT INTO stock SELECT i, 0, NULL FROM generate_series(0, %s) AS i", (ROWS - 1,))

    def ways(self, fresh):
        """Statements that write `value` to `row` with `token`. Several in one string are one transaction."""
        if self.guard == "enter":
            return ["SELECT holdfast_enter('stock:%(row)s', %(token)s); UPDATE stock SET n = %(value)s WHERE id = %(row)s"]
        setting = "SELECT set_config('holdfast.token', '%(token)s', true); "
        insert = "INSERT INTO stock VALUES (%(row)s, %(value)s, %(token)s)"
        return ["UPDATE stock SET n = %(value)s, fence_token = %(token)s WHERE id = %(row)s",
                setting + "UPDATE stock SET n = %(value)s WHERE id = %(row)s",
                insert + " ON CONFLICT (id) DO UPDATE SET n = excluded.n",
                setting + "DELETE FROM stock WHERE id = %(row)s" + ("; " + insert if fresh else "")]

    def write(self, connection, way, words):
        """The refusal; "" if it was taken; None if nothing came of it: there was no such row at that moment, because its fresh
        writer replaces it, or PostgreSQL ended a deadlock."""
        with connection.cursor() as cursor:
            try:
                cursor.execute(way % words)
            except connection.Error as error:
                if error.pgcode == DEADLOCK:
                    return None
                if error.pgcode != STALE:
                    raise
                return error.diag.message_primary
            return "" if cursor.rowcount else None

    def seen(self, refusal, words):
        """Does it name what came?"""
        name = "stock:" if self.guard == "enter" else "public.stock:"
        return refusal.startswith('stale fencing token %(token)s for "' % words + name + '%(row)s": ' % words)

    def batch(self, connection):
        pass

    def end(self, connection):
        pass


class Sqlite:
    def __init__(self, guard, path):
        self.guard, self.path = guard, path

    def connect(self):
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def prepare(self, apply):
        connection = self.connect()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE stock (id INTEGER PRIMARY KEY, n INT, fence_token INT)")
        apply(*(["--table", "stock"] if self.guard == "column" else []))
        connection.executemany("INSERT INTO stock VALUES (?, 0, NULL)", [(row,) for row in range(ROWS)])

    def ways(self, fresh):
        if self.guard == "enter":
            return ["INSERT INTO holdfast_enter(key, token) VALUES('stock:%(row)s', %(token)s);"
                    "UPDATE stock SET n = %(value)s WHERE id = %(row)s"]
        insert = "INSERT INTO stock VALUES (%(row)s, %(value)s, %(token)s)"
        return ["UPDATE stock SET n = %(value)s, fence_token = %(token)s WHERE id = %(row)s",
                insert + " ON CONFLICT (id) DO UPDATE SET n = excluded.n",
                "REPLACE INTO stock VALUES (%(row)s, %(value)s, %(token)s)",
                ("DELETE FROM stock WHERE id = %(row)s;" if fresh else "") + insert]

    def write(self, connection, way, words):
        try:
            for statement in (way % words).split(";"):
                connection.execute(statement)
        except sqlite3.IntegrityError as error:
            return str(error)
        return ""

    def seen(self, refusal, words):
        return refusal == "stale fencing token (see holdfast_marks)"

    def batch(self, connection):
        connection.execute("BEGIN IMMEDIATE")

    def end(self, connection):
        connection.execute("COMMIT")


def write_stale(guard, acked, count, seed, results):
    """Tells how many were refused, and the first few that were not."""
    draw, connections = random.Random(seed), [guard.connect() for _ in range(CONNECTIONS)]
    ways = guard.ways(fresh=False)
    refused, others = 0, []
    while refused + len(others) < count and len(others) < 10:
        connection = draw.choice(connections)
        guard.batch(connection)
        for _ in range(min(BATCH, count - refused - len(others))):
            row = draw.randrange(ROWS)
            words = {"row": row, "token": draw.randint(max(1, acked[row] - 200), acked[row] - 1), "value": -1}
            way = draw.choice(ways)
            refusal = guard.write(connection, way, words)
            if refusal is None:
                continue
            if guard.seen(refusal, words):
                refused += 1
            else:
                others.append((way % words, acked[row], refusal))
        guard.end(connection)
    results.put((refused, others))


def write_fresh(guard, acked, rows, seed, stop, results):
    draw, connections = random.Random(seed), [guard.connect() for _ in range(CONNECTIONS)]
    ways = guard.ways(fresh=True)
    count, others = 0, []
    while (count < FRESH_MIN or not stop.is_set()) and len(others) < 10:
        row, connection = draw.choice(rows), draw.choice(connections)
        token = acked[row] + draw.randint(0, 1)
        words = {"row": row, "token": token, "value": token}
        way = draw.choice(ways)
        guard.batch(connection)
        refusal = guard.write(connection, way, words)
        guard.end(connection)
        if refusal is None:
            continue
        if refusal != "":
            others.append((way % words, acked[row], refusal))
        acked[row] = token
        count += 1
    results.put((count, others))


def gather(results, processes):
    """What each of them tells. One that died tells nothing."""
    told = []
    while len(told) < len(processes):
        with contextlib.suppress(queue.Empty):
            told.append(results.get(timeout=1))
            continue
        assert not any(process.exitcode for process in processes), "one died: its words are above"
    return told


def storm(guard, apply, count):
    """(stale and refused, fresh and taken, what went otherwise, rows as they are, rows as they should be)"""
    guard.prepare(apply)
    context = multiprocessing.get_context("fork")
    acked, stop = context.Array("q", [FIRST] * ROWS, lock=False), context.Event()
    connection = guard.connect()
    for row in range(ROWS):
        guard.write(connection, guard.ways(fresh=True)[0], {"row": row, "token": FIRST, "value": FIRST})
    stale_results, fresh_results = context.Queue(), context.Queue()
    fresh = [context.Process(target=write_fresh, args=(
        guard, acked, range(i, ROWS, FRESH_PROCESSES), i, stop, fresh_results), daemon=True) for i in range(FRESH_PROCESSES)]
    stale = [context.Process(target=write_stale, args=(
        guard, acked, count // STALE_PROCESSES, 100 + i, stale_results), daemon=True) for i in range(STALE_PROCESSES)]
    for process in fresh + stale:
        process.start()
    try:
        refused = gather(stale_results, stale)
    finally:
        stop.set()
    taken = gather(fresh_results, fresh)
    for process in fresh + stale:
        process.join()
    cursor = connection.cursor()
    cursor.execute("SELECT id, n FROM stock ORDER BY id")
    return (sum(n for n, _ in refused), sum(n for n, _ in taken), [o for _, others in refused + taken for o in others],
            [tuple(row) for row in cursor.fetchall()], list(enumerate(acked)))
