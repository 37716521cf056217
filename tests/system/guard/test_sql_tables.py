"""The triggers that guard a table of PostgreSQL: where the token comes from, what is refused, and that no mark is forgotten."""
import io

import pytest
from postgres import MISSING, SERIALIZE, STALE, WRONG, refused
from sql_batches import TOKEN_MAX, Batches, batches, db, newer, server, strict  # noqa: F401

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


# ---- where the token comes from


def test_an_update_that_names_the_column(batches):
    with refused(STALE, 'stale fencing token 33 for "public.batches:7": 34 was seen'):
        batches("UPDATE batches SET state = 'late', fence_token = 33 WHERE id = 7")
    assert batches("UPDATE batches SET state = 'again', fence_token = 34 WHERE id = 7") == 1
    assert batches("UPDATE batches SET state = 'next', fence_token = 35 WHERE id = 7") == 1
    with refused(STALE, 34, 35):
        batches("UPDATE batches SET state = 'late', fence_token = 34 WHERE id = 7")
    assert batches.row() == ("next", 35)


def test_an_update_with_the_transactions_setting(batches):
    with refused(STALE, 'stale fencing token 33 for "public.batches:7": 34 was seen'):
        batches("UPDATE batches SET state = 'late'", token=33)
    assert batches("UPDATE batches SET state = 'again'", token=34) == 1
    assert batches("UPDATE batches SET state = 'next'", token=35) == 1
    assert batches.row() == ("next", 35), "the row carries the token of its last writer"
    with refused(STALE, 34, 35):
        batches("UPDATE batches SET state = 'late'", token=34)


def test_the_setting_ends_with_the_transaction(batches):
    batches("UPDATE batches SET state = 'next'", token=35)
    batches("UPDATE batches SET state = 'bare'")
    assert batches.row() == ("bare", 35)


def test_what_the_statement_names_counts_before_the_setting(batches):
    batches("UPDATE batches SET fence_token = 35", token=33)
    assert batches.row()[1] == 35
    with refused(STALE, 34, 35):
        batches("UPDATE batches SET fence_token = 34", token=36)
    batches("INSERT INTO batches VALUES (8, 'x', 0, 20)", token=36)
    assert batches.row(8)[1] == 20


def test_the_value_that_is_there_is_not_told_from_none(batches):
    """To tell them apart costs a second trigger, so only --require and --mode newer do."""
    with refused(STALE, 33, 34):
        batches("UPDATE batches SET state = 'late', fence_token = 34", token=33)
    batches("UPDATE batches SET state = 'next', fence_token = 34", token=35)
    assert batches.row() == ("next", 35)


@pytest.mark.parametrize("setting", ["abc", "-1", "0", "35x", " 35", "3.5", str(TOKEN_MAX + 1), "9" * 30, "0x23"])
@pytest.mark.parametrize("statement", ["UPDATE batches SET state = 'x'", "DELETE FROM batches",
                                       "INSERT INTO batches VALUES (8, 'x', 0)"])
def test_a_setting_that_is_no_token(batches, setting, statement):
    with refused(WRONG, "holdfast.token is", setting, "not a fencing token"):
        batches(statement, token=setting)
    assert batches.row() == ("new", 34)


@pytest.mark.parametrize("token", [0, -1, -34, TOKEN_MAX + 1])
@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
def test_a_column_that_is_given_no_token(db, token, options):
    batches = Batches(db, *options)
    for statement in (f"UPDATE batches SET fence_token = {token}", f"INSERT INTO batches VALUES (8, 'x', 0, {token})"):
        with refused(WRONG, token, "is not a fencing token"):
            batches(statement)
    assert batches.row() == ("new", 34) and batches.row(8) is None


def test_an_insert(batches):
    batches("DELETE FROM batches")
    with refused(STALE, 'stale fencing token 33 for "public.batches:7": 34 was seen'):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 33)")
    with refused(STALE, 33, 34):
        batches("INSERT INTO batches VALUES (7, 'late', 0)", token=33)
    batches("INSERT INTO batches VALUES (7, 'next', 0)", token=35)
    assert batches.row() == ("next", 35)


def test_a_delete(batches):
    with refused(STALE, 'stale fencing token 33 for "public.batches:7": 34 was seen'):
        batches("DELETE FROM batches", token=33)
    assert batches("DELETE FROM batches", token=34) == 1


# ---- without a token


def test_a_write_without_a_token_is_let_through_and_changes_no_mark(batches):
    batches("UPDATE batches SET state = 'bare'")
    assert batches.row() == ("bare", 34)
    with refused(STALE, 33, 34):
        batches("UPDATE batches SET fence_token = 33")
    batches("INSERT INTO batches VALUES (8, 'bare', 0)")
    assert batches.row(8) == ("bare", None) and batches.mark(8) is None
    batches("UPDATE batches SET n = 1 WHERE id = 8")
    assert batches.row(8) == ("bare", None)
    batches("UPDATE batches SET fence_token = 1 WHERE id = 8")
    assert batches.row(8) == ("bare", 1)


def test_naming_null_brings_no_token_and_forgets_none(batches):
    batches("UPDATE batches SET state = 'bare', fence_token = NULL")
    assert batches.row() == ("bare", 34)
    batches("UPDATE batches SET state = 'next', fence_token = NULL", token=35)
    assert batches.row() == ("next", 35)
    with refused(STALE, 33, 35):
        batches("UPDATE batches SET fence_token = NULL", token=33)


# ---- what is gone is not forgotten


@pytest.mark.parametrize("token", [None, 35])
def test_delete_and_insert_cannot_lower_a_mark(batches, token):
    batches("DELETE FROM batches", token=token)
    mark = token or 34
    assert batches.mark() == mark
    for key, value in ((7, mark - 1), (7, 1)):
        with refused(STALE, value, mark):
            batches("INSERT INTO batches VALUES (%s, 'late', 0, %s)", key, value)
    batches("INSERT INTO batches VALUES (7, 'bare', 0)")
    assert batches.row() == ("bare", mark), "a row without a token of its own takes over the mark"
    with refused(STALE, mark - 1, mark):
        batches("UPDATE batches SET fence_token = %s", mark - 1)


def test_truncate_and_insert_cannot_lower_a_mark(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0), (9, 'x', 0)")
    batches("UPDATE batches SET fence_token = 50 WHERE id = 8")
    batches("TRUNCATE batches")
    assert (batches.mark(7), batches.mark(8), batches.mark(9)) == (34, 50, None)
    with refused(STALE, 33, 34):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 33)")
    with refused(STALE, 49, 50):
        batches("INSERT INTO batches VALUES (8, 'late', 0, 49)")


def test_an_update_of_the_key_checks_both_keys(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    batches("DELETE FROM batches WHERE id = 8")
    with refused(STALE, 'token 33 for "public.batches:7": 34'):
        batches("UPDATE batches SET id = 8, fence_token = 33 WHERE id = 7")
    with refused(STALE, 'token 39 for "public.batches:8": 40'):
        batches("UPDATE batches SET id = 8, fence_token = 39 WHERE id = 7")
    with refused(STALE, 'token 39 for "public.batches:8": 40'):
        batches("UPDATE batches SET id = 8 WHERE id = 7", token=39)
    batches("UPDATE batches SET id = 8, fence_token = 41 WHERE id = 7")
    assert batches.row(8) == ("new", 41)
    with refused(STALE, 'token 40 for "public.batches:7": 41'):
        batches("INSERT INTO batches VALUES (7, 'late', 0, 40)")


def test_a_key_that_moves_without_a_token_leaves_its_mark_and_takes_over_the_other(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 20)")
    batches("DELETE FROM batches WHERE id = 8")
    batches("UPDATE batches SET id = 8")
    assert batches.row(8) == ("new", 20) and batches.mark(7) == 34
    batches("UPDATE batches SET id = 9")
    assert batches.row(9) == ("new", None), "the mark of 9 is none"
    with refused(STALE, 'token 33 for "public.batches:7": 34'):
        batches("UPDATE batches SET id = 7, fence_token = 33")


# ---- --require


@pytest.mark.parametrize("statement", [
    "UPDATE batches SET state = 'bare'", "UPDATE batches SET state = 'bare', fence_token = NULL", "DELETE FROM batches",
    "INSERT INTO batches VALUES (8, 'bare', 0)", "UPDATE batches SET id = 8"])
def test_require_refuses_what_brings_no_token(strict, statement):
    with refused(MISSING, "no fencing token for"):
        strict(statement)
    assert strict.row() == ("new", 34) and strict.row(8) is None


def test_require_refuses_truncate(strict):
    for token in (None, 99):
        with refused(MISSING, "no fencing token for TRUNCATE of public.batches"):
            strict("TRUNCATE batches", token=token)
    assert strict.row() == ("new", 34)


def test_require_takes_what_brings_one(strict):
    assert strict("UPDATE batches SET state = 'a', fence_token = 34") == 1, "named, though it is the value that is there"
    assert strict("UPDATE batches SET state = 'b', fence_token = fence_token") == 1
    assert strict("UPDATE batches SET state = 'c'", token=34) == 1
    assert strict("UPDATE batches SET state = 'd', fence_token = 35") == 1
    assert strict("UPDATE batches SET state = 'e'", token=36) == 1
    assert strict.row() == ("e", 36)
    assert strict("INSERT INTO batches VALUES (8, 'f', 0, 1), (9, 'g', 0, 1)") == 2
    assert strict("INSERT INTO batches VALUES (10, 'h', 0)", token=2) == 1
    assert strict("DELETE FROM batches WHERE id = 8", token=1) == 1
    for token in (33, 35):
        with refused(STALE, token, 36):
            strict("UPDATE batches SET fence_token = %s WHERE id = 7", token)
        with refused(STALE, token, 36):
            strict("UPDATE batches SET state = 'late' WHERE id = 7", token=token)
        with refused(STALE, token, 36):
            strict("DELETE FROM batches WHERE id = 7", token=token)


def test_require_the_column_counts_before_the_setting_also_with_the_value_that_is_there(strict):
    assert strict("UPDATE batches SET state = 'a', fence_token = 34", token=33) == 1
    assert strict.row() == ("a", 34)


def test_require_tells_the_statement_that_brings_one_from_the_next(strict):
    """What one statement names is not left over for another, in the same transaction and on the same row."""
    session = strict.session.begin()
    session("UPDATE batches SET state = 'a', fence_token = 34")
    session("SAVEPOINT a")
    with refused(MISSING):
        session("UPDATE batches SET state = 'b'")
    session("ROLLBACK TO a")
    session.commit()
    assert strict.row() == ("a", 34)


# ---- --mode newer


def test_newer_takes_no_token_twice(newer):
    for statement in ("UPDATE batches SET fence_token = 34", "UPDATE batches SET fence_token = fence_token",
                      "UPDATE batches SET state = 'a', fence_token = 33"):
        with refused(STALE, "34 was seen"):
            newer(statement)
    with refused(STALE, 34, "34 was seen"):
        newer("UPDATE batches SET state = 'a'", token=34)
    with refused(STALE, 34, "34 was seen"):
        newer("DELETE FROM batches", token=34)
    newer("UPDATE batches SET state = 'a', fence_token = 35")
    newer("UPDATE batches SET state = 'b'", token=36)
    newer("UPDATE batches SET state = 'bare'")
    assert newer.row() == ("bare", 36)
    newer("DELETE FROM batches", token=37)
    with refused(STALE, 37, "37 was seen"):
        newer("INSERT INTO batches VALUES (7, 'x', 0, 37)")
    newer("INSERT INTO batches VALUES (7, 'x', 0, 38)")
    assert newer.row() == ("x", 38)


def test_newer_and_require(db):
    batches = Batches(db, "--mode", "newer", "--require")
    with refused(MISSING):
        batches("UPDATE batches SET state = 'bare'")
    with refused(STALE, 34):
        batches("UPDATE batches SET state = 'twice', fence_token = 34")
    batches("UPDATE batches SET state = 'next', fence_token = 35")
    assert batches.row() == ("next", 35)


# ---- many rows, and other statements


def test_one_stale_row_refuses_the_whole_statement(batches):
    batches("INSERT INTO batches VALUES (8, 'x', 0, 10), (9, 'x', 0, 40), (10, 'x', 0, NULL)")
    with refused(STALE, 'token 39 for "public.batches:9": 40'):
        batches("UPDATE batches SET state = 'late', fence_token = 39")
    assert batches("SELECT count(*) FROM batches WHERE state = 'late'") == [(0,)]
    assert batches("UPDATE batches SET state = 'next', fence_token = 40") == 4
    assert batches("SELECT DISTINCT state, fence_token FROM batches") == [("next", 40)]
    with refused(STALE, 39, 40):
        batches("DELETE FROM batches", token=39)
    assert batches("DELETE FROM batches", token=40) == 4


def test_require_many_rows_each_with_its_own(strict):
    strict("INSERT INTO batches SELECT i, 'x', 0, i FROM generate_series(10, 40) AS i")
    assert strict("UPDATE batches SET n = n + 1, fence_token = fence_token WHERE id >= 10") == 31
    assert strict("SELECT count(*) FROM batches WHERE fence_token = id") == [(31,)]
    with refused(MISSING):
        strict("UPDATE batches SET n = n + 1")


UPSERT = "INSERT INTO batches VALUES (7, 'upsert', 0, %s) ON CONFLICT (id) DO UPDATE SET state = 'upsert'"


@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
@pytest.mark.parametrize("statement", [UPSERT, UPSERT + ", fence_token = excluded.fence_token"])
def test_insert_on_conflict_do_update(db, options, statement):
    batches = Batches(db, *options)
    with refused(STALE, 33, 34):
        batches(statement, 33)
    assert batches(statement, 36) == 1
    assert batches.row() == ("upsert", 36)
    with refused(STALE, 35, 36):
        batches("UPDATE batches SET fence_token = 35")


def test_insert_on_conflict_with_the_setting(strict):
    statement = "INSERT INTO batches VALUES (7, 'x', 0), (8, 'x', 0) ON CONFLICT (id) DO UPDATE SET state = 'upsert'"
    with refused(STALE, 33, 34):
        strict(statement, token=33)
    strict(statement, token=35)
    assert (strict.row(7), strict.row(8)) == (("upsert", 35), ("x", 35))
    with refused(MISSING):
        strict(statement)


def test_insert_on_conflict_of_many_rows(strict):
    strict("INSERT INTO batches VALUES (8, 'x', 0, 20)")
    statement = ("INSERT INTO batches VALUES (7, 'upsert', 0, %s), (8, 'upsert', 0, %s), (9, 'upsert', 0, %s)"
                 " ON CONFLICT (id) DO UPDATE SET state = excluded.state")
    for tokens in ((33, 21, 1), (35, 19, 1)):
        with refused(STALE):
            strict(statement, *tokens)
    strict(statement, 35, 21, 1)
    assert [strict.row(key)[1] for key in (7, 8, 9)] == [35, 21, 1]


def test_insert_on_conflict_do_nothing(batches):
    statement = "INSERT INTO batches VALUES (7, 'x', 0, %s) ON CONFLICT DO NOTHING"
    with refused(STALE, 33, 34):
        batches(statement, 33)
    assert batches(statement, 34) == 0
    assert batches.row() == ("new", 34)


def test_copy(batches):
    cursor = batches.session.connection.cursor()
    batches("DELETE FROM batches")
    with refused(STALE, 33, 34):
        cursor.copy_expert("COPY batches FROM STDIN", io.StringIO("6\tx\t0\t1\n7\tlate\t0\t33\n"))
    cursor.copy_expert("COPY batches FROM STDIN", io.StringIO("6\tx\t0\t1\n7\tnext\t0\t35\n8\tbare\t0\t\\N\n"))
    assert [batches.row(key) for key in (6, 7, 8)] == [("x", 1), ("next", 35), ("bare", None)]
    batches.apply("--require")
    with refused(MISSING):
        cursor.copy_expert("COPY batches FROM STDIN", io.StringIO("9\tbare\t0\t\\N\n"))


def test_merge(strict):
    if strict.session.connection.server_version < 150000:
        pytest.skip("MERGE comes with PostgreSQL 15")
    merge = ("MERGE INTO batches b USING (VALUES (7, %s), (8, %s)) AS v (id, token) ON b.id = v.id"
             " WHEN MATCHED THEN UPDATE SET state = 'merged', fence_token = v.token"
             " WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'merged', 0, v.token)")
    with refused(STALE, 33, 34):
        strict(merge, 33, 1)
    strict(merge, 35, 1)
    assert (strict.row(7), strict.row(8)) == (("merged", 35), ("merged", 1))
    with refused(STALE, 35):
        strict("MERGE INTO batches b USING (SELECT 1) AS v ON b.id = 7 WHEN MATCHED THEN DELETE", token=34)
    with refused(MISSING):
        strict("MERGE INTO batches b USING (SELECT 1) AS v ON true WHEN MATCHED THEN UPDATE SET state = 'bare'")


def test_rows_deleted_by_a_foreign_key(strict):
    strict("CREATE TABLE customers (id int PRIMARY KEY)")
    strict("INSERT INTO customers VALUES (1)")
    strict("ALTER TABLE batches ADD COLUMN customer int REFERENCES customers ON DELETE CASCADE ON UPDATE CASCADE")
    strict("UPDATE batches SET customer = 1, fence_token = 34")
    for statement in ("DELETE FROM customers", "UPDATE customers SET id = 2"):
        with refused(MISSING, 'no fencing token for "public.batches:7"'):
            strict(statement)
        with refused(STALE, 33, 34):
            strict(statement, token=33)
    strict("UPDATE customers SET id = 2", token=35)
    strict("DELETE FROM customers", token=36)
    assert strict.row() is None and strict.mark() == 36


def test_through_a_view(strict):
    strict("CREATE VIEW mine AS SELECT id, state, fence_token FROM batches")
    with refused(MISSING):
        strict("UPDATE mine SET state = 'bare'")
    with refused(STALE, 33, 34):
        strict("UPDATE mine SET state = 'late', fence_token = 33")
    strict("UPDATE mine SET state = 'again', fence_token = 34")
    assert strict.row() == ("again", 34)


def test_what_another_trigger_does_to_the_token_counts(batches):
    batches("CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.fence_token := NEW.n; RETURN NEW; END'")
    batches("CREATE TRIGGER meddle BEFORE INSERT OR UPDATE ON batches FOR EACH ROW EXECUTE FUNCTION meddle()")
    with refused(STALE, 33, 34):
        batches("UPDATE batches SET n = 33")
    with refused(WRONG, -34):
        batches("UPDATE batches SET n = -34")
    batches("UPDATE batches SET n = 35")
    assert batches.row()[1] == 35


# ---- partitions


@pytest.fixture
def parts(db):
    session = db.session()
    session("CREATE TABLE events (id int, year int, state text, PRIMARY KEY (id, year)) PARTITION BY LIST (year)")
    session("CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1)")
    db.apply("--table", "events")
    session("CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2)")  # one that comes later is guarded, too
    session("INSERT INTO events VALUES (7, 1, 'new', 34), (8, 2, 'new', 34)")
    return session


@pytest.mark.parametrize("table", ["events", "events_1", "events_2"])
def test_partitions(db, parts, table):
    key = 8 if table == "events_2" else 7
    year = key - 6
    with refused(STALE, f'token 33 for "public.events:{key}": 34'):
        parts(f"UPDATE {table} SET state = 'late', fence_token = 33 WHERE id = {key}")
    assert parts(f"UPDATE {table} SET state = 'next', fence_token = 35 WHERE id = {key}") == 1
    assert parts(f"DELETE FROM {table} WHERE id = {key}") == 1
    with refused(STALE, 34, 35):
        parts(f"INSERT INTO {table} VALUES ({key}, {year}, 'late', 34)")
    db.apply("--table", "events", "--require")
    with refused(MISSING):
        parts(f"INSERT INTO {table} VALUES ({key}, {year}, 'late')")


def test_a_row_that_moves_to_another_partition(parts):
    with refused(STALE, 33, 34):
        parts("UPDATE events SET year = 2, fence_token = 33 WHERE id = 7")
    assert parts("UPDATE events SET year = 2, fence_token = 35 WHERE id = 7") == 1
    assert parts("UPDATE events SET year = 1 WHERE id = 7") == 1
    assert parts("SELECT fence_token FROM events_1 WHERE id = 7") == [(35,)]
    with refused(STALE, 34, 35):
        parts("UPDATE events SET fence_token = 34 WHERE id = 7")


# ---- several at once


@pytest.mark.parametrize("level", LEVELS)
def test_a_late_update_waits_for_the_newer_one(db, batches, level):
    new, late = batches.session.begin(level), db.session().begin(level)
    new("UPDATE batches SET state = 'next', fence_token = 35")
    waiting = late.start("UPDATE batches SET state = 'late', fence_token = 34").blocked(new)
    new.commit()
    with refused(STALE if level == "READ COMMITTED" else SERIALIZE):
        waiting.end()
    assert batches.row() == ("next", 35)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("token", [None, 34])
def test_an_insert_cannot_slip_in_while_a_newer_one_deletes(db, level, known, token):
    """The mark of a row goes over to the side table with its DELETE. known: it is in there already, lower."""
    batches = Batches(db)
    if not known:
        batches("DELETE FROM holdfast_marks")
    new, other = batches.session.begin(), db.session().begin(level)
    other("SELECT 1")  # with snapshots: from before
    new("SET LOCAL holdfast.token = '35'")
    new("DELETE FROM batches")
    waiting = other.start("INSERT INTO batches VALUES (7, 'other', 0, %s)", token).blocked(new)
    new.commit()
    if level != "READ COMMITTED" or token:
        with refused(STALE if level == "READ COMMITTED" else SERIALIZE):
            waiting.end()
        other.rollback()
        assert batches.row() is None
    else:
        assert waiting.end() == 1, "without a token it is let through"
        other.commit()
        assert batches.row() == ("other", 35), "and carries the mark that it found"
