// Line charts on one time axis: they share their cursor and their zoom.

import { element, instant, number } from "./text.js";

// Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
const ON_WHITE = ["#0072b2", "#c98500", "#009e73", "#cc79a7", "#4a9fd1", "#b84000", "#7f7f7f", "#a39600", "#332288", "#882255", "#117733", "#661100"];
const ON_BLACK = ["#56b4e9", "#f0b429", "#2bc49a", "#e39cc4", "#9bd3ff", "#ff8a4c", "#a7b0b8", "#d9cf4a", "#a99cf5", "#e08fae", "#7fd18a", "#d9a08f"];
// Those of the theme there is now; a view is made anew when it changes.
export const COLOURS = [...ON_WHITE];
const tint = () => COLOURS.splice(0, COLOURS.length, ...(document.documentElement.dataset.theme === "dark" ? ON_BLACK : ON_WHITE));
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Charts {
  constructor(film, root) {
    tint();
    this.film = film; this.root = root; this.all = []; this.range = null;
    this.sync = uPlot.sync(`charts-${Math.random()}`);
    this.onZoom = null;
    new ResizeObserver(() => this.fit()).observe(root);
  }

  clear() { for (const one of this.all) one.plot.destroy(); this.all = []; this.root.replaceChildren(); }
  get width() { return Math.max(260, this.root.clientWidth); }
  fit() { for (const one of this.all) if (Math.abs(one.plot.width - this.width) > 2) one.plot.setSize({ width: this.width, height: one.height }); }

  // series: [{label, at, values, step, dash, colour, points, band: [low, high]}]; each has times of its own.
  // All charts show the same time, whatever each has values for.
  get whole() { return [this.film.start, Math.max(this.film.newest, this.film.start + 1)]; }

  legend(series) {
    const legend = element("span", { class: "legend" });
    for (const one of series) {
      if (one.hidden) continue;
      const swatch = element("i"); swatch.style.background = one.colour;
      legend.append(element("span", {}, swatch, one.label));
    }
    return legend;
  }

  add({ title, series, height = 130, unit = "", log = false, line = null, note = "", marks = null, click = null, zero = true, whole = false, named = true }) {
    const holder = element("div", { class: "chart" });
    holder.append(element("h3", {}, title), named ? this.legend(series) : this.legend(series.filter((one) => one.own)), note ? element("div", { class: "note" }, note) : "");
    this.root.append(holder);
    const tables = series.map((one) => [one.at, one.values]);
    let data = tables.length ? uPlot.join(tables, series.map((one) => [one.gaps ? 1 : 2])) : [[]];
    if (!data[0].length) data = [[this.film.start, this.film.newest || 1], ...series.map(() => [null, null])];
    const film = this.film;
    const options = {
      width: this.width, height, cursor: { sync: { key: this.sync.key, setSeries: false }, drag: { x: true, y: false }, y: false },
      legend: { show: false }, padding: [marks ? 14 : null, 42, null, null],
      scales: { x: { time: false, range: () => this.range ?? this.whole }, y: log ? { distr: 3 } : { range: (_, low, high) => [zero ? Math.min(0, low ?? 0) : low, high === null || high === low ? (high ?? 0) + 1 : high + (high - Math.min(0, low)) * 0.06] } },
      axes: [
        { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") }, values: (_, splits) => splits.map((at) => instant(film, at)), size: 26, space: 90, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800] },
        { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") }, size: 74, space: 22, values: (_, splits) => splits.map((value) => (value === null ? "" : marks ? marks[value] ?? "" : `${number(value)}${unit}`)), ...(marks ? { splits: () => marks.map((_, i) => i) } : {}), ...(log ? { splits: (_, __, low, high) => [0.01, 0.1, 1, 10, 100, 1000, 10000].filter((v) => v >= low && v <= high) } : {}), ...(whole ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] } : {}) },
      ],
      series: [{}, ...series.map((one) => ({
        label: one.label, stroke: one.colour, width: one.points ? 0 : one.thin ? 0.8 : 1.6, dash: one.dash, spanGaps: !one.gaps,
        paths: one.points ? () => null : one.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: one.points ? { show: true, size: 8, fill: one.hollow ? ink("--paper") : one.colour, stroke: one.colour, width: 1.5 } : { show: false },
      }))],
      bands: series.flatMap((one, i) => (one.band ? [{ series: [i + 2, i + 1].map(Number), fill: `${one.colour}30` }] : [])),
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width > 4) this.zoom([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        draw: [(plot) => { if (line !== null) drawLine(plot, line, ink("--soft")); if (this.mark !== undefined && this.mark !== null) drawMark(plot, this.mark, ink("--accent")); }],
        ready: [(plot) => {
          plot.over.addEventListener("dblclick", () => this.zoom(null));
          if (click) plot.over.addEventListener("click", () => { if (plot.cursor.left >= 0) click(plot.posToVal(plot.cursor.left, "x")); });
        }],
      },
    };
    const plot = new uPlot(options, data, holder);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `${title}: ${series.filter((one) => !one.hidden).map((one) => `${one.label}, last ${number(one.values.findLast((value) => value !== null) ?? null)}`).slice(0, 8).join("; ")}`);
    this.all.push({ plot, height });
    return plot;
  }

  zoom(range) {
    this.range = range;
    for (const one of this.all) {
      const [low, high] = range ?? this.whole;
      one.plot.setScale("x", { min: low, max: high });
    }
    this.onZoom?.(range);
  }

  point(at) { this.mark = at; for (const one of this.all) one.plot.redraw(false, false); }
}

function drawLine(plot, value, colour) {
  const y = Math.round(plot.valToPos(value, "y", true)), context = plot.ctx;
  if (!Number.isFinite(y) || y < plot.bbox.top || y > plot.bbox.top + plot.bbox.height) return;
  context.save(); context.strokeStyle = colour; context.setLineDash([6, 4]); context.lineWidth = 1;
  context.beginPath(); context.moveTo(plot.bbox.left, y); context.lineTo(plot.bbox.left + plot.bbox.width, y); context.stroke(); context.restore();
}

function drawMark(plot, at, colour) {
  const x = Math.round(plot.valToPos(at, "x", true)), context = plot.ctx;
  if (!Number.isFinite(x) || x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
  context.save(); context.strokeStyle = colour; context.lineWidth = 2;
  context.beginPath(); context.moveTo(x, plot.bbox.top); context.lineTo(x, plot.bbox.top + plot.bbox.height); context.stroke(); context.restore();
}
