"""A guarded table of PostgreSQL, for test_sql_tables.py and test_sql_upkeep.py."""
import pytest
from postgres import db, server  # noqa: F401

TOKEN_MAX = 2**53 - 1
GUARD = "public.batches"


class Batches:
    """A session, and a table of batches with row 7, written with token 34."""

    def __init__(self, db, *options):
        self.db, self.session = db, db.session()
        self.session("CREATE TABLE batches (id int PRIMARY KEY, state text, n int)")
        self.apply(*options)
        self.session("INSERT INTO batches VALUES (7, 'new', 0, 34)")

    def __call__(self, statement, *values, token=None):
        """In a transaction of its own, with the setting if there is a token."""
        if token is None:
            return self.session(statement, *values)
        self.session.begin()
        try:
            self.session(f"SET LOCAL holdfast.token = '{token}'")
            answer = self.session(statement, *values)
            self.session.commit()
            return answer
        except BaseException:
            self.session.rollback()
            raise

    def apply(self, *options):
        self.db.apply("--table", "batches", *options)

    def row(self, key=7):
        rows = self.session("SELECT state, fence_token FROM batches WHERE id = %s", key)
        return rows[0] if rows else None

    def mark(self, key=7):
        return self.session.mark(key, GUARD)


@pytest.fixture
def batches(db):
    return Batches(db)


@pytest.fixture
def strict(db):
    return Batches(db, "--require")


@pytest.fixture
def newer(db):
    return Batches(db, "--mode", "newer")
