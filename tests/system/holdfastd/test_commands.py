"""Every command with every option, every error by its code, in both protocols. After each error the connection lives
on: the server has not lost its place in what the client says."""
import pytest
from conftest import TOKEN_MAX, TTL_MAX, YEAR_MS, Refused, pack, refused

# Words with the command's own: the fewest, and the most if there is a most.
COUNTS = {"ACQUIRE": (3, None), "RELEASE": (3, 5), "RENEW": (2, None), "END": (2, 4), "CHECK": (2, 4), "SHOW": (2, 4),
          "LOCKS": (1, 7), "OBSERVE": (2, 2), "UNOBSERVE": (2, 2), "BREAK": (2, 3), "FLOOR": (2, 2), "ONCE": (2, None),
          "PING": (1, 2), "INFO": (1, None), "COMMAND": (1, None), "CLUSTER": (2, None), "HELLO": (1, None),
          "AUTH": (2, 3), "CLIENT": (2, None), "SELECT": (2, 2), "SUBSCRIBE": (2, None), "UNSUBSCRIBE": (1, None),
          "QUIT": (1, 1)}

NO_REDIS = (": this is holdfastd, which keeps locks, and no keys or scripts: take a lock with ACQUIRE name lease TTL ms, and give it back "
            "with RELEASE name lease")


def named(name, word):
    """What a table says: N is the name of this test, L its lease."""
    return {"N": name, "L": "of-" + name}.get(word, word)


# ---- wrong words -------------------------------------------------------------------------------------------------


def test_there_are_no_other_commands(client):
    assert {word.upper() for word in client.cmd("COMMAND", "LIST")} == set(COUNTS)


@pytest.mark.parametrize("command", [name for name, (least, _) in COUNTS.items() if least > 1])
def test_too_few_words(client, command):
    for count in range(1, COUNTS[command][0]):
        text = refused(client, command, *["1"] * (count - 1))
        assert text.startswith(f"ERR wrong number of arguments for '{command}': {command} "), "and shows the right ones"


@pytest.mark.parametrize("command", [name for name, (_, most) in COUNTS.items() if most])
def test_too_many_words(client, name, command):
    """Right ones, but for the last."""
    words = {"RELEASE": ["N", "L", "TOKEN", "1"], "END": ["L", "TTL", "1000"], "CHECK": ["N", "1", "MODE"],
             "SHOW": ["N", "WAITERS", "5"], "LOCKS": ["MATCH", "x", "COUNT", "5", "CURSOR", "0"],
             "BREAK": ["N", "NOW"], "AUTH": ["default", "x"], "SELECT": ["0"], "QUIT": []}.get(command, ["5"])
    assert len(words) + 1 == COUNTS[command][1]
    assert refused(client, command, *[named(name, word) for word in words], "more").startswith("ERR ")


@pytest.mark.parametrize("words, text", [
    (["NOPE"], "ERR unknown command 'NOPE'"),
    (["ACQUIRE "], "ERR unknown command 'ACQUIRE ': did you mean ACQUIRE?"),
    (["ACQUIR", "N", "L"], "ERR unknown command 'ACQUIR': did you mean ACQUIRE?"),
    (["relase", "N", "L"], "ERR unknown command 'relase': did you mean RELEASE?"),
    (["RENWE", "L"], "ERR unknown command 'RENWE': did you mean RENEW?"),
    (["WAITING"], "ERR unknown command 'WAITING'"),
    (["GET", "N"], "ERR unknown command 'GET'" + NO_REDIS),
    (["set", "N", "L", "NX", "PX", "1000"], "ERR unknown command 'set'" + NO_REDIS),
    (["EVALSHA", "0" * 40, "1", "N"], "ERR unknown command 'EVALSHA'" + NO_REDIS),
    ([""], "ERR unknown command ''"),
    (["x" * 5000], "ERR unknown command '" + "x" * 64 + "'"),
    (["ACQUIRE", "N", "L", "FOO"], "ERR 'FOO' is not expected here, or twice"),
    (["ACQUIRE", "N", "L", "x" * 500], "ERR '" + "x" * 32 + "' is not expected here, or twice"),
    (["ACQUIRE", "N", "L", "NOW"], "ERR 'NOW' is not expected here, or twice"),
    (["ACQUIRE", "N", "L", "KEEP", "1"], "ERR 'KEEP' is not expected here, or twice"),
    (["ACQUIRE", "N", "L", "TTL"], "ERR TTL has no number behind it"),
    (["ACQUIRE", "N", "L", "WAIT"], "ERR WAIT has no number behind it"),
    (["ACQUIRE", "N", "L", "PERMITS"], "ERR PERMITS has no number behind it"),
    (["ACQUIRE", "N", "L", "DELAY"], "ERR DELAY has no number behind it"),
    (["ACQUIRE", "N", "L", "OWNER"], "ERR OWNER has no text behind it"),
    (["ACQUIRE", "N", "L", "SHARED", "PERMITS", "2"], "ERR SHARED and PERMITS do not go together"),
    (["RELEASE", "N", "L", "TOKEN"], "ERR TOKEN has no number behind it"),
    (["RELEASE", "N", "L", "NOW"], "ERR 'NOW' is not expected here, or twice"),
    (["END", "L", "TTL"], "ERR TTL has no number behind it"),
    (["END", "L", "NOW"], "ERR 'NOW' is not expected here, or twice"),
    (["CHECK", "N", "1", "MODES"], "ERR 'MODES' is not expected here, or twice"),
    (["CHECK", "not-a-sequencer"], "ERR this is not a sequencer (hf1.STORE.MODE.TOKEN.NAME)"),
    (["CHECK", "hf1.00.x.1.N"], "STORE this sequencer is of another store"),
    (["CHECK", "hf1.00.x.0.N"], "ERR this is not a sequencer (hf1.STORE.MODE.TOKEN.NAME)"),
    (["SHOW", "N", "HOLDERS", "1"], "ERR 'HOLDERS' is not expected here, or twice"),
    (["SHOW", "N", "WAITERS"], "ERR WAITERS has no number behind it"),
    (["LOCKS", "FOO"], "ERR 'FOO' is not expected here, or twice"),
    (["LOCKS", "MATCH"], "ERR MATCH is followed by a pattern of at most 512 bytes"),
    (["LOCKS", "MATCH", "x" * 513], "ERR MATCH is followed by a pattern of at most 512 bytes"),
    (["LOCKS", "COUNT"], "ERR COUNT has no number behind it"),
    (["LOCKS", "CURSOR"], "ERR CURSOR has no number behind it"),
    (["BREAK", "N", "LATER"], "ERR 'LATER' is not expected here, or twice"),
    (["RENEW", "L", "TTL", "99"], f"ERR TTL is a number from 100 to {TTL_MAX}, not '99'"),
    (["ONCE", "FOO", "N", "L"], "ERR ONCE is followed by CLAIM, FINISH, READ or RELEASE"),
    (["ONCE", "CLAIM", "N"], "ERR wrong number of arguments for 'ONCE CLAIM': ONCE CLAIM key lease [TTL ms] [WAIT ms] [PUSH] [KEEP ms] [NOHEIR] "
     "[OWNER text]"),
    (["ONCE", "CLAIM", "N", "L", "SHARED"], "ERR 'SHARED' is not expected here, or twice"),
    (["ONCE", "CLAIM", "N", "L", "DELAY", "5"], "ERR 'DELAY' is not expected here, or twice"),
    (["ONCE", "CLAIM", "N", "L", "KEEP"], "ERR KEEP has no number behind it"),
    (["ONCE", "READ", "N", "L"], "ERR wrong number of arguments for 'ONCE READ': ONCE READ key"),
    (["ONCE", "RELEASE", "N", "L", "FOO"], "ERR 'FOO' is not expected here, or twice"),
    (["ONCE", "FINISH", "N", "L", "TOKEN", "1"],
     "ERR wrong number of arguments for 'ONCE FINISH': ONCE FINISH key lease TOKEN token KEEP ms result"),
    (["ONCE", "FINISH", "N", "L", "KEEP", "5", "TOKEN", "1", "r"], "ERR 'KEEP' is not expected here, or twice"),
    (["ONCE", "FINISH", "N", "L", "TOKEN", "1", "TTL", "1", "r"], "ERR 'TTL' is not expected here, or twice"),
    (["ONCE", "FINISH", "N", "L", "TOKEN", "1", "KEEP", "5", "r" * 65537], "LIMIT a result has at most 65536 bytes"),
    (["COMMAND", "FOO"], "ERR COMMAND is followed by COUNT, LIST, INFO or DOCS"),
    (["CLUSTER", "FOO"], "ERR CLUSTER is followed by STATUS, DIGEST, INIT, ADD, REMOVE, TRANSFER, BACKUP, PIECE, SLOTS or MYID"),
    (["CLUSTER", "ADD", "2"], "ERR wrong number of arguments for 'CLUSTER ADD': CLUSTER ADD id host:port"),
    (["CLUSTER", "ADD", "0", "h:1"], "ERR id is a number from 1 to 4294967296, not '0'"),
    (["CLUSTER", "ADD", "2", "h"], "ERR 'h' is not HOST:PORT"),
    (["CLUSTER", "ADD", "2", "h:1,3=i:1"], "ERR one node at a time"),
    (["CLUSTER", "ADD", "2", "h:1"],
     "ERR this node is alone: start it with itself as the only member of its cluster (--id 1 --cluster 1=HOST:PORT --secret-file FILE), "
     "then add others"),
    (["CLUSTER", "REMOVE"], "ERR wrong number of arguments for 'CLUSTER REMOVE': CLUSTER REMOVE id"),
    (["CLUSTER", "REMOVE", "2"], "ERR node 2 is no member"),
    (["CLUSTER", "REMOVE", "1"], "ERR node 1 leads: let another one lead before it goes"),
    (["CLUSTER", "TRANSFER"], "ERR there is no other node that could lead"),
    (["CLUSTER", "TRANSFER", "2"], "ERR node 2 is not a member that votes"),
    (["CLUSTER", "TRANSFER", "2", "3"], "ERR CLUSTER TRANSFER [id]"),
    (["HELLO", "4"], "NOPROTO unsupported protocol version"),
    (["HELLO", "1"], "NOPROTO unsupported protocol version"),
    (["HELLO", "three"], "NOPROTO unsupported protocol version"),
    (["HELLO", "2", "FOO"], "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"),
    (["HELLO", "2", "AUTH", "default"], "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"),
    (["HELLO", "2", "SETNAME"], "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"),
    (["HELLO", "2", "SETNAME", "a", "SETNAME", "b"],
     "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"),
    (["AUTH", "x"], "ERR AUTH: this server has no password (--password-file)"),
    (["CLIENT", "FOO"], "ERR CLIENT is followed by SETNAME, GETNAME, SETINFO, ID or INFO"),
    (["CLIENT", "SETNAME"], "ERR wrong number of arguments for 'CLIENT SETNAME': CLIENT SETNAME name"),
    (["CLIENT", "SETNAME", "a b"], "ERR a client's name has no blanks and no special characters"),
    (["CLIENT", "SETNAME", "x" * 65], "ERR a client's name has at most 64 bytes"),
    (["CLIENT", "KILL", "ID", "1"], "ERR CLIENT is followed by SETNAME, GETNAME, SETINFO, ID or INFO"),
    (["SELECT", "1"], "ERR there is only database 0"),
    (["SELECT", "x"], "ERR there is only database 0"),
])
def test_wrong_words(client, name, words, text):
    before = int(client.info("Stats")["refused_commands"])
    assert refused(client, *[named(name, word).replace("1.N", "1." + name) for word in words]) == text
    assert client.show(name)["holds"] == 0, "and did nothing"
    if not text.startswith("STORE"):  # that one took its turn in the log
        assert int(client.info("Stats")["refused_commands"]) == before + 1


@pytest.mark.parametrize("option", [["TTL", "1000"], ["WAIT", "0"], ["SHARED"], ["PERMITS", "2"], ["DELAY", "5"],
                                    ["OWNER", "me"]])
def test_an_option_twice(client, name, lease, option):
    other = [word.lower() for word in option]
    assert refused(client, "ACQUIRE", name, lease(), *option, *other) == \
        f"ERR '{other[0]}' is not expected here, or twice"
    assert client.show(name)["holds"] == 0


@pytest.mark.parametrize("words", [["RELEASE", "N", "L", "TOKEN", 1, "TOKEN", 1], ["END", "L", "TTL", 1000, "TTL", 1000],
                                   ["SHOW", "N", "WAITERS", 1, "WAITERS", 1], ["LOCKS", "COUNT", 1, "COUNT", 1],
                                   ["LOCKS", "MATCH", "x", "MATCH", "x"], ["LOCKS", "CURSOR", 0, "CURSOR", 0],
                                   ["BREAK", "N", "NOW", "NOW"], ["ONCE", "CLAIM", "N", "L", "NOHEIR", "NOHEIR"],
                                   ["ONCE", "CLAIM", "N", "L", "KEEP", 1, "KEEP", 1]])
def test_another_option_twice(client, name, words):
    assert refused(client, *[named(name, word) for word in words]).endswith("is not expected here, or twice")


NUMBERS = {
    "TTL": (["ACQUIRE", "N", "L", "TTL", "#"], 100, TTL_MAX),
    "WAIT": (["ACQUIRE", "N", "L", "WAIT", "#"], 0, YEAR_MS),
    "PERMITS": (["ACQUIRE", "N", "L", "PERMITS", "#"], 1, 1024),
    "DELAY": (["ACQUIRE", "N", "L", "DELAY", "#"], 0, YEAR_MS),
    "TOKEN": (["RELEASE", "N", "L", "TOKEN", "#"], 1, TOKEN_MAX),
    "TTL of RENEW": (["RENEW", "L", "TTL", "#"], 100, TTL_MAX),
    "TTL of END": (["END", "L", "TTL", "#"], 100, TTL_MAX),
    "a token": (["CHECK", "N", "#"], 1, TOKEN_MAX),
    "WAITERS": (["SHOW", "N", "WAITERS", "#"], 1, 10000),
    "COUNT": (["LOCKS", "COUNT", "#", "MATCH", "nothing"], 1, 1000),
    "CURSOR": (["LOCKS", "CURSOR", "#", "MATCH", "nothing"], 0, 2**32 - 1),
    "a token of FLOOR": (["FLOOR", "#"], 0, TOKEN_MAX - 1),
    "TTL of CLAIM": (["ONCE", "CLAIM", "N", "L", "TTL", "#"], 100, TTL_MAX),
    "WAIT of CLAIM": (["ONCE", "CLAIM", "N", "L", "WAIT", "#"], 0, YEAR_MS),
    "KEEP of CLAIM": (["ONCE", "CLAIM", "N", "L", "KEEP", "#"], 0, YEAR_MS),
    "TOKEN of FINISH": (["ONCE", "FINISH", "N", "L", "TOKEN", "#", "KEEP", "1", "r"], 1, TOKEN_MAX),
    "KEEP of FINISH": (["ONCE", "FINISH", "N", "L", "TOKEN", "1", "KEEP", "#", "r"], 1, YEAR_MS),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers(client, name, what):
    words, least, most = NUMBERS[what]
    what = what.split(" of ")[0]
    for number in [least - 1, most + 1, -1, "", "x", "1.5", " 1", "1 ", "1e3", "0x10", "--1", "+-1", "1_000", "1\0",
                   2**63, 2**64 + least, 10**30, "٣"]:
        shown = str(number).split("\0")[0]
        text = refused(client, *[number if word == "#" else named(name, word) for word in words])
        assert text == f"ERR {what} is a number from {least} to {most}, not '{shown}'"
    for index, number in enumerate([least, most, f"00{least}", f"+{least}"] if words[0] != "FLOOR" else [least]):
        client.send(*[number if word == "#" else named(f"{name}-{index}", word) for word in words])
        answer = client.read_any()
        assert not isinstance(answer, Refused) or answer.code == "STALE", answer


@pytest.mark.parametrize("words", [["ACQUIRE", "#", "L"], ["RELEASE", "#", "L"], ["CHECK", "#", "1"], ["SHOW", "#"],
                                   ["BREAK", "#"], ["ONCE", "CLAIM", "#", "L"], ["ONCE", "READ", "#"],
                                   ["ONCE", "RELEASE", "#", "L"], ["SUBSCRIBE", "#"],
                                   ["ONCE", "FINISH", "#", "L", "TOKEN", "1", "KEEP", "1", "r"]])
def test_names_that_are_none(client, name, words):
    for bad, text in [("", "ERR a name has 1 to 512 bytes, this one 0"),
                      ("x" * 513, "ERR a name has 1 to 512 bytes, this one 513"),
                      ("x" * 100000, "ERR a name has 1 to 512 bytes, this one 100000"),
                      ("a\0b", "ERR a name has no NUL in it"), ("\0", "ERR a name has no NUL in it")]:
        assert refused(client, *[bad if word == "#" else named(name, word) for word in words]) == text


@pytest.mark.parametrize("words", [["ACQUIRE", "N", "#"], ["RELEASE", "N", "#"], ["RENEW", "#"], ["RENEW", "L", "#"],
                                   ["END", "#"], ["ONCE", "CLAIM", "N", "#"], ["ONCE", "RELEASE", "N", "#"]])
def test_leases_that_are_none(client, name, words):
    for bad, text in [("", "ERR a lease has 1 to 64 bytes, this one 0"),
                      ("x" * 65, "ERR a lease has 1 to 64 bytes, this one 65"),
                      ("a\0b", "ERR a lease has no NUL in it")]:
        assert refused(client, *[bad if word == "#" else named(name, word) for word in words]) == text


def test_owners_that_are_none(client, name, lease):
    assert refused(client, "ACQUIRE", name, lease(), "OWNER", "x" * 129) == \
        "ERR an owner has 0 to 128 bytes, this one 129"
    assert refused(client, "ACQUIRE", name, lease(), "OWNER", "a\0") == "ERR an owner has no NUL in it"


def test_an_error_is_one_line_whatever_it_quotes(client, name, lease):
    for words in [["FOO\r\n+OK\r\n"], ["ACQUIRE", name, lease(), "TTL", "1\r\n:7\r\n"],
                  ["ACQUIRE", name, lease(), "\r\n$2\r\nhi\r\n"]]:
        refused(client, *words)


def test_the_longest_and_oddest_words(client, name, lease):
    for odd in ["n" * 512, "n\r\n*1\r\n", "\x01\x7f", b"\xff\xfe\x80" + name.encode(), "naïve/☃:1", "*", "[", " "]:
        holder = ("l" * 40 + lease()).ljust(64, "\t")
        token = client.cmd("ACQUIRE", odd, holder, "OWNER", "o" * 128)
        assert token > 0 and client.cmd("CHECK", odd, token) == 1
        shown = client.show(odd)
        assert shown["holders"][0]["owner"] == "o" * 128
        assert pack(shown["name"]) == pack(odd)
        assert client.cmd("RELEASE", odd, holder) == 1


def test_only_arrays_of_strings_are_commands(client):
    """Nothing else is one, and it costs nobody the connection."""
    for raw in [b"*0\r\n", b"*-1\r\n", b":5\r\n", b"$4\r\nPING\r\n", b"+PING\r\n", b"*1\r\n:5\r\n", b"*2\r\n$4\r\nPING\r\n*0\r\n",
                b"_\r\n", b"*2\r\n$4\r\nPING\r\n$-1\r\n", b"%1\r\n$4\r\nPING\r\n$1\r\nx\r\n", b"~1\r\n$4\r\nPING\r\n", b"#t\r\n", b",1.5\r\n"]:
        client.raw(raw)
        with pytest.raises(Refused, match="^ERR a command is an array of strings$"):
            client.read()
    client.raw(b"*1\r\n+PING\r\n")
    assert client.read() == "PONG"
    client.raw(b"|1\r\n+a\r\n+b\r\n*1\r\n$4\r\nping\r\n")
    assert client.read() == "PONG"


# ---- answers, byte by byte ---------------------------------------------------------------------------------------


BYTES = [  # RESP2, and RESP3 where that is another
    (["PING"], b"+PONG\r\n", None),
    (["ping"], b"+PONG\r\n", None),
    (["PING", "a\r\nb"], b"$4\r\na\r\nb\r\n", None),
    (["PING", ""], b"$0\r\n\r\n", None),
    (["SELECT", "0"], b"+OK\r\n", None),
    (["CLIENT", "SETNAME", "me"], b"+OK\r\n", None),
    (["client", "getname"], b"$2\r\nme\r\n", None),
    (["CLIENT", "SETINFO", "LIB-NAME", "x"], b"+OK\r\n", None),
    (["FLOOR", "0"], None, None),
    (["ACQUIRE", "N", "L", "PERMITS", "1"], None, None),
    (["acquire", "N", "another", "permits", "1"], b"$-1\r\n", b"_\r\n"),
    (["ACQUIRE", "N", "another", "PERMITS", "1", "WAIT", "0"], b"$-1\r\n", b"_\r\n"),
    (["RENEW", "L", "nobody"], None, None),
    (["reNew", "nobody"], b"*1\r\n:-1\r\n", None),
    (["Release", "N", "L", "Token", "1"], b":0\r\n", None),
    (["release", "N", "L"], b":1\r\n", None),
    (["RELEASE", "N", "L"], b":0\r\n", None),
    (["CHECK", "N", "1"], b":0\r\n", None),
    (["check", "N", str(TOKEN_MAX)], b":0\r\n", None),
    (["SHOW", "nobody"], b"*12\r\n$4\r\nname\r\n$6\r\nnobody\r\n$7\r\npermits\r\n:0\r\n$5\r\nholds\r\n:0\r\n$5\r\nqueue\r\n:0\r\n"
     b"$7\r\nholders\r\n*0\r\n$7\r\nwaiters\r\n*0\r\n",
     b"%6\r\n$4\r\nname\r\n$6\r\nnobody\r\n$7\r\npermits\r\n:0\r\n$5\r\nholds\r\n:0\r\n$5\r\nqueue\r\n:0\r\n"
     b"$7\r\nholders\r\n*0\r\n$7\r\nwaiters\r\n*0\r\n"),
    (["locks", "match", "nobody"], b"*2\r\n:0\r\n*0\r\n", None),
    (["break", "nobody"], b":0\r\n", None),
    (["BREAK", "nobody", "now"], b":0\r\n", None),
    (["END", "L"], b":0\r\n", None),
    (["ACQUIRE", "N", "L"], b"-ENDED this lease is over: take another\r\n", None),
    (["once", "read", "N"], b"$-1\r\n", b"_\r\n"),
    (["unobserve", "N"], b":0\r\n", None),
    (["cluster", "myid"], b"$1\r\n1\r\n", None),
    (["INFO", "nothing"], b"$0\r\n\r\n", None),
    (["SUBSCRIBE", "N"], b"*3\r\n$9\r\nsubscribe\r\n#N\r\n:1\r\n", b">3\r\n$9\r\nsubscribe\r\n#N\r\n:1\r\n"),
    (["unsubscribe", "N"], b"*3\r\n$11\r\nunsubscribe\r\n#N\r\n:0\r\n", b">3\r\n$11\r\nunsubscribe\r\n#N\r\n:0\r\n"),
    (["UNSUBSCRIBE"], b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n", b">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n"),
    (["quit"], b"+OK\r\n", None),
]


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "all at once"])
def test_bytes(client, name, at_once):
    commands = [[named(name, word) for word in words] for words, *_ in BYTES]
    if at_once:
        client.raw(b"".join(pack(*words) for words in commands))
    for words, (_, resp2, resp3) in zip(commands, BYTES):
        if not at_once:
            client.send(*words)
        expected = resp3 if client.protocol == 3 and resp3 else resp2
        if expected is None:
            client.read()
            continue
        expected = expected.replace(b"#N", b"$%d\r\n%s" % (len(name), name.encode()))
        assert client.read_raw(len(expected)) == expected, words
    assert client.ended(), "after QUIT"
