#!/usr/bin/env python3
"""Chaos: clusters of three and of five real nodes, under load, while everything goes wrong that may, several things at once.

    chaos.py [--minutes N] [--seed N] [--nodes 3,5] [--leg MINUTES] [--only FAULT,FAULT] [--on STORE]    make chaos MINUTES=N HF_SEED=N

A run consists of legs, each with a new cluster, in turn of three and of five nodes. faults.py has what can go wrong, nemesis.py draws from it,
witness.py and ../cluster/load.py judge. A seed chooses what is drawn; when it happens depends on the machine, too, so that a seed repeats a run
nearly, not exactly. What is found is printed with the story; the logs of all nodes and the history stay in a directory that is named.
"""
import argparse
import collections
import os
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("HF_PATIENCE", "60")  # seconds that a client may have to wait for an answer, while things go wrong
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster"), str(HERE.parent / "cli")]
import pytest  # noqa: E402
from nemesis import Nemesis  # noqa: E402
from witness import ChaosLoad, History, Monitor  # noqa: E402
from world import World  # noqa: E402

LEG = 10  # minutes
SHOWN = 40  # lines of the story that are printed: all of it is in the directory
SAID_EVERY = (5, 30)  # seconds between two lines on a terminal, and elsewhere


class Found(Exception):
    """Something that must not be. Its text says all that there is to say."""


class Progress:
    def __init__(self, label, quiet=False):
        self.label, self.quiet, self.every = label, quiet, SAID_EVERY[0 if sys.stdout.isatty() else 1]
        self.said, self.grants = time.monotonic(), 0

    def __call__(self, nemesis):
        now = time.monotonic()
        if self.quiet or now < self.said + self.every:
            return
        grants = nemesis.load.grants()
        leader = nemesis.monitor.leader
        members = ",".join(f"{number}{'*' if leader and leader.number == number else ''}" for number in nemesis.world.members)
        print(f"{self.label} {now - nemesis.began:4.0f} s | {nemesis.figures()} | {(grants - self.grants) / (now - self.said):.0f} grants/s | "
              f"nodes {members} | {nemesis.wrong_now()}", flush=True)
        self.said, self.grants = now, grants


class Leg:
    """One cluster, from its founding to its end."""

    def __init__(self, nodes, seconds, seed, only=(), label="", quiet=False):
        self.nodes, self.seconds, self.seed, self.only = nodes, seconds, seed, only
        self.progress = Progress(label, quiet)
        self.world = self.nemesis = self.load = self.history = None
        self.judged = ""  # the words of the simulator's checkers

    def run(self):
        """Returns its figures."""
        self.world = World(self.nodes)
        try:
            return self.work()
        except KeyboardInterrupt:
            self.world.kill_all()
            raise
        except BaseException as finding:
            raise Found(self.report(finding)) from finding
        finally:
            self.world.net.close()

    def work(self):
        world = self.world
        self.history = history = History(world.directory / "history")
        monitor = Monitor(world)
        self.load = ChaosLoad(world, self.seed, history, monitor)
        self.nemesis = nemesis = Nemesis(world, self.load, monitor, self.seed, self.only, self.nodes)
        if random.Random(self.seed).random() < 0.7:
            nemesis.final_after = self.seconds * 0.6
        monitor.start()
        try:
            with self.load:
                nemesis.run(time.monotonic() + self.seconds, self.progress)
            self.load.verdict()
        finally:
            monitor.end()
            history.close()
        if monitor.failure:
            raise monitor.failure
        well, self.judged = history.judged()
        assert well, f"the simulator's checkers: {self.judged}"
        nemesis.did["elections"] = monitor.elections
        for number in [*world.out]:
            world.bury(world.members[number])  # lost its directory: it cannot end well
            del world.nodes[number]
        world.clean()
        return nemesis

    def report(self, finding):
        """What went wrong, and where to look."""
        lines = [f"found, with seed {self.seed} and {self.nodes} nodes: {type(finding).__name__}: {finding}"]
        story = self.nemesis.story if self.nemesis else []
        if self.nemesis:
            self.nemesis.tell(f"FOUND: {finding}")
            story.extend(["what each says now:", *self.world.statuses()])
            lines += [f"after {self.nemesis.figures()}", f"going on: {self.nemesis.wrong_now()}"]
            lines.append(f"the simulator's checkers: {self.history.judged()[1]}")
        self.world.kill_all()
        kept = self.world.keep(story)
        lines += ["what happened last:", *[f"    {line}" for line in story[-SHOWN:]], f"the whole story, the history and the logs of all nodes: {kept}"]
        return "\n".join(lines)


def run(minutes, seed, nodes, leg_minutes, only=(), quiet=False):
    """All legs; the sum of what they did."""
    did, rests, grants, begin, number = collections.Counter(), [], 0, time.monotonic(), 0
    count = max(round(minutes / leg_minutes), 1)
    while number < count:
        size = nodes[number % len(nodes)]
        label = f"seed {seed} leg {number + 1}/{count}"
        leg = Leg(size, minutes * 60 / count, seed * 1000 + number if count > 1 else seed, only, label, quiet)
        done = leg.run()
        did.update(done.did)
        rests += done.rests
        grants += done.load.grants()
        number += 1
        if not quiet:
            print(f"{label} of {size} nodes: {done.figures()}, {done.load.figures()}; {leg.judged}", flush=True)
    return words(seed, did, rests, grants, time.monotonic() - begin)


def words(seed, did, rests, grants, seconds):
    rest = {name: count for name, count in did.items() if name not in ("faults", "leader kills", "added", "removed", "members", "rests", "comparisons",
                                                                        "elections")}
    return (f"seed {seed}: {seconds / 60:.1f} min, {did['faults']} faults ({did['faults'] * 60 / seconds:.0f} a minute): {did['leader kills']} leader kills, "
            f"{did['added']} added, {did['removed']} removed, " + ", ".join(f"{count} {name}" for name, count in sorted(rest.items())) +
            f"; {did['elections']} elections, {did['rests']} rests, all served again after {max(rests):.1f} s at most, "
            f"{did['comparisons']} tables compared, {grants / seconds:.0f} grants/s")


def on_store(name, minutes, seed):
    """Another store: stores.py."""
    from stores import StoreRun
    one = StoreRun(name, seed, lambda text: print(text, flush=True))
    try:
        print(one.run(minutes * 60), flush=True)
    except AssertionError as finding:
        print(f"found, with seed {seed} on {name}: {finding}", "what happened last:", *one.story[-SHOWN:], sep="\n    ", flush=True)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 60))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("HF_SEED") or random.randrange(1, 10**6)))
    parser.add_argument("--nodes", default=os.environ.get("NODES") or "3,5")
    parser.add_argument("--leg", type=float, default=LEG)
    parser.add_argument("--only", default="")
    parser.add_argument("--on", default=os.environ.get("ON") or "")
    options = parser.parse_args()
    print(f"HF_SEED={options.seed}", flush=True)
    nodes = [int(word) for word in options.nodes.split(",")]
    only = [word for word in options.only.split(",") if word]
    try:
        if options.on:
            return on_store(options.on, options.minutes, options.seed)
        print(run(options.minutes, options.seed, nodes, options.leg, only), flush=True)
    except Found as found:
        print(found, flush=True)
        return 1
    except pytest.skip.Exception as why:
        print(f"left out: {why}", flush=True)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
