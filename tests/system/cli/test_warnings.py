"""What a store warns of: the command prints it where somebody reads it, the library never."""
import http.server
import json
import os
import pty
import re
import subprocess
import sys
import threading

import pytest
from holdfast_cli import BIN, Cli

# A program whose standard error was closed: its next file has the number 2.
PROGRAM = """
import ctypes, os, sys
library, url, path, hears = sys.argv[1:]
os.close(2)
os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
os.write(2, b"my data\\n")
library = ctypes.CDLL(library)
class Warning(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("scheme", ctypes.c_char_p), ("text", ctypes.c_char_p)]
def hear(warning, arg):
    print(arg, warning.contents.scheme.decode(), warning.contents.text.decode())
handler = ctypes.CFUNCTYPE(None, ctypes.POINTER(Warning), ctypes.c_void_p)(hear)
if hears == "yes":
    library.hf_set_warning_handler(handler, ctypes.c_void_p(7))
store = ctypes.c_void_p()
assert library.hf_open(url.encode(), ctypes.byref(store)) == 0
library.hf_close(store)
"""


@pytest.mark.parametrize("hears", ["yes", "no"])
def test_the_library_writes_to_no_file_of_the_program(cli, directory, hears):
    data, fresh = directory / "data", directory / "fresh"
    done = subprocess.run([sys.executable, "-c", PROGRAM, os.environ["HF_LIBRARY"], f"file:{fresh}", data, hears], env=cli.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and data.read_text() == "my data\n"
    assert done.stdout == (f"7 file made a file store in {fresh}, for locks on this machine only\n" if hears == "yes" else "")


@pytest.mark.parametrize("words", [["run", "x", "--", "true"], ["once", "x", "--", "true"], ["ls"], ["break", "x"]], ids=" ".join)
def test_quiet_means_warnings_too(cli, directory, words):
    fresh = directory / "fresh"
    done = cli("--on", f"file:{fresh}", words[0], "-q", *words[1:])
    assert (done.status, done.stderr) == (0, "") and fresh.is_dir()
    done = cli("--on", f"file:{directory}/other", *words)
    assert done.stderr == f"holdfast: made a file store in {directory}/other, for locks on this machine only\n"


# ---- an old etcd -------------------------------------------------------------------------------------------------


class Gateway(http.server.BaseHTTPRequestHandler):
    """Of an etcd in which there is nothing, and which has a known fault."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        header = {"cluster_id": "7", "member_id": "8", "revision": "1", "raft_term": "2"}
        answer = {"header": header, "version": "3.4.23"} if self.path.endswith("/status") else {"header": header}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def old_etcd():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        cli = Cli(f"etcd://127.0.0.1:{server.server_address[1]}")
        if "cannot be used here" in cli("stores").stdout.split("etcd://")[1].split("\n\n")[0]:
            pytest.skip("no etcd store in this build")
        yield cli
        cli.clean()
        server.shutdown()


def test_what_cron_would_mail_with_every_job(old_etcd):
    """That a server is old is for people, and for whoever asks about stores."""
    done = old_etcd("ls")
    assert (done.status, done.stderr) == (0, "")
    done = old_etcd("stores")
    assert done.status == 0 and "is etcd 3.4.23: after a crash during a compaction" in done.stderr
    ours, theirs = pty.openpty()
    subprocess.run([BIN, "ls"], env=old_etcd.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    assert b"is etcd 3.4.23" in os.read(ours, 4096)
    os.close(ours)


@pytest.mark.parametrize("words", [[], ["--json"]], ids=str)
def test_stores_of_a_server_that_is_not_there(words):
    """It is said, once and with how long that took, and the list is there."""
    done = Cli("redis://127.0.0.1:1")("stores", *words)
    assert done.status == 0 and "redis://127.0.0.1:1" in done.stdout.splitlines()[-1]
    assert re.fullmatch(r"holdfast: the store in effect cannot be used now \(asked for [\d.]+ m?s\): .*Connection refused.*\n", done.stderr), done.stderr
