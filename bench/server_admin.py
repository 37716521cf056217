#!/usr/bin/env python3
"""What it costs a holdfastd to be looked at: a page that is open, and a scraper, while clients send 50,000 commands a second.

    bench/server_admin.py HOLDFASTD FOLDER [--rounds N] [--seconds N]

Rounds alternate between one with nobody looking and one with both. The difference is small beside what a machine that others use does
to the figures, so the same requests are also made many times over on the server while it has nothing else to do, and their cost is
set beside what the commands take. HOLDFASTD is the release build's, and HOLDFAST_MODULE_DIR says where its module for HTTP is.
"""
import http.client
import os
import statistics
import sys
import threading
import time

from servers import Connection, Folder, command, free_port, holdfastd

RATE = 50000  # commands a second
CONNECTIONS, STEP_S = 20, 0.01
NAMES = 10000  # in the table
SCRAPE_S = 5
MOST = 1.0  # percent
TIMES = 200  # the same requests, for the cost of one


class Looker:
    """What the page asks each second, and a scraper now and then."""

    def __init__(self, port):
        self.port, self.after = port, 0

    def get(self, path):
        self.http.request("GET", path)
        answer = self.http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit("%s: %d" % (path, answer.status))
        return body

    def page(self):
        self.get("/api/cluster")
        body = self.get("/api/locks?limit=500&after=%d" % self.after)
        self.after = int(body[body.rindex(b'"next":') + 7:].rstrip(b"}\n"))
        self.get("/api/locks/held%3a1")

    def look(self, until):
        self.http, turn = http.client.HTTPConnection("127.0.0.1", self.port), 0
        while time.monotonic() < until:
            self.page()
            if turn % SCRAPE_S == 0:
                self.get("/metrics")
            turn += 1
            time.sleep(max(0, min(1, until - time.monotonic())))
        self.http.close()


def hold_names(server):
    with Connection(server.port) as c:
        for begin in range(0, NAMES, 1000):
            c.socket.sendall(b"".join(command("ACQUIRE", "held:%d" % i, "lease%d" % i, "TTL", 3600000, "OWNER", "worker-%d@host" % i)
                                      for i in range(begin, begin + 1000)))
            for _ in range(1000):
                c.answer()


def load(server, seconds):
    """So many commands a second, as far as server and machine can. Returns how many there were, and the seconds of CPU that they took."""
    each = int(RATE * STEP_S / CONNECTIONS / 2)
    batches = [b"".join(command("ACQUIRE", "work:%d:%d" % (i, k), "l%d" % i, "TTL", 30000) + command("RELEASE", "work:%d:%d" % (i, k), "l%d" % i)
                        for k in range(each)) for i in range(CONNECTIONS)]
    connections = [Connection(server.port) for _ in range(CONNECTIONS)]
    count, before, begin = 0, server.cpu_seconds(), time.monotonic()
    while time.monotonic() < begin + seconds:
        due = begin + count / RATE
        if time.monotonic() < due:
            time.sleep(due - time.monotonic())
        for connection, batch in zip(connections, batches):
            connection.socket.sendall(batch)
        for connection in connections:
            for _ in range(2 * each):
                connection.answer()
        count += 2 * each * CONNECTIONS
    took = server.cpu_seconds() - before
    for connection in connections:
        connection.close()
    return count, took


def cost_of_looking(server, port):
    """Seconds of CPU for each second of a page and a scraper."""
    looker = Looker(port)
    looker.http = http.client.HTTPConnection("127.0.0.1", port)
    costs = []
    for part in (looker.page, lambda: looker.get("/metrics")):
        before = server.cpu_seconds()
        for _ in range(TIMES):
            part()
        costs.append((server.cpu_seconds() - before) / TIMES)
    looker.http.close()
    return costs[0] + costs[1] / SCRAPE_S, costs


def main():
    program, below = map(os.path.abspath, sys.argv[1:3])

    def option(name, standard):
        return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else standard

    rounds, seconds = option("--rounds", 5), option("--seconds", 10)
    with Folder(below) as folder:
        port = free_port()
        server = holdfastd(program, folder, "--admin", "127.0.0.1:%d" % port)
        try:
            hold_names(server)
            alone, both, rates = [], [], []
            for i in range(rounds + 1):  # the first one warms up
                for figures, looked_at in ((alone, False), (both, True)):
                    thread = threading.Thread(target=Looker(port).look, args=[time.monotonic() + seconds])
                    if looked_at:
                        thread.start()
                    count, took = load(server, seconds)
                    if looked_at:
                        thread.join()
                    if i:
                        figures.append(took / count), rates.append(count / seconds)
            cpu = statistics.median(alone)
            cost, (page, scrape) = cost_of_looking(server, port)
        finally:
            server.stop()
    difference = statistics.median(b / a for a, b in zip(alone, both)) - 1
    percent = 100 * cost / (cpu * RATE)
    print("%.0f commands/s, %.2f µs of CPU each; with a page and a scraper %.2f µs (%+.1f %%, rounds from %+.1f to %+.1f %%)" % (
        statistics.median(rates), 1e6 * cpu, 1e6 * statistics.median(both), 100 * difference,
        100 * (min(b / a for a, b in zip(alone, both)) - 1), 100 * (max(b / a for a, b in zip(alone, both)) - 1)))
    print("%-58s %6.2f%%   at most %.2f%%%s  (%.0f µs of CPU a second, %.0f µs for /metrics)" % (
        "a page each second and a scraper each %d s, at %d/s" % (SCRAPE_S, RATE), percent, MOST, "" if percent <= MOST else "   MISSED", 1e6 * page, 1e6 * scrape))
    return 0 if percent <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
