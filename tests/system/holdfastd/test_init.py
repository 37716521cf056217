"""`holdfast cluster init` when it cannot be: the answer comes whole, in time, and says whose fault it is."""
import re

import pytest
from conftest import Unfounded, different_ports
from holdfast_cli import Cli

MANY = 9


@pytest.fixture
def start():
    started = []

    def start_one(number, line, *args):
        started.append(Unfounded(number, line, *args))
        return started[-1]

    yield start_one
    for node in started:
        node.clean()


def line_of(peers):
    return ",".join(f"{number}={peer}" for number, peer in peers.items())


def peers_of(count):
    return {number: f"127.0.0.1:{port}" for number, port in enumerate(different_ports(count), 1)}


def init(node, options=""):
    """What the command says, at this node: its exit status, and its last line."""
    done = Cli(f"holdfast://127.0.0.1:{node.port}{options}")("cluster", "init")
    return done.status, done.stderr.splitlines()


@pytest.mark.parametrize("number", [1, 2], ids=["the founder", "another"])
def test_the_answer_is_waited_for(start, number):
    """The node asks for seconds; a client that waits for less time, for other answers, is patient here, and says what takes long."""
    node = start(number, line_of(peers_of(3)))
    status, said = init(node, "?timeout=1s")
    assert status == 77 and len(said) == 2, said
    assert "have not answered yet" in said[0], said
    assert "nothing was changed" in said[1] and "not answer" in said[1] and "lost" not in said[1], said


@pytest.mark.parametrize("host", ["127.0.0.1", "h" * 60 + ".invalid"], ids=["short", "long"])
def test_many_that_are_down_are_all_named(start, tmp_path, host):
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret that is long enough\n")
    own, *others = different_ports(MANY)
    peers = {number: f"{host}:{port}" for number, port in enumerate(others, 2)}
    node = start(1, line_of({1: f"127.0.0.1:{own}", **peers}), "--secret-file", secret)
    status, said = init(node)
    assert status == 77, said
    numbers = [int(number) for number in re.findall(r"\b([2-9])\b", re.sub(r"\S+:\d+", "", said[-1]))]
    assert numbers == list(peers) and "do not answer" in said[-1], said
    assert said[-1].endswith("secret?)"), "to its end"


def test_the_node_that_differs_is_told_that_it_is_the_one(start):
    peers = peers_of(5)
    line, other = line_of({n: peers[n] for n in (1, 2, 3, 4)}), line_of({**{n: peers[n] for n in (1, 2, 3)}, 4: peers[5]})
    nodes = [start(number, line) for number in (1, 2)] + [start(3, other)]
    status, said = init(nodes[2])
    assert status == 77 and re.search(r"this node, node 3( at \S+)?, lists other members", said[-1]), said
    status, said = init(nodes[0])
    assert status == 77 and re.search(r"node 3 at \S+ lists other members", said[-1]) and "this node" not in said[-1], said


def test_the_founder_that_differs_is_told_that_it_is_the_one(start):
    more = peers_of(4)
    peers = {n: more[n] for n in (1, 2, 3)}
    nodes = [start(1, line_of(more))] + [start(number, line_of(peers)) for number in (2, 3)]
    status, said = init(nodes[0])
    assert status == 77 and "this node, node 1, lists other members" in said[-1] and line_of(peers) in said[-1], said
