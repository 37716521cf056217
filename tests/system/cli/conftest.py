"""The stores of these tests. What they share with other suites is in holdfast_cli.py."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import types

import pytest

pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import (BIN, FAULTS, PATIENCE, SOAK, Cli, Process, await_gone, eventually,  # noqa: E402,F401
                          is_running, shell_status)


NOBODY = 65534  # a user, on every system


@pytest.fixture
def directory():
    """On a disk: the file store refuses tmpfs, and /tmp may be one."""
    base = os.environ.get("HF_TEST_TMP") or pathlib.Path(BIN).resolve().parent
    path = tempfile.mkdtemp(prefix="cli-", dir=base)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def cli(directory):
    store = directory / "locks"
    store.mkdir(mode=0o700)
    cli = Cli(f"file:{store}")
    yield cli
    cli.clean()


@pytest.fixture
def somebody(cli):
    """Runs commands as a user who is not root, with a home of their own and no store named: .home, .env, .run(WORDS...)."""
    home = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
    who = {"user": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    home.chmod(0o755)
    if who:
        os.chown(home, NOBODY, -1)
    env = {**cli.env, "HOME": str(home), "XDG_STATE_HOME": ""}
    env.pop("HOLDFAST_URL", None)

    def run(*words):
        return subprocess.run([BIN, *words], env=env, cwd="/", capture_output=True, text=True, **who)

    yield types.SimpleNamespace(home=home, env=env, run=run)
    shutil.rmtree(home)


@pytest.fixture
def ttl_cli(directory):
    """The test store: has a TTL and can be made to fail with .faults(...)."""
    if not os.environ.get("HOLDFAST_MODULE_DIR") or not FAULTS:
        pytest.skip("HOLDFAST_MODULE_DIR and HF_FAULTS are not set: no test store")
    path = directory / "test-store"
    cli = Cli(f"test:{path}")

    def faults(*args):
        done = subprocess.run([FAULTS, str(path), *map(str, args)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    cli.faults = faults
    cli.path = path
    yield cli
    faults("clear")
    cli.clean()
