"""What the queries say, in words and in JSON."""
import base64
import json
import os
import pwd
import signal
import subprocess

import pytest
from conftest import BIN

NAMES = [b"plain", b"with blanks  and\ttab", b"two\nlines", b"a/b/c", b"/", b"..", b"-dash", b"\xff\xfe raw",
         "gr\u00fc\u00dfe \U0001f512".encode(), b"'quo\"ted\\", b"*?[x]", b"x" * 512, b"%41", b"a:b"]


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: n[:12].decode("latin-1").encode("unicode_escape").decode())
def test_any_name(cli, name):
    text = os.fsdecode(name)
    holder = cli.start("run", "--", text, "--", "sh", "-c", 'printf "%s" "$HOLDFAST_NAME" | od -An -tx1 -v | tr -d " \\n"; echo; read line')
    assert holder.line() == name.hex(), "the job sees exactly these bytes"
    assert cli("run", "-n", "--", text, "--", "true").status == 75
    (listed,) = objects(cli("ls", "--json").stdout)
    try:
        assert listed["name"] == name.decode()
        assert "name_b64" not in listed
    except UnicodeDecodeError:
        assert base64.b64decode(listed["name_b64"]) == name
        assert "\ufffd" in listed["name"]
    lines = cli("ls").stdout.splitlines()
    assert len(lines) == 2 and lines[0].split() == ["NAME", "MODE", "TOKEN", "AGE", "OWNER"]
    assert all(c.isprintable() for c in lines[1])
    assert holder.end() == 0
    assert cli("run", "-n", "--", text, "--", "true").status == 0


def test_names_do_not_collide(cli):
    holders = [cli.hold(name) for name in ("a", "A", "a ", "a/", "a.", "%61", "x" * 511, "x" * 512)]
    assert len(objects(cli("ls", "--json").stdout)) == len(holders)
    for holder in holders:
        assert holder.end() == 0


def test_ls(cli):
    assert cli("ls").stdout == ""
    assert cli("ls", "--json").stdout == ""
    first, second = cli.hold("jobs/b", "--owner", "somebody\033[31m"), cli.hold("jobs/a", "-s")
    assert cli("run", "other", "true").status == 0
    found = objects(cli("ls", "jobs/*", "--json").stdout)
    assert [f["name"] for f in found] == ["jobs/a", "jobs/b"]
    a, b = found
    assert a["held"] is True and a["mode"] == "shared" and b["mode"] == "exclusive"
    assert b["token"] == first.token and b["owner"] == "somebody\033[31m" and b["left_ms"] is None
    assert isinstance(b["age_ms"], int) and b["age_ms"] >= 0
    assert cli("ls", "no*").stdout == ""
    table = cli("ls").stdout
    assert "\033" not in table and "\\x1b" in table
    everything = objects(cli("ls", "--all", "--json").stdout)
    assert {"name": "other", "held": False} in everything
    assert first.end() == 0 and second.end() == 0


def test_show(cli):
    assert cli.show("x") == {"name": "x", "held": False, "holders": [], "waiters": []}
    holder = cli.hold("x", "--owner", "me")
    waiter = cli.start("run", "x", "--owner", "you", "true")
    cli.await_waiters("x")
    shown = cli.show("x")
    (held,) = shown["holders"]
    assert shown["held"] is True
    assert held["owner"] == "me" and held["token"] == holder.token and held["mode"] == "exclusive"
    assert held["left_ms"] is None
    text = cli("show", "x").stdout
    assert "held (exclusive) by me" in text and str(holder.token) in text and "waiting" in text
    assert holder.end() == 0 and waiter.wait() == 0
    assert "nobody" in cli("show", "x").stdout


def test_show_with_ttl(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "10s", "--owner", "me")
    waiter = ttl_cli.start("run", "x", "--owner", "you", "true")
    ttl_cli.await_waiters("x")
    shown = ttl_cli.show("x")
    assert 0 < shown["holders"][0]["left_ms"] <= 10000
    assert shown["waiters"][0]["owner"] == "you"
    assert "token" not in shown["waiters"][0]
    assert holder.end() == 0 and waiter.wait() == 0


def test_default_owner_names_the_command_not_its_arguments(cli):
    holder = cli.start("run", "x", "--", "sh", "-c", "echo in; read line # --password=hunter2")
    holder.line()
    (held,) = cli.show("x")["holders"]
    assert "sh[" in held["owner"] and "hunter2" not in held["owner"]
    assert holder.end() == 0


def test_waiting_line_names_holder_and_store(cli):
    holder = cli.hold("x", "--owner", "the other one")
    waiter = cli.start("run", "x", "true")
    line = waiter.line("err")
    assert line.startswith("holdfast: waiting for 'x'") and "the other one" in line and "since" in line
    assert " in " + cli.url.removeprefix("file:") + ":" in line  # the directory, also where it is the default
    assert holder.end() == 0 and waiter.wait() == 0
    assert waiter.rest("err") == []


def test_quiet_wait_says_nothing(cli):
    holder = cli.hold("x")
    waiter = cli.start("run", "-q", "-w", "1.2", "x", "true")
    assert waiter.wait() == 75
    assert waiter.rest("err") == []
    assert holder.end() == 0


def test_check(cli):
    holder = cli.start("run", "x", "--", "sh", "-c", 'echo $HOLDFAST_TOKEN; echo "$HOLDFAST_SEQUENCER"; read line')
    token, sequencer = holder.line(), holder.line()
    assert cli("check", "x", token).status == 0
    assert cli("check", sequencer).stdout == "alive\n"
    assert objects(cli("check", "x", token, "--json").stdout) == [{"name": "x", "token": int(token), "alive": True}]
    assert cli("check", "x", str(int(token) + 1)).status == 1
    assert cli("check", "y", token).status == 1
    assert holder.end() == 0
    done = cli("check", sequencer)
    assert (done.status, done.stdout) == (1, "stale\n")
    assert objects(cli("check", sequencer, "--json").stdout) == [{"sequencer": sequencer, "alive": False}]
    done = cli("check", "x")
    assert done.status == 64 and "check: TOKEN is missing: give it behind the name, or a sequencer alone" in done.stderr


def test_check_of_another_store(cli, directory):
    other = directory / "other"
    other.mkdir(mode=0o700)
    sequencer = cli("run", "x", "-c", 'echo "$HOLDFAST_SEQUENCER"').stdout.strip()
    assert cli("--on", f"file:{other}", "check", sequencer).status == 64


def test_floor(cli):
    before = cli.hold("x")
    assert before.end() == 0
    floor = before.token + 1000000
    done = cli("floor", str(floor))
    assert done.status == 0 and done.stdout.endswith(f" is greater than {floor}\n"), done
    after = cli.hold("x")
    assert after.token > floor
    assert after.end() == 0
    done = cli("floor", "5")
    assert done.stdout.startswith("nothing changed: tokens of ") and f" are at {after.token} already" in done.stdout, done
    told = objects(cli("floor", "5", "--json").stdout)[0]
    assert told["floor"] == 5 and told["at"] == after.token and not told["ended"], told
    lower = cli.hold("x")
    assert lower.token > after.token, "it never lowers"
    assert lower.end() == 0


def test_break_nobody(cli):
    done = cli("break", "x")
    assert done.status == 0 and "nobody" in done.stdout
    assert objects(cli("break", "x", "--json").stdout) == [{"name": "x", "broken": 0, "untold": 0, "now": False, "freed": False, "entered": False}]


def test_stores(cli, directory):
    done = cli("stores")
    assert done.status == 0
    assert done.stdout.startswith("file:DIR                  exclusion strict, tokens strict\n  has shared permits ")
    assert "\n  does NOT survive: a failover, loss of data, a jump of the server's clock\n" in done.stdout
    *stores, effect = done.stdout.rstrip().split("\n\n")
    assert max(len(line) for store in stores for line in store.splitlines()) <= 80, "as wide as a terminal"
    assert effect.startswith("In effect: file:")
    assert str(directory / "locks") in done.stdout
    found = objects(cli("stores", "--json").stdout)
    assert any(s["scheme"] == "file" and s["exclusion"] == "strict" and not s["in_effect"] for s in found)
    (effective,) = [s for s in found if s["in_effect"]]
    assert effective["url"] == cli.url and effective["ttl_ms"] is None and "shared" in effective["features"]


def test_watch(cli):
    watch = cli.start("watch", "x", "--json")
    event = json.loads(watch.line())
    assert (event["name"], event["event"]) == ("x", "free")
    holder = cli.hold("x", "--owner", "me")
    event = json.loads(watch.line())
    assert (event["event"], event["token"], event["owner"]) == ("held", holder.token, "me")
    assert holder.end() == 0
    event = json.loads(watch.line())
    assert (event["event"], event["token"], event["free"]) == ("ended", holder.token, True)
    watch.kill(signal.SIGTERM)
    assert watch.wait() == 143


def test_watch_in_words(cli):
    holder = cli.hold("x", "--owner", "me")
    watch = cli.start("watch", "x")
    line = watch.line()
    assert "x: held (exclusive) by me" in line and f"token {holder.token}" in line
    assert holder.end() == 0
    assert f"x: free: token {holder.token} ended" in watch.line()


def test_watch_ends_with_its_reader(cli):
    """Not a change later: watch NAME | head -1"""
    done = subprocess.run(["sh", "-c", f"{BIN} watch x | head -1"], env=cli.env, capture_output=True, text=True, timeout=30)
    assert "nobody holds it" in done.stdout


def test_stores_makes_nothing(cli, directory):
    """It lists. A directory is made with the first lock, and not before."""
    where = directory / "not-yet"
    for url in (f"file:{where}", f"file://{where}"):
        done = cli("--on", url, "stores")
        assert done.status == 0 and f"In effect: {url} ({where}, not made yet)" in done.stdout, done.stdout
        (effective,) = [s for s in objects(cli("--on", url, "stores", "--json").stdout) if s["in_effect"]]
        assert (effective["url"], effective["where"], effective["scheme"]) == (url, str(where), "file")
        assert not where.exists()
    assert cli("--on", f"file:{where}", "run", "x", "true").status == 0
    assert f"({where})" in cli("--on", f"file:{where}", "stores").stdout


def test_stores_makes_nothing_in_the_usual_place_either(somebody):
    """And it is the place where the first lock makes it."""
    where = somebody.home / ".local/state/holdfast"
    done = somebody.run("stores")
    assert done.returncode == 0 and f"({where}, not made yet)" in done.stdout, done
    assert list(somebody.home.iterdir()) == []
    assert somebody.run("run", "x", "true").returncode == 0
    assert where.is_dir()
    assert f"({where})" in somebody.run("stores").stdout


def test_the_owner_has_the_users_name(cli):
    """Also where no variable says it, as in a job of systemd or in a container."""
    done = cli("run", "x", "--", "sh", "-c", f"{BIN} show x --json", env={"LOGNAME": "", "USER": ""})
    (holder,) = json.loads(done.stdout)["holders"]
    assert holder["owner"].startswith(pwd.getpwuid(os.geteuid()).pw_name + "@")


def test_guard_lists_its_actions(cli):
    done = cli("guard", "--help")
    assert done.status == 0
    for action in ("sql", "redis", "marks", "reset"):
        assert f"\n  {action} " in done.stdout
