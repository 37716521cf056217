"""The command as a black box: the classes and helpers that the test suites share.

Told by the environment, which meson and tools/check set: HOLDFAST_BIN (the built program), HOLDFAST_MODULE_DIR (where
the test store's module is), HF_FAULTS (the program that makes the test store fail), HF_SOAK=1 (the long forms). Jobs
say what they do on their output, and tests wait for that, not for time to pass.
"""
import ctypes
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = os.environ.get("HOLDFAST_BIN", str(ROOT / "build-check/src/cli/holdfast"))
FAULTS = os.environ.get("HF_FAULTS", "")
SOAK = os.environ.get("HF_SOAK") == "1"
PATIENCE = float(os.environ.get("HF_PATIENCE", "30"))  # seconds until a test gives up on an event

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1

# nohup, and a shell that starts something with &, have these ignored by all that is started.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def die_with_parent():
    """In the child, before its exec. It dies with the thread that started it, so that is the main thread."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def shell_status(returncode):
    """The status as a shell shows it in $?."""
    return 128 - returncode if returncode < 0 else returncode


def eventually(condition, what, patience=PATIENCE):
    """For state that nothing announces (a place in a queue)."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("did not happen: " + what)


class Process:
    """A started holdfast. Lines of both outputs are read by threads, so that nothing ever blocks on them."""

    def __init__(self, argv, env, **kwargs):
        self.popen = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, errors="surrogateescape", **kwargs)
        self.pid = self.popen.pid
        self.queues = {"out": queue.Queue(), "err": queue.Queue()}
        for name, stream in (("out", self.popen.stdout), ("err", self.popen.stderr)):
            threading.Thread(target=self._pump, args=(stream, self.queues[name]), daemon=True).start()

    @staticmethod
    def _pump(stream, to):
        for line in stream:
            to.put(line.rstrip("\n"))
        to.put(None)

    def line(self, which="out", patience=PATIENCE):
        try:
            line = self.queues[which].get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"no line on std{which}") from None
        assert line is not None, f"std{which} ended; exit status {self.wait()}"
        return line

    def rest(self, which="out"):
        lines = []
        while (line := self.queues[which].get(timeout=PATIENCE)) is not None:
            lines.append(line)
        return lines

    def say(self, text):
        self.popen.stdin.write(text + "\n")
        self.popen.stdin.flush()

    def kill(self, number):
        os.kill(self.pid, number)

    def wait(self, patience=PATIENCE):
        return shell_status(self.popen.wait(patience))

    def end(self):
        """Lets a job that reads its input go, and expects it to end well."""
        try:
            self.say("go")
            self.popen.stdin.close()
        except BrokenPipeError:
            pass
        return self.wait()


class Cli:
    """The program on one store."""

    def __init__(self, url, module_dir=None):
        self.url = url
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        for kept in ("HOLDFAST_MODULE_DIR", "HOLDFAST_MUTANT"):  # the latter: tools/mutants
            if os.environ.get(kept):
                self.env[kept] = os.environ[kept]
        self.env["HOLDFAST_URL"] = url
        self.env["HOLDFAST_CLIENT_CONF"] = "/dev/null"  # not that of whoever runs the tests
        self.started = []

    def __call__(self, *args, env=None, **kwargs):
        """Runs to its end. Adds .status, as a shell would see it."""
        kwargs.setdefault("timeout", PATIENCE * 4)
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run([BIN, *args], env={**self.env, **(env or {})}, capture_output=True, text=True,
                              errors="surrogateescape", **kwargs)
        done.status = shell_status(done.returncode)
        return done

    def start(self, *args, env=None, **kwargs):
        process = Process([BIN, *args], {**self.env, **(env or {})}, **kwargs)
        self.started.append(process)
        return process

    def hold(self, name, *options, script="echo in $HOLDFAST_TOKEN $$; read line"):
        """A job that holds `name` until its input ends; returns it when it is inside."""
        process = self.start("run", *options, name, "--", "sh", "-c", script)
        word, token, pid = process.line().split()
        assert word == "in"
        process.token, process.job = int(token), int(pid)
        return process

    def show(self, name):
        done = self("show", name, "--json")
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)

    def await_waiters(self, name, count=1):
        return eventually(lambda: len(self.show(name)["waiters"]) == count, f"{count} waiting for {name}")

    def await_free(self, name):
        return eventually(lambda: not self.show(name)["holders"], f"{name} free")

    def clean(self):
        for process in self.started:
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()


def is_running(pid):
    """Alive and not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_gone(pid):
    return eventually(lambda: not is_running(pid), f"end of process {pid}")


def objects(done):
    """What --json printed."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def only_line(text):
    lines = text.splitlines()
    assert len(lines) == 1 and lines[0].startswith("holdfast: "), text
    return lines[0]
