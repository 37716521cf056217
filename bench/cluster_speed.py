#!/usr/bin/env python3
"""Three nodes of holdfastd, each answer synced on a majority, beside Redis 7 in one run, by redis-benchmark.

    bench/cluster_speed.py HOLDFASTD FOLDER [--rounds N]

Rounds alternate between the two, the figures are medians, what counts is their ratio. All of it shares this machine: three
nodes and the load generator. Redis keeps nothing on disk; for one connection it syncs each answer, too. HOLDFASTD is the
release build's.
"""
import os
import resource
import statistics
import subprocess
import sys
import time

from server_speed import OURS, REDIS, benchmark, durable_set, report
from servers import Cluster, Connection, Folder, command, redis

# Connections, pipelined commands, requests of a round, least ratio.
LOADS = [(50, 1, 200000, 0.6), (200, 1, 200000, 0.95), (50, 16, 800000, 1.3)]
FEW = (1, 2, 4, 8)  # connections
FEW_REQUESTS = 4000  # of one connection
FEW_MOST = 1.5  # times the median latency of one
ALONE_ROUNDS = 300
ALONE_MOST = 2.5  # times a durable SET


def generator_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def one_round(cluster, clients, pipeline, requests, label):
    """Requests per second, and µs of CPU per request of leader, followers and load generator."""
    before = [generator_seconds()] + [m.cpu_seconds() for m in cluster.followers]
    rate, leader = benchmark(cluster.leader, OURS, clients, pipeline, requests, label)
    after = [generator_seconds()] + [m.cpu_seconds() for m in cluster.followers]
    spent = [(b - a) / requests * 1e6 for a, b in zip(before, after)]
    return rate, leader, statistics.mean(spent[1:]), spent[0]


def loads(cluster, theirs, rounds):
    met = True
    for clients, pipeline, requests, limit in LOADS:
        ours, their = [], []
        for i in range(rounds + 1):  # the first one warms up
            label = "%d-%d-%d" % (clients, pipeline, i)
            r = benchmark(theirs, REDIS, clients, pipeline, requests, label)
            h = one_round(cluster, clients, pipeline, requests, label)
            if i:
                their.append(r), ours.append(h)
            print("   round %d of %d: %7.0f/s, Redis %7.0f/s" % (i, rounds, h[0], r[0]), end="\r", flush=True)
        rate, leader, follower, generator = (statistics.median(column) for column in zip(*ours))
        met &= report("%d connections, -P %d: ACQUIRE beside SET NX PX" % (clients, pipeline),
                      statistics.median(h[0] / r[0] for h, r in zip(ours, their)), limit,
                      "  (%.0f/s beside %.0f/s)" % (rate, statistics.median(r[0] for r in their)), True)
        print("   µs of CPU each: leader %.1f, a follower %.1f, load generator %.1f; Redis %.1f" % (
            leader, follower, generator, statistics.median(r[1] for r in their)))
    return met


def durable_acquire(connection, rounds, first):
    times = []
    for i in range(first, first + rounds):
        text = command("ACQUIRE", "alone:%d" % i, "lease-%d" % i, "TTL", "30000")
        begin = time.perf_counter()
        connection.socket.sendall(text)
        if not isinstance(connection.answer(), int):
            raise SystemExit("not granted")
        times.append(time.perf_counter() - begin)
    return times


def one_connection(cluster, folder, rounds):
    durable = redis(folder, "--appendonly", "yes", "--appendfsync", "always")
    ratios, ours, theirs = [], [], []
    try:
        with Connection(cluster.port) as mine, Connection(durable.port) as their:
            for i in range(rounds + 1):
                s = statistics.median(durable_set(their, ALONE_ROUNDS, i * ALONE_ROUNDS))
                h = statistics.median(durable_acquire(mine, ALONE_ROUNDS, i * ALONE_ROUNDS))
                if i:
                    ratios.append(h / s), ours.append(h), theirs.append(s)
    finally:
        durable.stop()
    return report("1 connection: ACQUIRE beside SET, appendfsync always", statistics.median(ratios), ALONE_MOST,
                  "  (%.0f µs beside %.0f µs)" % (1e6 * statistics.median(ours), 1e6 * statistics.median(theirs)),
                  False)


def median_latency(cluster, clients, label):
    """Milliseconds, as redis-benchmark counts them."""
    words = [word % label if "%s" in word else word for word in OURS]
    out = subprocess.run(["redis-benchmark", "-p", str(cluster.port), "-c", str(clients), "-n", str(FEW_REQUESTS * clients), "-r", "1000000000",
                          "--csv", *words], capture_output=True, text=True, timeout=300).stdout.splitlines()
    columns = dict(zip(*(line.strip('"').split('","') for line in (out[0], out[-1]))))
    return float(columns["p50_latency_ms"])


def few_connections(cluster, rounds):
    """Of a few clients none waits for the others."""
    found = {clients: [] for clients in FEW}
    for i in range(rounds + 1):
        for clients in FEW:
            latency = median_latency(cluster, clients, "few-%d-%d" % (clients, i))
            if i:
                found[clients].append(latency)
    met = True
    for clients in FEW[1:]:
        met &= report("%d connections: median latency beside that of 1" % clients,
                      statistics.median(many / one for many, one in zip(found[clients], found[1])), FEW_MOST,
                      "  (%.0f µs beside %.0f µs)" % (1e3 * statistics.median(found[clients]), 1e3 * statistics.median(found[1])), False)
    return met


def main():
    program, below = map(os.path.abspath, sys.argv[1:3])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    with Folder(below) as folder:
        theirs = redis(folder)
        cluster = Cluster(program, folder)
        try:
            # First: later, hundreds of thousands of leases would end meanwhile.
            met = one_connection(cluster, folder, rounds)
            met &= few_connections(cluster, rounds)
            met &= loads(cluster, theirs, rounds)
        finally:
            cluster.stop()
            theirs.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
