// One name: who holds it, who waits, what has happened since the page was opened; and breaking it, for those who may.
import * as api from "./api.js";
import { byId, count, fill, make, plural, say, span, visible } from "./text.js";

export class Detail {
  constructor(names, changed) {
    this.names = names;
    this.changed = changed; // it was opened or closed
    this.id = null;
    this.lock = null;
    this.leads = true;
    byId("close").addEventListener("click", () => this.close());
    byId("break").addEventListener("click", () => this.ask());
    byId("confirm").addEventListener("close", () => {
      if (byId("confirm").returnValue === "yes") this.break();
    });
    byId("confirm-now").addEventListener("change", () => this.sayWithheld());
  }

  get isOpen() {
    return this.id !== null;
  }

  async open(id) {
    if (!this.isOpen) this.from = document.activeElement;
    this.id = id;
    this.lock = null;
    this.last = this.names.history(id).length ? { holders: [], holds: 0, queue: 0 } : undefined;
    say(byId("detail-title"), visible(decode(id)));
    say(byId("detail-state"), "");
    say(byId("break-result"), "");
    for (const body of ["holders", "waiters"]) fill(byId(body), []);
    byId("history").replaceChildren();
    byId("break").hidden = true;
    byId("detail").hidden = false;
    document.querySelector("main").classList.add("open");
    byId("detail").focus({ preventScroll: true });
    this.changed();
    await this.tryLook();
  }

  // What is wrong is said at the name, and is of no concern to the list.
  async tryLook() {
    try {
      await this.look();
    } catch (error) {
      if (this.isOpen) say(byId("detail-state"), error.message);
    }
  }

  close() {
    if (!this.isOpen) return;
    this.id = null;
    byId("detail").hidden = true;
    document.querySelector("main").classList.remove("open");
    if (this.from && this.from.isConnected) this.from.focus({ preventScroll: true });
    this.changed();
  }

  async look() {
    const id = this.id;
    if (id === null) return;
    const lock = await api.lock(id);
    if (id !== this.id) return;
    // The list has three holders of a name: what is compared is the same as there, with whoever has looked last.
    const row = this.names.rows.get(id);
    const short = { ...lock, holders: lock.holders.slice(0, 3), seen: performance.now() };
    this.names.note(id, row || this.last, short);
    if (row) Object.assign(row, short, { round: row.round });
    this.last = short;
    this.lock = lock;
    this.show();
  }

  show() {
    const lock = this.lock;
    const withheld = lock.holders.some((holder) => holder.state === "withheld");
    say(byId("detail-title"), visible(lock.name));
    say(byId("detail-state"), (lock.holds === 0 ? "Nobody holds it." : withheld ? "Withheld: those who held it may still believe that they do." :
      `Held by ${plural(lock.holds, "holder")}.`) + (lock.permits ? ` ${count(lock.permits)} permits in all.` : ""));
    fill(byId("holders"), lock.holders.map((holder) => [visible(holder.owner) || "–", [span(holder.age_ms), "number"],
      [span(holder.left_ms), "number"], holder.state === "withheld" ? "withheld" : holder.mode, [String(holder.token), "number"]]));
    fill(byId("waiters"), lock.waiters.map((waiter, at) => [[String(at + 1), "number"], visible(waiter.owner) || "–", waiter.mode, [span(waiter.age_ms), "number"]]));
    byId("queue").hidden = lock.waiters.length === 0;
    say(byId("waiting-count"), lock.queue > lock.waiters.length ? `the first ${lock.waiters.length} of ${count(lock.queue)}` : count(lock.queue));
    this.showHistory();
    byId("break").hidden = !(lock.may_break && lock.holds > 0 && this.leads);
    say(byId("break-why-not"), lock.may_break && lock.holds > 0 && !this.leads ? "Only the leader can break it: open its page." : "");
  }

  showHistory() {
    const history = this.names.history(this.id);
    const list = byId("history");
    const key = `${this.id} ${history.length} ${history.length ? history[history.length - 1].at.getTime() : 0}`;
    if (this.shown === key && list.childElementCount) return;
    this.shown = key;
    list.replaceChildren(...[...history].reverse().map(({ at, words }) => {
      const item = make("li");
      const time = make("time", at.toLocaleTimeString());
      time.dateTime = at.toISOString();
      item.append(time, visible(words));
      return item;
    }));
    if (!history.length) list.append(make("li", "nothing yet", "quiet"));
  }

  // ---- breaking

  ask() {
    const owners = [...new Set(this.lock.holders.map((holder) => visible(holder.owner) || "somebody"))];
    say(byId("confirm-title"), `Break ${visible(this.lock.name)}?`);
    say(byId("confirm-holders"), `Held by ${owners.slice(0, 5).join(", ")}${owners.length > 5 ? `, and ${owners.length - 5} more` : ""}; ${plural(this.lock.queue, "waits", "wait")}.`);
    byId("confirm-now").checked = false;
    this.sayWithheld();
    byId("confirm").returnValue = "no";
    this.asked = this.id;
    byId("confirm").showModal();
  }

  sayWithheld() {
    const longest = this.lock ? Math.max(0, ...this.lock.holders.map((holder) => holder.left_ms)) : 0;
    say(byId("confirm-withheld"), byId("confirm-now").checked ? "The next one gets it at once: if somebody is still at work, there are two." :
      `Nobody gets it before their leases would have run out, in ${span(longest)} at most: so there are never two.`);
  }

  async break() {
    const id = this.asked;
    const now = byId("confirm-now").checked;
    try {
      const { broken } = await api.breakLock(id, now);
      say(byId("break-result"), broken ? `Broken: ${plural(broken, "hold")}.` : "Nobody held it any more.");
      this.names.write(id, now ? "broken from this page, and given away at once" : "broken from this page");
    } catch (error) {
      say(byId("break-result"), `Not known to be broken: ${error.message}`);
    }
    await this.look().catch(() => {});
  }
}

function decode(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}
