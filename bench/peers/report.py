"""What was measured, as ratios, tables, and the section of results of docs/benchmarks.md, which is written anew between two marks."""
import datetime
import os
import platform
import re
import statistics

import clients
import plots
from growth import CLIENTS, NAMES, WAITERS
from measures import BARE, HOT_CLIENTS, LIBRARY, OWN, RECIPE, SPREAD_CLIENTS

BEGIN = "<!-- make bench-peers writes from here -->"
END = "<!-- to here -->"
PROMPT = "make bench-peers"


def number(value):
    """As many digits as mean something."""
    if value is None:
        return "–"
    return "%.2f" % value if value < 10 else f"{value:,.0f}"


def times(value):
    return "–" if value is None else "%.2f" % value


class Table:
    """The first cell of a row says what it is of, and so may the last."""

    def __init__(self, title, about, header, rows, whole=False):
        self.title, self.about, self.header = title, about, header
        self.rows = [row for row in rows if whole or any(cell[:1].isdigit() for cell in row[1:])]

    def are_words(self):
        """Of each column: whether it is read, and not compared."""
        return [any(row[i][:1].isalpha() for row in self.rows) for i in range(len(self.header))]

    def as_text(self):
        widths = [max(len(row[i]) for row in [self.header] + self.rows) for i in range(len(self.header))]
        lines = ["  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(row, widths, self.are_words())).rstrip()
                 for row in [self.header] + self.rows]
        return "\n".join([self.title, "-" * len(self.title)] + lines + [""])

    def as_markdown(self):
        lines = ["### " + self.title, "", self.about, "", "| " + " | ".join(self.header) + " |",
                 "|" + "|".join("---" if left else "---:" for left in self.are_words()) + "|"]
        return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in self.rows] + [""])


# ---- ratios ----------------------------------------------------------------------------------------------------------


class Ratio:
    """`wanted` is ("at least" or "at most", so many), or None."""

    def __init__(self, words, figure, wanted=None):
        self.words, self.figure, self.wanted = words, figure, wanted

    def verdict(self):
        if self.figure is None:
            return "not measured"
        if not self.wanted:
            return ""
        bound, limit = self.wanted
        met = self.figure >= limit if bound == "at least" else self.figure <= limit
        return "%s %g: %s" % (bound, limit, "met" if met else "falls short")

    def row(self):
        return [self.words, times(self.figure), self.verdict()]

    def fields(self):
        return {"what": self.words, "ratio": self.figure, "wanted": self.wanted, "verdict": self.verdict()}


def failover_ratio(results):
    """Beside the best of those that elect a leader, whichever client it is by. Ours is by our library."""
    theirs = [results.median("failover", key, way, 4, field="seconds") for key in ("etcd", "zookeeper") for way in (LIBRARY, OWN)]
    theirs = [took for took in theirs if took]
    ours = results.median("failover", "holdfastd3", LIBRARY, 4, field="seconds")
    return ours / min(theirs) if ours and theirs else None


def memory_sizes(results):
    return sorted({p["size"] for p in results.points if p["measure"] == "memory"})


def memory_of(results, store, way, size):
    return results.median("memory", store, way, size, field="bytes_per_lock")


def memory_ratios(results):
    found = []
    for way, words in ((RECIPE, "Redis with one key for each, as redis-py has it"), (LIBRARY, "Redis through our library")):
        for size in memory_sizes(results) or [None]:
            ours, theirs = memory_of(results, "holdfastd", LIBRARY, size), memory_of(results, "redis", way, size)
            found.append(Ratio("memory of a held lock%s: holdfastd : %s" % (f", of {size:,}" if size else "", words),
                               ours / theirs if ours and theirs else None, ("at most", 1)))
    return found


SPREAD_WORDS = "cycles/s of %d threads with one handle: " % SPREAD_CLIENTS


def ratios(results, stores):
    def spread(below):
        return results.ratio(("spread", "holdfastd3", LIBRARY, SPREAD_CLIENTS), ("spread", below, LIBRARY, SPREAD_CLIENTS))

    def cycle(above, above_way, below, below_way):
        """Of how long they take."""
        return results.ratio(("cycle", below, below_way, 1), ("cycle", above, above_way, 1))

    found = [Ratio(SPREAD_WORDS + "three holdfastd : Redis, which keeps nothing", spread("redis")),
             Ratio(SPREAD_WORDS + "three holdfastd : three etcd", spread("etcd"), ("at least", 10)),
             Ratio(SPREAD_WORDS + "three holdfastd : three ZooKeeper", spread("zookeeper"), ("at least", 10)),
             Ratio("time of one client's cycle: three holdfastd : three etcd", cycle("holdfastd3", LIBRARY, "etcd", LIBRARY), ("at most", 0.25)),
             Ratio("failover: three holdfastd : the best of etcd and ZooKeeper", failover_ratio(results), ("at most", 0.5)),
             *memory_ratios(results)]
    for store in stores:
        against = "the plain recipe" if store.key == "redlock" else "the bare requests"
        found.append(Ratio("time of one client's cycle: library : %s, %s" % (against, store.title), cycle(store.key, LIBRARY, store.key, BARE),
                           ("at most", 1.1)))
    keys = {store.key for store in stores}
    return [ratio for ratio in found if ratio.figure is not None or keys >= {"holdfastd3", "redis", "etcd", "zookeeper", "holdfastd"}]


# ---- tables ----------------------------------------------------------------------------------------------------------


def cycle_table(results, stores):
    rows = []
    for store in stores:
        times_us = {way: (lambda rate: 1e6 / rate if rate else None)(results.median("cycle", store.key, way, 1)) for way in (BARE, LIBRARY, OWN)}
        ratio = results.ratio(("cycle", store.key, BARE, 1), ("cycle", store.key, LIBRARY, 1))
        rows.append([store.title, "yes" if store.durable else "no", number(times_us[BARE]), number(times_us[LIBRARY]), times(ratio),
                     number(times_us[OWN]), clients.title_of(store.own)])
        recipe = results.median("cycle", store.key, RECIPE, 1)
        if recipe:
            rows.append([store.title + ", plain recipe", "", number(1e6 / recipe), "", "", "", ""])
    return Table("One client's cycle, µs", "Acquire, release, at once again: what a lone program waits for. Medians of the rounds.",
                 ["store", "waits for a disk", "bare requests", "library", "ratio", "usual client", ""], rows)


def spread_table(results, stores):
    rows = [[store.title] + [number(results.median("spread", store.key, way, SPREAD_CLIENTS)) for way in (BARE, LIBRARY, OWN)] +
            [clients.title_of(store.own)] for store in stores]
    return Table("%d clients, each with a name of its own: cycles/s" % SPREAD_CLIENTS,
                 "Of the library: threads that share one handle. Of the bare requests: a connection for each.",
                 ["store", "bare requests", "library", "usual client", ""], rows)


def hot_table(results, stores):
    rows = []
    for store in stores:
        row = [store.title]
        for way in (LIBRARY, OWN):
            row += [number(results.median("hot", store.key, way, HOT_CLIENTS)),
                    number(results.median("hot", store.key, way, HOT_CLIENTS, field="handover_us"))]
        rows.append(row + [clients.title_of(store.own)])
    return Table("%d clients, one lock: cycles/s, and µs from hand to hand" % HOT_CLIENTS,
                 "From the release to the next one's having it, where that one waited. A client that asks again now and then, as those of Redis do, has "
                 "many cycles by whoever is there at once, and waits long.",
                 ["store", "library", "hand-over", "usual client", "hand-over", ""], rows)


# What grows: the title of its table, and the words at the axis of its plot.
GROWTH = {"clients": ("Cycles/s, with more and more clients", "clients"),
          "waiters": ("Cycles/s, with more and more at one lock", "clients at one lock"),
          "names": ("Cycles/s of 8 clients, with more and more locks held by others", "locks held by others")}


def growth_table(results, stores, measure, sizes, about):
    sizes = [size for size in sizes if any(p["measure"] == measure and p["size"] == size for p in results.points)]
    rows = [[store.title] + [number(results.median(measure, store.key, LIBRARY, size)) for size in sizes] for store in stores]
    return Table(GROWTH[measure][0], about, ["store"] + [f"{size:,}" for size in sizes],
                 rows)


def failover_table(results, stores):
    rows = []
    for store in stores:
        for way in (LIBRARY, OWN):
            found = sorted(results.series("failover", store.key, way, 4, field="seconds").values())
            if found:
                rows.append([store.title, "library" if way == LIBRARY else clients.title_of(store.own), number(statistics.median(found)),
                             number(found[0]), number(found[-1]), str(len(found))])
    return Table("The leader is killed: seconds without a grant",
                 "kill -9 under load, to the end of the longest time in which nobody got a lock. Election times as shipped. Five Redis have no leader.",
                 ["store", "client", "median", "least", "most", "times"], rows)


def memory_table(results):
    named = {("holdfastd", LIBRARY): "holdfastd", ("redis", RECIPE): "Redis, a key for each, as redis-py has it",
             ("redis", LIBRARY): "Redis, through our library: who holds it, and since when"}
    sizes = memory_sizes(results)
    rows = [[title] + [number(memory_of(results, *which, size)) for size in sizes] for which, title in named.items()]
    return Table("Memory of a held lock, bytes", "By how much the process grew, for each of so many. Names of 20 bytes, leases of 32. holdfastd keeps the "
                 "end of its log in memory, 16 MB whatever is held.", ["store"] + [f"{size:,}" for size in sizes], rows)


def tables(results, stores):
    found = [cycle_table(results, stores), spread_table(results, stores), hot_table(results, stores),
             growth_table(results, stores, "clients", CLIENTS, "Started operations (`hf_acquire_start`), each on a name of its own."),
             growth_table(results, stores, "waiters", WAITERS, "The same, all of one name. – : not tried, or no turn was had within a round."),
             growth_table(results, stores, "names", NAMES, "On a server of its own."),
             failover_table(results, stores), memory_table(results)]
    return [table for table in found if table.rows]


WORDS = {"cycle": "one client's cycle", "spread": "%d clients with names of their own" % SPREAD_CLIENTS, "hot": "%d at one lock" % HOT_CLIENTS,
         "clients": "{:,} clients", "waiters": "{:,} at one lock", "names": "{:,} held locks", "failover": "failover", "memory": "memory"}


def words_of(stores, measure, key, way, size):
    store = next(store for store in stores if store.key == key)
    by = {BARE: "bare requests", RECIPE: "plain recipe", OWN: clients.title_of(store.own)}.get(way, way)
    return "%s, %s, %s" % (WORDS[measure].format(size), store.title, by)


def shortcomings(results, stores):
    """What failed in the rounds, of which figures are given all the same."""
    found = []
    for which in dict.fromkeys((p["measure"], p["store"], p["way"], p["size"]) for p in results.points):
        count, words = results.failures(*which)
        if not count and which[0] not in ("failover", "memory") and not results.series(*which):
            found.append(words_of(stores, *which) + ": no cycle was over within a round")
        if count:
            found.append("%s: %d failed%s" % (words_of(stores, *which), count, " (%s)" % words if words else ""))
    return found


# ---- the page ----------------------------------------------------------------------------------------------------------


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        names = re.findall(r"^model name\s*: (.*)$", file.read(), re.M)
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(re.search(r"MemTotal:\s+(\d+)", file.read()).group(1)) / 2 ** 20
    return "%s, %d processors%s, %.0f GB, Linux %s" % (platform.machine(), os.cpu_count(), " (%s)" % names[0] if names else "", memory,
                                                       platform.release().split("-")[0])


def section(results, stores, settings, versions, pictures):
    today = datetime.date.today()
    lines = ["Measured by `%s` on %s, in one run, medians of %d. %s. %s." % (
        PROMPT, today.strftime("%-d %B %Y"), settings.rounds, machine(), "; ".join(versions)), "",
        "| ratio | | wanted |", "|---|---:|---|"]
    lines += ["| " + " | ".join(ratio.row()) + " |" for ratio in ratios(results, stores)]
    lines += [""]
    for table in tables(results, stores):
        lines += [table.as_markdown()]
        lines += ["![%s](%s)\n" % (table.title, picture) for title, picture in pictures if title == table.title]
    said = ["%s: left out, %s." % one for one in results.left_out] + [words + "." for words in shortcomings(results, stores)]
    if said:
        lines += ["### What is not in there, or failed", ""] + ["- " + words for words in said] + [""]
    return "\n".join(lines)


def around(path):
    """What is before the results, and what is behind them."""
    with open(path, encoding="utf-8") as file:
        before, begin, rest = file.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit("peers: %s has not the two marks between which results go" % path)
    return before, after


def write_page(path, text):
    before, after = around(path)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n\n" + text.rstrip() + "\n\n" + END + after)
    os.replace(path + ".new", path)


def draw(results, stores, folder):
    """Beside the page: [(title of the table, file)]."""
    drawn = []
    for measure, (title, across) in GROWTH.items():
        lines = []
        for store in stores:
            sizes = sorted({p["size"] for p in results.points if p["measure"] == measure and p["store"] == store.key})
            points = [(size, results.median(measure, store.key, LIBRARY, size)) for size in sizes]
            lines.append((store.title, [(x, y) for x, y in points if y]))
        if any(points for _, points in lines):
            file = "bench-%s.svg" % measure
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                out.write(plots.svg(across, "cycles/s", lines))
            drawn.append((title, file))
    return drawn
