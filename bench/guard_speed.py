#!/usr/bin/env python3
"""What the PostgreSQL guard costs: an UPDATE by primary key, committed durably on its own, of a table with the guard's
triggers, beside the same of one without.

    bench/guard_speed.py HOLDFAST [--rounds N]

Rounds alternate between the two tables, the figures are medians, what counts is their ratio. The statement gives the token
to the column in both. The server syncs every commit; pgbench sends the statement over TCP, as clients do that prepare
nothing, and once more prepared, for comparison.
"""
import contextlib
import glob
import os
import pwd
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from servers import free_port

ROWS = 1000
UPDATES = 2000  # of a round
ROUNDS = 15
MOST = 1.15
PATIENCE = 60
# Name, what the statement gives to the column. A holder that writes again, and one that comes after another.
TOKENS = [("the same token", "35"), ("a newer token", "coalesce(fence_token, 0) + 1")]


def programs():
    """The newest server's folder of programs, or None."""
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres") + [shutil.which("postgres") or ""]
    folders = [os.path.dirname(path) for path in found if path and os.path.exists(os.path.dirname(path) + "/pgbench")]
    return max(folders, key=lambda f: float((re.findall(r"/(\d+)/", f) or ["0"])[0]), default=None)


class Postgres:
    """A server of its own, on 127.0.0.1. It does not run as root."""

    def __init__(self, programs):
        self.programs = programs
        self.folder = tempfile.mkdtemp(prefix="hf-guard-")
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.process = None
        self.port = free_port()
        self.where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "bench"]
        self.run("initdb", "-D", self.folder + "/data", "-A", "trust", "-U", "bench", as_user=True)
        with open(self.folder + "/log", "wb") as log:
            self.process = subprocess.Popen(
                [programs + "/postgres", "-D", self.folder + "/data", "-k", self.folder, "-h", "127.0.0.1", "-p", str(self.port)],
                stdout=log, stderr=log, preexec_fn=self.become)
        deadline = time.monotonic() + PATIENCE
        while subprocess.run([programs + "/pg_isready", "-q", *self.where]).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("postgres did not start: see %s/log" % self.folder)
            time.sleep(0.05)

    def become(self):
        if self.user:
            os.setgid(self.user.pw_gid)
            os.setuid(self.user.pw_uid)

    def run(self, program, *words, as_user=False, text=None):
        done = subprocess.run([self.programs + "/" + program, *words], input=text, text=True, capture_output=True, cwd="/",
                              preexec_fn=self.become if as_user else None)
        if done.returncode != 0:
            raise SystemExit("%s: %s" % (program, done.stderr.strip()[-500:]))
        return done.stdout

    def sql(self, text):
        self.run("psql", "-q", "-v", "ON_ERROR_STOP=1", *self.where, "-d", "postgres", text=text)

    def updates(self, script, way):
        """Microseconds of one."""
        out = self.run("pgbench", "-n", "-c", "1", "-t", str(UPDATES), "-M", way, "-f", script, *self.where,
                       "postgres")
        return float(re.search(r"latency average = ([0-9.]+) ms", out).group(1)) * 1000

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def tables(server, holdfast):
    for name in ("plain", "guarded"):
        server.sql("CREATE TABLE %s (id bigint PRIMARY KEY, amount bigint NOT NULL, fence_token bigint);"
                   "INSERT INTO %s SELECT i, 0 FROM generate_series(1, %d) AS i;" % (name, name, ROWS))
    server.sql(subprocess.run([holdfast, "guard", "sql", "--dialect", "postgres", "--table", "guarded"], check=True,
                              capture_output=True, text=True).stdout)


def compare(server, token, way, rounds):
    figures = {"plain": [], "guarded": []}
    scripts = {}
    for name in figures:
        scripts[name] = "%s/%s.sql" % (server.folder, name)
        with open(scripts[name], "w", encoding="ascii") as out:
            out.write("\\set i random(1, %d)\nUPDATE %s SET amount = amount + 1, fence_token = %s WHERE id = :i;\n"
                      % (ROWS, name, token))
    for i in range(rounds + 1):  # the first one warms up
        for name in figures if i % 2 else reversed(list(figures)):
            took = server.updates(scripts[name], way)
            if i:
                figures[name].append(took)
        print("   round %d of %d" % (i, rounds), end="\r", flush=True)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(figures["guarded"], figures["plain"]))
    return ratio, statistics.median(figures["guarded"]), statistics.median(figures["plain"])


def main():
    holdfast, rounds = sys.argv[1], ROUNDS
    if "--rounds" in sys.argv:
        rounds = int(sys.argv[sys.argv.index("--rounds") + 1])
    folder = programs()
    if not folder:
        print("guard_speed: left out (needs PostgreSQL and pgbench)")
        return 0
    met = True
    server = Postgres(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        tables(server, holdfast)
        for words, token in TOKENS:
            server.sql("UPDATE plain SET fence_token = NULL; VACUUM plain, guarded;")
            for way, limit in (("simple", MOST), ("prepared", None)):
                ratio, ours, theirs = compare(server, token, way, rounds)
                missed = limit is not None and ratio > limit
                met &= not missed
                print("%-58s %6.2fx   %s  (%.0f µs beside %.0f µs)%s" % (
                    "PostgreSQL, %s: guarded UPDATE beside a bare one" % words if limit else "   the same, prepared", ratio,
                    "at most %.2fx" % limit if limit else "             ", ours, theirs, "   MISSED" if missed else ""))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
