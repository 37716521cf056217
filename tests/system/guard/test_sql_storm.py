"""The SQL guards under many stale writes from many connections, and fresh ones among them."""
import os
import pathlib
import shutil
import tempfile

import pytest
from postgres import SOAK, db, printed, server  # noqa: F401
from sql_storm import FRESH_MIN, FRESH_PROCESSES, Postgres, Sqlite, storm

STALE_WRITES = 1_000_000 if SOAK else 6_000


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="sqlite-", dir=os.environ.get("HF_TEST_TMP"))
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("guard", ["enter", "column"])
@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_storm_of_stale_writes(request, folder, dialect, guard):
    if dialect == "postgres":
        db = request.getfixturevalue("db")
        target, apply = Postgres(guard, db.server, db.name), db.apply
    else:
        target = Sqlite(guard, str(folder / "storm.db"))

        def apply(*options):
            target.connect().executescript(printed("--dialect", "sqlite", *options))

    refused, taken, others, rows, expected = storm(target, apply, STALE_WRITES)
    assert others == []
    assert refused == STALE_WRITES, "none was taken"
    assert taken >= FRESH_PROCESSES * FRESH_MIN, "and no fresh one was refused"
    assert rows == expected
