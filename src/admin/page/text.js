// How things are said, and how they get into the page: by textContent, never as markup. Names and owners come from anybody.

const number = new Intl.NumberFormat("en");
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function count(value) {
  return number.format(value);
}

// The two largest units of a span: "3 min 5 s".
export function span(ms) {
  if (ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  let left = Math.floor(ms / 1000);
  const first = UNITS.findIndex(([, seconds]) => left >= seconds);
  const words = [];
  for (const [name, seconds] of UNITS.slice(first, first + 2)) {
    const whole = Math.floor(left / seconds);
    left -= whole * seconds;
    if (whole) words.push(`${whole} ${name}`);
  }
  return words.join(" ");
}

export function latency(us) {
  if (us === null) return "–";
  return us < 1000 ? `${us.toFixed(0)} µs` : us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

export function bytes(value) {
  return value < 1 << 20 ? `${Math.round(value / 1024)} KiB` : `${(value / (1 << 20)).toFixed(1)} MiB`;
}

export function plural(many, one, more = one + "s") {
  return `${count(many)} ${many === 1 ? one : more}`;
}

// What could make a text look like another is shown: an end of line, and what turns the direction of writing around.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) =>
    `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function byId(id) {
  return document.getElementById(id);
}

// Only what is another text is written: what is read aloud, or selected, stays.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (name) element.className = name;
  return element;
}

// The rows of a body: each a list of texts, or of [text, class]. Cells are kept, so that what is selected stays.
export function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      const [text, name] = Array.isArray(cell) ? cell : [cell, ""];
      const element = row.cells[column] || row.insertCell();
      say(element, text);
      element.className = name;
    });
  });
}
