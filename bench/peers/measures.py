"""What each store is asked to do, each way: by the bare protocol, through Holdfast's library, and by its usual client.

    cycle     one client: acquire, release, at once again
    spread    50 clients, each with a name of its own: threads that share one handle of the library
    hot       8 clients, all of the same name: how fast it goes from hand to hand; each has a handle of its own

Rounds take turns over all stores and all ways, so that what disturbs the machine for a while disturbs all of them alike.
"""
import json
import os
import statistics
import subprocess

import bare_requests
import clients
from stores import Missing

SPREAD_CLIENTS = 50
HOT_CLIENTS = 8
BARE, LIBRARY, OWN, RECIPE = "bare", "library", "own", "recipe"
WARM_PART = 0.25  # of a round, before it
END_S = 60


class Settings:
    """Of a run: how long and how often, and where things are."""

    def __init__(self, build, folder, modules, quick, rounds=None):
        self.build, self.folder, self.modules, self.quick = build, folder, modules, quick
        self.rounds = rounds or (1 if quick else 5)
        self.growth_rounds = min(self.rounds, 3)  # where the sizes take so long
        self.seconds = 0.15 if quick else 1.5
        self.holdfast = os.path.join(build, "src/cli/holdfast")
        self.bare = os.path.join(build, "bench/bench-bare")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        self.env["HOLDFAST_MODULE_DIR"] = os.path.join(build, "src/engines")


class Results:
    """All that was measured. A point is a dictionary; `lines` are given to --json as they come."""

    def __init__(self, json_file, progress):
        self.points, self.left_out, self.json_file, self.progress = [], [], json_file, progress

    def say(self, text):
        self.progress(text)

    def write(self, kind, fields):
        if self.json_file:
            self.json_file.write(json.dumps({"kind": kind, **fields}) + "\n")
            self.json_file.flush()

    def add(self, measure, store, way, size, number, found):
        point = {"measure": measure, "store": store.key, "way": way, "size": size, "round": number, **found}
        self.points.append(point)
        self.write("point", point)

    def leave_out(self, what, why):
        if (what, why) not in self.left_out:
            self.left_out.append((what, why))
            self.write("left out", {"what": what, "why": why})

    def series(self, measure, store, way, size, field="cycles_per_s"):
        """Of each round that brought something."""
        return {p["round"]: p[field] for p in self.points
                if (p["measure"], p["store"], p["way"], p["size"]) == (measure, store, way, size) and p.get(field)}

    def median(self, *which, **field):
        found = self.series(*which, **field)
        return statistics.median(found.values()) if found else None

    def ratio(self, above, below, **field):
        """The median of what the rounds say, each by itself: both were measured beside each other."""
        a, b = self.series(*above, **field), self.series(*below, **field)
        both = [a[number] / b[number] for number in a if number in b]
        return statistics.median(both) if both else None

    def failures(self, *which):
        measure, store, way, size = which
        found = [p for p in self.points if (p["measure"], p["store"], p["way"], p["size"]) == which and p.get("failures")]
        return sum(p["failures"] for p in found), next((p["last_failure"] for p in reversed(found) if p.get("last_failure")), "")


# ---- the three ways --------------------------------------------------------------------------------------------------


def by_library(settings, store, work, count, seconds, *options):
    """What `holdfast bench` says of one round."""
    words = [settings.holdfast, "--on", store.url, "bench", "--json", "--quiet", "--work", work, "--clients", str(count), "--names",
             str(count), "--rounds", "1", "--seconds", "%dms" % (1000 * seconds), *options]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=settings.env, timeout=3 * seconds + END_S, check=False)
        row = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"cycles": 0, "cycles_per_s": 0.0, "failures": 1, "last_failure": "holdfast bench did not end"}
    except ValueError:
        return {"cycles": 0, "cycles_per_s": 0.0, "failures": 1, "last_failure": done.stderr.strip()[-200:] or "it said nothing"}
    found = {"cycles": row["cycles"], "cycles_per_s": row["cycles_per_s"],
             "failures": row["failures"] + row["unknown"] + row["lost"] + row["violations"]}
    if row["acquire"]:
        found.update(p50_us=row["acquire"]["p50_us"], p99_us=row["acquire"]["p99_us"])
    if row["handover"]:
        found["handover_us"] = row["handover"]["p50_us"]
    if row["last_failure"]:
        found["last_failure"] = row["last_failure"]
    return found


def by_bare(settings, store, count, seconds, recipe=False):
    words = [settings.bare, str(seconds), str(WARM_PART * seconds)]
    try:
        done = subprocess.run(words, input=bare_requests.script(store, count, recipe), capture_output=True, text=True,
                              timeout=seconds + END_S, check=False)
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return {"cycles": 0, "cycles_per_s": 0.0, "failures": 1, "last_failure": "bench-bare brought nothing"}


def by_own(settings, store, names, seconds):
    return clients.run(store.own, store, names, seconds, WARM_PART * seconds, settings.folder, settings.modules)


def names_of(work, count):
    return ["%s/%d" % (work, 0 if work == "hot" else i) for i in range(count)]


# ---- all of it -------------------------------------------------------------------------------------------------------


def plan(settings, store, results):
    """(measure, way, clients, what is called) of a store, in order."""
    seconds = settings.seconds
    found = []
    for measure, work, count, threads in (("cycle", "spread", 1, 1), ("spread", "spread", SPREAD_CLIENTS, 1), ("hot", "hot", HOT_CLIENTS, HOT_CLIENTS)):
        if work == "spread":  # of one name the bare requests would be refused
            found.append((measure, BARE, count, lambda count=count: by_bare(settings, store, count, seconds)))
            if store.key in ("redis", "redis-always"):
                found.append((measure, RECIPE, count, lambda count=count: by_bare(settings, store, count, seconds, True)))
        found.append((measure, LIBRARY, count, lambda work=work, count=count, threads=threads: by_library(
            settings, store, work, count, seconds, "--blocking", "--threads", str(threads))))
        why = clients.why_not(store.own, settings.modules)
        if why:
            results.leave_out(clients.title_of(store.own), why)
        else:
            found.append((measure, OWN, count, lambda work=work, count=count: by_own(settings, store, names_of(work, count), seconds)))
    return found


def measure_cycles(settings, stores, results):
    """Round by round: each measure over all stores and ways, and then the next. Each round begins with another store: nobody is always behind
    the same one, whose disk may still be busy."""
    plans = [(store, plan(settings, store, results)) for store in stores]
    for number in range(settings.rounds):
        for measure in ("cycle", "spread", "hot"):
            for store, points in plans[number % len(plans):] + plans[:number % len(plans)]:
                for point_measure, way, count, call in points:
                    if point_measure != measure:
                        continue
                    results.say("round %d of %d: %s, %s, %s" % (number + 1, settings.rounds, measure, store.title,
                                                                clients.title_of(store.own) if way == OWN else way))
                    try:
                        results.add(measure, store, way, count, number, call())
                    except Missing as why:
                        results.leave_out("%s on %s" % (way, store.title), str(why))
