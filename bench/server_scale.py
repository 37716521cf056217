#!/usr/bin/env python3
"""holdfastd with a lot in it: a million held locks, 100,000 leases that end together, 10,000 connections.

    bench/server_scale.py HOLDFASTD FOLDER

Takes about three minutes. HOLDFASTD is the release build's.
"""
import os
import resource
import signal
import sys
import threading
import time

from servers import Connection, Folder, command, holdfastd

LOCKS = 1000000
BYTES_MAX = 300          # for each held lock
RESTART_S_MAX = 10
STALL_MS_MAX = 50        # for others, while a snapshot is taken or leases end
ENDING = 100000          # leases that end in the same second
CONNECTIONS = 10000
SETTLE_S = 55
QUIET_S = 15  # a server in use has better things to do than to give memory back
PAGE = 1000

missed = 0


def report(what, figure, unit, most):
    global missed
    met = figure <= most
    missed += not met
    print("%-58s %10.1f %-6s at most %g%s" % (what, figure, unit, most, "" if met else "   MISSED"), flush=True)


def in_bulk(connection, commands, answers):
    """Sends all, a page at a time, and counts the answers that are as they should be."""
    right, page = 0, []

    def flush():
        nonlocal right
        connection.socket.sendall(b"".join(page))
        for _ in page:
            right += answers(connection.answer())
        page.clear()

    for words in commands:
        page.append(command(*words))
        if len(page) == PAGE:
            flush()
    flush()
    return right


class Watcher(threading.Thread):
    """Somebody else, who takes and gives back a lock all the time: the slowest of its turns is the stall."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.slowest, self.running, self.turns = port, 0.0, True, 0
        self.start()

    def run(self):
        with Connection(self.port) as c:
            while self.running:
                begin = time.monotonic()
                c.call("ACQUIRE", "watcher", "watcher", "TTL", 60000)
                c.call("RELEASE", "watcher", "watcher")
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.turns += 1
                time.sleep(0.001)

    def stop(self):
        self.running = False
        self.join()
        return 1000 * self.slowest


def info(connection, field):
    for line in connection.call("INFO").splitlines():
        if line.startswith(field + ":"):
            return int(line.split(":")[1])
    raise KeyError(field)


def million(server):
    empty = server.rss()
    with Connection(server.port) as c:
        begin = time.monotonic()
        held = in_bulk(c, (("ACQUIRE", "lock:%015d" % i, "lease-%026x" % i, "TTL", 3600000) for i in range(LOCKS)),
                       lambda answer: isinstance(answer, int))
        print("%d locks taken over one connection in %.1f s" % (held, time.monotonic() - begin), flush=True)
        if held != LOCKS:
            raise SystemExit("%d of %d were granted" % (held, LOCKS))
        watcher = Watcher(server.port)
        # Snapshots go on meanwhile: the log of a million grants is longer than one may be.
        time.sleep(SETTLE_S)
        stall = watcher.stop()
        time.sleep(QUIET_S)
        report("memory for each of a million held locks", (server.rss() - empty) / LOCKS, "bytes", BYTES_MAX)
        report("slowest take and give back meanwhile (%d turns, %d snapshots)" % (
            watcher.turns, info(c, "snapshots")), stall, "ms", STALL_MS_MAX)


def restart(server, how, word):
    with Connection(server.port) as c:
        before = info(c, "holds")
    server.stop(how)
    server.start()
    with Connection(server.port) as c:
        while isinstance(c.call("CHECK", "x", 1), Exception):
            time.sleep(0.005)
        report("restart with a million held locks after %s" % word, time.monotonic() - server.began, "s", RESTART_S_MAX)
        if info(c, "holds") != before:
            raise SystemExit("%d holds after the restart, %d before it" % (info(c, "holds"), before))


def ending(server):
    """All leases are given the same TTL within a second, so that they end within one."""
    with Connection(server.port) as c:
        expired = info(c, "expired")
        in_bulk(c, (("ACQUIRE", "end:%d" % i, "end-%d" % i, "TTL", 30000) for i in range(ENDING)), lambda answer: 1)
        for i in range(0, ENDING, 4000):
            c.call("RENEW", *("end-%d" % k for k in range(i, min(i + 4000, ENDING))), "TTL", 30000)
        watcher = Watcher(server.port)
        deadline = time.monotonic() + 120
        first = last = None
        while info(c, "expired") - expired < ENDING:
            now = time.monotonic()
            if info(c, "expired") > expired and first is None:
                first = now
            if now > deadline:
                raise SystemExit("they did not end")
            time.sleep(0.01)
        last = time.monotonic()
        stall = watcher.stop()
        report("slowest take and give back while %d leases end in %.2f s" % (ENDING, last - (first or last)), stall,
               "ms", STALL_MS_MAX)


def connections(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CONNECTIONS + 1000), hard))
    before = server.rss()
    clients = [Connection(server.port) for _ in range(CONNECTIONS)]
    for client in clients:
        client.send("PING")
    right = sum(client.answer() == "PONG" for client in clients)
    with Connection(server.port) as c:
        there = info(c, "connected_clients")
        watcher = Watcher(server.port)
        time.sleep(2)
        stall = watcher.stop()
    print("%d connections held, %d answered, %.1f KiB each" % (there - 1, right, (server.rss() - before) / there / 1024))
    if right != CONNECTIONS or there < CONNECTIONS:
        raise SystemExit("not all of them were served")
    report("slowest take and give back beside %d connections" % CONNECTIONS, stall, "ms", STALL_MS_MAX)
    for client in clients:
        client.close()


def main():
    program, below = map(os.path.abspath, sys.argv[1:3])
    with Folder(below) as folder:
        server = holdfastd(program, folder)
        try:
            million(server)
            restart(server, signal.SIGTERM, "SIGTERM")
            restart(server, signal.SIGKILL, "kill -9")
            ending(server)
            connections(server)
        finally:
            server.stop()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
