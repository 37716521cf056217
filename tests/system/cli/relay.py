"""hf-relay, told by HF_RELAY: a TCP relay that cuts, slows and loses what passes."""
import collections
import os
import subprocess

from holdfast_cli import ROOT, Process, die_with_parent

RELAY = os.environ.get("HF_RELAY", str(ROOT / "build-check/tests/lib/servers/hf-relay"))
STOP_MAX = 5  # seconds until one that was asked to end is killed

Counts = collections.namedtuple("Counts", "connections up_bytes down_bytes up_chunks down_chunks")


class Relay:
    """To a port of 127.0.0.1; tests/lib/servers/hf_relay.c says what the orders do. Each returns when it is done."""

    def __init__(self, upstream_port):
        self.process = Process([RELAY, f"127.0.0.1:{upstream_port}"], dict(os.environ), preexec_fn=die_with_parent)
        word, port = self.process.line().split()
        assert word == "port"
        self.port = int(port)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def say(self, line):
        """What it answered before its "ok"."""
        self.process.say(line)
        lines = []
        while (answer := self.process.line()) != "ok":
            assert not answer.startswith("error"), (line, answer)
            lines.append(answer)
        return lines

    def delay(self, up_ms, down_ms):
        self.say(f"delay {up_ms} {down_ms}")

    def cut(self, which="both"):
        self.say(f"cut {which}")

    def heal(self):
        self.say("heal")

    def drop(self, which, chunks=1):
        self.say(f"drop {which} {chunks}")

    def reset(self):
        self.say("reset")

    def count(self):
        (line,) = self.say("count")
        return Counts(*map(int, line.split()[1:]))

    def open(self):
        """Connections that it has now."""
        (line,) = self.say("open")
        return int(line.split()[1])

    def stop(self):
        if self.process.popen.poll() is None:
            self.process.popen.stdin.close()
            try:
                self.process.popen.wait(STOP_MAX)
            except subprocess.TimeoutExpired:
                self.process.popen.kill()
                self.process.popen.wait()
