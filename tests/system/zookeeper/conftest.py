"""Three real ZooKeeper servers for black-box tests, with kazoo to see and do what others see and do.

Told by the environment, which meson sets: HF_ZOOKEEPER (the program hf-zookeeper), HF_HOLDER (tests/system/redis/holder.py), HF_TEST_TMP
(where directories are made), and what tests/system/cli/holdfast_cli.py reads. Whatever a test starts is ended after it.

    ensemble            one for all tests of a file; .url("/root?names=kazoo"), .kazoo(), .say("kill 0")
    read_only_ensemble  one whose servers serve read-only when they have no majority
    cli_on(url)         the command on this store
"""
import contextlib
import logging
import os
import pathlib
import subprocess
import sys

import pytest
from kazoo.client import KazooClient

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(TESTS / "cli"))
sys.path.append(str(TESTS / "redis"))  # holder.py
pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import PATIENCE, ROOT, Cli, Process, die_with_parent  # noqa: E402,F401

HF_ZOOKEEPER = os.environ.get("HF_ZOOKEEPER", str(ROOT / "build-check/tests/lib/servers/hf-zookeeper"))
logging.getLogger("kazoo").setLevel(logging.CRITICAL)


class Ensemble:
    def __init__(self, *lines, java_options=""):
        # It dies with its input, and so with us.
        self.popen = subprocess.Popen([HF_ZOOKEEPER, *lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, "JDK_JAVA_OPTIONS": java_options})
        word, *ports = self.popen.stdout.readline().split() or ["nothing"]
        assert word == "ports"
        self.hosts = ",".join("127.0.0.1:" + port for port in ports)
        self.stack = contextlib.ExitStack()

    def say(self, line):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        answer = self.popen.stdout.readline().strip()
        assert answer != "error", line
        return answer

    def url(self, rest="", access=""):
        return f"zookeeper://{access}{self.hosts}{rest}"

    def kazoo(self, **options):
        client = KazooClient(hosts=self.hosts, timeout=10, **options)
        client.start(timeout=PATIENCE)
        self.stack.callback(client.close)
        self.stack.callback(client.stop)
        return client

    def stop(self):
        self.stack.close()
        self.popen.stdin.close()
        self.popen.wait(PATIENCE)


def children(kazoo, path):
    """As of now: the server that kazoo is connected to may lag behind."""
    kazoo.sync(path)
    return kazoo.get_children(path)


@pytest.fixture(scope="module")
def ensemble(request):
    made = Ensemble(*getattr(request.module, "CONFIGURATION", ()))
    yield made
    made.stop()


@pytest.fixture
def read_only_ensemble():
    made = Ensemble(java_options="-Dreadonlymode.enabled=true")
    yield made
    made.stop()


class Servers:
    """What a test started, to be ended in the reverse order."""

    def __init__(self, stack):
        self.stack = stack


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def cli_on(servers):
    def make(url):
        cli = Cli(url)
        servers.stack.callback(cli.clean)
        return cli

    return make
