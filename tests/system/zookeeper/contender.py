"""Takes kazoo's Lock again and again: contender.py HOSTS PATH ROUNDS DIRECTORY. Fails if somebody else is inside.

It says "ready" when it is connected, and begins with a line of its input.

Inside is who has made the directory: that is refused while it is there."""
import logging
import os
import sys

from kazoo.client import KazooClient

logging.getLogger("kazoo").setLevel(logging.CRITICAL)
hosts, path, rounds, directory = sys.argv[1:]
client = KazooClient(hosts=hosts, timeout=10)
client.start(timeout=60)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(rounds)):
    with client.Lock(path, "kazoo"):
        os.mkdir(directory)
        os.rmdir(directory)
client.stop()
