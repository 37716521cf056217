"""Ports of 127.0.0.1 for the servers of tests. Tests run side by side, and a server that is down for a while must find its port again:
whoever is given a port has it for as long as his process lives. tests/lib/servers/servers.c keeps to the same, for tests in C."""
import contextlib
import random
import socket

PORT_MIN, PORT_MAX = 12000, 32767  # below live servers that people know; above begin the ports that outgoing connections get
TRIES = 1000

kept = []  # a socket for each port that is ours


def reserve(port):
    """True if nobody listens there, and nobody else has it. What says so is a name without a file, which the kernel takes away with us."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0holdfast-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    kept.append(mark)
    return True


def free_port():
    """Not one of those that outgoing connections get: a client that tries to reach a server that is down would meet itself there, and
    the server could not come back."""
    for _ in range(TRIES):
        port = random.randrange(PORT_MIN, port_end())
        if reserve(port):
            return port
    raise AssertionError("no free port")


def port_end():
    first = 0
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    return min(first, PORT_MAX) if first > PORT_MIN + TRIES else PORT_MAX
