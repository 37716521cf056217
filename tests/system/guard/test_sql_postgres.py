"""holdfast_enter in PostgreSQL, and what the command prints: names, undo, applying it again. Tables: test_sql_tables.py."""
import subprocess

import pytest
from postgres import (BIN, SERIALIZE, STALE, WRONG, db, entering, printed, psycopg2, refused,  # noqa: F401
                      server)

TOKEN_MAX = 2**53 - 1


# ---- enter


def test_a_mark_rises_and_refuses_what_is_older(entering):
    assert entering.enter("batch:4472", 34) == 34
    assert entering.enter("batch:4472", 35) == 35
    assert entering.enter("batch:4472", 35) == 35, "a holder may write many times"
    with refused(STALE):
        entering.enter("batch:4472", 34)
    assert entering.mark("batch:4472") == 35
    assert entering.enter("another", 1) == 1, "every key has its own"


def test_the_error_names_both_tokens_and_says_what_to_do(entering):
    entering.enter("batch:4472", 34)
    with pytest.raises(psycopg2.Error) as failure:
        entering.enter("batch:4472", 33)
    error = failure.value
    assert error.pgcode == "HF001"
    assert error.diag.message_primary == 'stale fencing token 33 for "batch:4472": 34 was seen'
    assert error.diag.message_detail == "Somebody has entered with a greater token: a later holder, or a mistake, which holdfast_reset() takes back."
    assert error.diag.message_hint == (
        "Do not try again with this token: take the lock again, read again, and decide again. Or the mark is from another store, whose tokens "
        "cannot be compared with these: docs/fencing.md says what to do then.")


def test_newer_takes_no_token_twice(entering):
    assert entering.enter("x", 34, "newer") == 34
    with refused(STALE, 'stale fencing token 34 for "x": 34 was seen') as failure:
        entering.enter("x", 34, "newer")
    assert "must happen once" in failure.value.diag.message_detail
    with refused(STALE, 33, 34):
        entering.enter("x", 33, "newer")
    assert entering.enter("x", 35, "newer") == 35
    assert entering.enter("x", 35, "not-older") == 35
    assert entering.value("SELECT holdfast_enter(key => 'x', token => 36, mode => 'newer')") == 36


@pytest.mark.parametrize("token", [None, 0, -1, TOKEN_MAX + 1, 2**63 - 1])
def test_what_is_no_token_is_refused(entering, token):
    entering.enter("x", 1)
    for mode in ("not-older", "newer"):
        with refused(WRONG, "NULL" if token is None else token, "is not a fencing token"):
            entering.enter("x", token, mode)
    assert entering.mark("x") == 1


def test_the_greatest_token_is_one(entering):
    assert entering.enter("x", TOKEN_MAX) == TOKEN_MAX
    assert entering.enter("x", TOKEN_MAX) == TOKEN_MAX
    with refused(STALE, TOKEN_MAX - 1):
        entering.enter("x", TOKEN_MAX - 1)


@pytest.mark.parametrize("key", [None, "", "k" * 401, "é" * 201])
def test_what_is_no_key_is_refused(entering, key):
    with refused(WRONG, "is not a key: 1 to 400 bytes"):
        entering.enter(key, 35)
    assert entering("SELECT * FROM holdfast_marks") == []


def test_any_other_text_is_a_key(entering):
    for key in ("k" * 400, "é" * 200, "'; DROP TABLE holdfast_marks; --", 'a"b', "a\nb", " ", "public.batches:7"):
        assert entering.enter(key, 35) == 35
        assert entering.mark(key) == 35


@pytest.mark.parametrize("mode", [None, "", "keep", "NEWER", "older"])
def test_what_is_no_mode_is_refused(entering, mode):
    with refused(WRONG, "is not a mode"):
        entering.enter("x", 35, mode)


# ---- until commit


def test_a_newer_holder_waits_for_an_older_one_that_is_inside(db, entering):
    old, new = entering, db.session()
    old.begin().enter("x", 33)
    waiting = new.start("SELECT holdfast_enter('x', 34)").blocked(old)
    old.commit()
    assert waiting.end() == [(34,)]


def test_a_late_holder_waits_for_the_newer_one_and_is_stale(db, entering):
    entering.enter("x", 33)
    new, late = entering.begin(), db.session()
    new.enter("x", 34)
    waiting = late.start("SELECT holdfast_enter('x', 33)").blocked(new)
    new.commit()
    with refused(STALE, 33, 34):
        waiting.end()


def test_if_the_newer_one_rolls_back_the_older_goes_on(db, entering):
    entering.enter("x", 33)
    new, old = entering.begin(), db.session()
    new.enter("x", 34)
    waiting = old.start("SELECT holdfast_enter('x', 33)").blocked(new)
    new.rollback()
    assert waiting.end() == [(33,)], "nothing that the newer one wrote is there, so nothing is lost"


def test_a_mark_that_does_not_rise_is_held_too(db, entering):
    entering.enter("x", 33)
    old, new = entering.begin(), db.session()
    old.enter("x", 33)
    waiting = new.start("SELECT holdfast_enter('x', 34)").blocked(old)
    old.commit()
    assert waiting.end() == [(34,)]


def test_one_who_is_stale_for_sure_does_not_wait(db, entering):
    entering.enter("x", 34)
    entering.begin().enter("x", 34)
    with refused(STALE, 33, 34):
        db.session().enter("x", 33)
    entering.commit()


@pytest.mark.parametrize("first, second, stale", [(33, 34, False), (34, 33, True), (34, 34, False)])
def test_two_use_a_key_for_the_first_time_at_once(db, entering, first, second, stale):
    entering.begin().enter("x", first)
    other = db.session()
    waiting = other.start("SELECT holdfast_enter('x', %s)", second).blocked(entering)
    entering.commit()
    if stale:
        with refused(STALE, second, first):
            waiting.end()
    else:
        assert waiting.end() == [(second,)]
    assert entering.mark("x") == max(first, second)


def test_keys_do_not_wait_for_each_other(db, entering):
    entering.begin().enter("x", 33)
    assert db.session().enter("y", 1) == 1
    entering.commit()


def test_a_rollback_leaves_no_mark(entering):
    entering.begin().enter("x", 34)
    entering.rollback()
    assert entering.mark("x") is None
    assert entering.enter("x", 33) == 33


def test_savepoints(db, entering):
    entering.begin().enter("x", 33)
    entering("SAVEPOINT a")
    assert entering.enter("x", 35) == 35
    entering("ROLLBACK TO a")
    assert entering.mark("x") == 33
    assert entering.enter("x", 34) == 34
    entering("SAVEPOINT b")
    assert entering.enter("x", 34) == 34
    entering("RELEASE b")
    entering.commit()
    assert entering.mark("x") == 34


def test_a_savepoint_that_is_given_up_lets_go(db, entering):
    entering.begin()
    entering("SAVEPOINT a")
    entering.enter("x", 34)
    entering("ROLLBACK TO a")
    assert db.session().enter("x", 33) == 33
    entering.commit()


def test_entering_again_in_a_transaction_writes_nothing(entering):
    entering.enter("x", 33)
    entering.begin().enter("x", 34)
    where = "SELECT ctid FROM holdfast_marks WHERE key = 'x'"
    there = entering.value(where)
    for _ in range(20):
        entering.enter("x", 34)
    assert entering.value(where) == there
    entering.commit()


LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mark", [None, 33])
def test_with_snapshots_a_mark_that_rises_meanwhile_is_a_serialization_failure(db, entering, level, mark):
    if mark:
        entering.enter("x", mark)
    new, late = entering.begin(level), db.session().begin(level)
    new.enter("x", 34)
    waiting = late.start("SELECT holdfast_enter('x', 33)").blocked(new)
    new.commit()
    with refused(SERIALIZE):
        waiting.end()
    late.rollback()
    with refused(STALE, 33, 34):
        late.begin(level).enter("x", 33)
    late.rollback()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("old_level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("moment", ["while it is inside", "when it has left"])
def test_a_snapshot_from_before_the_older_holder_left_is_not_used(db, entering, level, old_level, moment):
    """The older holder's mark does not rise, so its row would not change. A newer one whose snapshot is older would read
    what was there before that holder wrote."""
    entering("CREATE TABLE stock (item text PRIMARY KEY, n int)")
    entering("INSERT INTO stock VALUES ('apples', 1)")
    entering.enter("x", 33)
    new, old = db.session().begin(level), entering.begin(old_level)
    old.enter("x", 33)
    old("UPDATE stock SET n = 2")
    if moment == "while it is inside":
        waiting = new.start("SELECT holdfast_enter('x', 34)").blocked(old)
        old.commit()
    else:
        new("SELECT 1")  # that takes the snapshot
        old.commit()
        waiting = new.start("SELECT holdfast_enter('x', 34)")
    with refused(SERIALIZE):
        waiting.end()
    new.rollback()
    assert new.begin(level).enter("x", 34) == 34
    assert new("SELECT n FROM stock") == [(2,)]
    new.commit()


@pytest.mark.parametrize("level", LEVELS)
def test_with_snapshots_it_works_as_well(entering, level):
    for token in (33, 33, 34):
        entering.begin(level)
        assert entering.enter("x", token) == token
        assert entering.enter("x", token) == token
        entering.commit()
    with refused(STALE, 33, 34):
        entering.begin(level).enter("x", 33)


# ---- who may what


def test_a_plain_user_can_enter_and_nothing_else(db, entering):
    user = db.session(db.role())
    assert user.enter("x", 34) == 34
    with refused(STALE, 33, 34):
        user.enter("x", 33)
    for statement in ("UPDATE holdfast_marks SET token = 1", "DELETE FROM holdfast_marks", "SELECT * FROM holdfast_marks",
                      "INSERT INTO holdfast_marks (key, token) VALUES ('y', 1)", "TRUNCATE holdfast_marks",
                      "DELETE FROM holdfast_resets", "UPDATE holdfast_guards SET guard = ''",
                      "SELECT holdfast_reset('x')"):
        with refused("42501", "permission denied"):
            user(statement)
    assert entering.mark("x") == 34


def test_a_plain_users_search_path_decides_nothing(db, entering):
    """The functions run with their owner's rights, so they must not find what a user puts in their way."""
    role = db.role()
    entering(f"CREATE SCHEMA trap AUTHORIZATION {role}")
    user = db.session(role)
    for operator, types in (("<", "bigint, bigint"), ("=", "text, text"), (">", "bigint, bigint")):
        user(f"CREATE FUNCTION trap.f_{ord(operator)}({types}) RETURNS boolean LANGUAGE plpgsql AS "
             "$$ BEGIN RAISE EXCEPTION 'trapped, as %', current_user; END $$")
        first, second = types.split(", ")
        user(f"CREATE OPERATOR trap.{operator} (LEFTARG = {first}, RIGHTARG = {second}, FUNCTION = trap.f_{ord(operator)})")
    user("CREATE TEMPORARY TABLE holdfast_marks (guard text, key text, token bigint, xact xid8)")
    # The operators are in the way of holdfast_enter itself, which runs as its caller: that one harms itself alone.
    user("SET search_path = trap, pg_catalog, public")
    assert user.value("SELECT public.holdfast_raise('', 'x', 34, 'not-older')") == 34
    with refused(STALE, 33, 34):
        user.value("SELECT public.holdfast_raise('', 'x', 33, 'not-older')")
    assert entering.mark("x") == 34


# ---- reset


def test_reset_lowers_a_mark_and_writes_it_down(entering):
    entering.enter("x", 34)
    assert entering.value("SELECT holdfast_reset('x', 20)") == 34
    assert entering.enter("x", 21) == 21
    assert entering.value("SELECT holdfast_reset('x')") == 21
    assert entering.mark("x") == 0
    assert entering("SELECT who, guard, key, old_mark, new_mark, at > now() - interval '1 hour' FROM holdfast_resets ORDER BY at") == [
        ("postgres", "", "x", 34, 20, True), ("postgres", "", "x", 21, 0, True)]
    assert entering.enter("x", 1) == 1


def test_reset_only_lowers(entering):
    entering.enter("x", 34)
    for mark in (35, -1, None):
        with refused(WRONG, 'the mark of "x" is 34'):
            entering("SELECT holdfast_reset('x', %s)", mark)
    with refused("P0002", '"y" has no mark'):
        entering("SELECT holdfast_reset('y')")
    assert entering("SELECT * FROM holdfast_resets") == []


def test_reset_is_for_whom_it_is_granted_to(db, entering):
    entering.enter("x", 34)
    role = db.role()
    entering(f"GRANT EXECUTE ON FUNCTION holdfast_reset TO {role}")
    assert db.session(role).value("SELECT holdfast_reset('x')") == 34
    assert entering.value("SELECT who FROM holdfast_resets") == role, "not the function's owner"


# ---- who may enter


def rights(role, *options):
    """What is printed as a comment, for this role."""
    lines = [line[3:] for line in printed("--dialect", "postgres", *options).splitlines() if line.startswith(("-- REVOKE ", "-- GRANT "))]
    return "\n".join(lines).replace(" TO app;", f" TO {role};")


@pytest.mark.parametrize("schema", ["public", "Odd name"])
def test_with_the_printed_rights_nobody_else_raises_a_mark(db, schema):
    """Once they were said, also after it was applied again. Who is granted them does all there is, also where no function is everybody's."""
    owner = db.session()
    role = db.role()
    owner(f"CREATE ROLE {role}_app LOGIN")
    owner(f'CREATE SCHEMA IF NOT EXISTS "{schema}"; CREATE TABLE "{schema}".batches (id integer PRIMARY KEY, state text)')
    owner("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    db.apply("--schema", schema)
    owner("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC")
    owner(f'GRANT EXECUTE ON FUNCTION "{schema}".holdfast_enter, "{schema}".holdfast_raise, "{schema}".holdfast_in_row TO PUBLIC')
    said = rights(f"{role}_app", "--schema", schema)
    assert len(said.splitlines()) == (2 if schema == "public" else 3)
    owner(said)
    owner(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON "{schema}".batches TO {role}, {role}_app')
    db.apply("--schema", schema, "--table", "batches")
    outsider, app = db.session(role), db.session(f"{role}_app")
    for call in ("holdfast_enter('x', 9007199254740991)", "holdfast_raise('', 'x', 9007199254740991, 'keep')", "holdfast_in_row('', 'x')"):
        with refused("42501", "permission denied for function"):
            outsider(f'SELECT "{schema}".{call}')
    with refused("42501", "permission denied for function"):
        outsider(f'INSERT INTO "{schema}".batches VALUES (1, NULL, 9007199254740991)')
    assert app.value(f"SELECT \"{schema}\".holdfast_enter('x', 34)") == 34
    with refused(STALE, 33, 34):
        app(f"SELECT \"{schema}\".holdfast_enter('x', 33)")
    app(f'INSERT INTO "{schema}".batches VALUES (1, NULL, 34)')
    app(f'INSERT INTO "{schema}".batches VALUES (1, NULL, 35) ON CONFLICT DO NOTHING')
    with refused(STALE, 34, 35):
        app(f'UPDATE "{schema}".batches SET fence_token = 34')
    with refused(WRONG, "is not a fencing token"):
        app(f'UPDATE "{schema}".batches SET fence_token = 0')
    app(f'DELETE FROM "{schema}".batches')


# ---- applying it


def objects(session):
    """What is in the database, besides the columns of tables."""
    return session("""SELECT 'table', relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
                      UNION SELECT 'function', proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
                      UNION SELECT 'trigger', tgname::text FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2""")


def test_applying_it_twice_is_harmless(db, entering):
    entering.enter("x", 34)
    before = objects(entering)
    db.apply()
    assert objects(entering) == before
    with refused(STALE, 33, 34):
        entering.enter("x", 33)


def test_any_client_can_apply_it(db):
    session = db.session().begin()
    session(printed("--dialect", "postgres").replace("%", "%%"), None)
    session("ROLLBACK")
    assert objects(session) == [], "also inside a transaction of one's own"
    session(printed("--dialect", "postgres"))
    assert session.enter("x", 35) == 35


def test_undo_leaves_nothing_behind(db):
    session = db.session()
    session("CREATE TABLE batches (id int PRIMARY KEY)")
    before = objects(session)
    db.apply("--table", "batches", "--require")
    with refused("P0001", "still guarded: public.batches"):
        session(printed("--dialect", "postgres", "--undo"))
    db.apply("--table", "batches", "--undo")
    db.apply("--undo")
    assert objects(session) == before


@pytest.mark.parametrize("options", [["postgres"], ["postgres", "--table", "batches"], ["postgres", "--table", 'a"b.c', "--require"],
                                     ["postgres", "--schema", "x", "--table", "t"], ["sqlite"], ["sqlite", "--table", '"a""b.c"']])
def test_the_undo_is_printed_at_the_end_as_a_comment(options):
    text = printed("--dialect", *options)
    undo = printed("--dialect", *options, "--undo")
    head, _, tail = text.partition("\n-- To undo it:\n--\n")
    assert tail == "".join(f"-- {line}\n" for line in undo.splitlines())
    assert undo not in head and "DROP" in undo


def test_undoing_twice_is_harmless(db):
    db.session()("CREATE TABLE batches (id int PRIMARY KEY)")
    for options in (["--table", "batches"], []):
        for _ in range(2):
            done = db.psql(printed("--dialect", "postgres", *options, "--undo"))
            assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr


def test_another_schema(db):
    session = db.session()
    session("CREATE SCHEMA app")
    session('CREATE TABLE app.batches (id int PRIMARY KEY)')
    db.apply("--schema", "app", "--table", "batches")
    assert session.value("SELECT app.holdfast_enter('x', 34)") == 34
    session("INSERT INTO app.batches VALUES (7, 34)")
    with refused(STALE, 'stale fencing token 33 for "app.batches:7": 34 was seen'):
        session("UPDATE app.batches SET fence_token = 33")
    assert session.value("SELECT to_regclass('public.holdfast_marks')") is None
    db.apply("--schema", "app", "--table", "batches", "--undo")
    db.apply("--schema", "app", "--undo")
    assert session("SELECT relname FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind = 'r'") == [("batches",)]


# ---- names

ODD = ["my table", 'quo"te', "quo'te", "back\\slash", "dot.ted", "$holdfast$", "$body$", "$body1$", "a$holdfast$b'", "Upper", "order",
       "-- comment", "/* comment", "x; DROP TABLE victim; --", "'; DROP TABLE victim; --", '"; DROP TABLE victim; --', "tableau_é",
       ":variable", ":'variable'", "%s", "%", "@table@", "a" * 63, "é" * 31, "name", "brought", "target", "guard", "m", "t"]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_tables_and_columns(db, name):
    session = db.session()
    session("CREATE TABLE victim ()")
    key, column = quoted(name[:60] + "_k"), quoted(name[:60] + "_t")
    if len(name.encode()) > 61:
        key, column = quoted("k" + name[:30]), quoted("t" + name[:30])
    table = quoted(name)
    create = f"CREATE TABLE {table} ({key} text PRIMARY KEY, v text)"
    session.connection.cursor().execute(create)
    options = ["--table", table, "--key-column", key[1:-1].replace('""', '"'), "--column", column[1:-1].replace('""', '"')]
    for more in ([], ["--require", "--mode", "newer"], []):
        db.apply(*options, *more)
    run = session.connection.cursor().execute
    run(f"INSERT INTO {table} ({key}, {column}) VALUES ('7', 34)")
    run(f"UPDATE {table} SET v = 'b', {column} = 34")
    for statement in (f"UPDATE {table} SET v = 'c', {column} = 33", f"INSERT INTO {table} ({key}, {column}) VALUES ('7', 33)"):
        with refused(STALE, "33", "34"):
            run(statement)
    run(f"DELETE FROM {table}")
    with refused(STALE, "33", "34"):
        run(f"INSERT INTO {table} ({key}, {column}) VALUES ('7', 33)")
    run(f"TRUNCATE {table}")
    db.apply(*options, "--undo")
    run(f"INSERT INTO {table} ({key}, {column}) VALUES ('7', 33)")
    assert session("SELECT to_regclass('victim') IS NOT NULL, count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(True, 0)]


def test_a_backslash_also_where_it_escapes(db):
    session = db.session()
    session(f"ALTER DATABASE {db.name} SET standard_conforming_strings = off")
    session = db.session()
    session('CREATE TABLE "back\\slash\'" (id int PRIMARY KEY)')
    db.apply("--table", "back\\slash'")
    session('INSERT INTO "back\\slash\'" VALUES (7, 34)')
    with refused(STALE, 33, 34):
        session('UPDATE "back\\slash\'" SET fence_token = 33')


def test_tables_whose_long_names_begin_alike(db):
    session = db.session()
    names = ["t" * 62 + letter for letter in "ab"]
    for name in names:
        session(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        db.apply("--table", name)
    for name, token in zip(names, (34, 20)):
        session(f"INSERT INTO {name} VALUES (7, {token})")
    with refused(STALE, names[0], 33, 34):
        session(f"UPDATE {names[0]} SET fence_token = 33")
    session(f"UPDATE {names[1]} SET fence_token = 33")
    for name in names:
        db.apply("--table", name, "--undo")
    assert session.value("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == 0


@pytest.mark.parametrize("words, said", [
    (["--table", ""], "table: the name is empty"),
    (["--table", "."], "schema: the name is empty"),
    (["--table", "a."], "table: the name is empty"),
    (["--table", "a.b.c"], "not [SCHEMA.]TABLE"),
    (["--table", '"a'], "not [SCHEMA.]TABLE"),
    (["--table", '"a""'], "not [SCHEMA.]TABLE"),
    (["--table", '"a"b'], "not [SCHEMA.]TABLE"),
    (["--table", "a" * 64], "not [SCHEMA.]TABLE, each of at most 63 bytes"),
    (["--table", "a\nb"], "no control characters"),
    (["--table", "a\x7fb"], "no control characters"),
    (["--table", b"a\xffb"], "not UTF-8"),
    (["--table", "t", "--column", ""], "column: the name is empty"),
    (["--table", "t", "--column", "a" * 64], "at most 63 bytes"),
    (["--table", "t", "--key-column", "a\nb"], "no control characters"),
    (["--table", "t", "--key-column", "a", "--column", "a"], "cannot be in one column"),
    (["--schema", "a\tb"], "no control characters"),
    (["--column", "x"], "name it"),
    (["--require"], "name it"),
    (["--mode", "newer"], "name it"),
    (["--table", "t", "--mode", "older"], "no mode 'older': there are not-older and newer"),
    (["--dialect", "mysql"], "no dialect 'mysql': there are postgres and sqlite"),
    (["--sqlite-version", "3.47"], "is for the dialect sqlite"),
    (["x"], "one word too many"),
    (["--dialect", "sqlite", "--table", "a.b"], "SQLite's tables have no schema"),
    (["--dialect", "sqlite", "--schema", "a"], "a schema is for the dialect postgres"),
    (["--dialect", "sqlite", "--sqlite-version", "4"], "no version of SQLite"),
    (["--dialect", "sqlite", "--sqlite-version", "3.x"], "is not a version of SQLite, such as 3.47"),
    (["--dialect", "sqlite", "--sqlite-version", "3.47.0.1"], "is not a version of SQLite"),
])
def test_what_cannot_be_is_said_in_one_line(words, said):
    done = subprocess.run([BIN, "guard", "sql", "--dialect", "postgres", *words], capture_output=True, text=True)
    assert done.returncode == 64 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr, done.stderr


def test_the_dialect_is_known_by_both_names():
    long, short = (subprocess.run([BIN, "guard", "sql", "--dialect", name], capture_output=True, text=True) for name in ("postgresql", "postgres"))
    assert long.returncode == 0, long.stderr
    assert long.stdout == short.stdout


def test_a_dialect_must_be_named():
    done = subprocess.run([BIN, "guard", "sql"], capture_output=True, text=True)
    assert done.returncode == 64 and "--dialect postgres or --dialect sqlite" in done.stderr
