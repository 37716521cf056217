// The list of names: only as many rows as are seen, whatever is in it. The rows are used again and again.
import { age, left } from "./names.js";
import { byId, count, make, plural, say, span, visible } from "./text.js";

const SPARE = 4; // rows above and below what is seen
const COLUMNS = ["name", "holder", "number age", "number left", "number queue"];

export class Rows {
  constructor(open) {
    this.box = byId("rows");
    this.space = byId("space");
    this.open = open;
    this.list = [];
    this.pool = [];
    this.chosen = null; // an id
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(row.dataset.id, true);
    });
  }

  get height() {
    return parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10);
  }

  show(list) {
    this.list = list;
    this.box.setAttribute("aria-rowcount", list.length);
    this.draw();
  }

  draw() {
    const height = this.height;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - SPARE);
    const many = Math.min(this.list.length - first, Math.ceil(this.box.clientHeight / height) + 2 * SPARE);
    this.space.style.height = `${this.list.length * height}px`;
    while (this.pool.length < many) this.pool.push(this.row());
    this.pool.forEach((row, at) => {
      row.hidden = at >= many;
      if (at < many) this.fill(row, this.list[first + at], first + at, height);
    });
  }

  row() {
    const row = make("div", "", "row");
    row.setAttribute("role", "row");
    for (const name of COLUMNS) {
      const cell = make("span", "", name);
      cell.setAttribute("role", "gridcell");
      row.append(cell);
    }
    this.box.append(row);
    return row;
  }

  fill(row, lock, at, height) {
    const now = performance.now();
    const [name, holder, held, lease, queue] = row.children;
    const first = lock.holders[0];
    const more = lock.holds > 1 ? ` and ${lock.holds - 1} more` : "";
    row.style.transform = `translateY(${at * height}px)`;
    row.dataset.id = lock.id;
    row.id = `row-${at}`;
    row.setAttribute("aria-rowindex", at + 1);
    row.setAttribute("aria-selected", lock.id === this.chosen);
    if (lock.id === this.chosen) this.box.setAttribute("aria-activedescendant", row.id);
    say(name, visible(lock.name));
    name.title = visible(lock.name);
    say(holder, !first ? "nobody" : (first.state === "withheld" ? "withheld" : visible(first.owner) || "somebody") + more);
    say(held, age(lock, now) < 0 ? "–" : span(age(lock, now)));
    say(lease, left(lock, now) < 0 ? "–" : span(left(lock, now)));
    row.setAttribute("aria-label", `${visible(lock.name)}: ${plural(lock.holds, "holder")}, ${lock.queue} waiting`);
    say(queue, lock.queue ? count(lock.queue) + (innerWidth < 700 ? " waiting" : "") : "–");
  }

  // by: so many further.
  move(by) {
    const at = this.list.findIndex((lock) => lock.id === this.chosen);
    const next = this.list[Math.min(this.list.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    if (next) this.choose(next.id, false);
  }

  choose(id, opens) {
    this.chosen = id;
    const at = this.list.findIndex((lock) => lock.id === id);
    const height = this.height;
    if (at >= 0) {
      const top = this.box.scrollTop;
      if (at * height < top) this.box.scrollTop = at * height;
      else if ((at + 1) * height > top + this.box.clientHeight) this.box.scrollTop = (at + 1) * height - this.box.clientHeight;
    }
    this.draw();
    if (opens) this.open(id);
  }
}
