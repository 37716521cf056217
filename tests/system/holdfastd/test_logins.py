"""Who guesses passwords, or asks for what it may not: that fills no disk, keeps nobody out who knows its password, and is not waited for. What users
may do, and what is written of it otherwise: test_users."""
import contextlib
import json

import pytest
from conftest import Client, Ended, Refused, pack
from test_users import PASSWORD, block, users, write  # noqa: F401

BURST = 200  # lines of one address (audit_budget.h)
WRONG_MAX = 10  # passwords of one connection (login.h)


def audited(path, event):
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["event"] == event]


def told_left_out(path):
    return {line["of"]: line["count"] for line in audited(path, "left_out")}


def guess(server, *words, count=WRONG_MAX):
    """Wrong passwords over a connection of its own, as many as are answered."""
    answered = 0
    with Client(("127.0.0.1", server.port)) as client:
        client.raw(pack(*words) * count)
        with contextlib.suppress(Ended):
            while answered < count:
                assert client.read_any().code == "WRONGPASS"
                answered += 1
    return answered


# ---- what is written of it ------------------------------------------------------------------------------------------------------------


def start_with_audit(start, tmp_path, how, users):  # noqa: F811
    audit = tmp_path / "audit.json"
    if how == "password":
        return start("--audit-file", audit, password=PASSWORD), audit
    write(users, block("ann", "allow = acquire look break: a*"))
    return start("--users-file", users, "--audit-file", audit), audit


@pytest.mark.parametrize("how", ["password", "users"])
def test_strangers_do_not_fill_the_disk_with_wrong_passwords(start, tmp_path, users, how):  # noqa: F811
    """What is written has a bound, what is left out is counted, and what operators do is written all the same."""
    server, audit = start_with_audit(start, tmp_path, how, users)
    user = "default" if how == "password" else "ann"
    said = 0
    # A name that cannot be one is refused at once, also where there are users.
    while said < 4 * BURST:
        said += guess(server, "AUTH", "x" * 65, "guess")
    with Client(("127.0.0.1", server.port)) as client:
        client.cmd("AUTH", user, PASSWORD)
        client.cmd("ACQUIRE", "a", "l")
        assert client.cmd("BREAK", "a", "NOW") == 1
        left_out = int(client.info()["audit_lines_left_out"])
    written = len(audited(audit, "login_refused"))
    assert BURST <= written < 2 * BURST and written + left_out == said
    assert [line["command"] for line in audited(audit, "command")] == ["BREAK a NOW"] and audited(audit, "command_end")
    assert server.stop() == 0
    assert told_left_out(audit) == {"login_refused": left_out}


def test_users_do_not_fill_the_disk_with_what_they_may_not(start, tmp_path, users):  # noqa: F811
    """Nor do they hide what strangers guess."""
    server, audit = start_with_audit(start, tmp_path, "users", users)
    with Client(("127.0.0.1", server.port)) as client:
        client.cmd("AUTH", "ann", PASSWORD)
        for _ in range(4):
            assert {answer.code for answer in client.pipeline(*[("ACQUIRE", "b" * 512, "l")] * BURST)} == {"NOPERM"}
        assert client.pipeline(*[("AUTH", "ann", PASSWORD)] * BURST) == ["OK"] * BURST
    assert guess(server, "AUTH", "x" * 65, "guess") == WRONG_MAX
    written = len(audited(audit, "denied"))
    assert BURST <= written < 2 * BURST
    assert len(audited(audit, "login_refused")) == WRONG_MAX
    assert len(audited(audit, "login")) == 1
    assert server.stop() == 0
    assert told_left_out(audit) == {"denied": 4 * BURST - written}


@pytest.mark.parametrize("how", ["password", "users"])
def test_who_goes_on_guessing_is_closed(start, tmp_path, users, how):  # noqa: F811
    """Behind the answer; in a pipeline and one by one. A right one between them counts nothing away."""
    server, _ = start_with_audit(start, tmp_path, how, users)
    user = "default" if how == "password" else "ann"
    assert guess(server, "AUTH", user, "guess", count=20) == WRONG_MAX
    with Client(("127.0.0.1", server.port)) as client:
        for i in range(WRONG_MAX):
            assert client.error("AUTH", user, f"guess {i}").startswith("WRONGPASS")
            if i == 3:
                assert client.cmd("AUTH", user, PASSWORD) == "OK"
        with pytest.raises((Ended, ConnectionError)):
            client.cmd("PING")
