"""At the port of the URL is something else than ZooKeeper. That is said, and not waited for."""
import contextlib
import importlib.util
import os
import socket
import threading
import time

import pytest
from holdfast_cli import ROOT

SOON = 10  # seconds; about 2 are promised, and `run` would wait for ever


def start_holdfastd(stack):
    if not os.path.exists(os.environ.get("HF_SERVER", "")):
        pytest.skip("HF_SERVER is not set, or not there: no holdfastd")
    spec = importlib.util.spec_from_file_location("holdfastd_conftest", ROOT / "tests/system/holdfastd/conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Holdfastd()
    stack.callback(server.clean)
    return server.port


def start_plain(answer):
    """A server that gives this answer to whatever it gets, and leaves closing to the client. None: what it got."""

    def serve(connection):
        with connection, contextlib.suppress(OSError):  # the client may reset it
            while got := connection.recv(4096):
                connection.sendall(got if answer is None else answer)

    def accept(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def start(stack):
        listener = socket.create_server(("127.0.0.1", 0))
        stack.callback(listener.close)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        return listener.getsockname()[1]

    return start


@pytest.mark.parametrize("start, says", [
    (start_holdfastd, "it says '-ERR "),
    (start_plain(b"what?\x1b[31m\nmore"), "it says 'what??[31m'"),
    # Its echo looks like a handshake that grants a session of no time.
    (start_plain(None), "it says 'srvr'"),
], ids=["holdfastd", "nonsense", "echo"])
@pytest.mark.parametrize("words", [("run", "one", "--", "true"), ("ls",), ("show", "one")], ids=lambda words: words[0])
def test_a_server_that_is_no_zookeeper_is_not_waited_for(cli_on, servers, start, says, words):
    port = start(servers.stack)
    cli = cli_on(f"zookeeper://127.0.0.1:{port}/foreign")
    began = time.monotonic()
    done = cli(*words)
    assert done.status == 69
    assert time.monotonic() - began < SOON
    (line,) = done.stderr.splitlines()
    assert f"what is at 127.0.0.1:{port} is no ZooKeeper server" in line
    assert says in line
