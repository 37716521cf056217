"""Other processes that hold or wait for a lock through the library: tests/conformance/helper.c, told by HF_HOLDER.

    hold(url, "x", "ttl=1000")       a Holder that is inside
    Holder(url, "x", "ttl=1000")     one that has begun to ask; .token waits until it is inside

The fixture hold ends what it started, also when the test fails; import it beside the class.
"""
import os
import queue
import signal

import pytest
from conftest import PATIENCE, ROOT, Process, die_with_parent

HOLDER = os.environ.get("HF_HOLDER", str(ROOT / "build-check/tests/conformance/conformance"))


class Holder:
    """words: ttl=MS mode=shared permits=N delay=MS. env: more than what there is."""

    def __init__(self, url, name, *words, env=None):
        self.process = Process([HOLDER, "--hold", url, name, *words], {**os.environ, **(env or {})},
                               preexec_fn=die_with_parent)
        self.lost = False
        self._token = None

    @property
    def pid(self):
        return self.process.pid

    def hear(self, word, patience=PATIENCE):
        """The rest of the next line that begins with this word. On the way there, it may say that it lost the lock."""
        while True:
            first, _, rest = self.process.line(patience=patience).partition(" ")
            if first == word:
                return rest
            assert first == "lost", f"{first} {rest}"
            self.lost = True

    @property
    def token(self):
        """Waits until it is inside."""
        if self._token is None:
            self._token = int(self.hear("held"))
        return self._token

    def waits(self):
        """Has it not got the lock, as far as it has said?"""
        return self._token is None and self.process.queues["out"].empty()

    def ask_left(self):
        """As .left(), without waiting for the answer: of a paused one, what it says when it goes on."""
        self.process.say("left")

    def hear_left(self):
        return int(self.hear("left"))

    def left(self):
        """In ms, as the holder believes."""
        self.ask_left()
        return self.hear_left()

    def await_lost(self, patience=PATIENCE):
        if not self.lost:
            line = self.process.line(patience=patience)
            assert line == "lost", line
            self.lost = True

    def told_lost(self):
        """Has it said so by now? Does not wait."""
        try:
            line = None if self.lost else self.process.queues["out"].get_nowait()
        except queue.Empty:
            return False
        assert line in (None, "lost"), line
        self.lost = True
        return True

    def ask_release(self):
        self.process.say("release")

    def hear_released(self, patience=PATIENCE):
        return self.hear("released", patience)

    def release(self):
        """The result's name: "HF_OK"."""
        self.ask_release()
        return self.hear_released()

    def ask_again(self, name):
        """With the same handle, after a release."""
        self._token = None
        self.lost = False
        self.process.say(f"again {name}")

    def pause(self):
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """As kill -9 would. Works on a paused one, and more than once."""
        if self.process.popen.poll() is None:
            self.process.popen.kill()
            self.process.popen.wait()


@pytest.fixture
def start_holder(servers):
    """Holder(...), ended before the servers are."""
    def start(url, name, *words, env=None):
        holder = Holder(url, name, *words, env=env)
        servers.stack.callback(holder.kill)
        return holder

    return start


@pytest.fixture
def hold(start_holder):
    """The same, and it is inside."""
    def start(url, name, *words, env=None):
        holder = start_holder(url, name, *words, env=env)
        assert holder.token > 0
        return holder

    return start
