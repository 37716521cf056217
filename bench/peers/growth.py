"""How the cost of a cycle grows with the work: with more clients, with more who wait for one name, with more names that are held. And what a held
lock takes of memory. Through Holdfast's library, but for what is filled in: that goes over plain connections, as the library would say it.
"""
import os
import random
import time

import bare_requests
import servers
from measures import LIBRARY, RECIPE, by_library
from servers import Connection, command

CLIENTS = (1, 10, 100, 1000)
WAITERS = (1, 10, 100, 1000, 10000)
NAMES = (10, 1000, 100000, 1000000)
MEMORY = {200000: 20, 1000000: 60}  # locks, and for how many seconds a server rests before: it gives back what a snapshot took
MEMORY_QUICK = {20000: 1}
PAGE = 1000  # commands that are sent together
HOUR_MS = 3600000
MANY, MANY_TIMES = 1000, 4  # so many take a while until all of them stand in line: their rounds are so many times as long


def measure_clients(settings, stores, results):
    """Operations that were started, each on a name of its own, as a program with an event loop has them."""
    for number in range(settings.growth_rounds):
        for count in CLIENTS[::2] if settings.quick else CLIENTS:
            for store in stores:
                if count <= store.clients_max:
                    results.say("round %d: %d clients, %s" % (number + 1, count, store.title))
                    results.add("clients", store, LIBRARY, count, number, by_library(settings, store, "spread", count, settings.seconds))


def measure_waiters(settings, stores, results):
    for number in range(settings.growth_rounds):
        for count in WAITERS[:3:2] if settings.quick else WAITERS:
            for store in stores:
                if count > store.waiters_max:
                    continue
                results.say("round %d: %d at one lock, %s" % (number + 1, count, store.title))
                seconds = settings.seconds * (MANY_TIMES if count >= MANY else 1)
                results.add("waiters", store, LIBRARY, count, number, by_library(settings, store, "hot", count, seconds))


# ---- held names --------------------------------------------------------------------------------------------------------


class Filled:
    """A server of its own that holds more and more locks. `way` says who has filled it: the library's requests, or the plain recipe."""

    def __init__(self, store, server, way, url, taken):
        self.store, self.server, self.way, self.url, self.taken = store, server, way, url, taken
        self.key, self.title = store.key, store.title
        self.held, self.empty = 0, 0

    def fill(self, count):
        """Up to so many held locks, each for an hour."""
        with Connection(self.server.port) as connection:
            if self.way == LIBRARY and self.key == "redis":
                connection.call("SCRIPT", "LOAD", bare_requests.ACQUIRE)
            while self.held < count:
                page = range(self.held, min(self.held + PAGE, count))
                connection.socket.sendall(b"".join(command(*self.taken(i)) for i in page))
                for _ in page:
                    answer = connection.answer()
                    if answer is None or isinstance(answer, Exception):
                        raise SystemExit("peers: %s refuses a lock: %s" % (self.title, answer))
                self.held = page[-1] + 1


def name_of(number):
    return "lock:%015d" % number


def lease_of(number):
    return "%032x" % random.Random(number).getrandbits(128)


def holdfastd_taken(number):
    return "ACQUIRE", name_of(number), lease_of(number), "TTL", HOUR_MS


def library_taken(number):
    return bare_requests.library_acquire(name_of(number), lease_of(number), HOUR_MS)


def recipe_taken(number):
    return "SET", name_of(number), lease_of(number), "NX", "PX", HOUR_MS


def start_filled(settings, stores, folder):
    """Of one holdfastd and one Redis, where they are compared: Redis once as redis-py keeps a lock, and once as our library does."""
    found = []
    for store in stores:
        if store.key == "holdfastd":
            server = servers.holdfastd(os.path.join(settings.build, "src/server/holdfastd"), folder, "--config", os.devnull, "--allow", "tmpfs")
            found.append(Filled(store, server, LIBRARY, "holdfast://127.0.0.1:%d" % server.port, holdfastd_taken))
        elif store.key == "redis":
            for way, taken in ((LIBRARY, library_taken), (RECIPE, recipe_taken)):
                server = servers.redis(folder)
                found.append(Filled(store, server, way, "redis://127.0.0.1:%d" % server.port, taken))
    return found


def measure_names(settings, stores, results):
    """And on the way what each of them takes of memory."""
    names, memory = (NAMES[:2], MEMORY_QUICK) if settings.quick else (NAMES, MEMORY)
    filled = start_filled(settings, stores, settings.folder)
    try:
        for one in filled:
            with Connection(one.server.port) as connection:
                connection.call("PING")
            one.empty = one.server.rss()
        for size in sorted({*names, *memory}):
            for one in filled:
                results.say("%d held locks, %s, by the %s" % (size, one.title, one.way))
                one.fill(size)
            if size in names:
                measure_filled(settings, filled, size, results)
            if size in memory:
                measure_memory(filled, memory[size], results)
    finally:
        for one in filled:
            one.server.stop()


def measure_memory(filled, rest_s, results):
    time.sleep(rest_s)
    for one in filled:
        results.add("memory", one, one.way, one.held, 0, {"bytes_per_lock": (one.server.rss() - one.empty) / one.held})


def measure_filled(settings, filled, size, results):
    for number in range(settings.growth_rounds):
        for one in filled:
            if one.way == LIBRARY:
                results.add("names", one, LIBRARY, size, number, by_library(settings, one, "spread", 8, settings.seconds))
