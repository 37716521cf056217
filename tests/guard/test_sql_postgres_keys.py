"""The guard of a table of PostgreSQL: one rule for all statements, which tables cannot be guarded, and what else may stand in its
way: partitions that come and go, snapshots, prepared transactions, other schemas, and triggers that do not fire."""
import io

import pytest
from postgres import MISSING, SERIALIZE, STALE, printed, psycopg2, refused
from sql_batches import GUARD, Batches, batches, db, newer, server, strict  # noqa: F401

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
NOTHING = "INSERT INTO batches VALUES (7, 'x', 0, %s) ON CONFLICT DO NOTHING"


# ---- one rule: what was seen is the mark, whatever came of it, for every statement


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
@pytest.mark.parametrize("setting", [False, True])
def test_an_insert_of_which_nothing_comes_raises_the_mark(db, options, setting):
    batches = Batches(db, *options)
    if setting:
        assert batches("INSERT INTO batches VALUES (7, 'x', 0) ON CONFLICT DO NOTHING", token=90) == 0
    else:
        assert batches(NOTHING, 90) == 0
    assert batches.row() == ("new", 34)
    for statement in ("UPDATE batches SET state = 'late', fence_token = 50", NOTHING % 50, "DELETE FROM batches",
                      "UPDATE batches SET id = 8, fence_token = 50", "UPDATE batches SET state = 'late'", "UPDATE batches SET id = 8",
                      "MERGE INTO batches b USING (SELECT 1) AS v ON b.id = 7 WHEN MATCHED THEN UPDATE SET fence_token = 50",
                      "INSERT INTO batches VALUES (7, 'x', 0, 50) ON CONFLICT (id) DO UPDATE SET state = 'late'"):
        if statement.startswith("MERGE") and batches.session.connection.server_version < 150000:
            continue
        with refused(STALE, 50, 90):
            batches(statement, token=50)
    assert batches.row() == ("new", 34)
    assert batches("UPDATE batches SET state = 'next', fence_token = 91") == 1


def test_an_insert_is_compared_with_the_row_that_is_there(batches):
    """Which alone knows of the last UPDATE."""
    batches("UPDATE batches SET fence_token = 50")
    with refused(STALE, 49, 50):
        batches(NOTHING, 49)
    assert batches(NOTHING, 50) == 0


def test_newer_takes_the_token_of_an_upsert_once(newer):
    upsert = "INSERT INTO batches VALUES (7, 'x', 0, 36) ON CONFLICT (id) DO UPDATE SET fence_token = excluded.fence_token"
    assert newer(upsert) == 1
    for statement in (upsert, "UPDATE batches SET fence_token = 36", NOTHING % 36):
        with refused(STALE, 36):
            newer(statement)


def test_two_keys_that_change_places(db):
    """Where the key may be twice for a moment, a row comes to a key before the other has left it."""
    session = db.session()
    session("CREATE TABLE batches (id int UNIQUE DEFERRABLE, state text, fence_token bigint)")
    db.apply("--table", "batches")
    session("INSERT INTO batches VALUES (7, 'seven', 34), (8, 'eight', 40)")
    session("UPDATE batches SET id = 15 - id")
    for key, token, mark in ((7, 33, 34), (8, 39, 40)):
        with refused(STALE, token, mark):
            session("UPDATE batches SET fence_token = %s WHERE id = %s", token, key)
    with refused(STALE, 39):
        session("UPDATE batches SET id = 15 - id, fence_token = 39")
    session("UPDATE batches SET fence_token = 50 WHERE id = 8")
    with refused(STALE, 45, 50):
        session("UPDATE batches SET id = 8, fence_token = 45 WHERE id = 7")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("known", [False, True])
def test_an_update_cannot_slip_in_beside_an_insert_of_which_nothing_comes(db, level, known):
    """known: holdfast_marks has a mark of the key already."""
    batches = Batches(db)
    if not known:
        batches("DELETE FROM holdfast_marks")
    new, late = batches.session.begin(), db.session().begin(level)
    late("SELECT 1")  # with snapshots: from before
    assert new(NOTHING, 90) == 0
    waiting = late.start("UPDATE batches SET state = 'late', fence_token = 50").blocked(new)
    new.commit()
    with refused(STALE if level == "READ COMMITTED" else SERIALIZE):
        waiting.end()
    late.rollback()
    with refused(STALE, 50, 90):
        late("UPDATE batches SET state = 'late', fence_token = 50")
    assert batches.row() == ("new", 34)


@pytest.mark.parametrize("level", LEVELS)
def test_an_insert_waits_for_an_older_update_that_is_under_way(db, batches, level):
    old, new = batches.session.begin(), db.session().begin(level)
    new("SELECT 1")
    old("UPDATE batches SET state = 'old', fence_token = 50")
    waiting = new.start(NOTHING, 90).blocked(old)
    old.commit()
    if level == "READ COMMITTED":
        assert waiting.end() == 0
        new.commit()
        with refused(STALE, 51, 90):
            batches("UPDATE batches SET fence_token = 51")
    else:
        with refused(SERIALIZE):
            waiting.end()


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("statement", ["UPDATE batches SET state = 'late', fence_token = 35", NOTHING % 35,
                                       "INSERT INTO batches VALUES (7, 'x', 0, 35) ON CONFLICT (id) DO UPDATE SET state = 'late'",
                                       "SET LOCAL holdfast.token = '35'; DELETE FROM batches"])
def test_a_snapshot_from_before_lets_nobody_pass(db, batches, level, statement):
    late = db.session().begin(level)
    assert late("SELECT fence_token FROM batches") == [(34,)]
    batches("UPDATE batches SET state = 'next', fence_token = 36")
    with refused(SERIALIZE):
        late(statement)
    late.rollback()
    with refused(STALE, 35, 36):
        late.begin(level)(statement)
    late.rollback()
    assert batches.row() == ("next", 36)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_rolled_back_to_a_savepoint_was_never_seen(batches, level):
    session = batches.session.begin(level)
    session("SAVEPOINT a")
    session(NOTHING, 90)
    session("UPDATE batches SET fence_token = 91")
    session("ROLLBACK TO a")
    assert session("UPDATE batches SET fence_token = 50") == 1
    session.commit()
    assert batches.row() == ("new", 50)


def test_a_user_who_may_only_insert(db, batches):
    """The guard looks at the row that is there, the user may not."""
    role = db.role()
    batches(f"GRANT INSERT ON batches TO {role}")
    batches("UPDATE batches SET fence_token = 50")
    user = db.session(role)
    with refused(STALE, 49, 50):
        user(NOTHING, 49)
    assert user(NOTHING, 51) == 0
    with refused("42501"):
        user("SELECT * FROM holdfast_marks")


@pytest.mark.parametrize("name", ["key", "mark", "t", "r", "this", "a_key", "name", "brought", "shared", "token"])
def test_columns_with_the_names_of_the_guards_own_variables(db, name):
    session = db.session()
    session(f"CREATE TABLE batches ({name} text PRIMARY KEY, fence_token bigint)")
    db.apply("--table", "batches", "--key-column", name)
    session("INSERT INTO batches VALUES ('a', 40), ('b', 30)")
    session("UPDATE batches SET fence_token = 50 WHERE fence_token = 40")
    with refused(STALE, 49, 50):
        session("INSERT INTO batches VALUES ('a', 49) ON CONFLICT DO NOTHING")
    session("INSERT INTO batches VALUES ('b', 31) ON CONFLICT DO NOTHING")


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
def test_applied_again_rows_take_over_what_was_seen(db, options):
    batches = Batches(db, *options)
    batches(NOTHING, 90)
    batches.apply(*options)
    assert batches.row() == ("new", 90)


# ---- prepared transactions


def test_a_prepared_transaction_holds_its_mark(db, batches):
    """Also when its client is gone. Whoever is newer waits, and whoever is older is refused in the end."""
    first = db.session().begin()
    first.enter("x", 90)
    first("UPDATE batches SET state = 'prepared', fence_token = 90")
    first("PREPARE TRANSACTION 'half'")
    first.connection.close()
    second, third = db.session(), db.session()
    for session in (second, third):
        session("SET lock_timeout = '200ms'")
        for statement in ("SELECT holdfast_enter('x', 91)", "UPDATE batches SET fence_token = 91", NOTHING % 91):
            with refused("55P03"):
                session(statement)
        session("RESET lock_timeout")
    waiting = second.start("SELECT holdfast_enter('x', 50)")
    updating = third.start("UPDATE batches SET state = 'late', fence_token = 50")
    batches("COMMIT PREPARED 'half'")
    for late in (waiting, updating):
        with refused(STALE, 50, 90):
            late.end()
    assert batches.row() == ("prepared", 90)


# ---- other schemas


def test_what_a_users_schema_has_of_the_same_names_counts_nothing(db, strict):
    role = db.role()
    strict(f"GRANT SELECT, INSERT, UPDATE, DELETE ON batches TO {role}; CREATE SCHEMA mine AUTHORIZATION {role}")
    user = db.session(role)
    user("SET search_path = mine, pg_catalog, public")
    user("CREATE FUNCTION mine.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '99'::text $$")
    user("CREATE FUNCTION mine.has_table_privilege(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    user("CREATE FUNCTION mine.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
    user("CREATE FUNCTION mine.holdfast_raise(text, text, bigint, text) RETURNS bigint LANGUAGE sql AS 'SELECT $3'")
    for operator in ("<", "<=", ">"):
        user(f"CREATE OPERATOR mine.{operator} (FUNCTION = mine.never, LEFTARG = bigint, RIGHTARG = bigint)")
    user("CREATE TEMP TABLE holdfast_marks (guard text, key text, token bigint)")
    for statement in ("UPDATE public.batches SET state = 'late', fence_token = 33", "SET holdfast.token = '33'; DELETE FROM public.batches"):
        with refused(STALE, 33, 34):
            user(statement)
    user("RESET holdfast.token")
    with refused(MISSING):
        user("UPDATE public.batches SET state = 'bare'")
    user("UPDATE public.batches SET state = 'next', fence_token = 35")
    assert strict.row() == ("next", 35)


# ---- triggers that do not fire


def test_without_triggers_the_row_still_carries_what_was_written(batches):
    """session_replication_role = replica is how logical replication applies, and what loads a dump may use."""
    batches("SET session_replication_role = replica")
    batches("UPDATE batches SET state = 'replicated', fence_token = 50")
    batches("RESET session_replication_role")
    with refused(STALE, 49, 50):
        batches("UPDATE batches SET fence_token = 49")


def test_a_rule_gets_nobody_past_it(batches):
    batches("CREATE VIEW lots AS SELECT id, state, fence_token FROM batches")
    batches("CREATE RULE lots_update AS ON UPDATE TO lots DO INSTEAD"
            " UPDATE batches SET state = NEW.state, fence_token = NEW.fence_token WHERE id = OLD.id")
    with refused(STALE, 33, 34):
        batches("UPDATE lots SET state = 'late', fence_token = 33")
    batches("UPDATE lots SET state = 'next', fence_token = 35")
    assert batches.row() == ("next", 35)


# ---- tables that cannot be guarded


def cannot(db, table="batches"):
    done = db.psql(printed("--dialect", "postgres", "--table", table))
    assert done.returncode == 3
    assert db.session().value("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = %s::regclass", table) == 0
    return done.stderr


def test_a_table_with_children_is_refused(db):
    session = db.session()
    session("CREATE TABLE batches (id int PRIMARY KEY, fence_token bigint)")
    session("CREATE TABLE lots () INHERITS (batches)")
    assert "batches has children, which inherit no triggers" in cannot(db)
    session("DROP TABLE lots")
    db.apply("--table", "batches")


def test_a_child_alone_can_be_guarded(db):
    session = db.session()
    session("CREATE TABLE batches (id int PRIMARY KEY, fence_token bigint)")
    session("CREATE TABLE lots (PRIMARY KEY (id)) INHERITS (batches)")
    db.apply("--table", "lots")
    session("INSERT INTO lots VALUES (7, 34)")
    with refused(STALE, 33, 34):
        session("UPDATE batches SET fence_token = 33")


def test_a_partition_alone_is_refused(db):
    session = db.session()
    session("CREATE TABLE events (id int PRIMARY KEY, fence_token bigint) PARTITION BY HASH (id)")
    session("CREATE TABLE batches PARTITION OF events FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    assert "batches is a partition" in cannot(db)


@pytest.mark.parametrize("column, index", [
    ("id text COLLATE folding PRIMARY KEY", ""), ("id varchar(20) COLLATE folding UNIQUE", ""), ("id folded PRIMARY KEY", ""),
    ("id text PRIMARY KEY", "CREATE UNIQUE INDEX other ON batches (id COLLATE folding)"),
    ("id text PRIMARY KEY", "CREATE UNIQUE INDEX other ON batches (fence_token, id COLLATE folding)")])
def test_a_collation_that_takes_different_texts_for_equal_is_refused(db, column, index):
    session = db.session()
    try:
        session("CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg2.Error:
        pytest.skip("this PostgreSQL is built without ICU")
    session("CREATE DOMAIN folded AS text COLLATE folding")
    session(f"CREATE TABLE batches ({column}, fence_token bigint)")
    session(index or "SELECT 1")
    assert 'the key column "id" has a nondeterministic collation' in cannot(db)


def test_citext_is_refused(db):
    session = db.session()
    try:
        session("CREATE EXTENSION citext")
    except psycopg2.Error:
        pytest.skip("needs the extension citext")
    session("CREATE TABLE batches (id citext PRIMARY KEY, fence_token bigint)")
    assert 'the key column "id" is a citext' in cannot(db)


def test_a_key_padded_with_blanks_is_one_key(db):
    session = db.session()
    session("CREATE TABLE batches (id char(8) PRIMARY KEY, fence_token bigint)")
    db.apply("--table", "batches")
    session("INSERT INTO batches VALUES ('a', 40)")
    for statement in ("INSERT INTO batches VALUES ('a  ', 30) ON CONFLICT DO NOTHING", "UPDATE batches SET fence_token = 30 WHERE id = 'a '"):
        with refused(STALE, 30, 40):
            session(statement)


# ---- renamed


def test_a_renamed_table_stays_guarded(db, batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    batches("DELETE FROM batches WHERE id = 8")
    batches("UPDATE batches SET fence_token = 50")
    batches("ALTER TABLE batches RENAME TO lots")
    for statement in ("UPDATE lots SET fence_token = 49", "INSERT INTO lots VALUES (7, 'x', 0, 49) ON CONFLICT DO NOTHING"):
        with refused(STALE, 49, 50):
            batches(statement)
    with refused(STALE, 39, 40):
        batches("INSERT INTO lots VALUES (8, 'late', 0, 39)")
    assert batches("SELECT holdfast_reset('7', 45, %s)", GUARD) == [(50,)]
    batches("CREATE TABLE batches (id int PRIMARY KEY)")
    batches("TRUNCATE lots")
    assert batches.mark(7) == 45


def test_a_renamed_table_is_not_guarded_under_another_name(db, batches):
    """Nor is another table under its old one: the marks would be forgotten, or two tables' in one."""
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    batches("DELETE FROM batches WHERE id = 8")
    batches("ALTER TABLE batches RENAME TO lots")
    with refused("P0001", "lots is guarded as public.batches: it was renamed") as failure:
        batches(printed("--dialect", "postgres", "--table", "lots"))
    batches("CREATE TABLE batches (id int PRIMARY KEY)")
    with refused("P0001", "public.batches is the guard of lots, which was renamed"):
        batches(printed("--dialect", "postgres", "--table", "batches"))
    batches.apply("--undo")
    move = "UPDATE \"public\".\"holdfast_marks\" SET guard = 'public.lots' WHERE guard = 'public.batches'"
    assert move in failure.value.diag.message_hint
    batches(move)
    db.apply("--table", "lots")
    for key, token, mark in ((7, 33, 34), (8, 39, 40)):
        with refused(STALE, f'token {token} for "public.lots:{key}": {mark}'):
            batches("INSERT INTO lots VALUES (%s, 'late', 0, %s) ON CONFLICT DO NOTHING", key, token)


def test_renamed_columns_let_nobody_pass(batches):
    batches("ALTER TABLE batches RENAME COLUMN fence_token TO token")
    with refused("42703"):
        batches("UPDATE batches SET token = 33")
    batches.apply("--column", "token")
    with refused(STALE, 33, 34):
        batches("UPDATE batches SET token = 33")


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


@pytest.mark.parametrize("level", LEVELS)
def test_copy_onto_rows_that_are_gone(db, batches, level):
    batches("UPDATE batches SET fence_token = 50")
    batches("DELETE FROM batches")
    late = db.session().begin(level)
    with refused(STALE, 49, 50):
        late.connection.cursor().copy_expert("COPY batches FROM STDIN", io.StringIO("6\tx\t0\t1\n7\tlate\t0\t49\n"))
    late.rollback()
    assert batches("SELECT * FROM batches") == []
