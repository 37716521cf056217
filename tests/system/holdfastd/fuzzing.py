"""Bytes that are nearly right."""
import os
import random


def drawn():
    """HF_SEED=N repeats what a run did that printed N."""
    seed = int(os.environ.get("HF_SEED", random.randrange(2**32)))
    print(f"HF_SEED={seed}")
    return random.Random(seed)


def mutated(draw, data):
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5, 40])):
        if not data:
            break
        at = draw.randrange(len(data))
        how = draw.randrange(5)
        if how == 0:
            data[at] = draw.randrange(256)
        elif how == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del data[at:at + draw.choice([1, 2, 100])]
        elif how == 3:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.choice([1, 3, 50])))
        else:
            data[at:at] = data[at:at + draw.choice([5, 50, 500])]
    return bytes(data)
