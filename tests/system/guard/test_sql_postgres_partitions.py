"""The guard of a table of PostgreSQL with partitions, which come and go with their rows, and between which rows move; and of one
that is unlogged, which a crash empties."""
import pytest
from postgres import MISSING, SERIALIZE, STALE, refused
from sql_batches import GUARD, Batches, db, server  # noqa: F401

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


# ---- partitions that come and go


@pytest.fixture
def parts(db):
    session = db.session()
    session("CREATE TABLE events (id int, year int, state text, PRIMARY KEY (id, year)) PARTITION BY LIST (year)")
    session("CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1)")
    session("CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2)")
    db.apply("--table", "events")
    session("INSERT INTO events VALUES (7, 1, 'new', 34)")
    session("UPDATE events SET fence_token = 40 WHERE id = 7")
    return session


@pytest.mark.parametrize("gone", ["DROP TABLE events_1", "TRUNCATE events_1", "ALTER TABLE events DETACH PARTITION events_1"])
def test_a_partition_that_goes_leaves_its_marks(parts, gone):
    parts(gone)
    for table in ("events", "events_2"):
        with refused(STALE, 39, 40):
            parts(f"INSERT INTO {table} VALUES (7, 2, 'late', 39)")
    parts("INSERT INTO events VALUES (7, 2, 'next', 41)")


def test_a_key_that_is_in_two_partitions_has_one_mark(parts):
    parts("INSERT INTO events VALUES (7, 2, 'new', 45)")
    for table in ("events", "events_1"):
        with refused(STALE, 44, 45):
            parts(f"UPDATE {table} SET state = 'late', fence_token = 44 WHERE year = 1")
    parts("UPDATE events SET state = 'next', fence_token = 50 WHERE year = 1")
    with refused(STALE, 49, 50):
        parts("UPDATE events_2 SET fence_token = 49")
    assert parts("SELECT holdfast_reset('7', 20, 'public.events')") == [(50,)]
    parts("UPDATE events SET fence_token = 21")


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
@pytest.mark.parametrize("late", ["UPDATE {} SET state = 'late', fence_token = 34 WHERE id = 7 AND part = 2",
                                  "UPDATE {} SET state = 'late', part = part, fence_token = fence_token WHERE id = 7 AND part = 2"])
def test_a_late_update_that_names_the_token_of_a_row_elsewhere(db, options, late):
    """A key in two partitions: A (34) wrote both rows, B (36) one of them. A's late UPDATE of the other names what is in it."""
    moving = Moving(db)
    moving("INSERT INTO batches VALUES (7, 2, 'new', 34)")
    moving.apply(*options)
    moving("UPDATE batches SET state = 'next', fence_token = 36 WHERE id = 7 AND part = 1")
    for table in ("batches", "batches_2"):
        with refused(STALE, "token 34"):
            moving(late.format(table))
    assert moving("SELECT state, fence_token FROM batches ORDER BY part") == [("next", 36), ("new", 34)]
    if not options:  # older programs, which know of no tokens
        assert moving("UPDATE batches SET state = 'bare' WHERE part = 2") == 1
    with refused("22023", "-34 is not a fencing token"):
        moving("UPDATE batches SET fence_token = -34 WHERE part = 2")


@pytest.mark.parametrize("table", ["UNLOGGED TABLE batches (id int PRIMARY KEY, part int, state text)",
                                   "TABLE batches (id int, part int, state text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)"])
@pytest.mark.parametrize("found", ["ON CONFLICT DO NOTHING", "ON CONFLICT (id, part) DO UPDATE SET state = 'x' WHERE false"])
def test_a_late_update_that_names_the_token_that_it_left_in_the_row(db, table, found):
    session = db.session()
    session(f"CREATE {table}")
    if "PARTITION" in table:
        session("CREATE TABLE batches_1 PARTITION OF batches FOR VALUES IN (1)")
    else:
        found = found.replace("(id, part)", "(id)")
    db.apply("--table", "batches")
    session("INSERT INTO batches VALUES (7, 1, 'new', 34)")
    session("INSERT INTO batches VALUES (7, 1, 'x', 35) " + found)
    with refused(STALE, 34, 35):
        session("UPDATE batches SET state = 'late', fence_token = 34")
    assert session("SELECT state FROM batches") == [("new",)]


def test_a_partition_that_comes_is_guarded(parts):
    parts("CREATE TABLE events_3 (id int NOT NULL, year int NOT NULL, state text, fence_token bigint, PRIMARY KEY (id, year))")
    parts("INSERT INTO events_3 VALUES (8, 3, 'new', 50)")
    parts("ALTER TABLE events ATTACH PARTITION events_3 FOR VALUES IN (3)")
    for table in ("events", "events_3"):
        with refused(STALE, 49, 50):
            parts(f"UPDATE {table} SET fence_token = 49 WHERE id = 8")
        with refused(STALE, 49, 50):
            parts(f"INSERT INTO {table} VALUES (8, 3, 'late', 49) ON CONFLICT DO NOTHING")


def test_a_partition_that_went_is_no_longer_guarded(parts):
    """It is a table of its own then."""
    parts("ALTER TABLE events DETACH PARTITION events_1")
    parts("UPDATE events_1 SET fence_token = 1")
    assert parts("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'events_1'::regclass AND NOT tgisinternal") == [(0,)]


def test_an_insert_into_one_partition_of_which_nothing_comes(parts):
    parts("INSERT INTO events_1 VALUES (7, 1, 'x', 90) ON CONFLICT DO NOTHING")
    for table in ("events", "events_1"):
        with refused(STALE, 50, 90):
            parts(f"UPDATE {table} SET fence_token = 50")


# ---- rows that move to another partition: PostgreSQL has them updated, deleted and inserted


MODES = [[], ["--mode", "newer"], ["--require"], ["--mode", "newer", "--require"]]


class Moving(Batches):
    """Its row 7 is written with token 34, and lies in the first of two partitions."""

    def __init__(self, db, *options):
        self.db, self.session = db, db.session()
        self.session("CREATE TABLE batches (id int, part int, state text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)")
        self.session("CREATE TABLE batches_1 PARTITION OF batches FOR VALUES IN (1)")
        self.session("CREATE TABLE batches_2 (state text, part int NOT NULL, id int NOT NULL)")  # in another order
        self.session("ALTER TABLE batches ATTACH PARTITION batches_2 FOR VALUES IN (2)")
        self.apply(*options)
        self.session("INSERT INTO batches VALUES (7, 1, 'new', 34)")

    def rows(self):
        return self.session("SELECT id, part, fence_token FROM batches ORDER BY 1, 2")


@pytest.mark.parametrize("options", MODES)
def test_a_row_moves_and_stale_ones_do_not_move_it(db, options):
    moving = Moving(db, *options)
    assert moving("UPDATE batches SET part = 2, fence_token = 35 WHERE id = 7") == 1
    assert moving.rows() == [(7, 2, 35)] and moving.mark() == 35
    assert moving("UPDATE batches SET part = 1 WHERE id = 7", token=36) == 1
    assert moving.rows() == [(7, 1, 36)] and moving.mark() == 36
    assert moving("UPDATE batches SET part = 2, fence_token = 37 WHERE id = 7", token=36) == 1  # what it names counts
    assert moving.rows() == [(7, 2, 37)]
    with refused(STALE, 36, 37):
        moving("UPDATE batches SET part = 1, fence_token = 36 WHERE id = 7")
    with refused(STALE, 36, 37):
        moving("UPDATE batches SET part = 1 WHERE id = 7", token=36)
    if "newer" in options:
        with refused(STALE, 37, 37):
            moving("UPDATE batches SET part = 1 WHERE id = 7", token=37)
    else:
        assert moving("UPDATE batches SET part = 1, fence_token = 37 WHERE id = 7") == 1
        assert moving("UPDATE batches SET part = 2 WHERE id = 7", token=37) == 1
    if "--require" in options:
        with refused(MISSING):
            moving("UPDATE batches SET part = 1 WHERE id = 7")
    assert moving.rows() == [(7, 2, 37)] and moving.mark() == 37


@pytest.mark.parametrize("options", MODES)
def test_several_rows_move_with_one_statement(db, options):
    moving = Moving(db, *options)
    moving("INSERT INTO batches VALUES (8, 2, 'new', 34), (9, 1, 'new', 34)")
    assert moving("UPDATE batches SET part = 3 - part, fence_token = 35") == 3
    assert moving.rows() == [(7, 2, 35), (8, 1, 35), (9, 2, 35)]
    moving("UPDATE batches SET fence_token = 40 WHERE id = 9")
    with refused(STALE, 36, 40):
        moving("UPDATE batches SET part = 3 - part", token=36)
    assert moving.rows() == [(7, 2, 35), (8, 1, 35), (9, 2, 40)]


@pytest.mark.parametrize("options", MODES)
def test_a_row_moves_under_another_key(db, options):
    moving = Moving(db, *options)
    moving("INSERT INTO batches VALUES (8, 2, 'old', 50)")
    moving("DELETE FROM batches WHERE id = 8", token=51)
    with refused(STALE, 40, 51):
        moving("UPDATE batches SET id = 8, part = 2, fence_token = 40 WHERE id = 7")
    assert moving("UPDATE batches SET id = 8, part = 2, fence_token = 52 WHERE id = 7") == 1
    assert moving.rows() == [(8, 2, 52)] and (moving.mark(7), moving.mark(8)) == (52, 52)


@pytest.mark.parametrize("options", [[], ["--mode", "newer"]])
def test_a_row_moves_without_a_token(db, options):
    moving = Moving(db, *options)
    moving("INSERT INTO batches VALUES (7, 1, 'x', 90) ON CONFLICT DO NOTHING")
    assert moving("UPDATE batches SET part = 2 WHERE id = 7") == 1
    assert moving.mark() == 90
    with refused(STALE, 89, 90):
        moving("UPDATE batches SET part = 1, fence_token = 89 WHERE id = 7")


@pytest.mark.parametrize("options", MODES)
def test_a_move_lets_nothing_else_in(db, options):
    """A DELETE and an INSERT of the same transaction bring their own tokens."""
    moving = Moving(db, *options)
    for before in ("UPDATE batches SET part = 2, fence_token = 40 WHERE id = 7", "UPDATE batches SET fence_token = 40 WHERE id = 7"):
        for statement, token in (("DELETE FROM batches WHERE id = 7", 39), ("INSERT INTO batches VALUES (7, 1, 'late', 39)", None),
                                 ("INSERT INTO batches VALUES (7, 2, 'late', 39)", None), ("DELETE FROM batches WHERE id = 7", None)):
            moving.session.begin()
            moving.session(before)
            if token:
                moving.session(f"SET LOCAL holdfast.token = '{token}'")
            if "DELETE" in statement and token is None:
                if "--require" in options:
                    with refused(MISSING):
                        moving.session(statement)
            else:
                with refused(STALE, 39, 40):
                    moving.session(statement)
            moving.session.rollback()
    assert moving.rows() == [(7, 1, 34)]


@pytest.mark.parametrize("options", MODES[1:])
@pytest.mark.parametrize("when", ["UPDATE", "DELETE", "INSERT"])
def test_a_move_that_another_trigger_stops_lets_nothing_else_in(db, options, when):
    moving = Moving(db, *options)
    moving("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS"
           " 'BEGIN IF current_setting(''my.stop'', true) = ''on'' THEN RETURN NULL; END IF; RETURN coalesce(NEW, OLD); END'")
    name = "aa_stop" if when == "INSERT" else "zzz_stop"
    moving(f"CREATE TRIGGER {name} BEFORE {when} ON batches FOR EACH ROW EXECUTE FUNCTION nothing()")
    for statement in ("DELETE FROM batches WHERE id = 7", "INSERT INTO batches VALUES (7, 2, 'again', 40)", "INSERT INTO batches VALUES (7, 2, 'bare')"):
        moving.session.begin()
        moving.session("SET LOCAL my.stop = 'on'")
        assert moving.session("UPDATE batches SET part = 2, fence_token = 40 WHERE id = 7") == 0
        moving.session("SET LOCAL my.stop = 'off'")
        if "--require" in options and "40" not in statement and (when != "INSERT" or "bare" in statement):
            with refused(MISSING):
                moving.session(statement)
        elif "newer" in options and "40" in statement:
            with refused(STALE, 40, 40):
                moving.session(statement)
        moving.session.rollback()
    if "--require" in options and when == "INSERT":
        with refused(MISSING):  # for PostgreSQL's clock this is one statement
            moving("SET my.stop = 'on'; UPDATE batches SET part = 2, fence_token = 40 WHERE id = 7; SET my.stop = 'off';"
                   "INSERT INTO batches VALUES (7, 2, 'bare')")


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("updated", ["batches", "batches_1"])
@pytest.mark.parametrize("deleted", ["batches", "batches_1"])
def test_a_move_that_another_trigger_stops_in_one_block(db, options, updated, deleted):
    """For PostgreSQL's clock, a block of PL/pgSQL is one statement, and the row is still where it was."""
    moving = Moving(db, *options)
    moving("CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    moving("CREATE TRIGGER zzz_skip BEFORE UPDATE ON batches FOR EACH ROW EXECUTE FUNCTION skip()")
    with refused(STALE, 20):
        moving(f"DO $$ BEGIN UPDATE {updated} SET state = 'x', fence_token = 40 WHERE id = 7; SET LOCAL holdfast.token = '20';"
               f" DELETE FROM {deleted} WHERE id = 7; END $$")
    assert moving.rows() == [(7, 1, 34)]


@pytest.mark.parametrize("options", MODES)
def test_rows_move_with_each_statement_of_a_block(db, options):
    moving = Moving(db, *options)
    moving("INSERT INTO batches VALUES (8, 1, 'new', 34)")
    moving("DO $$ BEGIN UPDATE batches SET part = 3 - part, fence_token = 35; UPDATE batches SET part = 3 - part, fence_token = 36; END $$")
    assert moving.rows() == [(7, 1, 36), (8, 1, 36)]


@pytest.mark.parametrize("options", MODES[2:])
def test_a_note_that_somebody_forged_lets_nothing_in(db, options):
    """The settings are anybody's to set."""
    moving = Moving(db, *options)
    forged = ("SELECT set_config('holdfast.moving_1', ARRAY['%s', 'public.batches',"
              " extract(epoch FROM statement_timestamp())::text, %s]::text, false) FROM batches; ")
    with refused(MISSING):
        moving(forged % ("DELETE", "tableoid::oid || ' ' || ctid, '7'") + "DELETE FROM batches")
    with refused(MISSING):
        moving(forged % ("INSERT", "'7'") + "INSERT INTO batches VALUES (7, 2, 'bare')")
    with refused(STALE, 33, 34):
        moving(forged % ("INSERT", "'7'") + "INSERT INTO batches VALUES (7, 2, 'late', 33)")
    assert moving.rows() == [(7, 1, 34)]


@pytest.mark.parametrize("options", MODES)
def test_a_trigger_that_writes_to_the_table_during_a_move(db, options):
    moving = Moving(db, *options)
    moving("INSERT INTO batches VALUES (8, 1, 'new', 34)")
    moving("CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF pg_trigger_depth() = 1 THEN"
           " UPDATE batches SET part = 3 - part, fence_token = 36 WHERE id = 8; END IF; RETURN OLD; END$$")
    moving("CREATE TRIGGER zzz_other BEFORE DELETE ON batches FOR EACH ROW EXECUTE FUNCTION other()")
    assert moving("UPDATE batches SET part = 2, fence_token = 36 WHERE id = 7") == 1
    assert moving.rows() == [(7, 2, 36), (8, 2, 36)]


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_two_move_a_row_at_once(db, options, level):
    moving = Moving(db, *options)
    new, next_one = moving.session.begin(level), db.session().begin(level)
    new("UPDATE batches SET state = 'x', fence_token = 35 WHERE id = 7")
    waiting = next_one.start("UPDATE batches SET part = 2, fence_token = 36 WHERE id = 7").blocked(new)
    new.commit()
    if level == "READ COMMITTED":
        assert waiting.end() == 1
        next_one.commit()
        assert moving.rows() == [(7, 2, 36)]
    else:
        with refused(SERIALIZE):
            waiting.end()


def test_tokens_of_partitions_that_were_there_before(db):
    session = db.session()
    session("CREATE TABLE events (id int, year int, fence_token bigint, PRIMARY KEY (id, year)) PARTITION BY LIST (year)")
    session("CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1)")
    session("INSERT INTO events VALUES (7, 1, 34)")
    db.apply("--table", "events")
    session("TRUNCATE events_1")
    with refused(STALE, 33, 34):
        session("INSERT INTO events VALUES (7, 1, 33)")


def test_an_unlogged_table_keeps_its_marks_elsewhere(db):
    """A crash empties the table."""
    session = db.session()
    session("CREATE UNLOGGED TABLE batches (id int PRIMARY KEY, fence_token bigint)")
    db.apply("--table", "batches")
    session("INSERT INTO batches VALUES (7, 34)")
    session("UPDATE batches SET fence_token = 40")
    assert session.mark(7, GUARD) == 40
