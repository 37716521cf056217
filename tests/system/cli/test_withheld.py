"""The file store: a name that was broken by one who was killed stays withheld, however the machine looks to those who
come: from a container with another boot id or a moved clock, or with too few descriptors to break it."""
import re
import resource
import signal
import subprocess

import namespaces
import pytest
from holdfast_cli import BIN, eventually, shell_status

TEN_DAYS = 864000


@pytest.fixture
def withheld(cli):
    """The old holder: told, and still there. Whoever broke it is dead."""
    holder = cli.hold("x", "--on-lost", "ignore")
    breaker = cli.start("break", "x", "--grace", "1h")
    assert "lost 'x'" in holder.line("err")
    breaker.kill(signal.SIGKILL)
    breaker.wait()
    return holder


def seen_from(cli, prefix, *args):
    done = subprocess.run([*prefix, BIN, *args], env=cli.env, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    done.status = shell_status(done.returncode)
    return done


def stays_withheld(cli, holder, prefix):
    tried = seen_from(cli, prefix, "run", "--no-wait", "x", "true")
    assert tried.status == 75, "it was given away while its old holder was at work"
    assert "withheld after a break" in tried.stderr, tried.stderr
    shown = seen_from(cli, prefix, "show", "x").stdout
    left = re.search(r"nobody holds it: withheld after a break or a lock-delay, for another (\S+ \S+)", shown)
    assert left and ("min" in left[1] or left[1] == "1 h"), shown
    assert cli("run", "--no-wait", "x", "true").status == 75, "a look must not lift it for others"
    holder.end()
    assert seen_from(cli, prefix, "run", "--no-wait", "x", "true").status == 0


def test_from_under_another_boot_id(cli, withheld, directory):
    stays_withheld(cli, withheld, namespaces.other_boot_id(directory))


@pytest.mark.parametrize("seconds", [TEN_DAYS, 7200])
def test_from_a_time_namespace(cli, withheld, seconds):
    stays_withheld(cli, withheld, namespaces.moved_clock(seconds))


def test_broken_from_a_time_namespace(cli):
    """Not for longer than the grace either: the clocks of both are ten days apart."""
    prefix = namespaces.moved_clock(TEN_DAYS)
    holder = cli.hold("x", "--on-lost", "ignore")
    breaker = subprocess.Popen([*prefix, "--kill-child", BIN, "break", "x", "--grace", "3s"], env=cli.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert "lost 'x'" in holder.line("err")
    breaker.kill()
    breaker.wait()
    assert cli("run", "--wait", "20s", "x", "true").status == 0
    holder.end()


def test_broken_with_few_descriptors(cli):
    """Each number of them: either it is not broken, and that is said, or it is withheld as it would be with many."""
    outcomes, said = set(), []
    for count in range(4, 16):
        holder = cli.hold("x", "--on-lost", "ignore")
        breaker = cli.start("break", "x", "--grace", "1h",
                            preexec_fn=lambda n=count: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        eventually(lambda: holder.queues["err"].qsize() or breaker.popen.poll() is not None, "broken, or refused")
        broken = breaker.popen.poll() is None
        if broken:
            breaker.kill(signal.SIGKILL)
            breaker.wait()
        else:
            said.append("\n".join(breaker.rest("err")))
            assert breaker.wait() != 0, "it did not wait for its holder"
        outcomes.add(broken)
        assert cli("run", "--no-wait", "x", "true").status == 75, f"given away, with {count} descriptors"
        holder.end()
    assert outcomes == {True, False}
    assert all("Too many open files" in text or "shared libraries" in text for text in said), said
