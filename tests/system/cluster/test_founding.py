"""Founding a cluster is an act: who waits, who is founded with whom, and what must never found a second one."""
import concurrent.futures
import random
import shutil
import time

import pytest
from helpers import all_there, content, held, restore
from nodes import SOAK, TTL_MAX, Node, Refused, free_port, fresh, until

NOBODY_SECONDS = 3  # some election timeouts: as long as nobody may serve
KILL_ROUNDS = 60 if SOAK else 8
KILL_WITHIN = 0.12  # seconds: an INIT of three nodes takes about as long


def say_init(node, patience=20):
    """What it answers: "OK", or the error; None if it answers nothing."""
    try:
        with node.connect(patience=patience) as client:
            client.send("CLUSTER", "INIT")
            return client.read()
    except Exception as error:  # refused by the server, or the connection is gone
        return str(error) if isinstance(error, Refused) else None


def waiting(start, count=3, **kwargs):
    """Nodes that run and wait."""
    cluster = start(count, founded=False, **kwargs)
    for node in cluster:
        assert node.launch()
    return cluster


def nobody_serves(nodes, seconds=NOBODY_SECONDS):
    """None of them grants anything."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for node in nodes:
            with node.connect() as client:
                answer = client.error("ACQUIRE", fresh(), fresh())
            assert answer.startswith(("TRYAGAIN ", "MOVED ")), answer
            assert not node.leads(), f"{node} leads"
        time.sleep(0.02)


def lose_data(node):
    node.kill9()
    shutil.rmtree(node.data)


def ids(cluster):
    return {node.status()["cluster"] for node in cluster.running()}


def founded_by_all(cluster):
    """One cluster, which serves."""
    cluster.settled()
    assert len(ids(cluster)) == 1 and ids(cluster) != {""}
    assert cluster.ask("ACQUIRE", fresh(), fresh()) > 0


# ---- waiting -----------------------------------------------------------------------------------------------------


def test_members_with_empty_directories_wait(start):
    """They say what for, to clients and in their logs, and go on waiting after a restart."""
    cluster = waiting(start)
    for _ in range(2):
        nobody_serves(cluster)
        for node in cluster:
            status = node.status()
            assert (status["role"], status["cluster"], status["members"]) == ("waiting", "", [])
            with node.connect() as client:
                assert "holdfast cluster init" in client.error("ACQUIRE", "x", "l")
            assert any("belongs to no cluster yet" in line and "holdfast cluster init" in line for line in node.logged())
            assert node.stop() == 0
            assert node.launch()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_init_founds_the_cluster_once(start, count):
    """Said to any of them; and a second time it is a clear answer, and changes nothing."""
    cluster = waiting(start, count)
    assert say_init(cluster[count]) == "OK"
    founded_by_all(cluster)
    before = ids(cluster)
    token = cluster.ask("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    for node in cluster:
        assert say_init(node).startswith("ERR this cluster is founded already")
    assert cluster.ask("CHECK", "x", token) == 1 and ids(cluster) == before
    for node in cluster:
        assert node.stop() == 0
    for node in cluster:
        node.begin()
    cluster.settled()
    assert cluster.ask("CHECK", "x", token) == 1 and ids(cluster) == before


def test_a_node_alone_founds_itself(start):
    cluster = start(1, founded=False)
    node = cluster[1]
    node.line = None
    assert node.launch()
    until(node.leads, "it serves")
    assert node.status()["cluster"] and say_init(node).startswith("ERR this node was started without a cluster")


def test_a_node_that_waits_to_be_added_is_not_founded(start):
    cluster = waiting(start, 3)
    assert cluster[2].stop() == 0
    cluster[2].args = ["--join"]
    assert cluster[2].launch()
    assert "node 2 at" in (answer := say_init(cluster[1])) and "--join" in answer
    assert say_init(cluster[2]).startswith("ERR this node was started with --join")
    nobody_serves(cluster, 1)


def test_a_node_that_is_added_belongs_to_the_cluster(start):
    """With --join or without, and whatever it lists besides itself."""
    cluster = start()
    for number, line, args in [(4, None, []), (5, cluster.line, []), (6, None, ["--join"])]:
        node = cluster.node(number, *args)
        node.line = f"{line},{node.line}" if line else node.line
        assert node.launch()
        assert node.status()["role"] == "waiting"
        assert cluster.ask("CLUSTER", "ADD", number, node.peer) == "OK"
        until(lambda: cluster.leader().members()[number]["votes"], f"{node} votes")
    founded_by_all(cluster)


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_init_with_a_member_down_is_refused_and_names_it(start):
    cluster = start(3, founded=False)
    for number in (1, 2):
        assert cluster[number].launch()
    for node in (cluster[1], cluster[2]):
        before = content(node.data)
        answer = say_init(node)
        assert answer.startswith("NOREPLY the cluster is not founded, and nothing was changed: node 3 at ")
        assert "does not answer" in answer and "node 2" not in answer and "node 1" not in answer
        assert content(node.data) == before
    nobody_serves([cluster[1], cluster[2]])
    assert cluster[3].launch()
    assert say_init(cluster[2]) == "OK"
    founded_by_all(cluster)


def test_init_without_the_one_that_founds_is_refused(start):
    cluster = start(3, founded=False)
    for number in (2, 3):
        assert cluster[number].launch()
    answer = say_init(cluster[3])
    assert answer.startswith("NOREPLY ") and "node 1 at" in answer and "does not answer" in answer
    nobody_serves([cluster[2], cluster[3]], 1)


def test_members_with_different_lists_are_noticed(start):
    cluster = start(3, founded=False)
    cluster[3].line = cluster.line.replace(cluster[2].peer, f"127.0.0.1:{free_port()}")
    for node in cluster:
        assert node.launch()
    answer = say_init(cluster[1])
    assert answer.startswith("ERR the cluster is not founded, and nothing was changed: node 3 at ")
    assert "lists other members" in answer and cluster[3].line in answer
    assert say_init(cluster[3]) != "OK"
    nobody_serves(cluster)
    assert cluster[3].stop() == 0
    cluster[3].line = cluster.line
    assert cluster[3].launch()
    assert say_init(cluster[3]) == "OK"
    founded_by_all(cluster)


def test_a_member_of_another_cluster_is_named(start):
    """Two of these have run before, as a cluster."""
    first = start(2)
    second = start(3, founded=False)
    assert first[2].stop() == 0
    second[3].peer = first[1].peer  # that is node 1 of the first, which is not node 3
    line = f"1={second[1].peer},2={second[2].peer},3={first[1].peer}"
    for number in (1, 2):
        second[number].line = line
        assert second[number].launch()
    answer = say_init(second[1])
    assert answer.startswith("NOREPLY the cluster is not founded") and "node 3 at" in answer, "what is there is not node 3"
    nobody_serves([second[1], second[2]], 1)


# ---- directories that were lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 3])
@pytest.mark.parametrize("runs", ["runs", "does not run"])
def test_two_of_three_come_back_with_empty_directories(start, left, runs):
    """A volume that is not mounted. They know nothing of what was acknowledged, and are a majority."""
    cluster = start()
    holds = held(cluster)
    # Of what is acknowledged two have all: the one whose data is left is to be one of them.
    cluster.settled()
    assert cluster[left].stop() == 0
    lost = [node for node in cluster if node.number != left]
    for node in lost:
        node.kill9()
    for node in lost:
        lose_data(node)
        assert node.launch()
    if runs == "runs":
        cluster[left].begin()
        until(cluster[left].answers, "it answers")
    nobody_serves(cluster.running())
    for node in cluster.running():
        answer = say_init(node)
        assert answer is not None and answer.startswith("ERR " if runs == "runs" else "NOREPLY "), answer
        lost = "have come back without their data" if node.number == left else "has come back without its data"
        assert f"node {left} at" in answer or lost in answer, answer
    nobody_serves(cluster.running(), 1)
    # The volumes are mounted again, so to speak: what is left begins anew, by somebody's decision.
    for node in cluster:
        node.kill9()
    copy = cluster.directory / "copy"
    shutil.move(cluster[left].data, copy)
    restored = Node(left, cluster.directory, data=cluster.directory / "restored", peer=cluster[left].peer)
    restore(copy, restored)
    cluster.nodes = {left: restored}
    assert restored.launch()
    until(restored.leads, "it serves")
    with cluster.session() as session:
        assert all_there(session, holds)
        assert session.ask("ACQUIRE", "x", "l") > max(token for _, token in holds) + 2**39


def test_one_that_was_never_told_and_one_that_lost_its_disk(start):
    """Of three that were founded, one has not heard of it; one has acknowledged and lost its disk; the third is down. Those two
    are a majority, and nobody may believe them."""
    cluster = waiting(start)
    one, lost, untold = cluster
    assert untold.stop() == 0
    shutil.copytree(untold.data, cluster.directory / "untold")
    assert untold.launch()
    cluster.init()
    cluster.settled()
    untold.kill9()
    holds = held(cluster)
    one.kill9()
    lose_data(lost)
    shutil.rmtree(untold.data)
    shutil.move(cluster.directory / "untold", untold.data)
    for node in (lost, untold):
        assert node.launch()
    nobody_serves([lost, untold])
    for node in (lost, untold):
        assert say_init(node) != "OK"
    nobody_serves([lost, untold], 1)
    # With the one that knows, there is a majority that does.
    assert one.launch()
    with cluster.session() as session:
        assert all_there(session, holds)
    assert untold.status()["cluster"] == one.status()["cluster"] and lost.status()["cluster"] == ""


def test_one_that_was_never_started_and_one_that_lost_its_disk(start):
    """Two of three were started, and one of these lost its disk before the third came."""
    cluster = start(3, founded=False)
    for number in (1, 2):
        assert cluster[number].launch()
    say_init(cluster[1])
    nobody_serves([cluster[1], cluster[2]], 1)
    cluster[1].kill9()
    lose_data(cluster[2])
    for number in (2, 3):
        assert cluster[number].launch()
    say_init(cluster[2])
    nobody_serves([cluster[2], cluster[3]])


# ---- at the same time, and in the middle of it -------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5])
def test_init_to_all_of_them_at_once(start, count):
    cluster = waiting(start, count)
    with concurrent.futures.ThreadPoolExecutor(2 * count) as pool:
        answers = list(pool.map(say_init, 2 * list(cluster)))
    assert "OK" in answers
    assert all(answer == "OK" or answer.startswith("ERR this cluster is founded already") for answer in answers), answers
    founded_by_all(cluster)


def finish_init(cluster):
    """Said again until it is done. Nodes that were killed in the middle may take a moment to find each other."""
    def is_done():
        answer = say_init(random.choice(list(cluster)))
        assert answer is None or answer == "OK" or answer.startswith(("ERR ", "UNKNOWN ")), answer
        return answer == "OK" or (answer and "founded already, with all its members" in answer)

    until(is_done, "it is founded", 60)


@pytest.mark.parametrize("round", range(KILL_ROUNDS))
def test_kills_during_init(start, round):
    """At any moment, any nodes: nobody is of two clusters, and INIT again finishes the job."""
    rng = random.Random(round)
    cluster = waiting(start)
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            asked = [pool.submit(say_init, node, 5) for node in rng.sample(list(cluster), rng.choice([1, 2]))]
            time.sleep(rng.random() * KILL_WITHIN)
            killed = rng.sample(list(cluster), rng.choice([1, 1, 2, 3]))
            for node in killed:
                node.kill9()
            seen |= {status["cluster"] for node in cluster if (status := node.status())}
            for node in killed:
                assert node.launch()
            for answer in asked:
                answer.result()
    finish_init(cluster)
    founded_by_all(cluster)
    assert seen - {""} <= ids(cluster), "there was another one before"


def test_a_member_that_was_away_is_told_when_it_comes(start):
    """It answered, and was stopped before it was told: those who know do not need it, and tell it later."""
    cluster = waiting(start)
    assert cluster[3].stop() == 0
    shutil.copytree(cluster[3].data, cluster.directory / "before")
    assert cluster[3].launch()
    cluster.init()
    cluster.settled()
    token = cluster.ask("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    for node in cluster:
        node.kill9()
    shutil.rmtree(cluster[3].data)
    shutil.move(cluster.directory / "before", cluster[3].data)
    cluster[2].begin()  # alone it cannot lead: it tells node 3 of the founding, and both can
    cluster[3].begin()
    cluster.settled()
    assert cluster.ask("CHECK", "x", token) == 1
    cluster[1].begin()
    founded_by_all(cluster)
