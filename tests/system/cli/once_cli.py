"""What the tests of `holdfast once` share: the command over files, over a holdfastd, over Redis, and over the store that
fails on command (test:).

Also told by the environment: HF_SERVER (the program holdfastd).
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys

import pytest
from holdfast_cli import SOAK, Cli

TESTS = pathlib.Path(__file__).resolve().parents[1]
SERVER = os.environ.get("HF_SERVER", "")
KEPT_MAX = 65536 - 8  # bytes of output that are kept: a result less the header
JOB = "echo in $HOLDFAST_TOKEN $$; read line; echo out $line"


def load(name, path):
    """A module of another suite."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Once(Cli):
    """The command on one store, and a place to count runs."""

    ttl = True
    server = None

    def __init__(self, url, directory):
        super().__init__(url)
        self.log = directory / "runs"

    def once(self, key, *args, **kwargs):
        return self("once", key, *args, **kwargs)

    def begin(self, key, *options, script=JOB):
        """Somebody who runs it until a line comes; returns when they do."""
        process = self.start("once", key, *options, "--", "sh", "-c", script)
        word, token, pid = process.line().split()
        assert word == "in"
        process.token, process.job = int(token), int(pid)
        return process

    def wait_for(self, key, *options, script="echo mine $HOLDFAST_TOKEN"):
        """Somebody who waits for a run; returns when they say so."""
        process = self.start("once", key, *options, "--", "sh", "-c", script)
        line = process.line("err")
        assert line.startswith(f"holdfast: waiting for '{key}' in ") and ": run by " in line and re.search("since|for at least", line), line
        return process

    def counted(self, *words):
        """A job that notes that it ran, and says these words."""
        return ["--", "sh", "-c", f'echo $HOLDFAST_TOKEN >>{self.log}; echo "$@"', "sh", *words]

    def runs(self):
        return self.log.read_text().split() if self.log.exists() else []

    def known(self, key):
        done = self.once(key, "--show", "--json")
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)

    def lease(self, span):
        """Options for a run whose death others notice so soon."""
        return ["--ttl", span] if self.ttl else []


def need_server():
    if not os.path.exists(SERVER):
        pytest.skip("HF_SERVER is not set, or not there: no holdfastd")
    return load("holdfastd_conftest", "holdfastd/conftest.py")


def make_file(directory):
    store = directory / "locks"
    store.mkdir(mode=0o700)
    made = Once(f"file:{store}", directory)
    made.ttl = False
    return made, lambda: None


def make_holdfast(directory):
    server = need_server().Holdfastd()
    made = Once(f"holdfast://127.0.0.1:{server.port}", directory)
    made.server = server
    return made, server.clean


def make_redis(directory):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    server = load("redis_conftest", "redis/conftest.py").Redis("--maxmemory-policy", "noeviction")
    return Once(server.url(), directory), server.stop


def make(kind, directory):
    made, end = {"file": make_file, "holdfast": make_holdfast, "redis": make_redis}[kind](directory)
    try:
        if "keeps no once-records" in made.once("probe", "--show").stderr:
            pytest.skip(f"a {kind} store keeps no once-records")
        yield made
    finally:
        made.clean()
        end()


@pytest.fixture(params=["holdfast", "file", "redis"])
def store(request, directory):
    yield from make(request.param, directory)


@pytest.fixture(params=["holdfast", "file", "redis"] if SOAK else ["file"])
def plain(request, directory):
    """For what is the same on every store: the quickest, unless there is time."""
    yield from make(request.param, directory)


@pytest.fixture
def holdfast(directory):
    yield from make("holdfast", directory)


@pytest.fixture
def faulty(ttl_cli, directory):
    """On the store that fails on command."""
    ttl_cli.__class__ = Once
    ttl_cli.log = directory / "runs"
    return ttl_cli
