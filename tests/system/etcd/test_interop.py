"""Beside `etcdctl lock` on the same names; and how much a release costs when fifty wait."""
import json
import os
import subprocess
import threading
import time

from conftest import BIN, SOAK, Cli, eventually
from holder import hold, start_holder  # noqa: F401

PROCESSES = 8  # of each
ROUNDS = 500 if SOAK else 3  # of each process
WAITERS = 50
RELEASES = 20


def run_rounds(argv, env, rounds, failures):
    for _ in range(rounds):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            failures.append((argv[0], done.returncode, done.stdout, done.stderr))
            return


def test_etcdctl_and_ours_exclude_each_other(three, prefix, cli_on, tmp_path):
    """Inside, each makes a directory that the others must not find, and adds to a counter without any other lock."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\nset -e\nmkdir {tmp_path}/inside\nn=$(cat {counter})\nsleep 0.003\n"
                   f"echo $((n + 1)) > {counter}\nrmdir {tmp_path}/inside\n")
    job.chmod(0o755)
    cli = Cli(three.url(prefix))
    kinds = ([BIN, "run", "x", "--", str(job)], three.ctl_argv("lock", f"{prefix}/x", str(job)))
    failures = []
    threads = [threading.Thread(target=run_rounds, args=(argv, {**cli.env, "ETCDCTL_API": "3"}, ROUNDS, failures))
               for argv in kinds for _ in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert int(counter.read_text()) == 2 * PROCESSES * ROUNDS
    assert three.keys(f"{prefix}/x/") == []


def test_each_waits_for_the_other_in_order(three, prefix, hold, start_holder):
    """etcdctl behind ours, ours behind etcdctl: by their create revisions."""
    first = hold(three.url(prefix), "x", "ttl=30000")
    theirs = subprocess.Popen(three.ctl_argv("lock", f"{prefix}/x"), env={**os.environ, "ETCDCTL_API": "3"},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: len(three.keys(f"{prefix}/x/")) == 2, "etcdctl waits")
        last = start_holder(three.url(prefix), "x", "ttl=30000")
        eventually(lambda: len(three.keys(f"{prefix}/x/")) == 3, "ours waits")
        assert first.release() == "HF_OK"
        assert theirs.stdout.readline().startswith(f"{prefix}/x/")
        time.sleep(0.3)
        assert last.waits()
        theirs.terminate()
        assert last.token > first.token
        assert last.release() == "HF_OK"
    finally:
        theirs.kill()
        theirs.wait()


def test_a_break_says_that_etcdctl_is_not_told(three, prefix, cli_on):
    """It looks at its session only. Ours are told."""
    cli = cli_on(three.url(prefix))
    untold = "The holder is another program's, not ours: it is not told, and goes on until it looks by itself."
    for options, then in (([], "The name is withheld after a break or a lock-delay, for another"), (["--now"], "The name is free at once.")):
        theirs = subprocess.Popen(three.ctl_argv("lock", f"{prefix}/x"), env={**os.environ, "ETCDCTL_API": "3"},
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert theirs.stdout.readline().startswith(f"{prefix}/x/")
            done = cli("break", "x", *options)
            assert "broke 1 hold" in done.stdout and untold in done.stdout and then in done.stdout, done.stdout
            assert "is told at once" not in done.stdout
            assert theirs.poll() is None
            again = cli("break", "x", "--now").stdout
            if not options:  # what is said now agrees with what was said before: there is no token
                assert "it is free now" in again and "only if it brings its own" in again and "broke" not in again, again
            assert cli("run", "-n", "x", "--", "true").status == 0
        finally:
            theirs.kill()
            theirs.wait()
    ours = cli.start("run", "y", "--", "sh", "-c", "echo in; exec sleep 100")
    assert ours.line() == "in"
    assert json.loads(cli("break", "y", "--json").stdout) == {"name": "y", "broken": 1, "untold": 0, "now": False, "freed": False, "entered": False}
    assert ours.wait() == 76


def test_tokens_begin_small_and_a_floor_is_refused(servers, cli_on):
    """As docs/fencing.md says: not at the clock. Whoever comes from another store is led to the marks of the guards."""
    etcd = servers.etcd(nodes=1)
    on_etcd = cli_on(etcd.url("locks"))
    assert int(on_etcd("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout) < 1000
    done = on_etcd("floor", "1794842243059667")
    assert done.status == 64 and "reset the marks of the guards" in done.stderr, done


def test_fifty_waiters_and_each_release_wakes_one(servers, hold, start_holder):
    """Counted at the server: with a herd, each release would be WAITERS events and as many requests."""
    etcd = servers.etcd(nodes=1)
    node = etcd.nodes[0]
    first = hold(etcd.url(), "x", "ttl=120000")
    line = [first]
    for i in range(WAITERS):
        line.append(start_holder(etcd.url(), "x", "ttl=120000"))
    eventually(lambda: len(etcd.keys("locks/x/")) == WAITERS + 1, "all wait")
    eventually(lambda: node.metric("etcd_debugging_mvcc_watcher_total") >= WAITERS, "all watch")
    order = [int(kv["create_revision"]) for _, kv in sorted(etcd.keys("locks/x/"), key=lambda pair: int(pair[1]["create_revision"]))]
    holders = {}
    began = time.monotonic()
    events = node.metric("etcd_debugging_mvcc_events_total")
    writes = node.metric('grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"')
    waiting = line[1:]
    inside = first
    for i in range(RELEASES):
        assert inside.release() == "HF_OK"
        inside = eventually(lambda: next((holder for holder in waiting if not holder.waits()), None), "the next")
        waiting.remove(inside)
        holders[inside.token] = inside
        assert inside.token == order[i + 1]  # in their order
    took = time.monotonic() - began
    looks = WAITERS * (took / 5 + 1)  # each looks every 5 s, whether told or not
    events = node.metric("etcd_debugging_mvcc_events_total") - events
    writes = node.metric('grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"') - writes
    print(f"{RELEASES} releases in {took:.1f} s: {events:.0f} events, {writes:.0f} transactions")
    assert events <= 3 * RELEASES
    assert writes <= 3 * RELEASES + looks
