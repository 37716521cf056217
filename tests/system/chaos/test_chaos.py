"""The short form of chaos.py: one cluster of three, a fixed seed, half a minute. `make chaos` runs it in full."""
import os

import chaos

SECONDS = 16
SEED = int(os.environ.get("HF_SEED") or 5)


def test_chaos(figures):
    figures(chaos.run(SECONDS / 60, SEED, [3], SECONDS / 60, quiet=True))
