"""A name server for one node, in the node's own network namespace, and what makes the node ask it: files of /etc that only this process sees.

    names = Names(net["1"], {"db1.hf": ["10.99.0.1"]})
    node.prepare = names.prepare(directory)      in place of spot.enter
    names.delay = 4                              seconds until it answers
    names.mute.add("db1.hf")                     of this one it says nothing, ever
"""
import ctypes
import os
import socket
import struct
import threading

import pytest
from nets import LIBC

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
ADDRESS = "127.0.0.1"  # of the name server, in the node's namespace
A = 1  # the type of a record
FILES = {"resolv.conf": f"nameserver {ADDRESS}\noptions timeout:30 attempts:5\n", "hosts": "127.0.0.1 localhost\n",
         "nsswitch.conf": "hosts: files dns\n"}


def mount(source, target, flags):
    if LIBC.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


class Names:
    def __init__(self, spot, answers):
        self.spot, self.answers, self.delay, self.mute = spot, answers, 0, set()
        if not all(os.path.exists(f"/etc/{name}") for name in FILES):
            pytest.skip("the machine has no such files in /etc")
        with spot.inside():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.bind((ADDRESS, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        self.socket.close()

    def prepare(self, directory):
        """For a child, before its exec: it is at the spot, and has its own /etc."""
        made = directory / f"etc-{self.spot.address}"
        made.mkdir()
        for name, text in FILES.items():
            (made / name).write_text(text)

        def in_child():
            self.spot.enter()
            if LIBC.unshare(CLONE_NEWNS) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            mount("none", "/", MS_REC | MS_PRIVATE)
            for name in FILES:
                mount(made / name, f"/etc/{name}", MS_BIND)

        return in_child

    def serve(self):
        while True:
            try:
                question, asker = self.socket.recvfrom(512)
            except OSError:
                return
            threading.Timer(self.delay, self.answer, (question, asker)).start()

    def answer(self, question, asker):
        at, labels = 12, []
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, (kind,) = ".".join(labels), struct.unpack(">H", question[at + 1:at + 3])
        if name in self.mute:
            return
        found = self.answers.get(name)
        records = found if found and kind == A else []
        flags = 0x8180 if found else 0x8183  # no such name
        reply = question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + question[12:at + 5]
        for address in records:
            reply += struct.pack(">HHHIH", 0xC00C, A, 1, 0, 4) + socket.inet_aton(address)
        try:
            self.socket.sendto(reply, asker)
        except OSError:
            pass  # the test is over
