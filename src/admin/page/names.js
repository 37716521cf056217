// The names that the page knows. They come a page at a time, round after round: of few names all are looked at each second, of many a part. What is
// gone when a round is over is forgotten. What has changed since the last look is a name's history.
import * as api from "./api.js";

export const NAMES_MAX = 20000;
const PAGE = 500;
const PAGES_AT_ONCE = 4; // in a second, while a round is the first one
const HISTORY_MAX = 100; // of one name
const HISTORIES_MAX = 2000; // names that have one
const SPECIAL = /[*?[\]\\]/;

export class Names {
  constructor() {
    this.rows = new Map();
    this.histories = new Map();
    this.restart("");
  }

  restart(filter) {
    this.filter = filter;
    this.rows.clear();
    this.after = 0;
    this.round = 1;
    this.whole = false; // a round has been made
    this.cut = false; // there are more than the page keeps
  }

  // As the server matches: a part of the name, unless there is something special in it.
  get pattern() {
    return this.filter === "" ? "" : SPECIAL.test(this.filter) ? this.filter : `*${this.filter}*`;
  }

  async look() {
    const filter = this.filter;
    for (let i = 0; i < (this.whole ? 1 : PAGES_AT_ONCE); i++) {
      const page = await api.locks(this.after, this.pattern, PAGE);
      if (filter !== this.filter) return; // somebody has typed meanwhile
      this.take(page);
      if (this.after === 0) break;
    }
  }

  take(page) {
    const now = performance.now();
    for (const row of page.names) {
      const before = this.rows.get(row.id);
      if (!before && this.rows.size >= NAMES_MAX) {
        this.cut = true;
        continue;
      }
      this.note(row.id, before, row);
      row.seen = now;
      row.round = this.round;
      this.rows.set(row.id, row);
    }
    this.after = this.cut ? 0 : page.next;
    if (this.after === 0) this.end();
  }

  end() {
    for (const [id, row] of this.rows)
      if (row.round !== this.round) {
        this.note(id, row, { holders: [], holds: 0, queue: 0 });
        this.rows.delete(id);
      }
    this.whole = true;
    this.round++;
  }

  // before undefined: it is seen for the first time.
  note(id, before, after) {
    const tokens = (row) => new Map(row.holders.map((holder) => [holder.token + holder.state, holder]));
    const had = before ? tokens(before) : new Map();
    const has = tokens(after);
    for (const [key, holder] of had)
      if (!has.has(key) && holder.state === "holds" && before.holds <= before.holders.length)
        this.write(id, `${holder.owner || "somebody"} holds it no more (token ${holder.token})`);
    for (const [key, holder] of has)
      if (!had.has(key))
        this.write(id, holder.state === "withheld" ? `withheld after token ${holder.token}` :
          `held by ${holder.owner || "somebody"} (token ${holder.token}${holder.mode === "exclusive" ? "" : ", " + holder.mode})`);
    if (before && before.queue !== after.queue) this.write(id, `${after.queue} waiting, before ${before.queue}`);
  }

  write(id, words) {
    let history = this.histories.get(id);
    if (!history) {
      if (this.histories.size >= HISTORIES_MAX) this.histories.delete(this.histories.keys().next().value);
      this.histories.set(id, (history = []));
    }
    history.push({ at: new Date(), words });
    if (history.length > HISTORY_MAX) history.shift();
  }

  history(id) {
    return this.histories.get(id) || [];
  }

  sorted(order) {
    const now = performance.now();
    const by = {
      age: (a, b) => age(b, now) - age(a, now),
      waits: (a, b) => waits(b, now) - waits(a, now),
      queue: (a, b) => b.queue - a.queue,
      name: () => 0,
    }[order];
    return [...this.rows.values()].sort((a, b) => by(a, b) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  }
}

// As it is now, and not when it was looked at. -1: nobody holds it.
export function age(row, now) {
  const ages = row.holders.filter((holder) => holder.state === "holds").map((holder) => holder.age_ms);
  return ages.length ? Math.max(...ages) + now - row.seen : -1;
}

export function left(row, now) {
  const lefts = row.holders.filter((holder) => holder.left_ms >= 0).map((holder) => holder.left_ms);
  return lefts.length ? Math.max(0, Math.max(...lefts) - (now - row.seen)) : -1;
}

export function waits(row, now) {
  return row.queue ? row.waits_ms + now - row.seen : -1;
}
