"""How long a replicated store gives no lock when its leader is killed (kill -9) under load: from the kill to the end of the longest time without
a grant to anybody. Through Holdfast's library, and through the usual client of the store. Stores have their makers' election times."""
import time

import clients
from measures import LIBRARY, OWN

PROCESSES = 4  # that ask for names of their own all the time
AFTER_S = 1.5  # that grants have gone on again,
SILENCE_S = 0.5  # with none of these in between
OUTAGE_MAX_S = 60
BACK_S = 1.0  # until a node that came back has what it missed


def longest_without(times, killed):
    """(asked, had) of all: the end of the longest time without a grant, counted from the kill."""
    had = [when for _, when in times]
    gaps = [(later - earlier, later) for earlier, later in zip(had, had[1:]) if later > killed]
    return max(gaps)[1] - killed if gaps else None


def await_flow(crowd, killed):
    """Until grants have gone on for a while. Some that were under way when the leader died still arrive, and then none for long."""
    since = None
    while time.monotonic() < killed + OUTAGE_MAX_S:
        now, last = time.monotonic(), crowd.last.value
        if last < killed or now - last > SILENCE_S:
            since = None
        elif since is None:
            since = now
        elif now - since > AFTER_S:
            return
        time.sleep(0.01)


def kill_once(settings, store, kind):
    names = ["failover/%d" % i for i in range(PROCESSES)]
    crowd = clients.Crowd(kind, store, names, settings.folder, threads_max=1)
    try:
        await_flow(crowd, time.monotonic() - 1)
        killed, start_again = store.kill_leader()
        await_flow(crowd, killed)
        start_again()
        store.await_whole()
    finally:
        times, failures, words = crowd.end()
    took = longest_without(times, killed)
    if took is None:
        return {"failures": failures or 1, "last_failure": words or "no lock was given within %d s" % OUTAGE_MAX_S}
    return {"seconds": took, "errors": failures}  # errors are what a failover looks like to a client


def measure_failover(settings, stores, results):
    for number in range(settings.rounds):
        for store in stores:
            if not store.leads:
                continue
            for way, kind in ((LIBRARY, "library"), (OWN, store.own)):
                if clients.why_not(kind, settings.modules) or (way == OWN and store.key == "holdfastd3"):
                    continue  # redis-py does not look for another leader
                results.say("round %d: %s, the leader is killed, %s" % (number + 1, store.title, clients.title_of(kind)))
                results.add("failover", store, way, PROCESSES, number, kill_once(settings, store, kind))
                time.sleep(BACK_S)
