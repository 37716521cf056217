"""Where the log ends: what was acknowledged is not taken for a write that was cut short, and what was is told of."""
import re
import shutil

import pytest
from conftest import TTL_MAX, run_refused

BLOCK, SECTOR = 4096, 512  # of the log: no two appends have a block in common; a disk writes a sector or does not
HEADER = 48  # bytes before those of a record


def last_append(server):
    """The file, and where in it the record is that was written last, alone in its blocks."""
    for path in sorted(server.data.glob("log-*"), key=lambda path: -int(path.name[4:])):
        bytes_ = path.read_bytes()
        blocks = [at for at in range(BLOCK, len(bytes_), BLOCK) if any(bytes_[at:at + BLOCK])]
        if not blocks:
            continue  # a spare
        begin = last = blocks[-1]
        for at in blocks:  # groups do not interleave: the one that reaches the end is the last
            size = int.from_bytes(bytes_[at + 4:at + 8], "little")
            if at + HEADER + size > last:
                begin = at
                break
        return path, begin, begin + HEADER + int.from_bytes(bytes_[begin + 4:begin + 8], "little")
    raise AssertionError("nothing was written")


def flip(path, at, bit=0x10):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


def assert_refused(server, path):
    before = {file.name: file.read_bytes() for file in server.data.iterdir() if file.name != "lock"}
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and " error " in line and str(path) in line, line
    assert before == {file.name: file.read_bytes() for file in server.data.iterdir() if file.name != "lock"}


def warnings(server):
    return [line for line in server.logged() if "cut short" in line]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_one_bit_of_the_last_record(start, end):
    """It had been acknowledged: after a clean stop the mark says so, and after any other end that no part of it is missing."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    if end == "stopped":
        assert server.stop() == 0
    else:
        server.kill9()
    path, begin, to = last_append(server)
    for at in sorted({*range(begin, begin + HEADER, 5), *range(begin + HEADER, to, 9), to - 1}):
        flip(path, at)
        assert_refused(server, path)
        flip(path, at)
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1 and not warnings(server)


def test_a_last_segment_that_is_gone(start):
    """A clean stop says how far the log went."""
    server = start()
    server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    server.restart()
    token = server.cmd("ACQUIRE", "y", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    path, _, _ = last_append(server)
    whole = path.read_bytes()
    for less in (None, b"", whole[:BLOCK], whole[:len(whole) // 2 // BLOCK * BLOCK]):
        path.unlink(missing_ok=True)
        if less is not None:
            path.write_bytes(less)
        if less and len(less) > BLOCK and less.rstrip(b"\0") == whole.rstrip(b"\0"):
            continue  # only zeros are gone
        assert_refused(server, server.data)
    path.write_bytes(whole)
    server.restart()
    assert server.cmd("CHECK", "y", token) == 1


def test_a_write_that_was_cut_short(start):
    """It had not been acknowledged, so it is dropped; once, with a line that says where and how much."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    _, once = server.cmd("ONCE", "CLAIM", "k", "l2", "TTL", TTL_MAX)
    server.cmd("ONCE", "FINISH", "k", "l2", "TOKEN", once, "KEEP", TTL_MAX, "r" * 20000)
    server.kill9()
    for path in server.data.glob("log-*"):
        whole = path.read_bytes()
        at = whole.find(b"r" * 20000)
        if at >= 0:
            break
    begin = at // BLOCK * BLOCK
    path.write_bytes(whole[:begin + 3 * BLOCK] + bytes(SECTOR) + whole[begin + 3 * BLOCK + SECTOR:])
    server.restart()
    (line,) = warnings(server)
    assert " warning " in line and str(path) in line
    assert int(re.search(r"\bbytes=(\d+)", line)[1]) >= 20000 and f"at={begin}" in line
    assert server.cmd("CHECK", "x", token) == 1 and server.cmd("ONCE", "READ", "k")[0] == "RUNNING"
    for end in (server.kill9, server.stop):
        end()
        server.restart()
        assert server.cmd("CHECK", "x", token) == 1
    assert len(warnings(server)) == 1, "it is told once"


def test_the_mark_itself(start):
    """Damaged or missing, it is refused like everything else: also where the last record is damaged, too."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    mark = server.data / "end"
    whole = mark.read_bytes()
    for at in range(len(whole)):
        flip(mark, at, 0x01)
        assert_refused(server, mark)
        flip(mark, at, 0x01)
    mark.write_bytes(b"")
    assert_refused(server, mark)
    mark.unlink()
    assert_refused(server, mark)
    path, begin, to = last_append(server)
    for at in range(begin, to, SECTOR):
        flip(path, at)
    assert_refused(server, mark)
    for at in range(begin, to, SECTOR):
        flip(path, at)
    mark.write_bytes(whole)
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1


def test_a_log_without_its_node_file(start):
    """Whose log it is is written before it begins: a directory that does not say so is not as we left it."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    node = server.data / "node"
    whole = node.read_bytes()
    node.unlink()
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and f"{server.data} holds a log, and its file 'node'" in line, line
    assert f"holdfastd --restore-from {server.data} --data NEW" in line and not node.exists()
    node.write_bytes(whole)
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1


def test_a_copy_of_the_directory(start, tmp_path):
    """Of a server that was stopped: it goes on from there, and so does the original."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    shutil.copytree(server.data, tmp_path / "copy")
    server.restart()
    server.cmd("ACQUIRE", "y", "l", "TTL", TTL_MAX)
    server.kill9()
    server.restart()
    copy = start(data=tmp_path / "copy")
    assert copy.cmd("CHECK", "x", token) == 1 and server.cmd("CHECK", "x", token) == 1
