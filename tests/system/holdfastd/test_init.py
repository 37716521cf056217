"""`holdfast cluster init` when it cannot be: the answer comes whole, in time, and says whose fault it is."""
import re

import pytest
from conftest import Unfounded, different_ports, run_refused
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
    assert status == 69 and len(said) == 2, said
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
    assert status == 69, said
    numbers = [int(number) for number in re.findall(r"\b([2-9])\b", re.sub(r"\S+:\d+", "", said[-1]))]
    assert numbers == list(peers) and "do not answer" in said[-1], said
    assert said[-1].endswith("secret?)"), "to its end"


def test_the_node_that_differs_is_told_that_it_is_the_one(start):
    peers = peers_of(5)
    line, other = line_of({n: peers[n] for n in (1, 2, 3, 4)}), line_of({**{n: peers[n] for n in (1, 2, 3)}, 4: peers[5]})
    nodes = [start(number, line) for number in (1, 2)] + [start(3, other)]
    status, said = init(nodes[2])
    assert status == 77 and re.search(r"this node, node 3( at \S+)?, lists other members", said[-1]), said
    status, said = init(nodes[0])  # node 4 is silent, but waiting for it would not help
    assert status == 77 and re.search(r"node 3 at \S+ lists other members", said[-1]) and "this node" not in said[-1], said


def test_the_founder_that_differs_is_told_that_it_is_the_one(start):
    more = peers_of(4)
    peers = {n: more[n] for n in (1, 2, 3)}
    nodes = [start(1, line_of(more))] + [start(number, line_of(peers)) for number in (2, 3)]
    status, said = init(nodes[0])
    assert status == 77 and "this node, node 1, lists other members" in said[-1] and line_of(peers) in said[-1], said


@pytest.mark.parametrize("wrong", [1, 3], ids=["the founder", "another"])
def test_the_node_with_the_wrong_secret_is_told_that_it_is_the_one(start, tmp_path, wrong):
    """Whoever is asked there has looked at one node, which is innocent."""
    peers = peers_of(3)
    for number in peers:
        secret = tmp_path / f"s{number}"
        secret.touch(0o600)
        secret.write_text("another" * 6 if number == wrong else "the same" * 6)
    nodes = {number: start(number, line_of(peers), "--secret-file", tmp_path / f"s{number}") for number in peers}
    status, said = init(nodes[wrong])
    assert status == 77 and "nothing was changed" in said[-1] and "none of the others accepts this node's secret" in said[-1], said
    status, said = init(nodes[2])
    assert status == 69 and re.search(rf"node {wrong} at \S+ does not answer", said[-1]) and "none" not in said[-1], said


def test_all_that_do_not_answer_are_named_by_any_node(start):
    peers = peers_of(4)
    nodes = {number: start(number, line_of(peers)) for number in (3, 4)}
    status, said = init(nodes[3])
    assert status == 69 and re.search(r"nodes 1 at \S+ and 2 at \S+ do not answer", said[-1]), said


@pytest.mark.parametrize("where, why", [("an address that somebody has", "already in use"), ("another machine's address", "not available")])
def test_an_id_that_was_forgotten(start, tmp_path, where, why):
    """It is 1 without --id, whose address node 1 listens at: here, or on its own machine."""
    peers = peers_of(2)
    if where == "another machine's address":
        peers[1] = "192.0.2.1:7431"
    else:
        start(1, line_of(peers))
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret that is long enough\n")
    status, line = run_refused("--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--secret-file", secret, "--cluster", line_of(peers))
    assert status == 69 and f"cannot listen at {peers[1]} for other nodes: " in line and why in line, line
    assert line.endswith("(is id this node's own, and no other holdfastd there? --peer-listen takes another address)")
