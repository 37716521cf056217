#!/usr/bin/env python3
"""Holdfast beside Redis, Redlock, ZooKeeper, etcd, PostgreSQL and flock(1): real servers on this machine, all of them at once, measured in one run
in rounds that take turns. `make bench-peers` builds what it needs and runs it.

    bench/peers/peers.py BUILD [--quick] [--stores KEY,KEY] [--only PART,PART] [--rounds N] [--json FILE] [--page FILE] [--folder DIR] [--modules DIR]

BUILD is the release build, with the benchmarks. What is not installed is left out, and said. --quick: everything once and short, to see whether it
works; its figures mean nothing. --page: the section of results of docs/benchmarks.md is written anew, with plots beside it. --folder: where the
servers have their data; on a disk, or waiting for one costs nothing. --modules: where npm has put redlock and ioredis.
"""
import argparse
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # servers.py
import failover  # noqa: E402
import growth  # noqa: E402
import measures  # noqa: E402
import report  # noqa: E402
import stores  # noqa: E402

PARTS = {"cycles": measures.measure_cycles, "clients": growth.measure_clients, "waiters": growth.measure_waiters,
         "failover": failover.measure_failover, "names": growth.measure_names}
LINE_MAX = 100


class Progress:
    """One line that is written over on a terminal; without one, a line for each minute."""

    def __init__(self):
        self.live, self.began, self.said = sys.stderr.isatty(), time.monotonic(), -60.0

    def __call__(self, text):
        spent = time.monotonic() - self.began
        line = ("%3d:%02d  %s" % (spent // 60, spent % 60, text))[:LINE_MAX]
        if self.live:
            print("\r\033[K" + line, end="", file=sys.stderr, flush=True)
        elif spent - self.said >= 60:
            self.said = spent
            print(line, file=sys.stderr, flush=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def keys(text, known):
    found = text.split(",")
    unknown = [word for word in found if word not in known]
    if unknown:
        raise argparse.ArgumentTypeError("no such: %s; there are %s" % (", ".join(unknown), ", ".join(known)))
    return found


def arguments():
    parser = argparse.ArgumentParser(description="Holdfast beside its peers, on this machine.")
    known = [kind.key for kind in stores.ALL]
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stores", type=lambda text: keys(text, known), default=known)
    parser.add_argument("--only", type=lambda text: keys(text, list(PARTS)), default=list(PARTS))
    parser.add_argument("--rounds", type=int, choices=range(1, 100), metavar="N")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", metavar="FILE")
    parser.add_argument("--folder", default="/var/tmp")
    parser.add_argument("--modules", default="")
    return parser.parse_args()


def start_stores(wanted, folder, build, results):
    found = []
    try:
        for kind in stores.ALL:
            if kind.key in wanted:
                results.say("starting: %s" % kind.title)
                try:
                    found.append(kind(folder, build))
                except stores.Missing as why:
                    results.leave_out(kind.title, str(why))
    except BaseException:
        stop_stores(found)
        raise
    return found


def stop_stores(found):
    for store in reversed(found):
        store.stop()


def give(results, running, settings, versions, page):
    ratios = report.ratios(results, running)
    for ratio in ratios:
        results.write("ratio", ratio.fields())
    if ratios:
        print(report.Table("Ratios", "", ["", "ratio", "wanted"], [ratio.row() for ratio in ratios], whole=True).as_text())
    for table in report.tables(results, running):
        print(table.as_text())
    for what, why in results.left_out:
        print("%s: left out, %s" % (what, why))
    for words in report.shortcomings(results, running):
        print(words)
    if page:
        pictures = report.draw(results, running, os.path.dirname(os.path.abspath(page)))
        report.write_page(page, report.section(results, running, settings, versions, pictures))


def main():
    told = arguments()
    build = os.path.abspath(told.build)
    if told.page:
        report.around(told.page)  # before half an hour is spent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended
    progress = Progress()
    json_file = open(told.json, "w", encoding="utf-8") if told.json else None
    folder = tempfile.mkdtemp(prefix="holdfast-peers.", dir=told.folder)
    os.chmod(folder, 0o711)  # PostgreSQL is somebody else
    settings = measures.Settings(build, folder, os.path.abspath(told.modules), told.quick, told.rounds)
    results = measures.Results(json_file, progress)
    running = []
    try:
        running = start_stores(told.stores, folder, build, results)
        if not running:
            raise SystemExit("peers: nothing to be measured: " + "; ".join("%s, %s" % left for left in results.left_out))
        versions = stores.versions([store.key for store in running])
        results.write("run", {"machine": report.machine(), "versions": versions, "quick": told.quick, "rounds": settings.rounds})
        for part in told.only:
            PARTS[part](settings, running, results)
    finally:
        progress.clear()
        stop_stores(running)
        shutil.rmtree(folder, ignore_errors=True)
    give(results, running, settings, versions, told.page)
    if json_file:
        json_file.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
