"""What is between a client and the server: protocols, passwords, names, what is said about the server, where it
listens, and what happens to those who are silent."""
import os
import re
import socket
import stat

import pytest
from conftest import PATIENCE, TOKEN_MAX, Client, Ended, boot_ms, eventually, pack, pairs_of, refused, run_refused
from holdfast_cli import Cli

SECTIONS = {
    "Server": {"holdfast_version", "process_id", "uptime_in_seconds", "listen0", "data"},
    "Clients": {"connected_clients", "unauthenticated_clients", "maxclients", "blocked_clients", "waiting_places", "observed_names",
                "total_connections_received", "rejected_connections"},
    "Memory": {"used_memory_rss"},
    "Locks": {"store_id", "names", "holds", "withheld", "waiting", "leases", "leases_remembered", "once_records",
              "last_token", "granted", "expired", "broken"},
    "Raft": {"role", "node_id", "leader_id", "term", "last_index", "commit_index", "applied_index", "entries_proposed",
             "commands_proposed", "ticks", "log_bytes_since_snapshot", "log_bytes_in_memory", "snapshots",
             "snapshots_installed", "snapshot_bytes", "snapshotting"},
    "Disk": {"log_writes", "log_bytes_written", "log_write_usec_mean", "log_write_usec_max"},
    "Stats": {"total_commands_processed", "refused_commands", "audit_lines_left_out"},
    "TLS": {"tls"},
}


# ---- HELLO, CLIENT, SELECT ---------------------------------------------------------------------------------------


def test_hello(server):
    with server.connect() as client:
        first = client.hello(2)
        assert first["proto"] == 2 and first["server"] == "holdfast" and first["role"] == "master"
        assert first["mode"] == "standalone" and first["modules"] == []
        client.send("HELLO", 3)
        third = client.read()
        assert isinstance(third, dict) and third["proto"] == 3, "the answer is in the new protocol"
        assert third["id"] == first["id"] == client.own_id()
        assert client.cmd("HELLO")["proto"] == 3, "without a number nothing changes"
        assert client.cmd("ACQUIRE", "x", "hello-1") > 0 and client.cmd("ACQUIRE", "x", "hello-2") is None
        client.raw(pack("HELLO", 2) + pack("RELEASE", "x", "hello-1"))
        assert pairs_of(client.read())["proto"] == 2
        assert client.read() == 1
        assert pairs_of(client.cmd("hello", "3", "setname", "me"))["proto"] == 3
        assert client.cmd("CLIENT", "GETNAME") == "me"


def test_what_was_pushed_is_not_pushed_in_resp2(server, clients, name, lease):
    """A client that went back cannot read it: either HELLO 2 is refused, or the pushes end."""
    one, two = clients(3), clients()
    l1, l2 = lease(), lease()
    two.cmd("ACQUIRE", name, l1)
    one.cmd("OBSERVE", name)
    one.cmd("ACQUIRE", name, l2, "PUSH")
    one.send("HELLO", 2)
    if isinstance(one.read_any(), list):
        two.cmd("RELEASE", name, l1)
        one.send("PING")
        assert one.read_raw(7) == b"+PONG\r\n"


def test_client(client):
    assert client.cmd("CLIENT", "GETNAME") in (None, "")
    assert client.cmd("CLIENT", "SETNAME", "x" * 64) == "OK"
    assert client.cmd("CLIENT", "GETNAME") == "x" * 64
    fields = dict(field.split("=", 1) for field in client.cmd("CLIENT", "INFO").split())
    host, port = client.socket.getsockname()
    assert fields["name"] == "x" * 64 and fields["addr"] == f"{host}:{port}" and fields["resp"] == str(client.protocol)
    assert int(fields["id"]) == client.own_id() and int(fields["age"]) >= 0
    assert client.cmd("CLIENT", "SETNAME", "") == "OK"
    with client.another() as other:
        assert other.own_id() > client.own_id()


def test_a_client_without_a_name_has_none(server):
    """As in Redis."""
    with server.connect() as client:
        client.send("CLIENT", "GETNAME")
        assert client.read_raw(5) == b"$-1\r\n"


# ---- INFO, COMMAND, CLUSTER --------------------------------------------------------------------------------------


def test_info(client):
    for section, fields in SECTIONS.items():
        text = client.cmd("INFO", section.lower())
        assert text.startswith(f"# {section}\r\n") and text.endswith("\r\n")
        assert set(client.info(section)) == fields
    for words in ([], ["all"], ["everything"], ["default"], list(SECTIONS)):
        assert set(client.info(*words)) == set().union(*SECTIONS.values())
    assert set(client.info("memory", "stats")) == SECTIONS["Memory"] | SECTIONS["Stats"]


def test_info_counts(start):
    server = start()
    with server.connect(3) as client, server.connect(3) as other:
        before = client.info()
        assert (int(before["process_id"]), before["data"]) == (server.pid, str(server.data))
        assert before["listen0"] == f"127.0.0.1:{server.port}"
        assert before["connected_clients"] == "2"
        client.cmd("ACQUIRE", "a", "l1")
        client.cmd("ACQUIRE", "b", "l1")
        client.cmd("ACQUIRE", "a", "l2", "PUSH")
        client.cmd("OBSERVE", "a")
        last = int(before["last_token"])
        assert client.cmd("ONCE", "CLAIM", "k", "l3") == ["RUN", last + 3]
        client.cmd("ONCE", "FINISH", "k", "l3", "TOKEN", last + 3, "KEEP", 60000, "r")
        client.cmd("END", "l4")
        client.error("NOPE")
        other.send("ACQUIRE", "a", "l5", "WAIT", 60000)
        eventually(lambda: client.info()["blocked_clients"] == "1", "it waits")
        after = client.info()
        for field, value in {"names": 3, "holds": 2, "waiting": 2, "leases": 3, "leases_remembered": 1, "once_records": 1,
                             "last_token": last + 3, "granted": 3, "waiting_places": 2, "observed_names": 1,
                             "refused_commands": 1}.items():
            assert int(after[field]) == value, field
        client.cmd("BREAK", "b")
        assert (client.info()["withheld"], client.info()["broken"]) == ("2", "1")
        assert int(client.info()["total_commands_processed"]) > int(after["total_commands_processed"])


def test_command(client):
    names = client.cmd("COMMAND", "LIST")
    assert client.cmd("COMMAND", "COUNT") == len(names)
    rows = client.cmd("COMMAND")
    assert [row[0] for row in rows] == names == [name.lower() for name in names]
    parts = [part for row in rows for part in row[9]]
    assert {part[0] for part in parts} >= {"once|claim", "once|read", "cluster|add", "client|setname"}
    for row in rows + parts:
        name, arity, flags, first, last, step, rights, tips, specifications, of_parts = row
        assert arity != 0 and set(flags) <= {"write", "readonly", "fast"}
        assert (first, last, step) in ((0, 0, 0), (1, 1, 1), (2, 2, 1), (1, -1, 1))
        assert rights in ([], ["@acquire"], ["@look"], ["@break"], ["@floor"], ["@admin"])
    assert {row[0]: row[6] for row in parts}["cluster|remove"] == ["@admin"]
    (acquire,) = client.cmd("COMMAND", "INFO", "Acquire")
    assert acquire[:2] == ["acquire", -3]
    docs = {name: pairs_of(text) for name, text in pairs_of(client.cmd("COMMAND", "DOCS")).items()}
    assert list(docs) == names
    assert all(set(text) >= {"summary", "since", "group"} for text in docs.values())
    assert "ACQUIRE name lease [TTL ms]" in docs["acquire"]["summary"]
    assert list(pairs_of(client.cmd("COMMAND", "DOCS", "show", "nope"))) == ["show"]


def test_command_info_of_what_there_is_not(client):
    """As in Redis: an answer for each that was asked for, in that order."""
    known, unknown, other = client.cmd("COMMAND", "INFO", "show", "nope", "acquire")
    assert (known[0], unknown, other[0]) == ("show", None, "acquire")


def test_cluster(server, client):
    status = pairs_of(client.cmd("CLUSTER", "STATUS"))
    assert status["role"] == "leader" and status["id"] == status["leader"] == 1 and status["term"] >= 1
    before = status["commit"]
    client.cmd("ACQUIRE", "cluster", "cluster")
    assert pairs_of(client.cmd("CLUSTER", "STATUS"))["commit"] > before
    assert client.cmd("CLUSTER", "SLOTS") == [[0, 16383, ["127.0.0.1", server.port, "1"]]]
    assert client.cmd("CLUSTER", "MYID") == "1"
    assert client.cmd("CLUSTER", "TRANSFER", "1") == "OK"
    status = pairs_of(client.cmd("CLUSTER", "STATUS"))
    member, = status["members"]
    assert pairs_of(member) == {"id": 1, "peer": "", "client": "127.0.0.1:%d" % server.port, "votes": 1, "behind": 0,
                                "index": status["commit"], "silent": 0, "lost": 0}


# ---- SUBSCRIBE ---------------------------------------------------------------------------------------------------


def test_subscribed_in_resp2(server, clients, name, lease):
    client, l1 = clients(), lease()
    assert client.cmd("SUBSCRIBE", name, name + "-too") == ["subscribe", name, 1]
    assert client.read() == ["subscribe", name + "-too", 2]
    assert client.cmd("SUBSCRIBE", name) == ["subscribe", name, 2], "twice is once"
    assert client.cmd("PING") == ["pong", ""]
    assert client.cmd("PING", "x") == ["pong", "x"]
    for words in (["ACQUIRE", name, l1], ["SHOW", name], ["CLIENT", "ID"], ["HELLO", 3], ["INFO"]):
        assert client.error(*words).startswith(f"ERR {words[0]}: after SUBSCRIBE only SUBSCRIBE, UNSUBSCRIBE, PING and QUIT")
    server.cmd("ACQUIRE", name, l1, "OWNER", "o p")
    assert client.read()[:2] == ["message", name]
    assert client.cmd("UNSUBSCRIBE", name) == ["unsubscribe", name, 1]
    server.cmd("RELEASE", name, l1)
    assert client.cmd("UNSUBSCRIBE") == ["unsubscribe", name + "-too", 0], "no message before it"
    assert client.cmd("UNSUBSCRIBE") == ["unsubscribe", None, 0]
    assert client.cmd("PING") == "PONG"
    assert client.cmd("SUBSCRIBE", name) == ["subscribe", name, 1]
    assert client.cmd("QUIT") == "OK" and client.ended()


def test_a_connection_observes_at_most_so_many(server):
    with server.connect(3) as client:
        for begin in range(0, 65536, 8190):
            count = min(8190, 65536 - begin)
            client.send("SUBSCRIBE", *[f"many-{begin + index}" for index in range(count)])
            last = [client.push() for _ in range(count)][-1]
            assert last == ("subscribe", f"many-{begin + count - 1}", begin + count)
        assert refused(client, "OBSERVE", "one more") == "LIMIT this connection observes too many names"
        assert refused(client, "SUBSCRIBE", "one more") == "LIMIT a connection observes at most 65536 names"
        assert server.count("observed_names") == 65536
        client.send("UNSUBSCRIBE", "many-0")
        client.push()
        assert client.cmd("OBSERVE", "one more") == "OK"
    eventually(lambda: server.count("observed_names") == 0, "they went with the connection")


# ---- passwords ---------------------------------------------------------------------------------------------------


def test_nothing_before_the_password(start):
    server = start(password="s3cret word")
    last = server.last_token()
    with Client(("127.0.0.1", server.port)) as client:
        for words in (["PING"], ["ACQUIRE", "x", "l"], ["RELEASE", "x", "l"], ["RENEW", "l"], ["END", "l"], ["CHECK", "x", "1"],
                      ["SHOW", "x"], ["LOCKS"], ["OBSERVE", "x"], ["UNOBSERVE", "x"], ["BREAK", "x"], ["FLOOR", TOKEN_MAX],
                      ["ONCE", "CLAIM", "k", "l"], ["INFO"], ["COMMAND"], ["CLUSTER", "STATUS"], ["CLIENT", "ID"],
                      ["SELECT", "0"], ["SUBSCRIBE", "x"], ["UNSUBSCRIBE"], ["HELLO", "3"], ["HELLO"],
                      ["HELLO", "3", "SETNAME", "x"], ["ACQUIRE"]):
            version = words[1] if len(words) > 1 and words[0] == "HELLO" else "2"
            how = f"HELLO {version} AUTH default PASSWORD" if words[0] == "HELLO" else "AUTH [USER] PASSWORD"
            assert client.error(*words) == f"NOAUTH say the password first: {how}", words
        for words in (["AUTH", "wrong"], ["AUTH", "default", "wrong"], ["AUTH", "somebody", "s3cret word"], ["AUTH", ""],
                      ["AUTH", "s3cret word\n"], ["AUTH", "s3cret"], ["HELLO", "3", "AUTH", "default", "wrong"],
                      ["HELLO", "2", "AUTH", "somebody", "s3cret word"]):
            named = "somebody" in words
            assert client.error(*words) == ("WRONGPASS there are no users here, only a password: name no user, or 'default'" if named
                                            else "WRONGPASS the password is wrong"), words
            assert client.error("PING").startswith("NOAUTH "), "still not"
        assert client.cmd("AUTH", "s3cret word") == "OK"
        assert client.cmd("PING") == "PONG"
        assert client.cmd("LOCKS")[1] == [], "nothing of it was done"
        assert client.cmd("FLOOR", 0) == last
        assert client.error("AUTH", "wrong").startswith("WRONGPASS ")
        assert client.cmd("QUIT") == "OK"
    assert not [line for line in server.logged() if "s3cret" in line], "the log keeps it"


@pytest.mark.parametrize("words", [["AUTH", "s3cret"], ["AUTH", "default", "s3cret"], ["auth", "Default", "s3cret"],
                                   ["HELLO", "3", "AUTH", "default", "s3cret"],
                                   ["hello", "2", "setname", "me", "auth", "default", "s3cret"]])
def test_the_password(start, words):
    server = start(password="s3cret")
    with Client(("127.0.0.1", server.port)) as client:
        client.raw(pack(*words) + pack("PING"))
        client.read()
        assert client.read() == "PONG"
    with Client(("127.0.0.1", server.port)) as client:
        client.raw(pack("PING") + pack(*words) + pack("PING") + pack("QUIT"))
        assert client.read_any().code == "NOAUTH"
        client.read()
        assert client.read() == "PONG", "the order counts"


def test_a_password_may_be_said_where_none_is_wanted(server):
    """Clients that are configured with one are told, in words."""
    with server.connect() as client:
        assert refused(client, "AUTH", "x") == "ERR AUTH: this server has no password (--password-file)"
        assert refused(client, "HELLO", 3, "AUTH", "default", "x") == "ERR this server has no password (--password-file): leave it out"
        assert client.cmd("CLIENT", "INFO").strip().endswith("resp=2"), "HELLO was refused as a whole"
    done = Cli(f"holdfast://:geheim@127.0.0.1:{server.port}")("run", "x", "--", "true")
    assert done.status == 77 and "this server has no password" in done.stderr and "geheim" not in done.stderr, done
    cli = Cli(f"holdfast://127.0.0.1:{server.port}")
    cli.env["HOLDFAST_PASSWORD"] = "geheim"
    done = cli("run", "x", "--", "true")
    assert done.status == 77 and "HOLDFAST_PASSWORD" in done.stderr and "geheim" not in done.stderr, done


# ---- where it listens --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "127.0.0.1:0,0.0.0.0:0"])
def test_other_machines_only_with_a_password(start, tmp_path, address):
    status, line = run_refused("--data", tmp_path / "data", "--listen", address)
    assert status == 78
    assert "password-file" in line and line.startswith("holdfastd: ")
    assert not (tmp_path / "data").exists(), "it has touched nothing"


def test_everywhere_with_a_password(start):
    server = start(listen="0.0.0.0:0", password="s3cret")
    port = int(server.log[-1].split("listen=0.0.0.0:")[1].split()[0])
    with Client(("127.0.0.1", port)) as client:
        assert client.error("PING").startswith("NOAUTH ")
        assert client.cmd("AUTH", "s3cret") == "OK"


def test_a_unix_socket(start, tmp_path):
    path = f"/tmp/hf-{os.getpid()}.sock" if len(str(tmp_path)) > 80 else str(tmp_path / "s")
    server = start(listen=f"unix:{path},127.0.0.1:0")
    assert re.search(rf"listen=unix:{path},127\.0\.0\.1:\d+ ", server.log[-1]), "all of them"
    status = os.stat(path)
    assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
    with Client(path) as client, Client(path, 3) as other:
        token = client.cmd("ACQUIRE", "x", "l")
        assert other.show("x")["holders"][0]["token"] == token
        assert "addr=unix" in client.cmd("CLIENT", "INFO")
        listening = client.info("Server")
        assert listening["listen0"] == f"unix:{path}"
        with Client(("127.0.0.1", int(listening["listen1"].split(":")[1]))) as third:
            assert third.cmd("CHECK", "x", token) == 1, "one server at both"
    server.kill9()
    assert os.path.exists(path)
    server.restart()
    with Client(path) as client:
        assert client.cmd("CHECK", "x", token) == 1, "a dead server's socket is no obstacle"
    assert server.stop() == 0
    assert not os.path.exists(path)


def test_a_unix_socket_that_is_in_use(start, tmp_path):
    path = f"/tmp/hf-{os.getpid()}.sock" if len(str(tmp_path)) > 80 else str(tmp_path / "s")
    start(listen=f"unix:{path}")
    status, line = run_refused("--data", tmp_path / "data", "--listen", f"unix:{path}")
    assert status == 69 and f"somebody listens at unix:{path} already" in line
    (tmp_path / "file").write_text("mine")
    status, line = run_refused("--data", tmp_path / "data", "--listen", f"unix:{tmp_path}/file")
    assert status == 69 and "is there, and not a socket" in line
    assert (tmp_path / "file").read_text() == "mine"


def test_a_port_that_is_in_use(server, tmp_path):
    status, line = run_refused("--data", tmp_path / "data", "--listen", f"127.0.0.1:{server.port}")
    assert status == 69
    assert f"cannot listen at 127.0.0.1:{server.port}: somebody does already" in line


# ---- limits ------------------------------------------------------------------------------------------------------


def test_too_many_clients(start):
    server = start("--max-clients", 5)
    kept = [server.connect() for _ in range(5)]
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as late:
            assert late.makefile("rb").read() == b"-LIMIT there are too many clients (--max-clients)\r\n"
    assert all(client.cmd("PING") == "PONG" for client in kept), "nobody is sent away for them"
    info = kept[0].info("Clients")
    assert (info["connected_clients"], info["maxclients"], info["rejected_connections"]) == ("5", "5", "3")
    kept.pop().close()
    eventually(lambda: kept[0].info("Clients")["connected_clients"] == "4", "its end")
    with server.connect() as client:
        assert client.cmd("PING") == "PONG"
    for client in kept:
        client.close()


def test_who_is_silent_for_too_long(start):
    """Those who wait, by whatever means, are silent and have a right to be."""
    server = start("--idle-timeout", "1s")
    before = boot_ms()
    idle, half, busy = server.connect(), server.connect(), server.connect()
    blocked, pushed, watching, subscribed = server.connect(), server.connect(3), server.connect(3), server.connect()
    half.raw(b"*2\r\n$4\r\nPI")
    token = busy.cmd("ACQUIRE", "x", "l")
    blocked.send("ACQUIRE", "x", "l1", "WAIT", 60000)
    pushed.cmd("ACQUIRE", "x", "l2", "PUSH")
    watching.cmd("OBSERVE", "x")
    subscribed.cmd("SUBSCRIBE", "x")
    for client in (idle, half):
        eventually(lambda: busy.cmd("PING") == "PONG" and not client.is_silent(), "its end")
        assert boot_ms() - before >= 1000
        assert client.ended()
    assert busy.cmd("RELEASE", "x", "l") == 1, "who says something stays"
    assert blocked.read() == token + 1
    assert watching.push()[:3] == ("changed", "x", "released") and subscribed.read()[0] == "message"
    assert pushed.cmd("RELEASE", "x", "l1") == 1 and pushed.push() == ("granted", "x", "l2", token + 2)
    for client in (busy, blocked, pushed, watching, subscribed):
        client.close()


def test_a_client_that_quits_is_not_served_further(server, name, lease):
    with server.connect() as client:
        client.raw(pack("PING") + pack("QUIT") + pack("ACQUIRE", name, lease()))
        assert (client.read(), client.read()) == ("PONG", "OK")
        with pytest.raises(Ended):
            client.read()
    assert server.show(name)["holds"] == 0


def test_a_client_that_only_says_it_is_done_gets_its_answers(server, name, lease):
    """As in `printf ... | nc`."""
    with server.connect() as client:
        client.raw(pack("ACQUIRE", name, lease()) * 100)
        client.socket.shutdown(socket.SHUT_WR)
        assert len({client.read() for _ in range(100)}) == 1
        assert client.ended()
