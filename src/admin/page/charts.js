// A line over the last two minutes, as SVG, with its value in words beside it.
import { make, say } from "./text.js";

const POINTS = 120;
const WIDTH = 240;
const HEIGHT = 64;
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, name) {
  const element = document.createElementNS(SVG, tag);
  element.setAttribute("class", name);
  return element;
}

export class Chart {
  // show: a value in words. second: what the dashed line is called, if there is one.
  constructor(parent, title, show, second = "") {
    this.title = title;
    this.show = show;
    this.values = [[], []];
    this.second = second;
    const figure = make("figure");
    const caption = make("figcaption");
    caption.append(make("span", title), (this.now = make("b", "–")));
    this.svg = shape("svg", "chart");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    const base = shape("line", "base");
    base.setAttribute("x2", WIDTH);
    base.setAttribute("y1", HEIGHT - 0.5);
    base.setAttribute("y2", HEIGHT - 0.5);
    this.area = shape("polygon", "area");
    this.lines = [shape("polyline", "line"), shape("polyline", "second")];
    this.svg.append(this.area, base, ...this.lines);
    figure.append(caption, this.svg);
    parent.append(figure);
  }

  // null: there was nothing to measure.
  add(value, second = null) {
    [value, second].forEach((one, at) => {
      this.values[at].push(one);
      if (this.values[at].length > POINTS) this.values[at].shift();
    });
    this.draw();
  }

  draw() {
    const most = Math.max(1e-9, ...this.values.flat().filter((value) => value !== null));
    const x = (at) => WIDTH - (this.values[0].length - 1 - at) * (WIDTH / (POINTS - 1));
    const y = (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 6);
    this.lines.forEach((line, which) => {
      const points = this.values[which].map((value, at) => (value === null ? "" : `${x(at).toFixed(1)},${y(value).toFixed(1)}`)).filter(Boolean);
      line.setAttribute("points", points.join(" "));
      if (which === 0 && points.length) {
        const [first, last] = [points[0].split(",")[0], points[points.length - 1].split(",")[0]];
        this.area.setAttribute("points", `${first},${HEIGHT} ${points.join(" ")} ${last},${HEIGHT}`);
      }
    });
    const [value, second] = this.values.map((all) => all[all.length - 1]);
    const words = this.show(value) + (this.second && second !== null ? `, ${this.second} ${this.show(second)}` : "");
    say(this.now, words);
    this.svg.setAttribute("aria-label", `${this.title}: now ${words}, at most ${this.show(most)}`);
  }
}

// Of a histogram's growth between two looks: the bound below which so large a part of it is. null: nothing was measured.
export function quantile(before, after, bounds, part) {
  const grown = after.map((value, at) => value - before[at]);
  const all = grown.reduce((sum, value) => sum + value, 0);
  let seen = 0;
  if (all <= 0) return null;
  for (let at = 0; at < grown.length; at++) {
    seen += grown[at];
    if (seen >= all * part) return bounds[Math.min(at, bounds.length - 1)];
  }
  return null;
}
