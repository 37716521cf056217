"""The page that operators see, in a real browser, over a real server: what it shows, what its keys do, and that nothing that clients call their
locks becomes part of it. HF_SCREENSHOTS=FOLDER keeps pictures of it."""
import os
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "holdfastd"))
from admin_client import Admin, UnfoundedAdmin, needs_http  # noqa: E402
from browser import BIN, Browser, Tab  # noqa: E402
from conftest import eventually  # noqa: E402
from test_users import PASSWORD, block, write  # noqa: E402

pytestmark = [needs_http, pytest.mark.skipif(not BIN, reason="there is no Chromium")]
EVIL = "<img src=x onerror=document.title='taken'>"
PHONE, DESKTOP = (390, 844), (1440, 960)


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def server():
    server = Admin()
    yield server
    server.clean()


@pytest.fixture
def look(browser):
    tabs = []

    def make(server, **words):
        host, port = server.at()
        tab = Tab(browser, f"http://{host}:{port}/", **words)
        tabs.append(tab)
        tab.until("document.getElementById('live')?.textContent === 'live'", "it is live")
        return tab

    def close():
        """Before the server goes: whatever asks it then complains."""
        while tabs:
            tab = tabs.pop()
            assert tab.complaints() == []
            tab.close()

    make.close = close
    yield make
    close()


def rows(tab):
    return tab.run("[...document.querySelectorAll('#rows .row')].filter((row) => !row.hidden)"
                   ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => row.firstChild.textContent)")


def picture(tab, name):
    folder = os.environ.get("HF_SCREENSHOTS")
    if folder:
        tab.screenshot(os.path.join(folder, name + ".png"))


def has_row(tab, name):
    tab.until(f"[...document.querySelectorAll('#rows .row .name')].some((cell) => cell.textContent === {name!r})", f"{name} is shown")


# ---- what it shows ---------------------------------------------------------------------------------------------------------------


def test_it_is_live(server, look):
    tab = look(server)
    assert tab.run("document.title") == "Holdfast: node 1, leader" and tab.text("#role") == "leader"
    tab.until("document.getElementById('empty').textContent === 'No name is in use.' && !document.getElementById('empty').hidden", "there is nothing")
    with server.connect() as client:
        client.cmd("ACQUIRE", "orders:1", "l", "OWNER", "worker@one", "TTL", 60000)
        has_row(tab, "orders:1")
        tab.until("document.querySelector('#longest button')?.textContent === 'orders:1'", "it is among the longest")
        tab.until("document.querySelector('#hottest button')?.textContent === 'orders:1'", "and the hottest")
        row = tab.text("#rows .row").replace("\n", " ")
        assert "worker@one" in row and " s" in row
        client.cmd("RELEASE", "orders:1", "l")
        tab.until("![...document.querySelectorAll('#rows .row')].some((row) => !row.hidden)", "and is gone")
        assert "1" in tab.text("#members") and "leader" in tab.text("#members")
    tab.until("document.querySelectorAll('#charts polyline.line')[0].getAttribute('points')", "a line is drawn")
    assert tab.run("[...document.querySelectorAll('#charts svg')].every((svg) => svg.getAttribute('role') === 'img' && svg.getAttribute('aria-label'))")
    host, port = server.at()
    assert {url.split("/")[2] for url in tab.asked() if not url.startswith("data:")} == {f"{host}:{port}"}, "nothing comes from outside"


def test_names_are_text(server, look):
    """In all places where a name or an owner is shown."""
    names = [EVIL, "</script><script>document.title='taken'</script>", "&lt;b&gt;", "javascript:document.title='taken'", "\"'><b>", "a\nb", "\u202egnp.x", "__proto__", "constructor"]
    with server.connect(3) as client:
        for name in names:
            client.cmd("ACQUIRE", name, "lease of " + name[:20], "OWNER", EVIL)
            client.cmd("ACQUIRE", name, "wait of " + name[:20], "PUSH", "OWNER", EVIL)
        tab = look(server)
        tab.until(f"[...document.querySelectorAll('#rows .row')].filter((row) => !row.hidden).length === {len(names)}", "all are there")
        shown = rows(tab)
        assert EVIL in shown and "&lt;b&gt;" in shown and "a\\u000ab" in shown and "\\u202egnp.x" in shown and "__proto__" in shown
        for name in names:
            tab.run(f"[...document.querySelectorAll('#rows .row')].find((row) => !row.hidden && row.dataset.id === "
                    f"encodeURIComponent({name!r}).replace(/[!'()*]/g, (c) => '%' + c.charCodeAt(0).toString(16)).replace(/%[0-9A-F]{{2}}/g, (c) => c.toLowerCase())).click()")
            tab.until("document.querySelectorAll('#holders td').length > 1", "the name is shown")
            assert EVIL in tab.text("#holders") and EVIL in tab.text("#waiters")
            tab.click("#break")
            tab.until("document.getElementById('confirm').open", "it asks")
            tab.click("#confirm-no")
            tab.press("Escape")
        assert tab.run("document.querySelectorAll('img').length") == 1, "the one of the page itself"
        assert tab.run("document.querySelectorAll('script').length") == 1 and "taken" not in tab.run("document.title")


def test_names_that_are_dots(server, look):
    """Browsers take "." and ".." out of a path, also percent-encoded: such names are looked at, and broken, like all others, and the list goes on
    meanwhile."""
    with server.connect() as client:
        for name in ("..", ".", "ordinary"):
            client.cmd("ACQUIRE", name, "lease of " + name, "OWNER", "worker of " + name, "TTL", 600000)
        tab = look(server)
        for name in ("ordinary", "..", "."):
            has_row(tab, name)
            tab.run(f"[...document.querySelectorAll('#rows .row')].find((row) => !row.hidden && row.firstChild.textContent === {name!r}).click()")
            tab.until(f"document.getElementById('holders').textContent.includes({'worker of ' + name!r})", f"{name} is shown")
            tab.until("!document.getElementById('break').hidden", "it can be broken")
        client.cmd("ACQUIRE", "newcomer", "another", "TTL", 600000)
        has_row(tab, "newcomer")
        tab.click("#break")
        tab.until("document.getElementById('confirm').open", "it asks")
        tab.click("#confirm-yes")
        tab.until("document.getElementById('break-result').textContent === 'Broken: 1 hold.'", "it is broken")
        assert tab.text("#live") == "live"


def test_a_name_that_cannot_be_shown_leaves_the_list_alone(server, look):
    """The answer about the name that is open is an error: that is said there, and the list is as new as before."""
    with server.connect() as client:
        client.cmd("ACQUIRE", "ordinary", "lease", "TTL", 600000)
        tab = look(server)
        has_row(tab, "ordinary")
        tab.run("(() => { const ask = window.fetch; window.fetch = (path, ...more) => String(path).includes('ordinary') ? "
                "Promise.resolve(new Response('{\"error\": \"made to fail\"}', { status: 500 })) : ask(path, ...more); })()")
        tab.run("document.querySelector('#rows .row').click()")
        tab.until("document.getElementById('detail-state').textContent === 'made to fail'", "it says so")
        client.cmd("ACQUIRE", "newcomer", "another", "TTL", 600000)
        has_row(tab, "newcomer")
        assert tab.text("#live") == "live"


def test_a_node_without_a_leader(look):
    server = UnfoundedAdmin()
    try:
        tab = look(server)
        tab.until("!document.getElementById('trouble').hidden", "it says so")
        assert "There is no leader" in tab.text("#trouble") and "holdfast cluster init" in tab.text("#trouble")
        assert tab.text("#role") == "waiting"
        picture(tab, "no-leader")
        look.close()
    finally:
        server.clean()


def test_a_server_that_is_gone_is_said(server, look):
    tab = look(server)
    assert server.stop() == 0
    tab.until("document.getElementById('live').className.includes(' bad')", "there is no answer")
    assert "no answer" in tab.text("#live")
    tab.browser.events = [event for event in tab.browser.events if event["method"] != "Log.entryAdded"]  # that it cannot connect


# ---- what can be done ------------------------------------------------------------------------------------------------------------


def test_keys(server, look):
    with server.connect() as client:
        for i in range(30):
            client.cmd("ACQUIRE", f"name:{i:02}", f"l{i}", "TTL", 60000)
        tab = look(server)
        has_row(tab, "name:00")
        tab.press("/")
        assert tab.run("document.activeElement.id") == "filter"
        tab.write("e:1")
        tab.until("document.querySelectorAll('#rows .row:not([hidden])').length === 10", "ten match")
        assert all("e:1" in name for name in rows(tab))
        tab.press("Enter")
        assert tab.run("document.activeElement.id") == "rows"
        tab.press("j", "j", "k")
        chosen = tab.run("document.querySelector('#rows .row[aria-selected=true]').firstChild.textContent")
        assert chosen == rows(tab)[1]
        assert tab.run("document.getElementById(document.getElementById('rows').getAttribute('aria-activedescendant')).firstChild.textContent") == chosen
        tab.press("Enter")
        tab.until("!document.getElementById('detail').hidden", "it is shown")
        assert tab.text("#detail-title") == chosen and tab.run("document.activeElement.id") == "detail"
        tab.press("Escape")
        assert tab.run("document.getElementById('detail').hidden") and tab.run("document.activeElement.id") == "rows"


def test_breaking(server, look):
    with server.connect(3) as client:
        client.cmd("ACQUIRE", "nightly", "l1", "OWNER", "worker@one", "TTL", 60000)
        client.cmd("ACQUIRE", "nightly", "l2", "PUSH", "OWNER", "worker@two")
        tab = look(server, size=DESKTOP)
        has_row(tab, "nightly")
        tab.click("#rows .row")
        tab.until("!document.getElementById('break').hidden", "it may be broken")
        tab.click("#break")
        tab.until("document.getElementById('confirm').open", "it asks")
        words = tab.text("#confirm")
        assert "all else that they hold by the same leases" in words and "worker@one" in words and "fencing tokens" in words and "never two" in words
        assert tab.run("document.activeElement.id") == "confirm-no", "Enter breaks nothing"
        picture(tab, "confirm")
        tab.press("Escape")
        tab.until("!document.getElementById('confirm').open", "Escape leaves it")
        assert client.show("nightly")["holders"][0]["state"] == "holds"
        tab.click("#break")
        tab.click("#confirm-yes")
        tab.until("document.getElementById('break-result').textContent === 'Broken: 1 hold.'", "it is broken")
        assert client.show("nightly")["holders"][0]["state"] == "withheld"
        tab.until("document.getElementById('history').innerText.includes('withheld after token')", "history says so")
        tab.click("#break")
        tab.click("#confirm-now")
        assert "there are two" in tab.text("#confirm-withheld")
        tab.click("#confirm-yes")
        eventually(lambda: client.show("nightly")["holders"][0]["owner"] == "worker@two", "the next one has it")
        tab.until("document.getElementById('holders').innerText.includes('worker@two')", "and is shown")
        history = tab.text("#history")
        assert "broken from this page, and given away at once" in history and "held by worker@two" in history and "held by worker@one" in history
        assert history.count("held by worker@two") == 1
        picture(tab, "detail")


def test_what_a_user_may_not_do_is_not_offered(look, tmp_path):
    write(tmp_path / "users", block("looks", "allow = look: mine:*"), block("admin", "allow = admin"), block("default", "allow = acquire: *"))
    server = Admin("--users-file", tmp_path / "users")
    try:
        server.password = PASSWORD
        with server.connect() as client:
            client.cmd("ACQUIRE", "mine:1", "l1")
            client.cmd("ACQUIRE", "theirs:1", "l2")
            tab = look(server, user=("looks", PASSWORD))
            has_row(tab, "mine:1")
            assert rows(tab) == ["mine:1"] and tab.text("#user") == "as looks"
            tab.click("#rows .row")
            tab.until("document.querySelectorAll('#holders td').length > 1", "it is shown")
            assert tab.run("document.getElementById('break').hidden")
            tab = look(server, user=("admin", PASSWORD))
            tab.until("document.getElementById('count').textContent === 'this user may not look at names'", "it is said")
            assert rows(tab) == []
        look.close()
    finally:
        server.clean()


# ---- many, small and dark --------------------------------------------------------------------------------------------------------


def test_ten_thousand_names(server, look):
    with server.connect() as client:
        for i in range(0, 10000, 1000):
            client.pipeline(*(("ACQUIRE", f"tenant{k % 7}:job:{k:05}", f"l{k}", "TTL", 600000, "OWNER", f"worker-{k % 40}@host") for k in range(i, i + 1000)))
    tab = look(server)
    tab.until("document.getElementById('count').textContent === '10,000'", "all are loaded")
    assert tab.run("document.querySelectorAll('#rows .row').length") < 60, "only those that are seen are drawn"
    tab.run("document.getElementById('order').value = 'name', document.getElementById('order').dispatchEvent(new Event('change')), 1")
    frames = tab.run("""new Promise((done) => {
      const box = document.getElementById('rows');
      let last = performance.now(), longest = 0, at = 0;
      const step = (now) => {
        longest = Math.max(longest, now - last);
        last = now;
        box.scrollTop = (at += 1) * 3000;
        if (at < 100) requestAnimationFrame(step);
        else done(longest);
      };
      requestAnimationFrame(step);
    })""")
    assert frames < 2000, "it scrolls"  # a machine that others use is slow, and a page that draws all of them is slower still
    tab.run("document.getElementById('rows').scrollTop = 1e9, 1")
    has_row(tab, "tenant6:job:09995")
    tab.press("/")
    tab.write("tenant3:*99?")
    many = sum(k % 7 == 3 and f"{k:05}"[2:4] == "99" for k in range(10000))
    tab.until(f"document.getElementById('count').textContent === '{many}'", "a pattern is the server's")
    begin = len(tab.asked())
    tab.until("performance.now() - (window.since ??= performance.now()) > 3000", "three seconds")
    assert len(tab.asked()) - begin <= 3 * 4, "it asks no more than twice a second"


@pytest.mark.parametrize("name, size, phone", [("desktop", DESKTOP, False), ("tablet", (820, 1100), False), ("phone", PHONE, True), ("small", (320, 640), True)])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits(server, look, name, size, phone, dark):
    with server.connect(3) as client:
        for i in range(40):
            client.cmd("ACQUIRE", f"orders:{i}/" + "long" * (i % 9), f"l{i}", "TTL", 60000, "OWNER", f"worker-{i}@some-host-{i}.example")
            for k in range(i % 4):
                client.cmd("ACQUIRE", f"orders:{i}/" + "long" * (i % 9), f"w{i}-{k}", "PUSH", "OWNER", f"waiter-{k}")
        tab = look(server, size=size, phone=phone, dark=dark)
        has_row(tab, "orders:0/")
        tab.until("document.querySelectorAll('#charts polyline.line')[0].getAttribute('points')?.split(' ').length > 2", "lines are drawn")
        picture(tab, f"{name}-{'dark' if dark else 'light'}")
        wide = "[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.wide, .unseen, .skip, svg, .row') && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + '#' + e.id)"
        assert tab.run("document.documentElement.scrollWidth <= innerWidth") and tab.run(wide) == []
        tab.click("#rows .row")
        tab.until("document.querySelectorAll('#holders td').length > 1", "a name is shown")
        assert tab.run(wide) == []
        picture(tab, f"{name}-{'dark' if dark else 'light'}-detail")
        assert tab.run(CONTRAST) == []


# What is read, and is too near to what lies behind it: 4.5 to 1 is the least (WCAG 2, AA).
CONTRAST = """(() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  const found = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || e.closest('svg, dialog') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(channels(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.add(`${e.tagName}.${e.className}#${e.id}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return [...found];
})()"""


def test_everything_has_a_name(server, look):
    """For those who hear the page: what the browser tells their reader."""
    with server.connect() as client:
        client.cmd("ACQUIRE", "x", "l")
        tab = look(server)
        has_row(tab, "x")
        tab.click("#rows .row")
        tab.until("!document.getElementById('break').hidden", "it is shown")
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        told = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
        for role in ("button", "searchbox", "combobox", "grid", "row", "image", "table", "heading", "region"):
            names = [name for found, name in told if found == role]
            assert names or role in ("table", "region"), f"there is no {role}"
            assert role in ("table", "row", "image") or all(names), (role, names)
        assert any(role == "row" and name.startswith("x: 1 holder") for role, name in told)
        assert tab.run("document.documentElement.lang") == "en"


def test_nobody_looks_nobody_asks(server, look):
    tab = look(server)
    tab.call("Emulation.setFocusEmulationEnabled", enabled=False)
    tab.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true}), 1")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        before = len(tab.asked())
        tab.until("performance.now() - (window.since ??= performance.now()) > 2500 && !(window.since = undefined)", "a while")
        if len(tab.asked()) == before:
            break
    else:
        raise AssertionError("it goes on asking")
    tab.run("Object.defineProperty(document, 'hidden', {value: false, configurable: true}), document.dispatchEvent(new Event('visibilitychange')), 1")
    before = len(tab.asked())
    eventually(lambda: tab.run("1") and len(tab.asked()) > before, "it asks again")
