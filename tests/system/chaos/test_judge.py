"""The simulator's checkers complain about histories of what must not be, and about no other; and what counts as a majority that is left."""
import types

import pytest
import stores
from witness import History
from world import World

HOLDS = [(0, 1, "w", 0, ("ACQUIRE", "x", "one", "TTL", 1000), 10),
         (2, 3, "w", 0, ("RENEW", "one"), [1000]),
         (4, 5, "w", 0, ("CHECK", "x", 10), 1),
         (6, 7, "w", 0, ("RELEASE", "x", "one", "TOKEN", 10), 1),
         (8, 9, "v", 0, ("ACQUIRE", "x", "two", "TTL", 1000), 11)]
QUEUE = [(0, 1, "w", 0, ("ACQUIRE", "q", "one", "PUSH", "TTL", 100), 10),
         (2, 3, "w", 0, ("ACQUIRE", "q", "two", "PUSH", "TTL", 100), "QUEUED"),
         (4, 5, "w", 0, ("ACQUIRE", "q", "three", "PUSH", "TTL", 100), "QUEUED"),
         (6, 7, "w", 0, ("RELEASE", "q", "one", "TOKEN", 10), 1)]
LATE = [(0, 30, "w", 0, ("ACQUIRE", "x", "one", "TTL", 20), 10),  # when it hears of it, it is over
        (22, 25, "v", 0, ("ACQUIRE", "x", "two", "TTL", 1000), 11)]
WRONG = {
    "two holders": [HOLDS[0], (2, 3, "v", 0, ("ACQUIRE", "x", "two", "TTL", 1000), 11)],
    "went to lease": [*HOLDS[:4], (8, 9, "v", 0, ("ACQUIRE", "y", "two", "TTL", 1000), 10)],
    "tokens do not grow": [HOLDS[0], (2, 3, "v", 0, ("ACQUIRE", "y", "two", "TTL", 1000), 9)],
    "same lease, other token": [HOLDS[0], (2, 3, "w", 0, ("ACQUIRE", "x", "one", "TTL", 1000), 11)],
    "before its client's own clock": [HOLDS[0], (2, 3, "w", 0, ("RENEW", "one"), [-1])],
    "is gone": [*HOLDS[:2], (1000.5, 1001, "w", 0, ("CHECK", "x", 10), 0)],
    "its end was acknowledged": [*HOLDS[:4], (8, 9, "w", 0, ("CHECK", "x", 10), 1)],
    "has ended, and gets": [(0, 1, "w", 1, ("ACQUIRE", "x", "one", "TTL", 10), None), (2, 3, "w", 0, ("END", "one"), 1),
                            (4, 5, "w", 0, ("ACQUIRE", "x", "one", "TTL", 10), 10)],
    "not in order": [*QUEUE, (8, 9, "w", 0, ("GRANTED", "q", "three"), 11), (10, 11, "w", 0, ("RELEASE", "q", "three", "TOKEN", 11), 1),
                     (12, 13, "w", 0, ("GRANTED", "q", "two"), 12)],
}


def judged(tmp_path, lines):
    history = History(tmp_path / "history")
    for line in lines:
        history.add(*line)
    return history.judged()


@pytest.mark.parametrize("lines", [HOLDS, [*QUEUE, (8, 9, "w", 0, ("GRANTED", "q", "two"), 11)], HOLDS[::-1], LATE], ids=["holds", "queue", "in any order", "late"])
def test_nothing_is_wrong(tmp_path, lines):
    well, words = judged(tmp_path, lines)
    assert well and words.endswith("nothing is wrong"), words


@pytest.mark.parametrize("words", WRONG)
def test_it_complains(tmp_path, words):
    well, said = judged(tmp_path, WRONG[words])
    assert not well and words in said, said


def test_what_is_no_history_is_no_proof(tmp_path):
    (tmp_path / "history").write_text("hello\n")
    history = History(tmp_path / "other")
    history.file.write("hello\n")
    assert not history.judged()[0]


def world(count, cuts=(), out=(), joining=None, leaving=None):
    """What World.possible looks at, without nodes."""
    nodes = {number: types.SimpleNamespace(number=number, spot=str(number)) for number in range(1, count + 1)}
    made = World.__new__(World)
    made.nodes, made.net, made.out = nodes, types.SimpleNamespace(cuts=set(cuts)), dict.fromkeys(out)
    made.members = {number: node for number, node in nodes.items() if number != joining}
    made.joining, made.leaving = nodes.get(joining), nodes.get(leaving)
    return made


def both(*pairs):
    return {way for one, other in pairs for way in ((one, other), (other, one))}


@pytest.mark.parametrize("made, possible", [
    (world(3), True),
    (world(3, out=[1]), True),
    (world(3, out=[1, 2]), False),
    (world(5, out=[1, 2]), True),
    (world(3, cuts=both(("1", "2"))), True),  # node 3 sees both
    (world(3, cuts=both(("1", "2")), out=[3]), False),
    (world(3, cuts={("1", "2"), ("1", "3"), ("3", "2")}), False),  # one way is not enough
    (world(5, cuts=both(("1", "3"), ("1", "4"), ("2", "4"), ("2", "5"), ("3", "5"))), True),  # a ring: each has two neighbours
    (world(5, cuts=both(("1", "3"), ("1", "4"), ("2", "4"), ("2", "5"), ("3", "5")), out=[2, 4]), False),
    (world(4, out=[1], joining=4), True),
    (world(4, out=[1, 4], joining=4), False),  # of four, if it is added
    (world(3, out=[1], leaving=2), False),  # of two, if it is removed
    (world(3, out=[2], leaving=2), True),
], ids=range(13))
def test_what_is_left(made, possible):
    assert made.possible() == possible


def inside(name, token, asked, told, last):
    hold = stores.Inside(name, token, asked, told)
    hold.last = last
    return hold


def test_two_jobs_inside_are_seen():
    """A strict store must not have them, nor tokens that go back; of another one they are counted."""
    holds = [inside("x", 1, 0, 10, 5000), inside("x", 2, 5, 2000, 6000), inside("y", 3, 0, 10, 100)]
    assert len(stores.judge(holds, False)) == 1
    with pytest.raises(AssertionError, match="two were inside"):
        stores.judge(holds, True)
    with pytest.raises(AssertionError, match="were given after"):
        stores.judge([inside("x", 5, 0, 10, 100), inside("x", 4, 20, 200, 300)], True)
    assert stores.judge([inside("x", 1, 0, 10, 100), inside("x", 2, 5, 101, 300)], True) == []
