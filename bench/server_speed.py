#!/usr/bin/env python3
"""holdfastd beside Redis 7 in one run: by redis-benchmark, and what a hand-over costs.

    bench/server_speed.py HOLDFASTD FOLDER [--rounds N]

Rounds alternate between the two servers, the figures are medians, what counts is their ratio. Redis keeps nothing on disk,
except where it says "always"; holdfastd syncs every answer. HOLDFASTD is the release build's.
"""
import os
import re
import statistics
import subprocess
import sys
import time

from servers import Connection, Folder, command, holdfastd, redis

REDIS = ["SET", "lock:%s:__rand_int__", "tok", "NX", "PX", "30000"]
OURS = ["ACQUIRE", "lock:%s:__rand_int__", "lease-%s-__rand_int__", "TTL", "30000"]
# Connections, pipelined commands, requests of a round, least ratio.
LOADS = [(50, 1, 200000, 0.75), (200, 1, 200000, 0.9), (50, 16, 800000, 1.5)]
HANDOVERS = [(1000, 2.0), (100000, 2.0)]  # waiters, most times a durable SET
HANDOVER_ROUNDS = 300


def benchmark(server, words, clients, pipeline, requests, label):
    """Requests per second, and the server's µs of CPU per request."""
    words = [w % label if "%s" in w else w for w in words]
    before = server.cpu_seconds()
    out = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), "-c", str(clients), "-P", str(pipeline), "-n", str(requests),
         "-r", "1000000000", "-q", *words], capture_output=True, text=True, timeout=300).stdout
    found = re.findall(r"([0-9.]+) requests per second", out)
    if not found:
        raise SystemExit("redis-benchmark said: " + out[-300:])
    return float(found[-1]), (server.cpu_seconds() - before) / requests * 1e6


def report(what, figure, limit, unit, least):
    met = figure >= limit if least else figure <= limit
    print("%-58s %6.2fx   %s %.2fx%s" % (what, figure, "at least" if least else "at most", limit,
                                         "" if met else "   MISSED"), unit)
    return met


def loads(ours, theirs, rounds):
    met = True
    for clients, pipeline, requests, limit in LOADS:
        mine, their, cpu, their_cpu = [], [], [], []
        for i in range(rounds + 1):  # the first one warms up
            label = "%d-%d-%d" % (clients, pipeline, i)
            r = benchmark(theirs, REDIS, clients, pipeline, requests, label)
            h = benchmark(ours, OURS, clients, pipeline, requests, label)
            if i:
                their.append(r[0]), mine.append(h[0]), their_cpu.append(r[1]), cpu.append(h[1])
            print("   round %d of %d: %7.0f/s, Redis %7.0f/s" % (i, rounds, h[0], r[0]), end="\r", flush=True)
        ratio = statistics.median(m / t for m, t in zip(mine, their))
        met &= report("%d connections, -P %d: ACQUIRE beside SET NX PX" % (clients, pipeline), ratio, limit,
                      "  (%.0f/s beside %.0f/s; %.1f µs of CPU each beside %.1f)" % (
                          statistics.median(mine), statistics.median(their), statistics.median(cpu),
                          statistics.median(their_cpu)), True)
    return met


def durable_set(connection, rounds, first):
    times = []
    for i in range(first, first + rounds):
        text = command("SET", "lock:%d" % i, "tok", "PX", "30000")
        begin = time.perf_counter()
        connection.socket.sendall(text)
        connection.answer()
        times.append(time.perf_counter() - begin)
    return times


def hand_over(holder, waiting, name, rounds, first):
    """Release to grant. Each grant goes to the next in the queue, which releases in its turn."""
    times = []
    for i in range(first, first + rounds):
        text = command("RELEASE", name, "w%d" % i)
        begin = time.perf_counter()
        holder.socket.sendall(text)
        push = waiting.push()
        times.append(time.perf_counter() - begin)
        if push[:3] != ["granted", name, "w%d" % (i + 1)] or waiting.pushes:
            raise SystemExit("the wrong one was woken: %r" % push)
        if holder.answer() != 1:
            raise SystemExit("a release was not one")
    return times


def handovers(ours, folder, rounds):
    met = True
    durable = redis(folder, "--appendonly", "yes", "--appendfsync", "always")
    try:
        for waiters, limit in HANDOVERS:
            name = "queue-of-%d" % waiters
            with Connection(ours.port) as holder, Connection(ours.port, resp3=True) as waiting, \
                    Connection(durable.port) as setting:
                holder.call("ACQUIRE", name, "w0", "TTL", 3600000)
                for begin in range(1, waiters + 1, 1000):
                    end = min(begin + 1000, waiters + 1)
                    waiting.socket.sendall(b"".join(
                        command("ACQUIRE", name, "w%d" % i, "TTL", 3600000, "PUSH") for i in range(begin, end)))
                    for _ in range(begin, end):
                        if waiting.answer() != "QUEUED":
                            raise SystemExit("not queued")
                ratios, mine, their, at = [], [], [], 0
                per = HANDOVER_ROUNDS // (rounds + 1)
                for i in range(rounds + 1):
                    s = statistics.median(durable_set(setting, per, at))
                    h = statistics.median(hand_over(holder, waiting, name, per, at))
                    at += per
                    if i:
                        ratios.append(h / s), mine.append(h), their.append(s)
                met &= report("hand-over with %d waiters beside SET, appendfsync always" % waiters,
                              statistics.median(ratios), limit, "  (%.0f µs beside %.0f µs)" % (
                                  1e6 * statistics.median(mine), 1e6 * statistics.median(their)), False)
    finally:
        durable.stop()
    return met


def main():
    program, below = map(os.path.abspath, sys.argv[1:3])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    with Folder(below) as folder:
        ours, theirs = holdfastd(program, folder), redis(folder)
        try:
            met = loads(ours, theirs, rounds)
            met &= handovers(ours, folder, rounds)
        finally:
            ours.stop()
            theirs.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
