"""What the tokens of a new directory begin at: the wall clock, in microseconds; and never those of one that is not new."""
import glob
import shutil
import threading
import time

import pytest
from holdfast_cli import only_line


def now_us():
    return time.time_ns() // 1000


def clock(text):
    """An environment in which the wall clock shows this."""
    (library,) = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return {"LD_PRELOAD": library, "FAKETIME": text, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


def run(cli, **kwargs):
    """The command: its token, and what was said besides."""
    done = cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN", **kwargs)
    assert done.status == 0, done.stderr
    return int(done.stdout), done.stderr


def test_it_is_the_clock(cli):
    before = now_us()
    token, said = run(cli)
    assert before < token <= now_us() + 1 and said == ""
    assert run(cli) == (token + 1, "")


def test_a_directory_that_was_lost_goes_on_above(cli, directory):
    """So a guard that has seen tokens of the first one takes those of the second."""
    old, _ = run(cli)
    shutil.rmtree(directory / "locks")
    (directory / "locks").mkdir(mode=0o700)
    new, _ = run(cli)
    assert new > old


@pytest.mark.parametrize("text", ["+3000d", "-3000d", "@2001-02-03 04:05:06"])
def test_one_with_data_never_jumps(cli, text):
    token, _ = run(cli)
    assert run(cli, env=clock(text)) == (token + 1, "")
    assert run(cli) == (token + 2, "")


@pytest.mark.parametrize("text", ["@2001-02-03 04:05:06", "@2019-12-30 12:00:00", "@2100-01-03 12:00:00"])
def test_a_clock_that_is_wrong(cli, directory, text):
    """It is said aloud, once, and the store works: tokens begin at 1, and can be raised."""
    token, said = run(cli, env=clock(text))
    line = only_line(said)
    assert token == 1 and "wall clock" in line and str(directory / "locks") in line and "holdfast floor" in line
    assert run(cli, env=clock(text)) == (2, "")
    assert cli("floor", "5000").status == 0
    assert run(cli) == (5001, "")


def test_many_find_it_new_at_once(cli):
    """One of them has its way, and no token is given twice."""
    before, tokens = now_us(), []
    threads = [threading.Thread(target=lambda: tokens.append(run(cli)[0])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 12 and sorted(tokens) == list(range(min(tokens), min(tokens) + 12)) and min(tokens) > before
