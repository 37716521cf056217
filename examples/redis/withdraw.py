#!/usr/bin/env python3
"""withdraw.py AMOUNT [PORT]: withdraw.sh in Python, with redis-py; any other client does it the same way.

    holdfast guard redis | redis-cli -x FUNCTION LOAD REPLACE          # once
    holdfast run balance -- ./withdraw.py 50
"""
import os
import sys

import redis

MARK, KEY = "holdfast.mark:{balance}", "balance"


def withdraw(server, token, amount):
    """What is left. redis.ResponseError "STALE ..." if somebody with a newer token has been here."""
    server.fcall("holdfast_enter", 1, MARK, token, "not-older")  # before the first read
    left = int(server.get(KEY) or 0) - amount
    server.fcall("holdfast_set", 2, MARK, KEY, token, "not-older", left)
    return left


def main():
    server = redis.Redis(port=int(sys.argv[2]) if len(sys.argv) > 2 else 6379)
    try:
        print(withdraw(server, os.environ["HOLDFAST_TOKEN"], int(sys.argv[1])))
    except redis.ResponseError as error:
        if not str(error).startswith("STALE "):
            raise
        sys.exit(f"withdraw: {error}")  # the lock is somebody else's: get it again, and begin anew


if __name__ == "__main__":
    main()
