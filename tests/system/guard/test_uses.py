"""What people bring a lock for: each script of examples/uses must come out as it says, on files and on holdfastd."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
USES = ROOT / "examples" / "uses"
BIN = os.environ["HOLDFAST_BIN"]
PATIENCE = 120
SECOND = "0.25"  # how long a second of the scripts is

pytestmark = pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs sqlite3")


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="uses-", dir=os.environ["HF_TEST_TMP"])
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=["file", "holdfast"])
def url(request, folder):
    if request.param == "file":
        yield "file:%s" % (folder / "locks")
        return
    if not os.path.exists(os.environ.get("HF_SERVER", "")):
        pytest.skip("the server is off")
    spec = importlib.util.spec_from_file_location("holdfastd_servers", ROOT / "tests/system/holdfastd/conftest.py")
    servers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(servers)
    server = servers.Holdfastd()
    yield "holdfast://127.0.0.1:%d" % server.port
    server.clean()


def use(name, folder, url):
    """What the script prints, and as a dictionary of what stands before and behind its colons."""
    more = {} if url.startswith("file:") else {"TTL": "2s"}  # or the dead would be waited for in earnest
    path = os.path.dirname(BIN) + os.pathsep + os.environ["PATH"]
    place = folder / "work"
    place.mkdir()
    done = subprocess.run(["sh", str(USES / (name + ".sh")), str(place)], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL,
                          env=dict(os.environ, PATH=path, HOLDFAST_URL=url, STORE=url, SECOND=SECOND, **more))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, dict(line.split(": ") for line in done.stdout.splitlines() if ": " in line)


@pytest.mark.parametrize("name, expected", [("payment", ["charges: 1", "answers: 1"]), ("cache", ["rebuilds: 1", "answers: 3"])])
def test_a_second_run_is_as_the_first(folder, name, expected):
    """As a reader runs it, twice, with a store in the environment that has seen all of it before."""
    env = dict(os.environ, PATH=os.path.dirname(BIN) + os.pathsep + os.environ["PATH"], HOLDFAST_URL=f"file:{folder}/used", SECOND=SECOND,
               CALLERS="3", TMPDIR=str(folder))
    for _ in range(2):
        done = subprocess.run(["sh", str(USES / (name + ".sh"))], env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout.splitlines() == expected, done.stderr


def test_settlement_is_one_debit(folder, url):
    _, found = use("settlement", folder, url)
    assert found["debits"] == "1"


def test_reminder_is_one_mail(folder, url):
    _, found = use("reminder", folder, url)
    assert found["mails"] == "1"


def test_payment_is_one_charge_and_one_answer(folder, url):
    _, found = use("payment", folder, url)
    assert found == {"charges": "1", "answers": "1"}


def test_the_last_ticket_is_sold_once(folder, url):
    _, found = use("ticket", folder, url)
    assert found == {"sales": "1", "refusals": "9"}


def test_the_balance_comes_to_twenty(folder, url):
    said, found = use("balance", folder, url)
    assert found["with a lock and a guard"] == "20"
    assert found["with a version column"] == "20"
    assert "came too late" in said  # they did meet


def test_one_rebuild_for_a_hundred_callers(folder, url):
    _, found = use("cache", folder, url)
    assert found == {"rebuilds": "1", "answers": "100"}


def test_one_leader_after_the_other(folder, url):
    _, found = use("leader", folder, url)
    assert found["led, one after the other"].split() == ["one", "two"]


def test_the_nightly_job_never_runs_twice_at_once(folder, url):
    said, _ = use("nightly", folder, url)
    assert said.splitlines() == ["a begins", "b begins", "b ends"]
