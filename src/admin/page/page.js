// The page: once a second it asks how things are, and shows it. While nobody looks at it, it asks nothing.
import * as api from "./api.js";
import { Chart, quantile } from "./charts.js";
import { Detail } from "./detail.js";
import { age, Names, NAMES_MAX } from "./names.js";
import { Rows } from "./rows.js";
import { byId, bytes, count, fill, latency, make, plural, say, span, visible } from "./text.js";

const EACH_MS = 1000;
const EACH_MAX_MS = 8000; // while there is no answer
const TYPED_MS = 200; // what is typed is looked for so long after the last key
const LONGEST = 5;

const names = new Names();
const detail = new Detail(names, () => rows.draw());
const rows = new Rows((id) => detail.open(id));
let before = null; // the last look at the cluster, and when it was
let leads = false;

// ---- the cluster

function showFacts(now) {
  const facts = [["Names", count(now.counts.names)], ["Holds", count(now.counts.holds)], ["Waiting", count(now.counts.waiting)],
    ["Leases", count(now.counts.leases)], ["Connections", count(now.counts.connections)], ["Term", count(now.term)],
    ["Up for", span(now.uptime_ms)], ["Memory", bytes(now.counts.resident_bytes)], ["Expired", count(now.counts.expired)], ["Broken", count(now.counts.broken)]];
  const list = byId("facts");
  facts.forEach(([name, value], at) => {
    if (!list.children[at]) {
      const pair = make("div");
      pair.append(make("dt", name), make("dd"));
      list.append(pair);
    }
    say(list.children[at].lastChild, value);
  });
}

function showMembers(now) {
  fill(byId("members"), now.members.map((member) => {
    const own = member.id === now.id;
    const role = member.id === now.leader ? "leader" : member.lost ? "lost its data" : !member.votes ? "catching up" : "follower";
    const silent = own ? "this node" : !member.connected ? "not connected" : span(member.silent_ms);
    return [`${member.id} ${member.client || member.peer}`, [role, member.lost ? "bad" : ""], [member.behind < 0 ? "–" : count(member.behind), "number"],
      [silent, own || member.connected ? "number" : "number bad"]];
  }));
}

function showState(now) {
  leads = now.role === "leader";
  detail.leads = leads;
  say(byId("node"), `node ${now.id} · ${now.version}`);
  say(byId("role"), now.role);
  byId("role").className = `badge ${leads || now.role === "follower" ? "good" : "bad"}`;
  say(byId("user"), now.user ? `as ${now.user}` : "");
  document.title = `${now.trouble ? "! " : ""}Holdfast: node ${now.id}, ${now.role}`;
  byId("trouble").hidden = !now.trouble && now.leader !== 0;
  say(byId("trouble"), now.trouble || (now.leader === 0 ? `There is no leader: nobody gets a lock now. ${now.advice}` : ""));
  byId("hint").hidden = leads || now.leader === 0;
  say(byId("hint"), `This node follows: what it shows may be a moment behind. The leader is node ${now.leader}${now.leader_client ? `, where clients find ${now.leader_client}` : ""}.`);
}

// ---- rates

const charts = {
  commands: new Chart(byId("charts"), "Commands", (value) => `${count(Math.round(value || 0))}/s`),
  grants: new Chart(byId("charts"), "Grants", (value) => `${count(Math.round(value || 0))}/s`),
  waiting: new Chart(byId("charts"), "Waiting", (value) => count(value || 0)),
  commit: new Chart(byId("charts"), "Commit", latency, "99 %"),
  grant: new Chart(byId("charts"), "ACQUIRE to hold", latency, "99 %"),
  disk: new Chart(byId("charts"), "Write to disk", latency, "99 %"),
};

function showRates(now, at) {
  if (before && before.now.uptime_ms <= now.uptime_ms) {
    const seconds = (at - before.at) / 1000;
    const bounds = now.latencies.bounds_us;
    for (const kind of ["commands", "grants"]) charts[kind].add((now.counts[kind] - before.now.counts[kind]) / seconds);
    for (const kind of ["commit", "grant", "disk"])
      charts[kind].add(...[0.5, 0.99].map((part) => quantile(before.now.latencies[kind], now.latencies[kind], bounds, part)));
  }
  charts.waiting.add(now.counts.waiting);
  before = { now, at };
}

// ---- names

function showTop(list, items, none) {
  const shown = items.length ? items : [{ words: none }];
  while (list.childElementCount > shown.length) list.lastChild.remove();
  shown.forEach(({ id, name, words }, at) => {
    let item = list.children[at];
    if (!item || Boolean(item.querySelector("button")) !== Boolean(id)) {
      const made = make("li");
      if (id) made.append(make("button", "", "link"));
      made.append(make("span", "", id ? "number" : "quiet"));
      if (item) item.replaceWith(made);
      else list.append(made);
      item = made;
      if (id) item.firstChild.addEventListener("click", () => rows.choose(item.dataset.id, true));
    }
    if (id) {
      item.dataset.id = id;
      item.firstChild.type = "button";
      say(item.firstChild, visible(name));
    }
    say(item.lastChild, words);
  });
}

function showNames() {
  const now = performance.now();
  const list = names.sorted(byId("order").value);
  const longest = [...list].filter((row) => age(row, now) >= 0).sort((a, b) => age(b, now) - age(a, now)).slice(0, LONGEST);
  rows.show(list);
  say(byId("count"), names.cut ? `the first ${count(NAMES_MAX)}` : `${count(list.length)}${names.whole ? "" : ", loading"}`);
  byId("empty").hidden = list.length > 0 || !names.whole;
  say(byId("empty"), names.filter ? "No name in use is like that." : "No name is in use.");
  showTop(byId("longest"), longest.map((row) => ({ id: row.id, name: row.name, words: span(age(row, now)) })), "nobody holds anything");
}

function showHottest(now) {
  showTop(byId("hottest"), now.hot.slice(0, LONGEST).map((row) => ({ id: row.id, name: row.name, words: `${plural(row.per_minute, "grant")}/min` })),
    "nothing was taken just now");
}

// ---- each second

async function look() {
  const now = await api.cluster();
  showState(now);
  showFacts(now);
  showMembers(now);
  showRates(now, performance.now());
  showHottest(now);
  if (now.may_look) {
    await names.look();
    showNames(); // before the one that is open: whatever is wrong with that, the list goes on
    await detail.tryLook();
  } else {
    say(byId("count"), "this user may not look at names");
  }
}

let wait = EACH_MS;
let timer = 0;
let busy = false;

async function turn() {
  const begin = performance.now();
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  try {
    await look();
    wait = EACH_MS;
    say(byId("live"), "live");
    byId("live").className = "badge good";
  } catch (error) {
    wait = Math.min(EACH_MAX_MS, wait * 2);
    say(byId("live"), `no answer: ${error.message}`);
    byId("live").className = "badge bad";
  }
  busy = false;
  if (!document.hidden) timer = setTimeout(turn, Math.max(100, wait - (performance.now() - begin)));
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    before = null; // a rate over the time away is none
    turn();
  }
});

// ---- what is typed

let typed = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    names.restart(byId("filter").value.trim());
    turn();
  }, TYPED_MS);
});
byId("order").addEventListener("change", showNames);

const KEYS = {
  "/": () => byId("filter").focus(),
  j: () => rows.move(1),
  ArrowDown: () => rows.move(1),
  k: () => rows.move(-1),
  ArrowUp: () => rows.move(-1),
  PageDown: () => rows.move(10),
  PageUp: () => rows.move(-10),
  Home: () => rows.move(-NAMES_MAX),
  End: () => rows.move(NAMES_MAX),
  Enter: () => rows.chosen !== null && detail.open(rows.chosen),
};
const OF_LIST = new Set(["ArrowDown", "ArrowUp", "PageDown", "PageUp", "Home", "End", "Enter"]); // elsewhere the browser's

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || byId("confirm").open) return;
  if (event.key === "Escape") {
    if (at === byId("filter")) at.blur();
    else detail.close();
    return;
  }
  if (at.matches("input, select, textarea")) {
    if (at === byId("filter") && (event.key === "Enter" || event.key === "ArrowDown")) {
      event.preventDefault();
      byId("rows").focus();
      rows.move(0);
    }
    return;
  }
  if (!Object.hasOwn(KEYS, event.key) || (OF_LIST.has(event.key) && at !== byId("rows") && at !== document.body)) return;
  event.preventDefault();
  if (event.key === "j" || event.key === "k") byId("rows").focus({ preventScroll: true });
  KEYS[event.key]();
});

turn();
