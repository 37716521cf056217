"""Redis servers, and the guard in them, for the tests of the Redis guard.

The server and the tiny client are those of tests/system/redis. A Guard has the operations in one of their two forms, as
functions of the library or as scripts; both are what the command prints, loaded as a user would.

    guard = Guard(redis, "function")
    guard("set", [MARK, "x"], 35, "not-older", "value")     the reply; Stale or Wrong for a refusal
"""
import contextlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load(path, name):
    """A module by its path: there are many files called conftest.py."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


servers = load(ROOT / "tests/system/redis/conftest.py", "redis_servers")
Redis, RedisError, Connection, Cli, BIN, SOAK, PATIENCE, eventually, is_running = (
    servers.Redis, servers.RedisError, servers.Connection, servers.Cli, servers.BIN, servers.SOAK, servers.PATIENCE,
    servers.eventually, servers.is_running)

FORMS = ["function", "eval"]
MARK = "holdfast.mark:{x}"
TOKEN_MAX = 2**53 - 1
REDIS_CLI = shutil.which("redis-cli") or "/usr/bin/redis-cli"


class Stale(Exception):
    """The guard refused a token. .token came, .seen is the mark."""

    def __init__(self, token, seen, words):
        super().__init__(words)
        self.token, self.seen = int(token), int(seen)


class Wrong(Exception):
    """Any other error."""


def refusal(text):
    stale = re.fullmatch(r"STALE (\d+) (\d+) (stale fencing token: .+)", text)
    return Stale(*stale.groups()) if stale else Wrong(text)


def printed(*options, script=None):
    """What `holdfast guard redis` prints."""
    done = subprocess.run([BIN, "guard", "redis", *options], input=script, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def complaint(*options, script=""):
    """The one line with which it refuses to print anything; a status of 64."""
    done = subprocess.run([BIN, "guard", "redis", *options], input=script, capture_output=True, timeout=PATIENCE,
                          text=isinstance(script, str))
    assert done.returncode == 64 and not done.stdout, done
    line = done.stderr if isinstance(script, str) else done.stderr.decode()
    assert line.startswith("holdfast: ") and line.count("\n") == 1 and line.endswith("\n"), line
    return line


def keys(redis):
    return set(redis.cmd("KEYS", "*"))


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2]))


def one_error(call, *args):
    with pytest.raises(Wrong) as caught:
        call(*args)
    return str(caught.value)


class Guard:
    def __init__(self, redis, form, loaded=False):
        """loaded: the functions are there."""
        self.redis, self.form = redis, form
        self.texts = {}
        if form == "function" and not loaded:
            redis.cmd("FUNCTION", "LOAD", "REPLACE", printed())

    def wrap(self, name, script):
        """From now on `name` is an operation, too."""
        if self.form == "function":
            self.redis.cmd("FUNCTION", "LOAD", "REPLACE", printed("--wrap", name, script=script))
        self.texts[name] = printed("--eval", "wrap", script=script)

    def words(self, operation, keys, *args):
        """The command of Redis that does it."""
        if self.form == "function":
            name = operation if operation in self.texts else "holdfast_" + operation
            return ["FCALL", name, len(keys), *keys, *args]
        if operation not in self.texts:
            self.texts[operation] = printed("--eval", operation)
        return ["EVAL", self.texts[operation], len(keys), *keys, *args]

    def __call__(self, operation, keys, *args):
        try:
            return self.redis.cmd(*self.words(operation, keys, *args))
        except RedisError as error:
            raise refusal(str(error)) from None


@pytest.fixture
def start_redis():
    """Redis(...), ended after the test."""
    with contextlib.ExitStack() as stack:
        def start(*args):
            redis = Redis(*args)
            stack.callback(redis.stop)
            return redis

        yield start


@pytest.fixture(scope="module")
def shared_redis():
    redis = Redis()
    yield redis
    redis.stop()


@pytest.fixture
def redis(shared_redis):
    """Empty. One server for all tests of a file that neither stop nor configure it."""
    shared_redis.cmd("FLUSHALL")
    shared_redis.cmd("FUNCTION", "FLUSH")
    return shared_redis


@pytest.fixture(params=FORMS)
def guard(redis, request):
    return Guard(redis, request.param)


@pytest.fixture
def at_home(redis, tmp_path):
    """Starts a piece of shell in which `holdfast` is the build's, and `redis-cli` asks the test's server."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "holdfast").symlink_to(os.path.abspath(BIN))
    (tools / "redis-cli").write_text(f'#!/bin/sh\nexec {shlex.quote(REDIS_CLI)} -p {redis.port} "$@"\n')
    (tools / "redis-cli").chmod(0o755)
    env = {**Cli(redis.url()).env, "PATH": f"{tools}:{os.environ['PATH']}"}

    started = []

    def start(text, cwd=tmp_path, **more):
        started.append(subprocess.Popen(["sh", "-euc", text], cwd=cwd, env={**env, **more}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()


def ended(started):
    """Its output, in words."""
    out, err = started.communicate(timeout=PATIENCE * 2)
    assert started.returncode == 0, err
    return out.split()
