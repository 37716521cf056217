"""Ours beside kazoo's Lock and Curator's InterProcessMutex on the same path: never two inside."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from holdfast_cli import BIN, PATIENCE, SOAK, Cli

HERE = pathlib.Path(__file__).resolve().parent
PROCESSES, ROUNDS = (8, 500) if SOAK else (3, 10)
JARS = ("curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api",
        "slf4j-nop", "netty-all", "snappy-java", "metrics-core")
CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS)
# Ours take the lock anew with each round, each time in a process and a session of its own.
OURS = 'i=0; while [ $i -lt "$1" ]; do "$2" run one -- sh -c \'mkdir "$0" && rmdir "$0"\' "$3" || exit; i=$((i+1)); done'


def ours(url, directory, rounds=ROUNDS):
    return subprocess.Popen(["sh", "-c", OURS, "sh", str(rounds), BIN, str(directory)], env=Cli(url).env)


def race(url, theirs, directory):
    """All at once: theirs are slow to start."""
    others = [subprocess.Popen([*theirs, str(ROUNDS), str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
              for _ in range(PROCESSES)]
    for process in others:
        assert process.stdout.readline() == b"ready\n"
    processes = [ours(url, directory) for _ in range(PROCESSES)]
    for process in others:
        process.stdin.write(b"\n")
        process.stdin.flush()
    statuses = [process.wait(PATIENCE * (40 if SOAK else 4)) for process in others + processes]
    assert statuses == [0] * len(statuses)


def test_kazoo_and_we_are_never_inside_together(ensemble, tmp_path):
    race(ensemble.url("/kazoo?names=kazoo"),
         [sys.executable, str(HERE / "contender.py"), ensemble.hosts, "/kazoo/one"], tmp_path / "inside")


@pytest.fixture(scope="module")
def contender(tmp_path_factory):
    if not shutil.which("javac") or not os.path.exists("/usr/share/java/curator-recipes.jar"):
        pytest.skip("needs javac and libcurator-recipes-java")
    made = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", CLASSPATH, "-d", str(made), str(HERE / "Contender.java")], check=True)
    return ["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{made}:{CLASSPATH}", "Contender"]


def test_curator_and_we_are_never_inside_together(ensemble, contender, tmp_path):
    race(ensemble.url("/curator?names=curator"), [*contender, ensemble.hosts, "/curator/one"], tmp_path / "inside")


def test_kazoos_holder_is_shown_and_followed(ensemble, cli_on):
    """And ours by kazoo: in one queue, in its order."""
    cli = cli_on(ensemble.url("/queue?names=kazoo"))
    kazoo = ensemble.kazoo()
    lock = kazoo.Lock("/queue/one", "somebody with kazoo")
    lock.acquire()
    assert [holder["owner"] for holder in cli.show("one")["holders"]] == ["somebody with kazoo"]
    waiter = cli.start("run", "one", "--", "sh", "-c", "echo in; read line")
    cli.await_waiters("one")
    assert len(lock.contenders()) == 2
    lock.release()
    assert waiter.line() == "in"
    assert not kazoo.Lock("/queue/one").acquire(blocking=False)
    assert waiter.end() == 0
    assert kazoo.Lock("/queue/one").acquire(blocking=False)


def test_a_break_says_that_kazoo_is_not_told(ensemble, cli_on):
    """It does not look at its node again. Ours are told at once, and let go."""
    cli = cli_on(ensemble.url("/broken?names=kazoo"))
    for options in ([], ["--now"]):
        ensemble.kazoo().Lock("/broken/one").acquire()
        said = cli("break", "one", *options).stdout
        assert "broke 1 hold" in said and "it is not told, and goes on until it looks by itself" in said, said
        assert "The name is free at once." in said and "is told at once" not in said, said
        assert cli("run", "-n", "one", "--", "true").status == 0
    ours = cli.start("run", "--ttl", "20s", "one", "--", "sh", "-c", "echo in; exec sleep 100")
    assert ours.line() == "in"
    assert "The holder has let go, and others can have the name.\n" in cli("break", "one").stdout
    assert ours.wait() == 76
    assert cli("run", "-n", "one", "--", "true").status == 0  # long before its TTL
    stopped = cli.start("run", "--ttl", "20s", "one", "--", "sh", "-c", "echo in; read line")
    assert stopped.line() == "in"
    stopped.kill(signal.SIGSTOP)
    said = cli("break", "one", "--grace", "100ms").stdout
    assert "The holder is told at once if it can be reached. Nobody else gets the name before " in said, said
    assert ", or the holder has let go (--now frees it at once).\n" in said, said
    stopped.kill(signal.SIGCONT)


def test_without_their_names_their_path_is_refused(ensemble, cli_on):
    """Else both would be inside: each looks for names of its own."""
    cli = cli_on(ensemble.url("/other"))
    ensemble.kazoo().Lock("/other/one").acquire()
    done = cli("run", "one", "--", "true")
    assert done.status == 77
    assert "is no lock of ours" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert cli("run", "two", "--", "true").status == 0
