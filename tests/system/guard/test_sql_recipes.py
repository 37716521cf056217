"""The recipes of docs/fencing.md and README.md, taken from their text and run as they are written: with a token that may pass each
does what it says, and with a stale one it leaves the data as it was. SQL that is given without a command is what people paste
into a shell, so it is run in the plain one, which goes on after an error."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from postgres import BIN, PATIENCE, PROGRAMS, ROOT, Session, printed, server  # noqa: F401
from sqlite_tools import TOKEN_MAX, folder  # noqa: F401

SQLITE = shutil.which("sqlite3")
TEXTS = ["docs/fencing.md", "README.md", "man/holdfast-guard-sql.1"]
WRITES = re.compile(r"\b(UPDATE|DELETE FROM|INSERT INTO|REPLACE INTO) batches\b|^ *(SELECT|INSERT INTO) holdfast_enter\b", re.M)
WRITE = "UPDATE batches SET settled = true WHERE id = 4472;"  # where a recipe says "..."
TABLE = "CREATE TABLE batches (id INTEGER PRIMARY KEY, state TEXT, settled BOOLEAN DEFAULT false, fence_token BIGINT)"
ROW = "INSERT INTO batches (id, state) VALUES (4472, 'open')"
READ = "SELECT id, state, settled FROM batches"


def blocks(name):
    """The indented ones, of Markdown; and the displays of a manual."""
    text = (ROOT / name).read_text()
    if name.endswith(".md"):
        return [re.sub("^    ", "", block, flags=re.M) for block in re.findall(r"(?:^    .*\n)+", text, flags=re.M)]
    return [block.replace("\\(aq", "'") for block in re.findall(r"^\.Bd .*\n((?:(?!\.Ed).*\n)+)", text, flags=re.M)]


RECIPES = [(block.replace("...", WRITE), shell) for name in TEXTS[:2] for block in blocks(name) if WRITES.search(block)
           for shell in (["sh"] if re.search(r"\b(psql|sqlite3) ", block) else ["psql", "sqlite3"])
           if not (shell == "psql" and "IMMEDIATE" in block or shell == "sqlite3" and "SET LOCAL" in block)]  # of one of both alone


@pytest.fixture
def shop(server, folder):
    """Databases called shop, of both kinds, whose table of batches has its guard."""
    with contextlib.closing(server.connect("postgres")) as connection:
        session = Session(connection)
        session("DROP DATABASE IF EXISTS shop")
        session("CREATE DATABASE shop")
    env = {**os.environ, "PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres", "HOLDFAST_URL": f"file:{folder}/locks",
           "PATH": f"{PROGRAMS}:{pathlib.Path(BIN).parent}:{os.environ['PATH']}"}

    def run(words, text=None):
        return subprocess.run(words, input=text, text=True, capture_output=True, timeout=PATIENCE, env=env, cwd=folder)

    def both(text):
        return [run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "shop"], text), run([SQLITE, "-bail", "shop.db"], text)]

    run.both = both
    for done in both(f"{TABLE}; {ROW};"):
        assert done.returncode == 0, done.stderr
    for dialect, words in (("postgres", ["psql", "-qX", "-v", "ON_ERROR_STOP=1", "shop"]), ("sqlite", [SQLITE, "-bail", "shop.db"])):
        done = run(words, printed("--dialect", dialect, "--table", "batches"))
        assert done.returncode == 0, done.stderr
    return run


def try_it(shop, block, shell):
    if shell == "sh":
        return shop(["sh", "-c", block])
    return shop([shell, "shop" if shell == "psql" else "shop.db"], block)


@pytest.mark.skipif(not SQLITE, reason="needs sqlite3")
@pytest.mark.parametrize("block, shell", RECIPES)
def test_a_recipe(shop, block, shell):
    before = [done.stdout for done in shop.both(READ + ";")]
    for holder, enter in (("psql", "SELECT holdfast_enter('batch:4472', {0});"),
                          ("sqlite3", "INSERT INTO holdfast_enter(key, token) VALUES ('batch:4472', {0});")):
        text = (enter + " UPDATE batches SET fence_token = {0};").format(TOKEN_MAX)
        done = shop([holder, "shop" if holder == "psql" else "shop.db"], text)
        assert done.returncode == 0 and done.stderr == "", done.stderr
    late = try_it(shop, block, shell)
    assert [done.stdout for done in shop.both(READ + ";")] == before, late
    assert "stale fencing token" in late.stderr

    shop(["psql", "shop"], "SELECT holdfast_reset('4472', 0, 'public.batches'); SELECT holdfast_reset('batch:4472', 0)")
    shop([SQLITE, "shop.db"], "INSERT INTO holdfast_reset(key, token, guard) SELECT key, 0, guard FROM holdfast_marks")
    done = try_it(shop, block, shell)
    assert done.stderr == "" and done.returncode == 0
    assert [done.stdout for done in shop.both(READ + ";")] != before, "it is no recipe for anything"


def test_the_texts_have_recipes():
    assert len(RECIPES) >= 4 and {"sh"} <= {shell for _, shell in RECIPES}
    assert any("holdfast_enter" in block and "sqlite3" in block for block, _ in RECIPES)


@pytest.mark.parametrize("name", TEXTS + ["examples/sql/" + path.name for path in sorted((ROOT / "examples/sql").iterdir())])
def test_every_shell_that_is_called_stops_at_an_error(name):
    lines = [line for block in blocks(name) for line in block.splitlines()] if not name.startswith("examples") else \
        (ROOT / name).read_text().splitlines()
    for line in lines:
        for call in re.findall(r"(?:^|[|'\"$(;]|exec) *(psql\b[^|]*|sqlite3\b[^|]*)", line):
            assert call.startswith(("psql -v ON_ERROR_STOP=1", "sqlite3 -bail")), line
