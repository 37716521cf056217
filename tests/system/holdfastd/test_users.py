"""Users and their rights: every command of the server with every right, with no, wrong and right credentials; over plain TCP, over TLS, and over
TLS with a client's certificate, that of nobody in the file. Which commands there are is asked of the server (COMMAND), so that one which is added
without a thought of rights fails here."""
import json
import os
import shutil
import signal
import ssl
import subprocess

import pytest
from certificates import Authority, client_context
from conftest import PATIENCE, Client, Ended, Refused, eventually, run_refused

RIGHTS = ["acquire", "look", "break", "floor", "admin"]
PASSWORD = "a password of this test"

# Words that are right, or wrong in a way that is said only to who has the right. N: a name.
WORDS = {
    "acquire": "ACQUIRE N L", "release": "RELEASE N L", "renew": "RENEW L", "end": "END L", "check": "CHECK N 33", "show": "SHOW N",
    "locks": "LOCKS", "observe": "OBSERVE N", "unobserve": "UNOBSERVE N", "break": "BREAK N", "floor": "FLOOR 0",
    "once|claim": "ONCE CLAIM N L", "once|finish": "ONCE FINISH N L TOKEN 1 KEEP 1000 x", "once|read": "ONCE READ N",
    "once|release": "ONCE RELEASE N L", "ping": "PING", "info": "INFO", "command": "COMMAND COUNT", "cluster|status": "CLUSTER STATUS",
    "cluster|digest": "CLUSTER DIGEST", "cluster|init": "CLUSTER INIT", "cluster|add": "CLUSTER ADD 9 nowhere",
    "cluster|remove": "CLUSTER REMOVE 9", "cluster|transfer": "CLUSTER TRANSFER 9", "cluster|backup": "CLUSTER BACKUP",
    "cluster|piece": "CLUSTER PIECE 0123456789abcdef 0", "cluster|slots": "CLUSTER SLOTS",
    "cluster|myid": "CLUSTER MYID", "hello": "HELLO 3", "client|setname": "CLIENT SETNAME x", "client|getname": "CLIENT GETNAME",
    "client|setinfo": "CLIENT SETINFO LIB-NAME x", "client|id": "CLIENT ID", "client|info": "CLIENT INFO", "select": "SELECT 0",
    "subscribe": "SUBSCRIBE N", "unsubscribe": "UNSUBSCRIBE N", "quit": "QUIT", "auth": "AUTH nobody wrong",
}
OPEN = {"hello", "auth", "quit"}  # may be said before the password
ALSO = {"check": "acquire", "info": "acquire", "cluster|status": "admin"}  # another right that will do
OF_NO_NAME = {"renew", "end", "locks", "floor"}  # a right on some name is enough, or the only one


def stored(password):
    """As crypt(5) has it."""
    done = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, capture_output=True, text=True, check=True,
                          timeout=PATIENCE)
    return done.stdout.strip()


STORED = stored(PASSWORD)


def block(name, *lines, password=STORED):
    return "\n".join([f"user = {name}", f"password = {password}", *lines, ""])


def write(path, *blocks):
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("\n".join(blocks))
    new.replace(path)


@pytest.fixture
def users(tmp_path):
    return tmp_path / "users"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    ca = Authority(tmp_path_factory.mktemp("tls") / "ca")
    ca.server, ca.nobody = ca.issue("server", "IP:127.0.0.1"), ca.issue("nobody", "DNS:nobody.test")
    return ca


@pytest.fixture(params=["plain", "TLS", "mTLS"])
def way(request):
    """How clients come: flags of the server, and a client's context."""
    if request.param == "plain":
        return {}, [], None
    authority = request.getfixturevalue("authority")
    mutual = ["--tls-clients", "yes", "--tls-ca", authority.pem] if request.param == "mTLS" else []
    return {"tls": authority.server}, mutual, client_context(authority, authority.nobody if mutual else None)


def dial(server):
    """By the way of the present test, without a word."""
    context = getattr(server, "context", None)  # a server of the test's own is plain
    return Client(("127.0.0.1", server.tls_port if context else server.port), tls=context)


@pytest.fixture
def server(start, users, tmp_path, way):
    write(users, *(block(right, f"allow = {right}" + ("" if right in ("floor", "admin") else ": mine/* also")) for right in RIGHTS),
          block("all", "allow = acquire look break", "allow = floor admin"), block("none"), block("default", "allow = look"))
    settings, flags, context = way
    server = start("--users-file", users, "--audit-file", tmp_path / "audit.json", *flags, **settings)
    server.audit, server.context = tmp_path / "audit.json", context
    return server


def log_in(server, user, password=PASSWORD, protocol=3):
    client = dial(server)
    try:
        client.cmd("HELLO", protocol, "AUTH", user, password)
    except BaseException:
        client.close()
        raise
    client.protocol = protocol
    return client


def commands(server):
    """{name: right or None}, of each that can be said."""
    with log_in(server, "none") as client:
        found = {}
        for row in client.cmd("COMMAND"):
            for one in row[9] or [row]:
                assert len(one[6]) <= 1
                found[one[0]] = one[6][0].lstrip("@") if one[6] else None
    return found


def code(client, command, name):
    """What it is refused with; "" if it is not."""
    words = [{"N": name, "L": "lease-" + name.replace("/", "-")}.get(word, word) for word in WORDS[command].split()]
    try:
        client.cmd(*words)
    except Refused as refused:
        return refused.code
    return ""


# ---- every command, every right ------------------------------------------------------------------------------------------------------


def test_none_is_left_out(server):
    assert set(commands(server)) == set(WORDS)
    assert {right for right in commands(server).values() if right} == set(RIGHTS)


@pytest.mark.parametrize("user", RIGHTS + ["all", "none"])
def test_every_command_needs_its_right(server, user):
    for command, right in commands(server).items():
        for name in ("mine/x", "also", "other", "mine"):
            # SUBSCRIBE is answered by a push alone, but for those who speak RESP2.
            with log_in(server, user, protocol=2 if "subscribe" in command else 3) as client:
                got = code(client, command, name)
            here = name in ("mine/x", "also") or command in OF_NO_NAME or command in ("info",) or command.startswith("cluster|")
            may = right is None or user == "all" or user in (right, ALSO.get(command)) and here
            assert (got != "NOPERM") == may, (user, command, name, got)
            assert got != "NOAUTH", command


def test_of_several_names_each_is_asked_for(server):
    """Wherever the one stands that may not be; and it is the one that is written down. Which commands take several the server says, too."""
    with log_in(server, "none") as client:
        several = {row[0]: row[6][0].lstrip("@") for row in client.cmd("COMMAND") if row[4] == -1 and row[6]}
    assert several == {"subscribe": "look"}
    for command, right in several.items():
        for names in (["other", "mine/x", "also"], ["mine/x", "other", "also"], ["mine/x", "also", "other"]):
            with log_in(server, right, protocol=2) as client:
                assert client.error(command, *names) == f"NOPERM user '{right}' has no right '{right}' on each of these names, which {command.upper()} needs"
            assert events(server)[-1]["event"] == "denied" and events(server)[-1]["name"] == "other"


def test_nothing_but_the_password_before_it(server):
    for command in commands(server):
        with dial(server) as client:
            got = code(client, command, "mine/x")
        assert got == {"hello": "NOAUTH", "auth": "WRONGPASS", "quit": ""}.get(command, "NOAUTH"), command


@pytest.mark.parametrize("user, password", [
    ("all", "wrong"), ("all", ""), ("nobody", PASSWORD), ("", PASSWORD), ("all", PASSWORD + "x"), ("all", PASSWORD[:-1]),
    ("ALL", PASSWORD), ("all\0", PASSWORD), ("all", PASSWORD + "\0"), ("x" * 70, PASSWORD), ("all", "x" * 2000), ("all", STORED)])
def test_wrong_credentials(server, user, password):
    for words in (["AUTH", user, password], ["HELLO", 3, "AUTH", user, password]):
        with dial(server) as client:
            assert client.error(*words) == "WRONGPASS the user or the password is wrong"
            assert client.error("SHOW", "mine/x").startswith("NOAUTH"), "and it is nobody"
        told = events(server)[-1]
        assert (told["event"], told["user"]) == ("login_refused", "" if "\0" in user or len(user) > 64 else user)


def test_a_password_alone_is_that_of_default(server):
    with dial(server) as client:
        client.cmd("AUTH", PASSWORD)
        assert client.cmd("LOCKS") == [0, []]
        assert client.error("ACQUIRE", "x", "l") == "NOPERM user 'default' has no right 'acquire' on this name, which ACQUIRE needs"


def test_a_password_is_right_again_and_again(server):
    """By then it is known, and not compared anew; another one still is not right."""
    for _ in range(3):
        log_in(server, "all").close()
        with pytest.raises(Refused, match="WRONGPASS"):
            log_in(server, "all", "wrong")


def test_a_hello_that_is_refused_lets_nobody_in(server):
    """Whatever is wrong with it beside the password; and one without AUTH says what to do."""
    with dial(server) as client:
        assert client.error("HELLO", 3) == "NOAUTH say the password first: HELLO 3 AUTH USER PASSWORD"
        for words in (["HELLO", 4, "AUTH", "all", PASSWORD], ["HELLO", 3, "AUTH", "all", PASSWORD, "SETNAME", "a b"],
                      ["HELLO", 3, "AUTH", "all", PASSWORD, "WHAT"], ["HELLO", 3, "AUTH", "all"]):
            client.error(*words)
            assert client.error("LOCKS") == "NOAUTH say the password first: AUTH [USER] PASSWORD"
        client.cmd("HELLO", 3, "AUTH", "look", PASSWORD)
        client.cmd("OBSERVE", "also")
        assert client.error("HELLO", 2, "AUTH", "all", PASSWORD).startswith("ERR there are pushes to come")
        assert "user=look" in client.cmd("CLIENT", "INFO")


def test_commands_behind_a_login_wait_for_it(server):
    """Of a pipeline; whoever is not let in is not, with all of it."""
    with dial(server) as client:
        client.send("AUTH", "all", PASSWORD)
        client.send("ACQUIRE", "mine/piped", "l")
        assert (client.read(), client.read() > 0) == ("OK", True)
    with dial(server) as client:
        client.send("AUTH", "all", "wrong")
        client.send("ACQUIRE", "mine/refused", "l")
        for expected in ("WRONGPASS", "NOAUTH"):
            with pytest.raises(Refused, match=expected):
                client.read()


def test_many_at_once(server):
    """All who guess are told so, and those who know the password come in between."""
    crowd = [dial(server) for _ in range(100)]
    try:
        for i, client in enumerate(crowd):
            client.send("AUTH", "all", PASSWORD if i % 10 == 0 else f"guess {i}")
        for i, client in enumerate(crowd):
            if i % 10 == 0:
                assert client.read() == "OK"
            else:
                with pytest.raises(Refused, match="WRONGPASS"):
                    client.read()
    finally:
        for client in crowd:
            client.close()


def test_who_hangs_up_while_it_is_compared(server):
    for _ in range(20):
        with dial(server) as client:
            client.send("AUTH", "all", "a guess")
    assert log_in(server, "all").cmd("PING") == "PONG"


def test_a_word_that_is_no_name_is_compared_with_nothing(server):
    """However many patterns its user has: it is neither denied, nor written down."""
    with log_in(server, "acquire") as client, log_in(server, "look", protocol=2) as looker:
        before = len(events(server))
        for size in (513, 1 << 20):
            assert client.error("ACQUIRE", "x" * (size - 100 * (size > 513)), "l").startswith("ERR a name has 1 to 512 bytes, this one ")
        assert looker.error("SUBSCRIBE", "mine/x", "x" * 1000) == "ERR a name has 1 to 512 bytes, this one 1000"
        assert looker.error("SHOW", "x" * 1000) == "ERR a name has 1 to 512 bytes, this one 1000"
        assert len(events(server)) == before


def test_digests_leave_the_time_to_others(server):
    """They need `admin`; and however many are asked for, only few are computed."""
    with log_in(server, "look") as looker:
        assert looker.error("CLUSTER", "DIGEST") == "NOPERM user 'look' has no right 'admin', which CLUSTER DIGEST needs"
    with log_in(server, "all") as client:
        client.pipeline(*(("ACQUIRE", f"mine/{i}", f"lease {i}") for i in range(5000)))
        answers = client.pipeline(*[("CLUSTER", "DIGEST")] * 1000)
        computed = [answer for answer in answers if not isinstance(answer, Refused)]
        assert 1 <= len(computed) <= 100 and all(answer["broken"] == "" for answer in computed)
        refused = {str(answer).rsplit(" in ", 1)[0] for answer in answers if isinstance(answer, Refused)}
        assert refused == {"TRYAGAIN a digest was computed just now, and others have their turn: ask again"}

        def again():
            try:
                return client.cmd("CLUSTER", "DIGEST")
            except Refused as waits:
                assert waits.code == "TRYAGAIN"

        eventually(again, "it is computed again")


# ---- what a right covers ---------------------------------------------------------------------------------------------------------


def test_locks_shows_what_may_be_seen(server):
    with log_in(server, "all") as client, log_in(server, "look") as looker:
        for name in ("mine/1", "mine/2", "other/1", "also"):
            client.cmd("ACQUIRE", name, "l-" + name)
        seen = {row["name"] for row in looker.cmd("LOCKS")[1]}
        assert seen == {"mine/1", "mine/2", "also"}


def test_a_page_of_few_rights_and_many_names_is_cut(server, users):
    """It may have no rows, and is not the last: as much is compared for one page as with MATCH, and others are served in between."""
    write(users, block("all", "allow = acquire look"), block("look", "allow = look: " + " ".join("z" * 200 + f"{i:03}*" for i in range(100)) + " mine/last"))
    hang_up(server, "the users file was read again")
    with log_in(server, "all") as client, log_in(server, "look") as looker:
        for i in range(30):
            client.pipeline(*[("ACQUIRE", f"{i}-{k}-" + "z" * 300, "lease") for k in range(20)])
        client.cmd("ACQUIRE", "mine/last", "lease")
        pages, cursor = 0, 0
        found = []
        while pages == 0 or cursor:
            cursor, rows = looker.cmd("LOCKS", "CURSOR", cursor)
            found += [row["name"] for row in rows]
            pages += 1
        assert found == ["mine/last"] and pages > 1


def test_the_owner_says_who_it_is(server):
    with log_in(server, "acquire") as client, log_in(server, "look") as looker:
        client.cmd("ACQUIRE", "mine/1", "l1", "OWNER", "all: job@host")
        client.cmd("ACQUIRE", "mine/2", "l2")
        client.cmd("ACQUIRE", "mine/3", "l3", "OWNER", "x" * 128)
        owners = {row["name"]: row["holders"][0]["owner"] for row in looker.cmd("LOCKS")[1]}
    assert owners == {"mine/1": "acquire: all: job@host", "mine/2": "acquire", "mine/3": ("acquire: " + "x" * 128)[:128]}


def test_a_sequencer_is_seen_by_its_name(server):
    with log_in(server, "all") as client, log_in(server, "look") as looker:
        store = client.info()["store_id"]
        for name, may in (("mine/s", True), ("other", False)):
            token = client.cmd("ACQUIRE", name, "l")
            for mode in ("x", "X", "exclusive"):
                try:
                    answer = looker.cmd("CHECK", f"{store}.{mode}.{token}.{name}")
                except Refused as refused:
                    answer = refused.code
                assert answer == "NOPERM" if not may and answer != "ERR" else answer in (0, 1, "ERR", "NOPERM")


# ---- the file --------------------------------------------------------------------------------------------------------------------


def hang_up(server, word):
    server.logged()
    os.kill(server.pid, signal.SIGHUP)
    return server.await_line(word)


def test_rights_change_under_those_who_are_connected(server, users):
    with log_in(server, "acquire") as client, log_in(server, "look") as looker:
        client.cmd("ACQUIRE", "mine/x", "l")
        write(users, block("acquire", "allow = acquire: yours/*"), block("all", "allow = acquire look break floor admin"))
        assert "users=2" in hang_up(server, "the users file was read again")
        assert client.error("ACQUIRE", "mine/y", "l2").startswith("NOPERM")
        assert client.cmd("ACQUIRE", "yours/y", "l3") > 0
        assert client.cmd("RENEW", "l")[0] > 0, "what it holds stays"
        with pytest.raises((Ended, ConnectionError, ssl.SSLError)):
            looker.cmd("PING")


def test_a_user_who_is_gone_waits_no_longer(server, users):
    with log_in(server, "all") as holder, log_in(server, "acquire") as client:
        holder.cmd("ACQUIRE", "mine/x", "l")
        client.send("ACQUIRE", "mine/x", "l2", "WAIT", 60000)
        eventually(lambda: holder.info()["blocked_clients"] == "1", "it waits")
        write(users, block("all", "allow = acquire look break floor admin"))
        hang_up(server, "the users file was read again")
        with pytest.raises((Ended, ConnectionError, ssl.SSLError)):
            client.read()
        eventually(lambda: holder.cmd("SHOW", "mine/x")["queue"] == 0, "its place is given up")


def test_who_observes_what_it_may_not_see_any_more_is_closed(server, users):
    with log_in(server, "look") as gone, log_in(server, "all") as stays:
        gone.cmd("OBSERVE", "mine/x")
        stays.cmd("OBSERVE", "mine/x")
        write(users, block("look", "allow = look: other"), block("all", "allow = acquire look"))
        hang_up(server, "observes what its user may not look at")
        with pytest.raises((Ended, ConnectionError)):
            gone.cmd("PING")
        stays.cmd("ACQUIRE", "mine/x", "l")
        assert stays.push()[0] == "changed"


def test_many_of_one_user_are_compared_once(start, users):
    """After a start none is known; one comparison takes some tenths of a second here, and who has not been let in after ten seconds is closed."""
    slow = subprocess.run(["perl", "-e", 'print crypt($ARGV[0], q($6$rounds=250000$saltsalt$))', PASSWORD], capture_output=True, text=True, check=True)
    write(users, block("all", "allow = look", password=slow.stdout.strip()))
    server = start("--users-file", users)
    server.context = None
    crowd = [Client(("127.0.0.1", server.port)) for _ in range(100)]
    try:
        for client in crowd:
            client.send("AUTH", "all", PASSWORD)
        assert [client.read() for client in crowd] == ["OK"] * 100
        hang_up(server, "the users file was read again")
        log_in(server, "all").close()
    finally:
        for client in crowd:
            client.close()


@pytest.mark.parametrize("text, why", [
    ("allow = look\n", "users:1: "), ("user = x\nuser = x\n", "users:2: "), ("user = x\npassword = hunter2\n", "users:2: "),
    ("user = x\nallow = fly\n", "users:2: "), ("user = x\nallow = floor: a*\n", "users:2: "), ("user = x\nnothing\n", "users:2: ")])
def test_a_file_that_cannot_be_used_changes_nothing(server, users, text, why):
    users.write_text(text)
    line = hang_up(server, "a file could not be read again")
    assert why in line and "hunter2" not in line
    log_in(server, "all").close()


@pytest.mark.parametrize("text", ["", "\n", "# nobody yet\n"])
def test_a_file_without_a_user_changes_nothing(start, users, text):
    """A full disk leaves one, and a copy that has just begun."""
    write(users, block("all", "allow = acquire look"))
    server = start("--users-file", users)
    server.context = None
    with log_in(server, "all") as client:
        client.cmd("ACQUIRE", "x", "l")
        write(users, text)
        assert "there is no user in it" in hang_up(server, "read again")
        assert client.cmd("RENEW", "l")[0] > 0
        log_in(server, "all").close()
    status, line = run_refused("--users-file", users, "--check-config")
    assert status == 78 and "there is no user in it" in line


def test_a_file_that_others_can_read_is_refused(start, users):
    write(users, block("all", "allow = look"))
    users.chmod(0o644)
    status, line = run_refused("--users-file", users)
    assert status == 78 and "others can use it" in line


def test_a_password_file_beside_it_is_refused(users, tmp_path):
    write(users, block("all", "allow = look"))
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(PASSWORD + "\n")
    status, line = run_refused("--users-file", users, "--password-file", password)
    assert status == 78 and "do not go together" in line


def test_two_passwords_are_valid_while_one_is_exchanged(server, users):
    other = "another password of this test"
    write(users, block("all", f"password = {stored(other)}", "allow = look"))
    hang_up(server, "the users file was read again")
    for password in (PASSWORD, other):
        log_in(server, "all", password).close()
    write(users, block("all", "allow = look", password=stored(other)))
    hang_up(server, "the users file was read again")
    log_in(server, "all", other).close()
    with pytest.raises(Refused, match="WRONGPASS"):
        log_in(server, "all")


def test_connections_of_a_user_are_bounded(server, users):
    write(users, block("few", "allow = look", "connections = 2"), block("all", "allow = look"))
    hang_up(server, "the users file was read again")
    first, second = log_in(server, "few"), log_in(server, "few")
    with pytest.raises(Refused, match="LIMIT user 'few' has 2 connections already"):
        log_in(server, "few")
    log_in(server, "all").close()
    first.close()
    eventually(lambda: not log_in_fails(server, "few"), "there is room again")
    second.close()


def log_in_fails(server, user):
    try:
        log_in(server, user).close()
    except Refused:
        return True
    return False


# ---- what is written down ---------------------------------------------------------------------------------------------------------


def events(server):
    return [json.loads(line) for line in server.audit.read_text().splitlines()]


def test_what_operators_do_is_written_down(server):
    with log_in(server, "all") as client, log_in(server, "look") as looker:
        client.cmd("ACQUIRE", "mine/x", "l")
        client.cmd("BREAK", "mine/x", "NOW")
        client.cmd("FLOOR", 5)
        assert code(client, "cluster|remove", "") not in ("NOPERM", "")
        looker.error("BREAK", "mine/x")
        with pytest.raises(Refused):
            log_in(server, "break", "wrong")
    told = [(event["event"], event["user"], event.get("command"), event.get("right"), event.get("outcome"), event.get("code"))
            for event in events(server)]
    assert told == [("login", "all", None, None, None, None), ("login", "look", None, None, None, None),
                    ("command", "all", "BREAK mine/x NOW", None, None, None), ("command_end", "all", "BREAK mine/x NOW", None, "done", None),
                    ("command", "all", "FLOOR 5", None, None, None), ("command_end", "all", "FLOOR 5", None, "done", None),
                    ("command", "all", "CLUSTER REMOVE 9", None, None, None),
                    ("command_end", "all", "CLUSTER REMOVE 9", None, "refused", "ERR"),
                    ("denied", "look", "BREAK", "break", None, None), ("login_refused", "break", None, None, None, None)]
    assert all(event["client"].startswith("127.0.0.1:") and event["time"] for event in events(server))
    assert [event["name"] for event in events(server) if event["event"] == "denied"] == ["mine/x"]
    assert oct(server.audit.stat().st_mode & 0o777) in ("0o640", "0o600")


def test_what_began_has_its_end(server):
    """By an id that no other has; also if it is refused before it begins, one of many, or its client does not wait for it."""
    with log_in(server, "all") as client:
        answers = client.pipeline(*[("BREAK", f"mine/{i}") for i in range(50)], ("BREAK", "", "NOW"), ("FLOOR", "x"), ("CLUSTER", "TRANSFER", "7"))
        assert answers[:50] == [0] * 50 and all(isinstance(answer, Refused) for answer in answers[50:])
    with log_in(server, "all") as client:
        client.send("BREAK", "mine/last")
    eventually(lambda: events(server)[-1].get("command") == "BREAK mine/last" and events(server)[-1]["event"] == "command_end", "its end")
    begun = [event for event in events(server) if event["event"] == "command"]
    ended = {event["id"]: event for event in events(server) if event["event"] == "command_end"}
    assert len({event["id"] for event in begun}) == len(begun) == len(ended) == 54
    assert all(ended[event["id"]]["command"] == event["command"] and ended[event["id"]]["user"] == "all" for event in begun)
    assert [ended[event["id"]]["outcome"] for event in begun] == ["done"] * 50 + ["refused"] * 3 + ["done"]
    assert begun[50]["command"] == 'BREAK "" NOW' and begun[52]["command"] == "CLUSTER TRANSFER 7"


def test_words_of_a_command_can_be_told_apart(server):
    with log_in(server, "all") as client:
        for name in ("x NOW", 'say "x"', "back\\slash", "\x01\x1f", "ü", b"\xff\xfe", "x" * 512):
            client.cmd("BREAK", name)
    shown = [event["command"] for event in events(server) if event["event"] == "command"]
    assert shown[:3] == ['BREAK "x NOW"', 'BREAK "say \\"x\\""', 'BREAK "back\\\\slash"'] and shown[4] == "BREAK ü" and shown[6] == "BREAK " + "x" * 512
    assert len(shown) == 7


def test_no_legal_command_is_cut(server):
    """Of the longest names, whatever their bytes become in a line: two that differ in their last bytes are told apart, and NOW is there."""
    longest = 512
    names = ['"' * (longest - 3) + end for end in ("one", "two")] + ["\\" * longest, " " * longest, "\x01" * longest, "\U000e0001" * (longest // 4), "x" * longest]
    with log_in(server, "all") as client:
        for name in names:
            client.cmd("BREAK", name, "NOW")
        client.cmd("BREAK", b"\xff" * longest, "NOW")
    for kind in ("command", "command_end"):
        shown = [event["command"] for event in events(server) if event["event"] == kind]
        quoted = ["BREAK " + ('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' if set(name) & set(' "\\') else name) + " NOW" for name in names]
        assert shown[:-1] == quoted and shown[-1] == "BREAK " + "\ufffd" * longest + " NOW"
    assert not any("cut" in event for event in events(server))


# ---- when it cannot be written -----------------------------------------------------------------------------------------------------


def largest(path):
    """Makes it as large as a file can be here; and how large that is."""
    low, high = 0, 1 << 63
    while high - low > 1:
        size = (low + high) // 2
        try:
            os.truncate(path, size)
            low = size
        except (OSError, OverflowError):
            high = size
    os.truncate(path, low)
    return low


def test_what_cannot_be_written_down_is_not_done(server):
    """Of operators; others go on. And the line after one that was cut off stands alone."""
    with log_in(server, "all") as client:
        client.cmd("ACQUIRE", "mine/x", "l")
        size = largest(server.audit)
        for cut in (0, 20):
            os.truncate(server.audit, size - cut)
            for words in (["BREAK", "mine/x", "NOW"], ["FLOOR", 5], ["CLUSTER", "TRANSFER"]):
                assert client.error(*words).startswith("NOAUDIT the audit file of this server cannot be written (")
            assert client.cmd("SHOW", "mine/x")["holders"], "it is held"
            log_in(server, "look").close()
            assert client.cmd("ACQUIRE", f"mine/{cut}", "l2") > 0
        server.await_line("an operator's command is refused: the audit file could not be written")
        os.truncate(server.audit, 0)
        server.audit.write_text('{"event":"begi')
        hang_up(server, "the users file was read again")
        assert client.cmd("BREAK", "mine/x", "NOW") == 1
    lines = server.audit.read_text().splitlines()
    assert lines[0] == '{"event":"begi' and [json.loads(line)["event"] for line in lines[1:]] == ["command", "command_end"]


def test_what_is_denied_is_written_down_once(server):
    """Also where it has to wait for its turn: it is looked at again each time that one before it has its answer."""
    with log_in(server, "acquire") as client:
        for i in range(50):
            client.send("ACQUIRE", f"mine/{i}", f"l{i}")
        client.send("BREAK", "mine/0")
        for i in range(50):
            assert client.read() > 0
        with pytest.raises(Refused, match="NOPERM"):
            client.read()
        assert client.cmd("PING") == "PONG"
    assert [event["event"] for event in events(server)].count("denied") == 1


def test_nobody_becomes_who_may_not_see_what_is_observed(server):
    with log_in(server, "all") as client:
        assert client.cmd("OBSERVE", "other") == "OK"
        with pytest.raises(Refused, match="ERR this connection observes what user 'look' may not look at"):
            client.cmd("AUTH", "look", PASSWORD)
        client.cmd("UNOBSERVE", "other")
        assert client.cmd("OBSERVE", "also") == "OK"
        assert client.cmd("AUTH", "look", PASSWORD) == "OK"


def test_the_audit_file_may_be_renamed(server):
    log_in(server, "all").close()
    before = server.audit.with_suffix(".1")
    server.audit.rename(before)
    hang_up(server, "the users file was read again")
    log_in(server, "look").close()
    eventually(lambda: server.audit.exists() and "look" in server.audit.read_text(), "a new one")
    assert "look" not in before.read_text()


# ---- other people's clients ---------------------------------------------------------------------------------------------------------


def test_redis_py_with_a_user(server):
    redis = pytest.importorskip("redis")
    with redis.Redis(port=server.port, username="all", password=PASSWORD, decode_responses=True) as client:
        assert client.execute_command("ACQUIRE", "mine/x", "l") > 0
        assert client.client_info()["user"] == "all"
    url = f"redis://look:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{server.port}/0"
    with redis.Redis.from_url(url) as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("ACQUIRE", "mine/x", "l")
    for user, password in (("all", "wrong"), ("stranger", PASSWORD)):
        with redis.Redis(port=server.port, username=user, password=password) as client:
            with pytest.raises((redis.AuthenticationError, redis.ResponseError), match="the user or the password is wrong"):
                client.ping()


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed")
def test_redis_cli_with_a_user(server):
    words = ["redis-cli", "-p", str(server.port), "--user", "look", "--pass", PASSWORD, "--no-auth-warning"]
    done = subprocess.run([*words, "ACQUIRE", "mine/x", "l"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.startswith("NOPERM user 'look' has no right 'acquire'"), done
    assert subprocess.run([*words, "-3", "LOCKS"], capture_output=True, text=True, timeout=PATIENCE).returncode == 0


# ---- names and numbers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern, may, may_not", [
    ("a?b", ["a b", "a/b"], ["a  b", "ab", "a\u00fcb"]), ("a??b", ["a\u00fcb"], ["a b"]), ("\u00fc*", ["\u00fc", "\u00fcx"], ["u", "x\u00fc"]),
    ("[#]x", ["#x"], ["x"]), ("[a-c]/*", ["a/", "c/x/y"], ["d/x", "a"]), ("[^a]", ["b", "*"], ["a", "", "bb"]), ("\\*", ["*"], ["x", "\\*"]),
    ("x\\", ["x\\"], ["x", "x\\\\"]), ("[]]", [], ["]]x"]), ("**a**", ["a", "xax"], ["x"]), ("a:b", ["a:b"], ["a", "b"]), ("[z-a]", [], ["b", "-"])])
def test_patterns(start, users, pattern, may, may_not):
    write(users, block("u", f"allow = acquire: {pattern}"))
    with log_in(start("--users-file", users), "u") as client:
        for name in may:
            assert code(client, "acquire", name) == "", name
        for name in may_not:
            assert code(client, "acquire", name) in ("NOPERM", "ERR") and (not name or code(client, "acquire", name) == "NOPERM"), name


def test_a_thousand_users(start, users):
    write(users, *(block(f"u{i}", *(f"allow = look: {k}-{i}/*" for k in range(5))) for i in range(1000)))
    server = start("--users-file", users)
    for i in (0, 500, 999):
        with log_in(server, f"u{i}") as client:
            assert client.cmd("SHOW", f"3-{i}/x") and client.error("SHOW", f"3-{i + 1}/x").startswith("NOPERM")
    with log_in(server, "u7") as stays, log_in(server, "u999") as goes:
        write(users, *(block(f"u{i}", "allow = look") for i in range(999)))
        hang_up(server, "the users file was read again")
        assert stays.cmd("SHOW", "anything")
        with pytest.raises((Ended, ConnectionError)):
            goes.cmd("PING")


def test_files_are_read_while_passwords_are_compared(server, users):
    """Of users who come and go meanwhile: everybody is told something true, and the server lives."""
    both = users.read_text()
    without = "\n".join(text for text in both.split("\n\n") if "user = all" not in text) + "\n"
    for _ in range(8):
        crowd = [Client(("127.0.0.1", server.port)) for _ in range(10)]
        for i, client in enumerate(crowd):
            client.send("AUTH", "all", PASSWORD if i % 2 else f"guess {i}")
            client.send("LOCKS")
        for text in (without, both):
            users.write_text(text)
            hang_up(server, "the users file was read again")
        for i, client in enumerate(crowd):
            if i == 3:
                client.close()
                continue
            try:
                assert client.read() == "OK" and i % 2
            except Refused as refused:
                assert refused.code == "WRONGPASS"
            except (Ended, ConnectionError):
                assert i % 2, "let in, and then gone from the file"
            client.close()
    assert log_in(server, "all").cmd("PING") == "PONG"
