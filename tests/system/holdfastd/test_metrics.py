"""What the server counts and measures, as Prometheus is told: the form of it, and that each number is the right one."""
import pytest
from conftest import eventually
from exposition import families_of, labels_of, sample_of
from test_users import PASSWORD, block, write

NAMES_OF_INFO = {  # of what INFO has, too
    "connected_clients": "holdfast_connections", "names": "holdfast_names", "holds": "holdfast_holds", "withheld": "holdfast_withheld",
    "waiting": "holdfast_waiting", "leases": "holdfast_leases", "last_token": "holdfast_last_token", "granted": "holdfast_grants_total",
    "expired": "holdfast_expired_total", "broken": "holdfast_broken_total", "node_id": "holdfast_node_id", "term": "holdfast_term",
    "total_connections_received": "holdfast_connections_accepted_total", "maxclients": "holdfast_max_connections",
    "blocked_clients": "holdfast_blocked_connections", "refused_commands": "holdfast_commands_refused_total",
    "once_records": "holdfast_once_records", "leader_id": "holdfast_leader_id",
}


def metrics(client):
    return families_of(client.cmd("INFO", "prometheus"))


# ---- the form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [
    "a 1", "# HELP a x\na 1\n", "# TYPE a gauge\n# HELP a x\na 1\n", "# HELP a x\n# TYPE a gauge\nb 1\n",
    "# HELP a x\n# TYPE a gauge\na 1\na 2\n", "# HELP a x\n# TYPE a gauge\na{} 1\n", '# HELP a x\n# TYPE a gauge\na{l="\\x"} 1\n',
    '# HELP a x\n# TYPE a gauge\na{l="x"y} 1\n', "# HELP a x\n# TYPE a gauge\na NaN\n", "# HELP a x\n# TYPE a counter\na 1\n",
    "# HELP a x\n# TYPE a gauge\na 1\n# HELP a x\n# TYPE a gauge\n", "# HELP a x\n# TYPE a gauge\na 1 \n",
    '# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{le="1"} 2\na_seconds_bucket{le="+Inf"} 1\na_seconds_sum 1\na_seconds_count 1\n',
    '# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{le="1"} 1\na_seconds_bucket{le="+Inf"} 2\na_seconds_sum 1\na_seconds_count 1\n',
    '# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{le="1"} 1\na_seconds_sum 1\na_seconds_count 1\n',
    '# HELP a x\n# TYPE a gauge\na{l="x"} 1\na 1\n',
])
def test_the_reader_is_strict(wrong):
    with pytest.raises((AssertionError, KeyError, ValueError, AttributeError)):
        families_of(wrong)


def test_the_reader_knows_what_is_escaped():
    assert labels_of(r'a="x\"y\\z\n",b="}"') == [("a", 'x"y\\z\n'), ("b", "}")]
    assert sample_of('x{a="} 5"} 7') == ("x", [("a", "} 5")], 7)


def test_all_of_it_is_read(client):
    families = metrics(client)
    assert len(families) > 50
    assert all(name.startswith(("holdfast_", "process_")) for name in families)
    assert families["holdfast_build_info"].values("version")


def test_info_and_prometheus_say_the_same(start):
    server = start()
    with server.connect(3) as client, server.connect() as other:
        client.cmd("ACQUIRE", "a", "l1")
        client.cmd("ACQUIRE", "b", "l1")
        client.cmd("ACQUIRE", "a", "l2", "PUSH")
        client.cmd("BREAK", "b")
        client.error("NOPE")
        other.send("ACQUIRE", "a", "l3", "WAIT", 60000)
        eventually(lambda: client.info()["blocked_clients"] == "1", "it waits")
        info, families = client.info(), metrics(client)
        assert {name: int(info[field]) for field, name in NAMES_OF_INFO.items()} == \
               {name: families[name].value() for name in NAMES_OF_INFO.values()}
        assert int(info["granted"]) == 2 and int(info["broken"]) == 1 and int(info["waiting"]) == 2


# ---- the numbers -------------------------------------------------------------------------------------------------


def test_a_node_alone_leads(client):
    families = metrics(client)
    assert [families["holdfast_" + name].value() for name in ("leads", "has_leader", "stopped", "elections_won_total")] == [1, 1, 0, 1]
    assert families["holdfast_member_lag_entries"].values("member") == {"1": 0}
    assert families["holdfast_member_silent_seconds"].samples == {}, "it hears from nobody but itself"


def test_grants_are_measured(start):
    """At once, and after a wait; a lock that was not had is none."""
    server = start()
    with server.connect(3) as client, server.connect() as other:
        grants = lambda: metrics(client)["holdfast_grant_seconds"]  # noqa: E731
        assert grants().count() == 0
        client.cmd("ACQUIRE", "a", "l1")
        assert client.cmd("ACQUIRE", "a", "l2") is None
        client.cmd("ONCE", "CLAIM", "k", "l3")
        assert grants().count() == 1
        other.send("ACQUIRE", "a", "l4", "WAIT", 60000)
        client.cmd("ACQUIRE", "a", "l5", "PUSH")
        eventually(lambda: client.info()["waiting"] == "2", "two wait")
        before = grants().samples["holdfast_grant_seconds_sum", ()]
        eventually(lambda: float(metrics(client)["holdfast_uptime_seconds"].value()) > 1.2, "a second went by")
        client.cmd("RELEASE", "a", "l1")
        assert other.read() > 0
        other.cmd("RELEASE", "a", "l4")
        assert client.push()[0] == "granted"
        assert grants().count() == 3
        assert grants().samples["holdfast_grant_seconds_sum", ()] > before, "the wait is in it"
        families = metrics(client)
        commits, writes = families["holdfast_commit_seconds"], families["holdfast_log_write_seconds"]
        assert commits.count() >= 6 and writes.count() == families["holdfast_log_writes_total"].value() >= 6
        assert writes.samples["holdfast_log_write_seconds_sum", ()] > 0


def test_names_are_counted_by_their_beginning(start):
    server = start()
    with server.connect() as client:
        for name in ("orders:1", "orders:2", "jobs/x", "plain", 'a"b\\:1', b"\xff:1", "late:1"):
            client.cmd("ACQUIRE", name, b"of " + name if isinstance(name, bytes) else "of " + name)
        client.cmd("ACQUIRE", "short:1", "l2", "TTL", 1000)
        client.cmd("BREAK", "orders:1")
        eventually(lambda: metrics(client)["holdfast_prefix_expired_total"].values("prefix").get("short:") == 1, "it ran out")
        families = metrics(client)
        assert families["holdfast_prefix_grants_total"].values("prefix") == {
            "orders:": 2, "jobs/": 1, 'a"b\\:': 1, "late:": 1, "short:": 1, "none": 1, "other": 1}
        assert families["holdfast_prefix_broken_total"].values("prefix")["orders:"] == 1
        for i in range(100):
            client.cmd("ACQUIRE", f"tenant{i}:x", "l1")
        after = metrics(client)["holdfast_prefix_grants_total"].values("prefix")
        assert len(after) == 32 + 2 and after["other"] == 1 + 100 - (32 - 5), "there is a bound"
        assert sum(after.values()) == metrics(client)["holdfast_grants_total"].value()


def test_a_user_sees_no_names_that_are_not_his(start, tmp_path):
    users = tmp_path / "users"
    write(users, block("default", "allow = acquire look: *"), block("some", "allow = look: mine:*"), block("none", "allow = acquire: *"))
    server = start("--users-file", users)
    server.password = PASSWORD
    with server.connect() as client:
        for name in ("mine:1", "theirs:1", "theirs:2"):
            client.cmd("ACQUIRE", name, "l1")
        client.cmd("AUTH", "some", PASSWORD)
        assert metrics(client)["holdfast_prefix_grants_total"].values("prefix") == {"mine:": 1, "none": 0, "other": 2}
        client.error("AUTH", "some", "wrong")
        families = metrics(client)
        assert families["holdfast_logins_refused_total"].value() == 1 and families["holdfast_logins_total"].value() >= 2
        client.cmd("AUTH", "none", PASSWORD)
        assert metrics(client)["holdfast_prefix_grants_total"].values("prefix") == {"none": 0, "other": 3}, "numbers are anybody's"
