"""The triggers that guard a table of PostgreSQL: who may what, lowering a mark, and applying it to all kinds of tables."""
import contextlib

import pytest
from postgres import MISSING, STALE, printed, psycopg2, refused
from sql_batches import GUARD, batches, db, server  # noqa: F401


# ---- who may what


def test_a_plain_user_writes_to_a_guarded_table(db, batches):
    role = db.role()
    batches(f"GRANT SELECT, INSERT, UPDATE, DELETE ON batches TO {role}")
    user = db.session(role)
    user("UPDATE batches SET fence_token = 35")
    for statement in ("UPDATE batches SET fence_token = 34", "SET holdfast.token = '34'; DELETE FROM batches"):
        with refused(STALE, 34, 35):
            user(statement)
    user("RESET holdfast.token")
    user("DELETE FROM batches")
    with refused(STALE, 34, 35):
        user("INSERT INTO batches VALUES (7, 'late', 0, 34)")
    user("INSERT INTO batches VALUES (7, 'next', 0, 36)")
    user("SET holdfast.reset = 'public.batches:7'")  # what holdfast_reset uses: for its owner alone
    with refused(STALE, 35, 36):
        user("UPDATE batches SET fence_token = 35")


def test_a_plain_user_who_may_truncate(db, batches):
    role = db.role()
    batches(f"GRANT TRUNCATE ON batches TO {role}")
    db.session(role)("TRUNCATE batches")
    assert batches.mark() == 34


def test_reset_of_a_row(batches):
    batches("UPDATE batches SET fence_token = 40")
    assert batches("SELECT holdfast_reset('7', 20, %s)", GUARD) == [(40,)]
    assert batches.row() == ("new", 20) and batches.mark() == 20
    with refused(STALE, 19, 20):
        batches("UPDATE batches SET fence_token = 19")
    batches("UPDATE batches SET fence_token = 21")
    batches("DELETE FROM batches")
    assert batches("SELECT holdfast_reset('7', 0, %s)", GUARD) == [(21,)]
    batches("INSERT INTO batches VALUES (7, 'x', 0, 1)")
    assert batches("SELECT holdfast_reset('7', guard => %s)", GUARD) == [(1,)]
    assert batches.row() == ("x", None)
    assert batches("SELECT guard, key, old_mark, new_mark FROM holdfast_resets ORDER BY at") == [
        (GUARD, "7", 40, 20), (GUARD, "7", 21, 0), (GUARD, "7", 1, 0)]
    with refused("P0002", '"public.batches:8" has no mark'):
        batches("SELECT holdfast_reset('8', 0, %s)", GUARD)


# ---- applying it


def test_applying_it_again_forgets_nothing(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    batches("DELETE FROM batches WHERE id = 8")
    for options in ([], ["--require"], ["--mode", "newer"], []):
        batches.apply(*options)
        with refused(STALE, 33, 34):
            batches("UPDATE batches SET fence_token = 33 WHERE id = 7")
        with refused(STALE, 39, 40):
            batches("INSERT INTO batches VALUES (8, 'late', 0, 39)")
    assert batches.row() == ("new", 34)


def test_the_later_options_win(batches):
    batches.apply("--require")
    with refused(MISSING):
        batches("UPDATE batches SET state = 'bare'")
    with refused(MISSING):
        batches("TRUNCATE batches")
    batches.apply("--mode", "newer")
    assert batches("UPDATE batches SET state = 'bare'") == 1
    with refused(STALE):
        batches("UPDATE batches SET fence_token = 34")
    batches.apply()
    assert batches("UPDATE batches SET fence_token = 34") == 1
    batches("TRUNCATE batches")
    assert batches("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1") == [
        ("zz_holdfast_2",), ("zz_holdfast_2_update",), ("zz_holdfast_3_truncate",), ("zz_holdfast_4_found",)]


def test_another_column_takes_over_the_marks(batches):
    batches("UPDATE batches SET fence_token = 40")  # of which only the row knows
    batches.apply("--column", "token")
    assert batches("SELECT token, fence_token FROM batches") == [(40, 40)]
    with refused(STALE, 39, 40):
        batches("UPDATE batches SET token = 39")
    batches("UPDATE batches SET fence_token = 1")
    batches("UPDATE batches SET token = 41")
    assert batches("SELECT holdfast_reset('7', 30, %s)", GUARD) == [(41,)]
    assert batches("SELECT token FROM batches") == [(30,)]


def test_while_it_was_off_it_forgot_nothing(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    batches("DELETE FROM batches WHERE id = 8")
    batches.apply("--undo")
    batches("INSERT INTO batches VALUES (8, 'meanwhile', 0)")
    batches.apply()
    assert batches.row(8) == ("meanwhile", 40)
    for key, token, mark in ((7, 33, 34), (8, 39, 40)):
        with refused(STALE, token, mark):
            batches("UPDATE batches SET fence_token = %s WHERE id = %s", token, key)


def test_what_is_written_while_it_was_off_lowers_no_mark(batches):
    """Not even one of which only the row knew."""
    batches("UPDATE batches SET fence_token = 50")
    batches.apply("--undo")
    batches("UPDATE batches SET state = 'meanwhile', fence_token = 40")
    batches.apply()
    with refused(STALE, 49, 50):
        batches("UPDATE batches SET fence_token = 49")


def refusal(batches, *options):
    """What psql says, and that nothing has changed."""
    count = "SELECT count(*), max(oid::int) FROM pg_class UNION ALL SELECT count(*), max(oid::int) FROM pg_proc"
    before = batches(count)
    done = batches.db.psql(printed("--dialect", "postgres", *options))
    assert done.returncode == 3 and batches(count) == before
    return done.stderr


@pytest.mark.parametrize("off", [False, True])
def test_another_schema_for_its_own_tables_is_refused(db, batches, off):
    """It would know of no mark. off: nor if the guard was undone."""
    batches("UPDATE batches SET fence_token = 50")
    batches("DELETE FROM batches")
    batches("CREATE SCHEMA other; CREATE SCHEMA third; CREATE TABLE third.holdfast_marks (x int)")
    if off:
        batches.apply("--undo")
    said = refusal(batches, "--schema", "other", "--table", "public.batches")
    assert "the marks of public.batches are in the schema public" in said and "Say --schema public" in said
    batches.apply()
    with refused(STALE, 49, 50):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 49)")
    # As the hint says.
    batches.apply("--undo")
    db.apply("--schema", "other")
    move = ("WITH m AS (DELETE FROM public.holdfast_marks WHERE guard = 'public.batches' RETURNING *)"
            ' INSERT INTO "other".holdfast_marks SELECT * FROM m')
    assert move in said
    batches(move)
    db.apply("--schema", "other", "--table", "public.batches")
    with refused(STALE, 49, 50):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 49)")
    assert "are in the schema other" in refusal(batches, "--table", "batches")


def test_the_schema_of_a_stranger_is_no_hindrance(db, batches):
    """Who may not read it cannot know what is in it."""
    role = db.role()
    batches(f"CREATE SCHEMA mine AUTHORIZATION {role}")
    user = db.session(role)
    user("CREATE TABLE mine.batches (id int PRIMARY KEY)")
    user(printed("--dialect", "postgres", "--schema", "mine", "--table", "batches"))
    user("INSERT INTO mine.batches VALUES (7, 20)")
    with refused(STALE, 19, 20):
        user("UPDATE mine.batches SET fence_token = 19")


@pytest.mark.parametrize("off", [False, True])
def test_another_key_column_is_refused(batches, off):
    """Marks are of the keys that they were brought for: those of rows that are gone cannot be told in others."""
    batches("ALTER TABLE batches ADD COLUMN code text UNIQUE")
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40, 'k8')")
    batches("DELETE FROM batches WHERE id = 8", token=50)
    if off:
        batches.apply("--undo")
    said = refusal(batches, "--table", "batches", "--key-column", "code")
    assert 'the marks of public.batches are of the keys in its column "id", not "code"' in said
    batches.apply()
    with refused(STALE, 49, 50):
        batches("INSERT INTO batches VALUES (8, 'late', 0, 49, 'k8')")
    forget = "DELETE FROM \"public\".\"holdfast_marks\" WHERE guard = 'public.batches'"
    assert forget in said
    batches(forget)
    batches.apply("--key-column", "code")
    with refused(STALE, 33, 34):  # what a row carries stays known
        batches("UPDATE batches SET fence_token = 33 WHERE id = 7")


def test_a_key_column_that_was_renamed(batches):
    batches("DELETE FROM batches", token=50)
    batches("ALTER TABLE batches RENAME COLUMN id TO number")
    rename = "UPDATE \"public\".\"holdfast_guards\" SET key_column = 'number' WHERE guard = 'public.batches'"
    assert rename in refusal(batches, "--table", "batches", "--key-column", "number")
    batches(rename)
    batches.apply("--key-column", "number")
    with refused(STALE, 49, 50):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 49)")


def test_it_is_undone_where_its_columns_are_gone(db, batches):
    batches("ALTER TABLE batches RENAME COLUMN fence_token TO token")
    batches.apply("--undo")
    batches("UPDATE batches SET token = 1")
    db.apply("--undo")
    assert batches("SELECT to_regclass('holdfast_marks')") == [(None,)]


def test_tokens_that_were_there_before_are_marks(db):
    session = db.session()
    session("CREATE TABLE batches (id uuid PRIMARY KEY, fence_token bigint)")
    session("INSERT INTO batches VALUES (gen_random_uuid(), 34)")
    db.apply("--table", "batches")
    with refused(STALE, 33, 34):
        session("UPDATE batches SET fence_token = 33")


@pytest.mark.parametrize("columns, options, said", [
    ("x int PRIMARY KEY", [], 'batches has no column "id"'),
    ("n int, id int GENERATED ALWAYS AS (n * 10) STORED UNIQUE", [], 'the key column "id" is generated'),
    ("id int PRIMARY KEY, fence_token bigint GENERATED ALWAYS AS (id) STORED", [], 'the column "fence_token" of batches is generated'),
    ("id int", [], 'the key column "id" of batches is not unique'),
    ("id int, x int, PRIMARY KEY (id, x)", [], "is not unique"),
    ("id timestamptz PRIMARY KEY", [], 'the key column "id" is a timestamp with time zone'),
    ("id numeric PRIMARY KEY", [], "is a numeric"),
    ("id int PRIMARY KEY, fence_token int", [], 'the column "fence_token" of batches is a integer: it must be a bigint'),
])
def test_a_table_that_cannot_be_guarded(db, columns, options, said):
    session = db.session()
    session(f"CREATE TABLE batches ({columns})")
    done = db.psql(printed("--dialect", "postgres", "--table", "batches", *options))
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert session.value("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == 0


def test_other_things_that_cannot_be_guarded(db):
    session = db.session()
    session("CREATE VIEW batches AS SELECT 1 AS id")
    apply = printed("--dialect", "postgres", "--table", "batches")
    with refused("P0001", "batches is not a table"):
        session(apply)
    session("DROP VIEW batches")
    with refused("42P01", 'relation "public.batches" does not exist'):
        session(apply)
    session("CREATE TABLE batches (id int PRIMARY KEY, fence_token bigint)")
    session("INSERT INTO batches VALUES (1, 0)")
    with refused("P0001", "has values that are no tokens"):
        session(apply)


@pytest.mark.parametrize("kind, key", [("smallint", 7), ("bigint", 2**40), ("text", "a:b'c\""), ("varchar(20)", "x y"),
                                       ("char(8)", "abc"), ("uuid", "0b5c5c1e-7b7a-4d0e-9d5e-5a8f3f1b2c3d")])
def test_kinds_of_keys(db, kind, key):
    session = db.session()
    session(f"CREATE TABLE batches (code {kind} PRIMARY KEY)")
    db.apply("--table", "batches", "--key-column", "code")
    session("INSERT INTO batches VALUES (%s, 34)", key)
    with refused(STALE, f'token 33 for "public.batches:{key}": 34'):
        session("UPDATE batches SET fence_token = 33")
    session("DELETE FROM batches")
    with refused(STALE, f'token 33 for "public.batches:{key}": 34'):
        session("INSERT INTO batches VALUES (%s, 33)", key)
    assert session("SELECT holdfast_reset(%s, 0, 'public.batches')", str(key)) == [(34,)]


def test_a_key_that_the_database_makes_up(db):
    session = db.session()
    session("CREATE TABLE batches (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text)")
    db.apply("--table", "batches", "--require")
    session("INSERT INTO batches (state, fence_token) VALUES ('a', 34), ('b', 34)")
    with refused(STALE, 'token 33 for "public.batches:2": 34'):
        session("UPDATE batches SET fence_token = 33 WHERE id = 2")


# ---- triggers of others, who must not get the rights of the guard's owner


@pytest.fixture
def stranger(db, batches):
    """Somebody who may put triggers on the table, with one that tells as whom it runs."""
    role = db.role()
    batches(f"CREATE SCHEMA strange AUTHORIZATION {role}; GRANT SELECT, INSERT, TRIGGER ON batches TO {role}")
    stranger = db.session(role)
    stranger("CREATE TABLE strange.ran_as (who text); GRANT INSERT ON strange.ran_as TO PUBLIC; GRANT USAGE ON SCHEMA strange TO PUBLIC")
    stranger("CREATE FUNCTION strange.mine() RETURNS trigger LANGUAGE plpgsql AS"
             " $$ BEGIN INSERT INTO strange.ran_as VALUES (current_user); RETURN NEW; END $$")
    stranger("CREATE TRIGGER a_mine BEFORE UPDATE ON batches FOR EACH ROW EXECUTE FUNCTION strange.mine()")
    stranger.role = role
    return stranger


def test_an_insert_runs_no_trigger_as_the_guards_owner(batches, stranger):
    """What finds its row there: that row carries the token, written by whoever said INSERT, if he may."""
    statement = "INSERT INTO batches VALUES (7, 'x', 0, 50) ON CONFLICT DO NOTHING"
    with contextlib.suppress(psycopg2.Error):
        stranger(statement)
    assert stranger("SELECT who FROM strange.ran_as WHERE who <> current_user") == []
    with refused("42501", f"batches has the trigger \"a_mine\", whose function is {stranger.role}'s"):
        stranger(statement)
    assert batches.row() == ("new", 34) and batches.mark() != 50
    batches(f"GRANT UPDATE (fence_token) ON batches TO {stranger.role}")
    assert stranger(statement) == 0
    assert batches.row() == ("new", 50)
    assert stranger("SELECT who FROM strange.ran_as") == [(stranger.role,)]


def test_an_insert_that_finds_a_row_which_it_may_not_see(db, batches):
    """A policy hides it: an UPDATE of that role would do nothing, and nobody would know."""
    role = db.role()
    batches("ALTER TABLE batches ENABLE ROW LEVEL SECURITY; CREATE POLICY visible ON batches USING (state = 'seen') WITH CHECK (true)")
    batches(f"GRANT SELECT, INSERT, UPDATE ON batches TO {role}")
    statement = "INSERT INTO batches VALUES (7, 'x', 0, 50) ON CONFLICT DO NOTHING"
    assert db.session(role)(statement) == 0
    assert batches.row() == ("new", 50)


def test_a_reset_runs_no_trigger_of_others_as_the_guards_owner(db, batches, stranger):
    operator = f"{db.name}_operator"
    batches(f"CREATE ROLE {operator} LOGIN; GRANT EXECUTE ON FUNCTION holdfast_reset TO {operator}")
    for session in batches, db.session(operator):
        with contextlib.suppress(psycopg2.Error):
            session("SELECT holdfast_reset('7', 20, %s)", GUARD)
        assert stranger("SELECT who FROM strange.ran_as") == []
        with refused("42501", f"batches has the trigger \"a_mine\", whose function is {stranger.role}'s: it would run with the rights of postgres"):
            session("SELECT holdfast_reset('7', 20, %s)", GUARD)
        assert batches.row() == ("new", 34) and batches("SELECT * FROM holdfast_resets") == []
    batches("ALTER TABLE batches DISABLE TRIGGER a_mine")
    assert db.session(operator)("SELECT holdfast_reset('7', 20, %s)", GUARD) == [(34,)]
    assert batches.row() == ("new", 20) and stranger("SELECT who FROM strange.ran_as") == []


# ---- rows that their own owner does not see: FORCE ROW LEVEL SECURITY


HIDDEN = "would be affected by row-level security policy"


@pytest.fixture
def owner(db):
    """An owner without any rights over others', with a schema of its own, and a guarded table in it."""
    role = db.role()
    db.session()(f"CREATE SCHEMA mine AUTHORIZATION {role}")
    session = db.session(role)
    session("SET search_path = mine")
    session("CREATE TABLE batches (id int PRIMARY KEY, state text, fence_token bigint)")
    session.guard = printed("--dialect", "postgres", "--schema", "mine", "--table", "batches")
    return session


def hide(session):
    session("ALTER TABLE batches ENABLE ROW LEVEL SECURITY; ALTER TABLE batches FORCE ROW LEVEL SECURITY;"
            "CREATE POLICY visible ON batches USING (state = 'seen') WITH CHECK (true)")


def test_a_table_whose_owner_does_not_see_all_rows_is_refused(owner):
    hide(owner)
    with refused("P0001", "the owner of this guard does not see all rows of batches"):
        owner(owner.guard)
    owner("ALTER TABLE batches NO FORCE ROW LEVEL SECURITY")
    owner(owner.guard)


@pytest.mark.parametrize("statement", ["TRUNCATE batches", "INSERT INTO batches VALUES (7, 'x', 90) ON CONFLICT DO NOTHING",
                                       "SELECT holdfast_reset('7', 0, 'mine.batches')"])
def test_rows_that_are_hidden_later_keep_their_marks(owner, statement):
    """What has to look at all rows fails then, and nothing is forgotten."""
    owner(owner.guard)
    owner("INSERT INTO batches VALUES (7, 'new', 34)")
    owner("UPDATE batches SET fence_token = 50")
    hide(owner)
    with refused("42501", HIDDEN):
        owner(statement)
    with refused("P0001", "does not see all rows"):
        owner(owner.guard)
    owner("ALTER TABLE batches NO FORCE ROW LEVEL SECURITY")
    owner("TRUNCATE batches")
    with refused(STALE, 40, 50):
        owner("INSERT INTO batches VALUES (7, 'late', 40)")


def test_a_guard_whose_owner_sees_all_rows_is_no_hindrance(db, batches):
    role = db.role()
    batches("INSERT INTO batches VALUES (8, 'seen', 0, 34)")
    hide(batches)
    batches.apply()
    batches(f"GRANT SELECT, INSERT, UPDATE, TRUNCATE ON batches TO {role}")
    user = db.session(role)
    assert user("UPDATE batches SET fence_token = 50") == 1
    with refused(STALE, 33, 34):
        user("INSERT INTO batches VALUES (7, 'late', 0, 33) ON CONFLICT DO NOTHING")  # a row that it does not see
    user("TRUNCATE batches")
    assert (batches.mark(7), batches.mark(8)) == (34, 50)
