"""Every block of README.md and docs/*.md is run as it is written, in order, page by page, on real servers; or it has one of a few
reasons not to be. pages.py is the table of all of them."""
import contextlib
import os
import pathlib
import shutil
import tempfile

import pytest
from kinds import EXCUSES
from machine import Machine, why_not, why_not_booted
from markdown import blocks
from pages import PAGES

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["HOLDFAST_BIN"]).resolve()
BUILD = BIN.parents[2]
COUNTS = ("run", "compared", "compiled", "checked", "excused")
tallies = {}  # of each page, for the summary in conftest.py

# On a machine on which Holdfast has not been used before. Nothing is built: it has been.
INSTALLED = f"""
rm -rf /etc/holdfast /var/lib/holdfast /var/lib/holdfastd
ln -sf {BIN} /usr/local/bin/holdfast
ln -sf {BUILD}/src/server/holdfastd /usr/local/sbin/holdfastd
mkdir build
ln -s {BUILD}/* build
rm -f build/src
mkdir build/src
ln -s {BUILD}/src/* build/src
ln -s {ROOT}/Makefile {ROOT}/tools {ROOT}/man {ROOT}/examples .
export MAKEFLAGS=' -- SETUP=: configure=: ninja=:'
export PKG_CONFIG_PATH={BUILD}/meson-private CPATH={ROOT}/include LIBRARY_PATH={BUILD}/src/client LD_LIBRARY_PATH={BUILD}/src/client
export REPOSITORY={ROOT}
export FAKETTY=1  # redis-cli prints as on a terminal
"""


def page_blocks(name):
    return blocks(name, (ROOT / name).read_text(encoding="utf-8"))


class Place:
    """The machines of a page, and what it calls tokens."""

    def __init__(self, folder, page, stack):
        self.tokens, self.machines = {}, {}
        env = {"HOLDFAST_MODULE_DIR": os.environ.get("HOLDFAST_MODULE_DIR", "")}
        enters, hosts = self.network(page, stack)
        for name in ("here", *page.machines):
            machine = self.machines[name] = Machine(folder, ROOT, BUILD, name, enters.get(name), env, page.booted)
            stack.callback(machine.close)
            machine.run(INSTALLED + hosts)
        self.here = self.machines["here"]

    @staticmethod
    def network(page, stack):
        """How each machine gets into its network, and how they learn each other's names."""
        if not page.machines:
            return {}, ""
        from nets import Net
        net = Net(["here", *page.machines])
        stack.callback(net.close)
        names = "".join(f"{net[name].address} {name}\n" for name in page.machines)
        return {name: net[name].enter for name in ("here", *page.machines)}, f"cat >>/etc/hosts <<'end'\n{names}end\n"

    def machine(self, name):
        return self.machines[name or "here"]

    def do(self, what):
        """Commands, on the reader's machine, or a function."""
        if not what:
            return ""
        return self.here.run(what) if isinstance(what, str) else what(self) or ""


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="docs-", dir=os.environ.get("HF_TEST_TMP") or "/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_blocks_are_found():
    """However they are written: none slips past."""
    text = ("```sh\na\n\nb\n```\n\n    c\n\n    d\n\n- e\n  ~~~\n  f\n  ~~~\n\n1. g\n\n\th\n\n"
            "none\n    here, ```nor here```\n\n````\ni\n```\nj")
    assert [(block.line, block.language, block.text) for block in blocks("x", text)] == \
        [(2, "sh", "a\n\nb"), (7, "", "c\n\nd"), (13, "", "f"), (18, "", "h"), (24, "", "i\n```\nj")]
    for name in PAGES:
        assert "<pre" not in (ROOT / name).read_text(encoding="utf-8"), name


def test_every_page_is_there():
    found = {"README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))}
    assert set(PAGES) == found


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_known(name):
    """In order. Whoever adds or changes one says in pages.py what becomes of it."""
    there, known = page_blocks(name), PAGES[name].blocks
    for block, kind in zip(there, known):
        assert block.text.startswith(kind.begins), f"{block.where}: begins otherwise than pages.py says: {kind.begins!r}"
        assert set(kind.excuses()) <= set(EXCUSES)
    missing = [block.where for block in there[len(known):]]
    assert not missing, f"not in tests/system/docs/pages.py: {missing}"
    assert not known[len(there):], f"{name}: has no such block any more"


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.blocks])
def test_page(name, folder):
    page = PAGES[name]
    excuse = (why_not_booted if page.booted else why_not)(ROOT, BUILD)
    if excuse:
        pytest.skip(excuse)
    for program in page.needs:
        if not (BUILD / program).exists() if "/" in program else not shutil.which(program):
            pytest.skip("needs " + program)
    tally = tallies[name] = dict.fromkeys(COUNTS, 0)
    tally["reasons"] = []
    with contextlib.ExitStack() as stack:
        place = Place(folder, page, stack)
        place.do(page.setting)
        for block, kind in zip(page_blocks(name), page.blocks):
            try:
                tally[kind.do(block, place)] += 1
            except AssertionError as error:
                raise AssertionError(f"{block.where}: {error}") from None
            tally["reasons"] += kind.excuses()
