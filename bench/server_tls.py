#!/usr/bin/env python3
"""What TLS costs holdfastd: its own CPU for each request over TLS, beside the same requests in the clear.

    bench/server_tls.py HOLDFASTD FOLDER [--rounds N] [--turns N]

One server listens at both. In each turn every connection sends one packet, and then all answers are awaited; what TLS costs this program is done
before the first and after the last of them, so that the server gets the same packets at the same pace. (redis-benchmark needs so much CPU itself
for TLS that the server finds fewer requests together, and pays more for each.) Rounds alternate between the two, the figures are medians, what
counts is their ratio. HOLDFASTD is the release build's, and HOLDFAST_MODULE_DIR says where its holdfast-tls.so is.
"""
import os
import select
import socket
import ssl
import statistics
import subprocess
import sys

from servers import Folder, command, free_port, holdfastd

LOADS = [(50, 1, 1.35), (50, 16, None), (200, 1, None)]  # connections, commands in each packet, most of the ratio
CHUNK = 65536


def certificate(folder):
    files = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True, timeout=60)
    os.chmod(files[1], 0o600)
    return files


class Client:
    """In the clear, or over TLS if there is a context."""

    def __init__(self, port, context):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = None
        if not context:
            return
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self.tls.do_handshake()
                self.socket.sendall(self.outgoing.read())
                return
            except ssl.SSLWantReadError:
                self.socket.sendall(self.outgoing.read())
                self.incoming.write(self.socket.recv(CHUNK))

    def pack(self, data):
        if not self.tls:
            return data
        self.tls.write(data)
        return self.outgoing.read()

    def unpack(self, data):
        if not self.tls:
            return data
        self.incoming.write(data)
        plain = b""
        while True:
            try:
                plain += self.tls.read(CHUNK)
            except ssl.SSLWantReadError:
                return plain


def turn(clients, requests, answers_each):
    """Everybody asks, and everybody is answered."""
    packed = [client.pack(request) for client, request in zip(clients, requests)]
    for client, data in zip(clients, packed):
        client.socket.sendall(data)
    waiting = {client.socket.fileno(): client for client in clients}
    plain = {fd: b"" for fd in waiting}
    while waiting:
        came = {fd: waiting[fd].socket.recv(CHUNK) for fd in select.select(list(waiting), [], [], 60)[0]}
        for fd, data in came.items():
            plain[fd] += waiting[fd].unpack(data)
            if plain[fd].count(b"\r\n") == answers_each:
                del waiting[fd]
                if b"-" in plain[fd] or b"$" in plain[fd]:
                    raise SystemExit("not granted: %r" % plain[fd][:200])


def measure(server, clients, each, turns, label):
    """The server's µs of CPU for each request."""
    before = server.cpu_seconds()
    for number in range(turns):
        turn(clients, [b"".join(command("ACQUIRE", "lock:%s:%d:%d:%d" % (label, number, i, k), "lease-%s-%d-%d" % (label, i, k), "TTL", 30000)
                                for k in range(each)) for i in range(len(clients))], each)
    return (server.cpu_seconds() - before) / (turns * len(clients) * each) * 1e6


def main():
    program, below = map(os.path.abspath, sys.argv[1:3])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 7
    turns = int(sys.argv[sys.argv.index("--turns") + 1]) if "--turns" in sys.argv else 2000
    met = True
    with Folder(below) as folder:
        cert, key = certificate(folder)
        plain, port = free_port(), free_port()
        server = holdfastd(program, folder, "--tls-cert", cert, "--tls-key", key,
                           listen="127.0.0.1:%d,tls:127.0.0.1:%d" % (plain, port), port=plain)
        try:
            for count, each, limit in LOADS:
                context = ssl.create_default_context(cafile=cert)
                ways = {"plain": [Client(plain, None) for _ in range(count)], "TLS": [Client(port, context) for _ in range(count)]}
                figures = {name: [] for name in ways}
                for i in range(rounds + 1):  # the first one warms up
                    for name, clients in ways.items():
                        figure = measure(server, clients, each, turns // each, "%s-%d-%d-%d" % (name, count, each, i))
                        if i:
                            figures[name].append(figure)
                ratio = statistics.median(b / a for a, b in zip(figures["plain"], figures["TLS"]))
                good = limit is None or ratio <= limit
                met &= good
                print("%3d connections, %2d commands in a packet: %.2fx the CPU of plain%s  (%.1f µs for each beside %.1f)%s" % (
                    count, each, ratio, ", at most %.2fx" % limit if limit else "",
                    *(statistics.median(figures[name]) for name in ("TLS", "plain")), "" if good else "   MISSED"))
                for clients in ways.values():
                    for client in clients:
                        client.socket.close()
        finally:
            server.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
