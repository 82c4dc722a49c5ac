// Money: the bill taken apart, what was paid for nothing, and what it could have cost.

import { Charts, COLOURS } from "./charts.js";
import { figureRow } from "./now.js";
import { element, money, percent, put } from "./text.js";

export class Money {
  constructor(film, app) {
    this.film = film; this.app = app;
    this.root = element("div");
    this.figures = figureRow(["total", "month", "idle", "best"], this.root);
    this.tables = element("div", { class: "columns two" });
    this.hours = element("div");
    this.root.append(this.tables, element("section", { class: "card", "aria-label": "Bill by hour" }, this.hours));
    this.charts = new Charts(film, this.hours);
  }

  async shown() { await this.load(); this.bound(); }
  update() { const now = performance.now(); if (!this.at || now - this.at > 10000) this.load(); }

  async load() {
    this.at = performance.now();
    const told = await this.app.ask(`money?run=${this.film.number}`), currency = this.film.currency, state = this.film.at(this.film.end);
    put(this.figures.total.value, money(told.total, currency)); put(this.figures.total.label, `in all, on ${told.hosts} hosts`);
    put(this.figures.month.value, money(state.month, currency)); put(this.figures.month.label, "a month like this run");
    put(this.figures.idle.value, percent(told.idle_ratio)); put(this.figures.idle.label, `idle: ${money(told.idle, currency)} for cores nobody held`);
    const part = (title, amounts, idle = null, note = "") => {
      const rows = Object.entries(amounts).sort((a, b) => b[1] - a[1]), most = Math.max(idle ?? 0, ...rows.map((one) => one[1]), 1e-9);
      if (idle !== null) rows.push(["idle", idle]);
      return element("section", { class: "card" }, element("h2", {}, title), note ? element("p", { class: "note" }, note) : "",
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, element("table", {}, element("thead", {}, element("tr", {}, ...["", currency || "amount", "share", ""].map((text, i) => (i === 0 || i === 3 ? element("td") : element("th", { scope: "col" }, text))))),
          element("tbody", {}, ...rows.map(([name, amount]) => {
            const bar = element("div", { class: name === "idle" ? "meter idle" : "meter" }); bar.style.width = `${(100 * amount) / most}%`;
            return element("tr", {}, element("th", { scope: "row", class: "left" }, name), element("td", {}, money(amount)), element("td", {}, percent(told.total ? amount / told.total : 0)), element("td", { class: "bar-cell" }, bar));
          })))));
    };
    this.tables.replaceChildren(
      part("By unit", told.by_unit, told.idle, "A lease's cost goes to the instances on the host, by the cores they hold; the rest is idle."),
      element("div", {}, part("By site", told.by_site), part("By flavour", told.by_flavour)));
    this.charts.clear();
    const sites = Object.keys(told.by_site), start = this.film.start;
    this.charts.add({ title: "Charged in each hour", height: 170, series: sites.map((site, i) => ({ label: site, at: told.by_hour.map((one) => start + one.hour * 3600), values: told.by_hour.map((one) => one.by_site[site] ?? 0), colour: COLOURS[i], step: true })).map((one) => this.lasting(one)) });
    this.charts.add({ title: "Bill so far", height: 150, series: [{ label: "bill", at: this.film.ticks.at, values: this.film.ticks.bill, colour: COLOURS[0], step: true }] });
  }

  // An hour lasts: its step is drawn to its end, or as far as the run went.
  lasting(series) {
    if (!series.at.length) return series;
    return { ...series, at: [...series.at, Math.max(series.at.at(-1) + 1, Math.min(series.at.at(-1) + 3600, this.film.newest))], values: [...series.values, series.values.at(-1)] };
  }

  async bound() {
    put(this.figures.best.value, "…"); put(this.figures.best.label, "what the clairvoyant plan costs");
    const told = await this.app.ask(`clairvoyant?run=${this.film.number}`), bill = this.film.ticks.bill.at(-1) ?? 0;
    put(this.figures.best.value, told.cost === null ? "–" : money(told.cost, this.film.currency));
    put(this.figures.best.label, told.cost === null ? `clairvoyant plan: ${told.why}` : `the clairvoyant plan; this run cost ${told.cost ? (bill / told.cost).toFixed(2) : "–"} × that`);
  }
}
