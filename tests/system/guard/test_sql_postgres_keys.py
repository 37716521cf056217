"""The guard of a table of PostgreSQL: one rule for all statements, which tables cannot be guarded, and what else may stand in its
way: snapshots, prepared transactions, other schemas, and triggers that do not fire."""
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
    assert batches.row() == ("new", 90)
    for statement in ("UPDATE batches SET state = 'late', fence_token = 50", NOTHING % 50, "DELETE FROM batches",
                      "UPDATE batches SET id = 8, fence_token = 50", "UPDATE batches SET state = 'late'", "UPDATE batches SET id = 8",
                      "MERGE INTO batches b USING (SELECT 1) AS v ON b.id = 7 WHEN MATCHED THEN UPDATE SET fence_token = 50",
                      "INSERT INTO batches VALUES (7, 'x', 0, 50) ON CONFLICT (id) DO UPDATE SET state = 'late'"):
        if statement.startswith("MERGE") and batches.session.connection.server_version < 150000:
            continue
        with refused(STALE, 50, 90):
            batches(statement, token=50)
    assert batches.row() == ("new", 90)
    assert batches("UPDATE batches SET state = 'next', fence_token = 91") == 1


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
def test_a_row_that_an_insert_finds_carries_its_token(db, options):
    """So that an UPDATE need only look there: whatever comes of the INSERT, of one row or many, or of none that had a token."""
    batches = Batches(db, *options)
    batches("ALTER TABLE batches DISABLE TRIGGER USER; INSERT INTO batches VALUES (8, 'bare', 0, NULL); ALTER TABLE batches ENABLE TRIGGER USER")
    assert batches("INSERT INTO batches VALUES (7, 'x', 0, 40) ON CONFLICT (id) DO UPDATE SET state = 'x' WHERE false") == 0
    assert batches.row() == ("new", 40)
    assert batches("INSERT INTO batches VALUES (8, 'x', 0, 41), (9, 'nine', 0, 42), (7, 'x', 0, 43) ON CONFLICT DO NOTHING") == 1
    assert [batches.row(key) for key in (7, 8, 9)] == [("new", 43), ("bare", 41), ("nine", 42)]
    assert batches("SHOW holdfast.found") == [("",)]


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
@pytest.mark.parametrize("found", ["ON CONFLICT DO NOTHING", "ON CONFLICT (id) DO UPDATE SET state = 'x' WHERE false"])
def test_a_late_update_that_names_the_token_that_it_left_in_the_row(db, options, found):
    """A (34) wrote the row, B (35) found it, and A comes back."""
    batches = Batches(db, *options)
    assert batches("INSERT INTO batches VALUES (7, 'x', 0, 35) " + found) == 0
    for statement in ("UPDATE batches SET state = 'late', fence_token = 34", "UPDATE batches SET state = 'late', fence_token = fence_token - 1"):
        with refused(STALE, 34, 35):
            batches(statement)
    assert batches.row() == ("new", 35)


def test_a_row_that_comes_while_an_insert_waits_carries_its_token(db, batches):
    """The INSERT saw no row, waits for the mark, and finds the row of whoever had that."""
    old, new = db.session().begin(), db.session().begin()
    old("INSERT INTO batches VALUES (8, 'old', 0, 50)")
    waiting = new.start("INSERT INTO batches VALUES (8, 'x', 0, 90) ON CONFLICT DO NOTHING").blocked(old)
    old.commit()
    assert waiting.end() == 0
    new.commit()
    assert batches.row(8) == ("old", 90)


def test_a_trigger_that_inserts_into_another_guarded_table(db, batches):
    """Each table's rows are seen to by the end of its own statement."""
    batches("CREATE TABLE lots (id int PRIMARY KEY, state text)")
    db.apply("--table", "lots")
    batches("INSERT INTO lots VALUES (7, 'lot', 34)")
    batches("CREATE FUNCTION also() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO lots VALUES (NEW.id, 'x', NEW.fence_token) ON CONFLICT DO NOTHING; RETURN NEW; END $$")
    for name in ("a_first", "zzz_last"):
        batches(f"CREATE TRIGGER {name} BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION also()")
    assert batches(NOTHING, 90) == 0
    assert batches.row() == ("new", 90)
    assert batches("SELECT state, fence_token FROM lots") == [("lot", 90)]


def test_a_table_whose_rows_nobody_may_change(db, batches):
    """Its trigger raises an exception, and INSERT ... DO NOTHING is how such tables are written."""
    batches("CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'append only'; END $$")
    batches("CREATE TRIGGER never BEFORE UPDATE OR DELETE ON batches FOR EACH ROW EXECUTE FUNCTION never()")
    assert batches(NOTHING, 90) == 0
    assert batches.row() == ("new", 34) and batches.mark() == 90
    with refused(STALE, 50, 90):
        batches(NOTHING, 50)
    assert batches("INSERT INTO batches VALUES (8, 'next', 0, 50)") == 1


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
    assert batches.row() == ("new", 90)


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


@pytest.mark.parametrize("level", LEVELS)
def test_copy_onto_rows_that_are_gone(db, batches, level):
    batches("UPDATE batches SET fence_token = 50")
    batches("DELETE FROM batches")
    late = db.session().begin(level)
    with refused(STALE, 49, 50):
        late.connection.cursor().copy_expert("COPY batches FROM STDIN", io.StringIO("6\tx\t0\t1\n7\tlate\t0\t49\n"))
    late.rollback()
    assert batches("SELECT * FROM batches") == []


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
