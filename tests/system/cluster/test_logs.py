"""What the logs of a cluster's nodes say of elections, members and secrets: one line for each event on each node that learns of it. Ids,
terms and addresses are fields, never parts of a sentence."""
import re

import pytest
from helpers import add
from nodes import until

ELECTION = "1s"  # longer than a machine with other things to do makes a leader wait
SECRET = '"it does not know the cluster\'s secret, or this node does not: compare secret-file on both"'


def lines(node, level, words):
    """Those of its log with exactly these words before the fields, as dicts of their fields."""
    found = []
    for line in node.logged():
        match = re.fullmatch(r"\S+Z (\w+) +(.*?)((?: \w+=(?:\"[^\"]*\"|\S*))*)", line)
        if match and match.group(1, 2) == (level, words):
            found.append(dict(re.findall(r" (\w+)=(\"[^\"]*\"|\S*)", match.group(3))))
    return found


def says(node, level, words, /, **fields):
    """Waits for such a line; each of these fields has that value, and there are no others."""
    expected = {key: str(value) for key, value in fields.items()}
    until(lambda: expected in lines(node, level, words), f"{node} logs '{words}' with {expected}: {lines(node, level, words)}")
    return lines(node, level, words).count(expected)


@pytest.fixture
def three(start):
    return start(3, "--election-timeout", ELECTION)


def test_an_election(three):
    leader = three.settled()
    term = leader.status()["term"]
    assert says(leader, "info", "this node was elected leader", term=term) == 1
    for node in three.followers():
        assert says(node, "info", "following", leader=leader.number, term=term) == 1
    leader.kill9()
    new = three.leader(other_than=leader)
    (other,) = [node for node in three if node not in (leader, new)]
    until(lambda: (other.status() or {}).get("leader") == new.number, "it follows")
    after = new.status()["term"]
    assert after > term
    assert says(new, "info", "this node was elected leader", term=after) == 1
    assert says(other, "info", "following", leader=new.number, term=after) == 1
    for node in (new, other):
        lost = lines(node, "info", "no leader any more: an election is under way")
        assert str(leader.number) in [fields["last_leader"] for fields in lost]


def test_a_leader_without_a_majority(three):
    leader, followers = three.settled(), three.followers()
    term = leader.status()["term"]
    for node in followers:
        node.kill9()
    until(lambda: not leader.leads(), "it steps down")
    (fields,) = lines(leader, "warning", "this node leads no more")
    assert int(fields["term"]) >= term


def test_a_transfer(three):
    leader, to = three.settled(), three.followers()[0]
    three.lead_by(to)
    term = to.status()["term"]
    assert says(leader, "info", "leadership was transferred", leader=to.number, term=term) == 1
    assert says(leader, "info", "this node leads no more", term=term) == 1, "as it was wished: no warning"
    assert lines(leader, "warning", "this node leads no more") == []


def test_members_come_and_go(three):
    """Every node says so, when it learns of it: the three, and the new one of itself."""
    three.settled()
    node = add(three, 4, "--join")
    members = {"node": 4, "peer": node.peer}
    for each in (three[1], three[2], three[3]):
        assert says(each, "info", "a node was added: it gets the log, and does not vote yet", **members) == 1
        assert says(each, "info", "a node has caught up: it votes from now on", **members) == 1
    assert says(node, "info", "a node has caught up: it votes from now on", **members) == 1
    assert three.ask("CLUSTER", "REMOVE", 4) == "OK"
    for each in (three[1], three[2], three[3]):
        assert says(each, "info", "a node was removed: connections with it end", **members) == 1
    until(lambda: node.status()["role"] == "removed", "it hears of it")
    removed = ("this node was removed from the cluster: stop it, and do not start it again with this data; to let the machine come back, "
               "empty its data directory, start it with a new id and --join, and add that")
    assert says(node, "warning", removed) == 1
    # A restart is no change: nobody is added again.
    follower = three.followers()[0]
    assert follower.stop() == 0
    before = len(follower.logged())
    assert follower.launch()
    until(lambda: follower.status()["leader"], "it follows")
    assert not [line for line in follower.logged()[before:] if "a node was added" in line or "it votes from now on" in line]


def test_a_wrong_secret(three):
    """The node that has it and those that refuse it name each other, and do not repeat it with every attempt."""
    three.settled()
    wrong = three.followers()[0]
    others = [node for node in three if node is not wrong]
    secret = three.directory / "secret"
    secret.touch(0o600)
    secret.write_text("w" * 40 + "\n")
    assert wrong.stop() == 0
    wrong.args += ["--secret-file", secret]
    assert wrong.launch()
    for node in others:
        assert says(node, "warning", "a node cannot be reached", node=wrong.number, peer=wrong.peer, why=SECRET) == 1
        assert says(wrong, "warning", "a node cannot be reached", node=node.number, peer=node.peer, why=SECRET) == 1
    for node in three:
        until(lambda: lines(node, "warning", "refused a connection to the port for peers"), f"{node} names who came")
        (refused,) = lines(node, "warning", "refused a connection to the port for peers")
        assert set(refused) == {"peer", "why"} and refused["why"] == SECRET
        assert re.fullmatch(r"127\.0\.0\.1:\d+", refused["peer"])
