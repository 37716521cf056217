"""holdfast once: what is run, kept and replayed."""
import json
import os
import re
import signal
import subprocess

import namespaces
import once_cli
import pytest
from conftest import BIN, eventually
from once_cli import JOB, KEPT_MAX, holdfast, plain, store  # noqa: F401


# ---- once --------------------------------------------------------------------------------------------------------


def test_replayed(store):
    script = f'echo run >>{store.log}; echo out; echo err >&2; printf "no newline"; exit 3'
    first = store.once("k", "--", "sh", "-c", script)
    second = store.once("k", "--", "sh", "-c", script)
    assert (first.stdout, first.stderr, first.status) == ("out\nno newline", "err\n", 3)
    said, errors = second.stderr.split("\n", 1)
    assert (second.stdout, errors, second.status) == (first.stdout, first.stderr, 3)
    assert re.fullmatch(r"holdfast: 'k' has been run, with token \d+, and failed with exit status 3: nothing is run now, that is its result "
                        r"for another (24 h|23 h 59 min); another KEY is run at once, and with --only-success no failure is kept", said), said
    assert store.once("k", "-q", *store.counted("never")).stderr == first.stderr
    assert store.runs() == ["run"]
    assert store.once("other", *store.counted("x")).stdout == "x\n", "another key is another matter"


def test_two_at_the_same_time(store):
    first = store.begin("k")
    second = store.wait_for("k")
    assert first.end() == 0
    assert second.wait() == 0
    assert first.rest() == ["out go"], "it was passed on as it came"
    assert second.rest() == [f"in {first.token} {first.job}", "out go"], "and replayed"


def test_a_hundred_callers(store, directory):
    """One runs it, and all have what came out."""
    go = directory / "go"
    script = f'echo $HOLDFAST_TOKEN >>{store.log}; while [ ! -e {go} ]; do sleep 0.05; done; echo rebuilt $HOLDFAST_TOKEN'
    callers = [store.start("once", "-q", "k", "--", "sh", "-c", script) for _ in range(100)]
    eventually(store.runs, "somebody runs it")
    go.touch()
    assert {caller.wait(120) for caller in callers} == {0}
    assert len(store.runs()) == 1
    assert {tuple(caller.rest()) for caller in callers} == {(f"rebuilt {store.runs()[0]}",)}


def test_nobody_runs_it_is_no_news_when_it_has_just_ended(plain):
    """Those who wait ask who runs it after a second, which is when it ends."""
    callers = [plain.start("once", "k", "--", "sleep", "1") for _ in range(40)]
    assert {caller.wait(120) for caller in callers} == {0}
    assert not [line for caller in callers for line in caller.rest("err") if "nobody runs it" in line]


def test_kept_as_long_as_said(store):
    assert store.once("k", "--keep", "300ms", *store.counted("one")).stdout == "one\n"
    eventually(lambda: store.known("k")["state"] == "nothing", "it is forgotten")
    assert store.once("k", *store.counted("two")).stdout == "two\n"
    assert store.once("k", *store.counted("three")).stdout == "two\n"
    one, two = map(int, store.runs())
    assert two > one


def test_those_who_wait_have_it_however_short_it_is_kept(holdfast):
    first = holdfast.begin("k", "--keep", "1ms")
    second = holdfast.wait_for("k")
    assert first.end() == 0
    assert second.wait() == 0
    assert second.rest() == [f"in {first.token} {first.job}", "out go"]


@pytest.mark.parametrize("out, err", [(0, 0), (1, 0), (0, 1), (1000, 1000), (KEPT_MAX, 0), (KEPT_MAX - 7, 7)])
def test_sizes(plain, out, err):
    script = f"head -c {out} /dev/zero | tr '\\0' o; head -c {err} /dev/zero | tr '\\0' e >&2; exit 4"
    for _ in range(2):
        done = plain.once("k", "-q", "--", "sh", "-c", script)
        assert (done.stdout, done.stderr, done.status) == ("o" * out, "e" * err, 4)
        assert plain.known("k")["bytes"] == 8 + out + err
        script = "echo never"


@pytest.mark.parametrize("out, err", [(KEPT_MAX + 1, 0), (0, KEPT_MAX + 1), (KEPT_MAX, 1), (300000, 300000)])
def test_too_long(plain, out, err):
    script = f"head -c {out} /dev/zero | tr '\\0' o; head -c {err} /dev/zero | tr '\\0' e >&2; exit 4"
    first = plain.once("k", "--", "sh", "-c", script)
    said = f"{out + err} bytes of output are more than the {KEPT_MAX} that are kept of 'k': whoever asks later gets none of it, only the exit status"
    assert (first.stdout, first.stderr, first.status) == ("o" * out, "e" * err + f"holdfast: {said}\n", 4), "passed on in full"
    second = plain.once("k", *plain.counted("never"))
    assert second.status == 4 and second.stdout == "" and plain.runs() == []
    assert "'k' has been run" in second.stderr and "its output was too long to be kept" in second.stderr
    quiet = plain.once("k", "-q", *plain.counted("never"))
    assert quiet.stdout == "" and "its output was too long to be kept" in quiet.stderr, "no output must not look like its output"
    assert plain.known("k")["output_kept"] is False
    quiet = plain.once("other", "-q", "--", "sh", "-c", script)
    assert (quiet.stdout, quiet.stderr, quiet.status) == ("o" * out, "e" * err, 4)


# ---- what is not kept --------------------------------------------------------------------------------------------


def test_a_death_by_signal_is_not_kept(store):
    assert store.once("k", "--", "sh", "-c", "echo some; kill -9 $$").status == 137
    assert store.known("k")["state"] == "nothing"
    assert store.once("k", *store.counted("x")).stdout == "x\n"


@pytest.mark.parametrize("trap, status, state", [("-", 143, "nothing"), ('"exit 5"', 5, "nothing"), ('"exit 0"', 0, "done")])
def test_told_to_end(plain, trap, status, state):
    first = plain.begin("k", script=f"trap {trap} TERM; echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.02; done")
    first.kill(signal.SIGTERM)
    assert first.wait() == status
    assert plain.known("k")["state"] == state


def test_what_cannot_be_run_is_not_kept(plain, directory):
    assert plain.once("k", "--", "/no/such/program").status == 127
    text = directory / "text"
    text.touch(0o600)
    done = plain.once("k", "--", str(text))
    assert done.status == 126 and "cannot run" in done.stderr
    assert plain.known("k")["state"] == "nothing"


def test_only_success(plain):
    assert plain.once("k", "--only-success", "--", "sh", "-c", "echo no; exit 6").status == 6
    assert plain.known("k")["state"] == "nothing"
    first = plain.begin("k", "--only-success", script=JOB + "; exit 6")
    second = plain.wait_for("k", "--only-success")
    first.say("go")
    assert first.wait() == 6
    word, token = second.line().split()
    assert word == "mine" and int(token) > first.token and second.wait() == 0
    assert plain.once("k", "--only-success", *plain.counted("x")).stdout == f"mine {token}\n"


# ---- waiting -----------------------------------------------------------------------------------------------------


def test_not_waiting(plain):
    first = plain.begin("k")
    done = plain.once("k", "--no-wait", *plain.counted("x"))
    assert done.status == 75 and "'k' is not finished: run by" in done.stderr and f"token {first.token}" in done.stderr
    assert plain.once("k", "-n", "-E", "9", *plain.counted("x")).status == 9
    done = plain.once("k", "--wait", "200ms", "-q", *plain.counted("x"))
    assert (done.status, done.stderr) == (75, "")
    assert first.end() == 0 and plain.runs() == []
    assert plain.once("k", "-n", *plain.counted("x")).stdout.endswith("out go\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_leaves_nothing(plain, number):
    first = plain.begin("k", "--only-success", script=JOB + "; exit 1")
    second = plain.wait_for("k")
    second.kill(number)
    assert second.wait() == 128 + number
    first.say("go")
    assert first.wait() == 1
    assert plain.known("k")["state"] == "nothing"


def test_within_itself(plain):
    done = plain.once("k", "--", BIN, "once", "k", "--", "echo", "never")
    assert done.status == 64 and "would wait for itself" in done.stderr
    done = plain.once("a", "--", BIN, "once", "b", "--", "echo", "inside")
    assert (done.status, done.stdout) == (0, "inside\n")
    done = plain("run", "a", "--", BIN, "once", "a2", "--", BIN, "run", "a", "true")
    assert done.status == 64 and "already runs under the lock" in done.stderr


# ---- the job -----------------------------------------------------------------------------------------------------


def test_what_the_job_sees(plain):
    done = plain.once("a key", "--", "sh", "-c", "env | grep ^HOLDFAST_ | sort", env={"HOLDFAST_SEQUENCER": "outer", "HOLDFAST_LEASE": "x"})
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    seen.pop("HOLDFAST_MODULE_DIR", None)
    assert seen.pop("HOLDFAST_CLIENT_CONF") == "/dev/null"
    assert seen.pop("HOLDFAST_ONCE")
    token = seen.pop("HOLDFAST_TOKEN")
    assert seen == {"HOLDFAST_NAME": "a key", "HOLDFAST_URL": plain.url}
    assert plain.known("a key")["token"] == int(token)


def test_output_comes_as_it_is_written(plain):
    first = plain.begin("k", script="echo in $HOLDFAST_TOKEN $$; echo one; read line; echo two >&2; read line; echo three")
    assert first.line() == "one"
    first.say("")
    assert first.line("err") == "two"
    first.say("")
    assert first.line() == "three"
    assert first.wait() == 0


def test_a_reader_that_goes_away(plain, directory):
    """The job does its work all the same, and it is kept."""
    done = subprocess.run(f"{BIN} once k -- sh -c 'echo one; read line; seq 10000; echo end; exit 3' | head -1",
                          shell=True, env=plain.env, input="\n", capture_output=True, text=True, timeout=60)
    assert done.stdout == "one\n"
    again = plain.once("k", *plain.counted("never"))
    assert again.status == 3 and again.stdout.endswith("10000\nend\n")


def once_into(store, output, *words, stream="stdout", **kwargs):
    """Run with one of its outputs there, and the other one read, but for the line about a failure from before."""
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    done = subprocess.run([BIN, "once", "k", "--", "sh", "-c", *words], env=store.env, stdin=subprocess.DEVNULL, timeout=60,
                          text=True, **{stream: output, other: subprocess.PIPE}, **kwargs)
    return done.returncode, re.sub("holdfast: 'k' has been run, .* and failed .*\n", "", getattr(done, other))


@pytest.mark.parametrize("count", [1, 10000])
@pytest.mark.parametrize("status", [0, 3])
def test_output_that_cannot_be_written(plain, status, count):
    """Said by whoever ran it as by those who get it replayed, behind what the job wrote. A failure of the job's own counts
    for more."""
    script = f"seq {count}; echo more >&2; exit {status}"
    with open("/dev/full", "w") as full:
        first = once_into(plain, full, script)
        again = once_into(plain, full, script)
    assert first == (status or 69, "more\nholdfast: cannot write the output: No space left on device\n")
    assert again == first
    kept = plain.once("k", *plain.counted("never"))
    assert kept.status == status and kept.stdout.endswith(f"{count}\n"), "the result is the job's"


def test_errors_that_cannot_be_written(plain):
    """There is nowhere to say it."""
    with open("/dev/full", "w") as full:
        first = once_into(plain, full, "echo out; echo more >&2", stream="stderr")
        again = once_into(plain, full, "", stream="stderr")
    assert first == again == (69, "out\n")
    assert plain.once("k", *plain.counted("never")).status == 0


@pytest.mark.parametrize("count", [1, 10000])
@pytest.mark.parametrize("status", [0, 3])
def test_nobody_reads_it(plain, status, count):
    """Whoever went away has what they wanted; it is no failure."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    script = f"seq {count}; exit {status}"
    try:
        assert once_into(plain, write_end, script) == (status, "")
        # SIGPIPE is ignored, as Python has it.
        assert once_into(plain, write_end, script, restore_signals=False) == (status, "")
    finally:
        os.close(write_end)
    assert plain.once("k", *plain.counted("never")).stdout.endswith(f"{count}\n")


def test_a_slow_reader_loses_nothing(plain):
    process = subprocess.Popen([BIN, "once", "k", "--", "sh", "-c", "seq 100000; exit 7"], env=plain.env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    first = process.stdout.read(10)
    eventually(lambda: plain.known("k")["state"] == "running", "it runs, and waits for its reader")
    rest = process.stdout.read()
    assert process.wait(60) == 7
    assert (first + rest).decode() == "".join(f"{i}\n" for i in range(1, 100001))
    process.stdout.close()


def test_what_the_job_leaves_behind_is_not_waited_for(plain, directory):
    left = directory / "left"
    done = plain.once("k", "--", "sh", "-c", f"sleep 1000 & echo $! >{left}; echo over")
    try:
        assert (done.status, done.stdout) == (0, "over\n")
        assert plain.once("k", *plain.counted("never")).stdout == "over\n"
    finally:
        os.kill(int(left.read_text()), signal.SIGKILL)


def test_closed_outputs(plain):
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        key = "k" + closed
        done = subprocess.run(f"exec {BIN} once '{key}' -- sh -c 'echo out; echo err >&2; exit 5' {closed}", shell=True,
                              env=plain.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 5
        known = plain.known(key)
        assert (known["stdout_bytes"], known["stderr_bytes"]) == (4, 4)


# ---- showing -----------------------------------------------------------------------------------------------------


def test_show(store):
    assert store.known("k") == {"name": "k", "state": "nothing"}
    assert store.once("k", "--show").stdout == "k: nothing is known of it\n"
    first = store.begin("k", "--owner", "somebody")
    known = store.known("k")
    assert (known["state"], known["token"], known["owner"]) == ("running", first.token, "somebody")
    assert 0 <= known["age_ms"] < 60000
    assert "k: run by somebody, token " in store("once", "--show", "k").stdout
    first.end()
    known = store.known("k")
    left = known.pop("left_ms")
    assert 86000000 < left <= 86400000
    size = len(f"in {first.token} {first.job}\nout go\n")
    assert known == {"name": "k", "state": "done", "token": first.token, "bytes": 8 + size, "status": 0, "output_kept": True,
                     "stdout_bytes": size, "stderr_bytes": 0}
    assert f"exit status 0, {size} bytes of output, 0 of errors" in store.once("k", "--show").stdout


@pytest.mark.parametrize("record", ["", "x", "\1\0\0\0\0\0\0", "\2\0\0\0\0\0\0\0", "\1\0\2\0\0\0\0\0", "\1\0\0\1\0\0\0\0",
                                    "\1\0\0\0\0\0\0\2x", "\1\0\1\0\0\0\0\0x", "\1\0\0\0\x7f\x7f\x7f\x7fxyz"])
def test_what_somebody_else_kept(holdfast, record):
    """Bytes from outside are looked at before they are believed."""
    with holdfast.server.connect() as client:
        _, token = client.cmd("ONCE", "CLAIM", "k", "l")
        client.cmd("ONCE", "FINISH", "k", "l", "TOKEN", token, "KEEP", 60000, record)
    done = holdfast.once("k", *holdfast.counted("never"))
    assert (done.status, done.stdout) == (77, "") and "not written by 'holdfast once'" in done.stderr
    assert holdfast.known("k")["bytes"] == len(record) and "status" not in holdfast.known("k")
    assert f"{len(record)} bytes that 'holdfast once' did not write" in holdfast.once("k", "--show").stdout


@pytest.mark.parametrize("words, text", [
    ([], "which key?"), (["k"], "which command?"), (["k", "--if-died", "perhaps", "true"], "not one of rerun, fail"),
    (["k", "--keep", "0", "true"], "--keep"), (["k", "--show", "true"], "leave the command out"),
    (["k", "--json", "true"], "--json with --show only"), (["k", "--shared", "true"], "unknown option"),
    (["", "true"], "a key must not be empty"), (["k", "--ttl", "1ms", "true"], "--ttl")])
def test_usage(cli, words, text):
    done = cli("once", *words)
    assert done.status == 64 and text in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_ttl_where_there_is_none(cli):
    done = cli("once", "k", "--ttl", "5s", "--", "true")
    assert done.status == 64
    assert "has no TTL" in done.stderr or "keeps no once-records" in done.stderr


@pytest.mark.parametrize("seconds", [864000, 7200, -3600])
def test_in_a_time_namespace(directory, seconds):
    """On files: a result that is kept for a day is known for that day to a container whose clock was moved, and no longer."""
    for made in once_cli.make("file", directory):
        prefix = namespaces.moved_clock(seconds)

        def inside(*args, made=made, prefix=prefix):
            return subprocess.run([*prefix, BIN, "once", *args], env=made.env, capture_output=True, text=True, timeout=120)

        assert made.once("out", "--keep", "24h", *made.counted("x")).stdout == "x\n"
        assert inside("in", "--keep", "24h", *made.counted("y")).stdout == "y\n"
        assert inside("out", *made.counted("again")).stdout == "x\n"
        assert made.once("in", *made.counted("again")).stdout == "y\n"
        assert len(made.runs()) == 2
        for key in ("out", "in"):
            for shown in (made.once(key, "--show", "--json").stdout, inside(key, "--show", "--json").stdout):
                assert 86400000 - 600000 < json.loads(shown)["left_ms"] <= 86400000, "as seen by both"


def test_under_another_boot_id(directory):
    """On files: known for longer, perhaps, and never shorter."""
    for made in once_cli.make("file", directory):
        prefix = namespaces.other_boot_id(directory)
        assert made.once("k", "--keep", "24h", *made.counted("x")).stdout == "x\n"
        again = subprocess.run([*prefix, BIN, "once", "k", *made.counted("again")], env=made.env, capture_output=True,
                               text=True, timeout=120)
        assert again.stdout == "x\n" and len(made.runs()) == 1
        assert made.once("k", *made.counted("again")).stdout == "x\n"


@pytest.mark.parametrize("key, why", [("", "a key must not be empty"), ("k" * 513, "a key has at most 512 bytes")], ids=["none", "long"])
def test_a_key_is_called_one(store, key, why):
    done = store.once(key, "--", "true")
    assert done.status == 64 and why in done.stderr and "lock" not in done.stderr, done.stderr
