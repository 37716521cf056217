"""The stores of these tests. What they share with other suites is in holdfast_cli.py."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import (BIN, FAULTS, PATIENCE, SOAK, Cli, Process, await_gone, eventually,  # noqa: E402,F401
                          is_running, shell_status)


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
