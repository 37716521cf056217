"""A node is added to a cluster that has very many locks, and serves. make soak-cluster-newcomer runs it with a million."""
import random
import threading
import time

from load import Prober
from nodes import PATIENCE, SOAK, TTL_MAX, until

LOCKS = 1000000 if SOAK else 50000
STALL_BAR = 0.1 if SOAK else 10  # seconds
SNAPSHOT = [] if SOAK else ["--snapshot-bytes", "1MiB"]  # so that there is one
BATCH, LEASES, SAMPLE = 1000, 100, 2000
CATCH_UP_MAX = 10 * PATIENCE


def fill(leader):
    """Locks by number: their tokens."""
    tokens = []
    with leader.connect() as client:
        for first in range(0, LOCKS, BATCH):
            tokens += client.pipeline(*[["ACQUIRE", f"lock-{index}", f"lease-{index % LEASES}", "TTL", TTL_MAX]
                                        for index in range(first, first + BATCH)])
    assert all(isinstance(token, int) for token in tokens) and tokens == sorted(set(tokens))
    return tokens


def test_a_newcomer_catches_up(start, figures):
    cluster = start(3, *SNAPSHOT)
    leader = cluster.settled()
    tokens = fill(leader)
    over = threading.Event()
    prober = Prober(cluster.session(), over)
    prober.start()
    try:
        until(lambda: prober.failure or len(prober.granted) > 200, "it works")
        node = cluster.node(4, "--join")
        assert node.launch()
        begin = time.monotonic()
        assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK"

        def votes():
            time.sleep(0.05)  # leaves the processor to those who are measured
            return prober.failure or cluster.leader().members()[4]["votes"]

        until(votes, "it has caught up, and votes", CATCH_UP_MAX)
        end = time.monotonic()
        until(lambda: prober.failure or prober.after(end), "it goes on")
        stall, served = prober.longest(begin, end), len([1 for _, got, _ in prober.granted if begin < got < end])
    finally:
        over.set()
        prober.join(PATIENCE)
        if prober.failure:
            raise prober.failure
    cluster.settled()
    cluster.lead_by(node)
    assert node.count("holds") == LOCKS
    sample = random.Random(1).sample(range(LOCKS), SAMPLE)
    with node.connect() as client:
        assert client.pipeline(*[["CHECK", f"lock-{index}", tokens[index]] for index in sample]) == [1] * SAMPLE
        assert client.cmd("ACQUIRE", "newest", "l") > max(tokens[-1], prober.granted[-1][2])
    # And not only for as long as it runs.
    node.kill9()
    assert node.launch()
    cluster.settled()
    cluster.lead_by(node)
    assert node.count("holds") == LOCKS + 1
    figures(f"{LOCKS} locks: a newcomer votes after {end - begin:.1f} s; meanwhile {served} grants to one client, the "
            f"longest stall {stall * 1000:.0f} ms")
    assert stall <= STALL_BAR
