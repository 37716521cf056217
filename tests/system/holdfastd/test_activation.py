"""Sockets that somebody else has opened: systemd, by holdfastd.socket. Here it is this test that hands them on."""
import os
import signal
import socket
import sys

import pytest
from conftest import PATIENCE, Client, Process, argv_of, die_with_parent, environment, free_port, pack

# Arguments: LISTEN_FDS, whose LISTEN_PID it is, the descriptors, then the command. As systemd does it: from descriptor 3 on.
HAND_ON = """
import os, sys
count, pid, given, command = sys.argv[1], sys.argv[2], [int(fd) for fd in sys.argv[3].split(",") if fd], sys.argv[4:]
high = [os.dup2(fd, 200 + at, inheritable=False) for at, fd in enumerate(given)]
os.closerange(3, 200)
for at, fd in enumerate(high):
    os.dup2(fd, 3 + at)
os.environ.update(LISTEN_FDS=count, LISTEN_PID=pid or str(os.getpid()))
os.execv(command[0], command)
"""


def listener(address, listens=True, kind=socket.SOCK_STREAM):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    made = socket.socket(family, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    if listens:
        made.listen()
    return made


class Started:
    """A holdfastd that was handed these sockets. They stay open here, as they do in systemd."""

    def __init__(self, folder, sockets, listen, *args, count=None, pid=""):
        fds = [one.fileno() for one in sockets]
        argv = [sys.executable, "-c", HAND_ON, str(len(fds) if count is None else count), pid, ",".join(map(str, fds)),
                *argv_of("--data", folder / "data", "--listen", listen, *args)]
        self.process = Process(argv, environment(), pass_fds=fds, preexec_fn=die_with_parent)
        self.log = []

    def until(self, word):
        while True:
            line = self.process.queues["err"].get(timeout=PATIENCE)
            assert line is not None, f"no line with '{word}': {self.log}"
            self.log.append(line)
            if word in line:
                return self

    def end(self, how=signal.SIGTERM):
        os.kill(self.process.pid, how)
        return self.process.popen.wait(PATIENCE)


@pytest.fixture
def handed(tmp_path):
    """handed(SOCKETS, LISTEN, ...): a Started, ended after the test; so are the sockets."""
    made, sockets = [], []

    def start(given, listen, *args, **options):
        sockets.extend(given)
        made.append(Started(tmp_path, given, listen, *args, **options))
        return made[-1]

    yield start
    for one in made:
        if one.process.popen.poll() is None:
            one.end(signal.SIGKILL)
    for one in sockets:
        one.close()


def at(port, host="127.0.0.1"):
    return f"{host}:{port}"


def test_a_socket_that_was_handed_on_is_served(handed):
    port = free_port()
    handed([listener(("127.0.0.1", port))], at(port)).until(" serving ")
    with Client(("127.0.0.1", port)) as client:
        assert client.cmd("PING") == "PONG"


def test_who_comes_during_a_restart_waits_and_is_served(handed):
    port = free_port()
    socket_ = listener(("127.0.0.1", port))
    assert handed([socket_], at(port)).until(" serving ").end() == 0
    with Client(("127.0.0.1", port)) as client:  # refused if the socket had gone with the server
        client.send("PING")
        handed([socket_], at(port)).until(" serving ")
        assert client.read() == "PONG"


def test_several_and_one_of_our_own(handed, tmp_path):
    """In another order than in `listen`; a unix socket's file stays, since it is not ours; what was not handed on is opened."""
    first, second, third = free_port(), free_port(), free_port()
    path = str(tmp_path / "s")
    server = handed([listener(path), listener(("127.0.0.1", second)), listener(("::1", third, 0, 0))],
                    f"{at(first)},{at(second, 'localhost')},{at(third, '[::1]')},unix:{path}").until(" serving ")
    for address in (("127.0.0.1", first), ("127.0.0.1", second), path):
        with Client(address) as client:
            assert client.cmd("PING") == "PONG"
    with socket.create_connection(("::1", third), PATIENCE) as client:
        client.sendall(pack("PING"))
        assert client.recv(7) == b"+PONG\r\n"
    assert server.end() == 0
    assert os.path.exists(path)


def test_a_socket_that_listen_does_not_name_is_refused(handed):
    """The rule that a password is needed beyond this machine is about `listen`: nothing else may be reached."""
    port, other = free_port(), free_port()
    server = handed([listener(("0.0.0.0", other))], at(port))
    server.until(f"a socket at 0.0.0.0:{other}, which is not in 'listen'")
    assert server.process.popen.wait(PATIENCE) == 69


def test_the_same_port_of_another_address_is_another_socket(handed):
    port = free_port()
    server = handed([listener(("127.0.0.2", port))], at(port))
    server.until(f"127.0.0.2:{port}, which is not in 'listen'")
    assert server.process.popen.wait(PATIENCE) == 69


def test_what_is_for_another_process_is_left_alone(handed):
    """An inherited LISTEN_PID: the socket is somebody else's, and ours is opened."""
    port = free_port()
    handed([listener(("127.0.0.1", free_port()))], at(port), pid="1").until(" serving ")
    with Client(("127.0.0.1", port)) as client:
        assert client.cmd("PING") == "PONG"


@pytest.mark.parametrize("count, words", [("17", "not a number up to 16"), ("-1", "not a number"), ("1x", "not a number"),
                                          ("", "not a number"), ("2", "descriptor 4 is no socket")])
def test_a_count_that_cannot_be_is_refused(handed, count, words):
    port = free_port()
    server = handed([listener(("127.0.0.1", port))], at(port), count=count)
    server.until(words)
    assert server.process.popen.wait(PATIENCE) == 69


def test_what_does_not_listen_for_streams_is_refused(handed):
    for made in (listener(("127.0.0.1", free_port()), listens=False),
                 listener(("127.0.0.1", free_port()), listens=False, kind=socket.SOCK_DGRAM)):
        server = handed([made], at(free_port()))
        server.until("descriptor 3 is no socket that listens for streams")
        assert server.process.popen.wait(PATIENCE) == 69


def test_a_file_is_no_socket(handed, tmp_path):
    with open(tmp_path / "file", "w", encoding="utf-8") as file:
        server = handed([file], at(free_port()))
        server.until("descriptor 3 is no socket")
        assert server.process.popen.wait(PATIENCE) == 69
