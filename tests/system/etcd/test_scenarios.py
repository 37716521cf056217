"""Faults that etcd, its clients and its recipes had, as their users met them (docs/etcd-store.md has the list)."""
import json
import os
import shutil
import signal
import subprocess
import time

from conftest import PATIENCE, EtcdError, await_gone, eventually, is_running, of64, seconds, text64
from holder import hold, start_holder  # noqa: F401

import pytest


def only_key(etcd, prefix, name="x"):
    keys = etcd.keys(f"{prefix}/{name}/")
    assert len(keys) == 1, keys
    return keys[0]


def await_keys(etcd, prefix, count, name="x"):
    return eventually(lambda: len(keys := etcd.keys(f"{prefix}/{name}/")) == count and keys, f"{count} keys")


def by_age(keys):
    return sorted(keys, key=lambda pair: int(pair[1]["create_revision"]))


# ---- 11456: a waiter whose lease ran out in the queue is reported as the holder


def test_11456_a_waiter_whose_key_is_gone_is_not_the_holder(three, prefix, hold, start_holder):
    """Stopped, it loses its key; then the holder goes, and somebody else comes. What it is told when it wakes is no lie."""
    first = hold(three.url(prefix), "x", "ttl=30000")
    waiter = start_holder(three.url(prefix), "x", "ttl=30000")
    keys = by_age(await_keys(three, prefix, 2))
    waiter.pause()
    three.ctl("del", keys[1][0])
    assert first.release() == "HF_OK"
    second = hold(three.url(prefix), "x", "ttl=30000")
    waiter.resume()
    await_keys(three, prefix, 2)  # it takes a new place behind
    assert waiter.waits()
    assert second.release() == "HF_OK"
    assert waiter.token > second.token
    assert waiter.token == int(only_key(three, prefix)[1]["create_revision"])


# ---- 22082: a stale unlock retry deletes a newer holder's lock


def test_22082_a_late_release_touches_nothing_newer(three, prefix, hold, cli_on):
    first = hold(three.url(prefix), "x", "ttl=30000")
    first.pause()
    three.ctl("del", only_key(three, prefix)[0])
    second = hold(three.url(prefix), "x", "ttl=30000")
    first.ask_release()
    first.resume()
    assert first.hear_released() == "HF_ELOST"
    assert only_key(three, prefix)[1]["create_revision"] == str(second.token)
    assert cli_on(three.url(prefix))("check", "x", str(second.token)).status == 0
    assert second.release() == "HF_OK"


def test_a_release_whose_answer_was_lost_is_not_repeated_unseen(three, prefix, servers, hold):
    """libcurl sends a request again by itself when a connection that it used before ends without an answer. Whoever then finds
    the key gone would be told that the lock had not been his any more."""
    relay = servers.relay(three.nodes[0].port)
    for _ in range(5):
        holder = hold(f"etcd://{relay.address}/{prefix}", "x", "ttl=30000")
        relay.drop("down")
        assert holder.release() == "HF_OK"
        assert three.keys(f"{prefix}/x/") == []


def test_a_break_whose_answer_was_lost_says_what_it_did(three, prefix, servers, hold, cli_on):
    losing = servers.losing(three.nodes[0].port)
    for options, written in ((["--now"], "request_delete_range"), ([], "request_put")):
        holder = hold(three.url(prefix), "x", "ttl=30000")
        losing.lose('"MOD"', written)
        done = cli_on(f"etcd://{losing.address}/{prefix}")("break", "x", *options)
        assert losing.words == []
        assert done.status == 0 and "broke 1 hold" in done.stdout, done
        holder.await_lost()
        three.ctl("del", "--prefix", f"{prefix}/")


def test_a_result_that_is_stored_late_is_kept_as_long_as_it_should(servers, three, prefix, cli_on):
    """The lease of the result counts from before it was stored."""
    losing = servers.losing(three.nodes[0].port)
    losing.delay(3, '"MOD"', "request_put", "request_delete_range")
    done = cli_on(f"etcd://{losing.address}/{prefix}?timeout=20s")("once", "x", "--keep", "6s", "--", "echo", "first")
    assert losing.delayed == [] and (done.status, done.stdout) == (0, "first\n"), done
    record = json.loads(cli_on(three.url(prefix))("once", "x", "--show", "--json").stdout)
    assert record["left_ms"] > 4500, record


def test_a_run_whose_last_answer_was_lost_ends_well(three, prefix, servers, cli_on):
    losing = servers.losing(three.nodes[0].port)
    losing.lose('"MOD"', "request_delete_range")
    done = cli_on(f"etcd://{losing.address}/{prefix}")("run", "x", "--", "true")
    assert losing.words == []
    assert done.status == 0, done
    assert three.keys(f"{prefix}/") == []


# ---- 20616: a renewal says yes for a lease that is revoked


@pytest.mark.parametrize("how", ["revoke", "delete"])
def test_20616_a_holder_whose_lease_is_revoked_is_told(three, prefix, hold, how):
    """By its watch: long before it renews."""
    holder = hold(three.url(prefix), "x", "ttl=60000")
    key, kv = only_key(three, prefix)
    time.sleep(1)  # its watch begins half a second after the hold
    began = time.monotonic()
    if how == "revoke":
        three.nodes[0].ask("lease/revoke", ID=kv["lease"])
    else:
        three.ctl("del", key)
    holder.await_lost()
    assert seconds(began) < 10  # it would renew after 20
    assert holder.left() == 0
    assert holder.release() == "HF_ELOST"


def test_20616_a_renewal_finds_out_by_itself(three, prefix, hold):
    """Before it has a watch, and while the key is there again, in somebody else's name."""
    holder = hold(three.url(prefix), "x", "ttl=1000")
    key, kv = only_key(three, prefix)
    three.nodes[0].ask("kv/txn", success=[{"request_delete_range": {"key": text64(key)}}])
    three.ctl("put", key, "not ours")
    holder.await_lost()
    assert holder.release() == "HF_ELOST"
    assert of64(only_key(three, prefix)[1]["value"]) == "not ours"
    three.ctl("del", key)


def test_no_lease_is_kept_alive(three, prefix, hold):
    """A renewal is a new lease, and the key moves to it: what a deposed leader says of an old one counts for nothing (12528, 15247)."""
    before = sum(node.metric('etcd_debugging_lease_renewed_total') for node in three.nodes)
    holder = hold(three.url(prefix), "x", "ttl=1000")
    leases = set()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and len(leases) < 4:
        leases.add(only_key(three, prefix)[1]["lease"])
        time.sleep(0.02)
    assert len(leases) >= 4
    assert sum(node.metric('etcd_debugging_lease_renewed_total') for node in three.nodes) == before
    assert int(only_key(three, prefix)[1]["create_revision"]) == holder.token
    assert holder.release() == "HF_OK"


# ---- 22387: Election.Campaign never looks at its own session, and the phantom leads on


def test_22387_no_phantom_leads(three, prefix, cli_on):
    """The candidate's lease ends: what it ran as a leader ends, and it runs again only when it is elected again."""
    cli = cli_on(three.url(prefix))
    process = cli.start("elect", "--ttl", "2s", "--grace", "200ms", "svc", "--", "sh", "-c",
                        "echo lead $HOLDFAST_TOKEN $$; exec sleep 1000")
    _, token, pid = process.line().split()
    key, kv = only_key(three, prefix, "svc")
    three.nodes[0].ask("lease/revoke", ID=kv["lease"])
    await_gone(int(pid))
    _, again, next_pid = process.line().split()
    assert int(again) > int(token)
    assert is_running(int(next_pid))
    assert only_key(three, prefix, "svc")[1]["create_revision"] == again
    process.kill(signal.SIGTERM)
    process.wait()
    assert three.keys(f"{prefix}/svc/") == []


# ---- 9888, 17132: leases that live for ever through repeated elections


def test_9888_elections_do_not_keep_a_dead_holder(servers, hold):
    """Each election gives all leases their whole time again, but no more than that."""
    etcd = servers.etcd()
    dead = hold(etcd.url(), "x", "ttl=2000")
    dead.kill()
    for _ in range(3):
        leader = etcd.leader()
        target = next(node for node in etcd.nodes if node is not leader)
        member = target.ask("maintenance/status")["header"]["member_id"]
        leader.ask("maintenance/transfer-leadership", targetID=member)
        time.sleep(0.7)
    began = time.monotonic()
    assert hold(etcd.url(), "x", "ttl=5000").token > dead.token
    assert seconds(began) < 2 + 1 + PATIENCE / 4  # its TTL, rounding, and a busy machine


# ---- compaction


def test_a_compaction_costs_a_waiter_nothing(servers, hold, start_holder):
    """What watches are to go on from is compacted away while their server is down: the waiters look again, and watch from there. They began
    at different times, so that those looks that come every 5 s, whether told or not, are no explanation."""
    etcd = servers.etcd(nodes=1)
    names = "abcd"
    firsts = [hold(etcd.url(), name, "ttl=60000") for name in names]
    waiters = []
    for name in names:
        time.sleep(1.2)
        waiters.append(start_holder(etcd.url(), name, "ttl=60000"))
        await_keys(etcd, "locks", 2, name)
    for i in range(5):
        etcd.ctl("put", f"other/{i}", "v")
    etcd.ctl("compact", etcd.nodes[0].ask("maintenance/status")["header"]["revision"])
    etcd.nodes[0].restart()
    etcd.await_all()
    time.sleep(0.5)
    assert all(waiter.waits() for waiter in waiters)
    began = time.monotonic()
    for first in firsts:
        assert first.release() == "HF_OK"
    assert all(waiter.token > first.token for waiter, first in zip(waiters, firsts))
    assert seconds(began) < 2.5


# ---- revisions


def test_tokens_are_create_revisions(three, prefix, hold):
    tokens = []
    for _ in range(3):
        holder = hold(three.url(prefix), "x", "ttl=10000")
        tokens.append(holder.token)
        assert only_key(three, prefix)[1]["create_revision"] == str(holder.token)
        assert holder.release() == "HF_OK"
    assert tokens == sorted(set(tokens))


def test_nothing_is_left_behind(servers, cli_on):
    etcd = servers.etcd(nodes=1)
    cli = cli_on(etcd.url())
    assert cli("run", "x", "--", "true").status == 0
    with_lock = cli.hold("x")
    assert cli("run", "-n", "x", "--", "true").status == 75
    assert cli("run", "-w", "0.3", "x", "--", "true").status == 75
    with_lock.end()
    assert cli("once", "job", "--keep", "1s", "--", "true").status == 0
    assert [key for key, _ in etcd.keys("locks/") if "!result" not in key] == []
    eventually(lambda: etcd.keys("locks/") == [] and etcd.leases() == [], "no key and no lease is left")


def test_a_name_with_a_slash_is_not_below_another(three, prefix, hold):
    """etcdctl's lock a waits for a/b, too. Ours do not meet."""
    a = hold(three.url(prefix), "a", "ttl=10000")
    b = hold(three.url(prefix), "a/b", "ttl=10000")
    c = hold(three.url(prefix), "a%2Fb", "ttl=10000")
    names = sorted(key.split("/")[1] for key, _ in three.keys(prefix + "/"))
    assert names == ["a", "a%252Fb", "a%2Fb"]
    for holder in (a, b, c):
        assert holder.release() == "HF_OK"


def test_a_foreign_key_counts_as_a_holder(three, prefix, cli_on):
    three.ctl("put", f"{prefix}/x/1234", "somebody else's")
    cli = cli_on(three.url(prefix))
    assert cli("run", "-n", "x", "--", "true").status == 75
    assert cli("run", "-n", "-s", "x", "--", "true").status == 75
    assert len(cli.show("x")["holders"]) == 1
    three.ctl("del", f"{prefix}/x/1234")
    assert cli("run", "-n", "x", "--", "true").status == 0


def test_another_cluster_at_the_address_ends_all_holds(servers, hold):
    """Its servers were exchanged for empty ones: whoever held is told, and no token of the old one counts there."""
    etcd = servers.etcd(nodes=1)
    holder = hold(etcd.url(), "x", "ttl=60000")
    time.sleep(1)  # its watch begins half a second after the hold
    node = etcd.nodes[0]
    node.kill9()
    os.rename(node.dir / "data", node.dir / "gone")
    etcd.args += ["--initial-cluster-token", "another"]
    node.start()
    etcd.await_all()
    holder.await_lost(patience=12)  # it would renew after 20
    assert holder.left() == 0


def restore(node, snapshot):
    """Under the same addresses, and as the same cluster, as far as anybody can see."""
    node.kill9()
    shutil.rmtree(node.dir / "data")
    subprocess.run(["etcdctl", "snapshot", "restore", str(snapshot), "--name", node.name, "--data-dir", str(node.dir / "data"),
                    "--initial-cluster", f"{node.name}={node.peer_url}", "--initial-advertise-peer-urls", node.peer_url],
                   env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True)
    node.start()
    node.cluster.await_all()


def test_17780_no_token_falls_within_a_handle(servers, hold, tmp_path):
    """A restored backup begins with the revisions of then. Refused, whether the name is free or had to be waited for; and nothing is left."""
    etcd = servers.etcd(nodes=1)
    etcd.ctl("snapshot", "save", str(tmp_path / "backup"))
    first = hold(etcd.url(), "x", "ttl=60000")
    for _ in range(20):
        assert first.release() == "HF_OK"
        first.ask_again("x")
        newest = first.token
    assert first.release() == "HF_OK"
    restore(etcd.nodes[0], tmp_path / "backup")
    first.ask_again("y")
    assert "revisions of this etcd went back" in first.hear("error")
    assert etcd.keys("locks/") == []
    second = hold(etcd.url(), "x", "ttl=60000")
    assert second.token < newest
    first.ask_again("x")
    assert "revisions of this etcd went back" in first.hear("error")
    assert len(etcd.keys("locks/")) == 1
    assert second.release() == "HF_OK"


def test_17780_a_backup_restored_while_somebody_waits_is_noticed(servers, hold, start_holder, tmp_path):
    """Its place is in the backup, too. But what it would be granted with is written with a revision that its handle has seen before."""
    etcd = servers.etcd(nodes=1)
    node = etcd.nodes[0]
    first = hold(etcd.url(), "x", "ttl=3000")
    waiter = start_holder(etcd.url(), "x", "ttl=3000")
    await_keys(etcd, "locks", 2)
    etcd.ctl("snapshot", "save", str(tmp_path / "backup"))
    for _ in range(300):
        node.ask("kv/put", key=text64("elsewhere"), value=text64("x"))
    newest = int(node.ask("kv/range", key=text64("elsewhere"))["kvs"][0]["mod_revision"])
    eventually(lambda: int(by_age(etcd.keys("locks/x/"))[1][1]["mod_revision"]) > newest, "the waiter renews")
    first.kill()
    restore(node, tmp_path / "backup")
    assert "revisions of this etcd went back" in waiter.hear("error")
    assert etcd.keys("locks/x/") == []


def test_a_gateway_error_is_an_error(three):
    with pytest.raises(EtcdError, match="not found"):
        three.nodes[0].ask("lease/revoke", ID="123456789")
