// Why: the decisions on the time axis, with all that they were made from; a decision opens.

import { Charts, COLOURS } from "./charts.js";
import { KINDS, kindWord, verb } from "./film.js";
import { duration, element, instant, money, number, percent } from "./text.js";

const MOST_LINES = 12, MOST_LISTED = 250;

export class Why {
  constructor(film, app, unit = "") {
    this.film = film; this.app = app; this.unit = unit; this.opened = null; this.forecast = null; this.range = null;
    this.root = element("div");
    const choice = element("select", { id: "why-unit", onchange: () => { this.unit = choice.value; this.forecast = null; this.draw(); } },
      element("option", { value: "" }, "all units"), ...film.names.map((name) => element("option", { value: name, selected: name === unit }, name)));
    this.choice = choice;
    this.charts = element("div");
    this.list = element("ol", { class: "decisions" });
    this.count = element("p", { class: "note" });
    this.detail = element("section", { class: "card", "aria-live": "polite", id: "decision" }, element("h2", {}, "A decision"), element("p", { class: "note" }, "Choose one in the list or on the time line; j and k go on and back."));
    this.root.append(
      element("p", {}, element("label", { for: "why-unit" }, "Unit "), choice, " ", element("button", { type: "button", onclick: () => this.drawn.zoom(null) }, "whole run")),
      element("div", { class: "columns why" }, element("section", { class: "card", "aria-label": "Time line" }, this.charts),
        element("div", {}, this.detail, element("section", { class: "card" }, element("h2", {}, "Decisions"), this.count, this.list))));
    this.drawn = new Charts(film, this.charts);
    this.drawn.onZoom = (range) => { this.range = range; this.fill(); };
  }

  shown() { this.draw(); }
  show(unit) { this.unit = unit; this.choice.value = unit; this.forecast = null; this.draw(); }
  update() { const now = performance.now(); if (!this.drawnAt || now - this.drawnAt > 4000) this.draw(); }

  get units() {
    if (this.unit) return [this.unit];
    if (this.film.names.length <= MOST_LINES) return this.film.names;
    const busy = (name) => Math.max(0, ...(this.film.seen[name]?.waiting ?? [0]).slice(-200));
    return [...this.film.names].sort((a, b) => busy(b) - busy(a)).slice(0, MOST_LINES);
  }

  // Decisions of one tick belong together.
  get groups() {
    const found = new Map();
    for (const action of this.film.actions) {
      if (this.unit && action.unit && action.unit !== this.unit) continue;
      (found.get(action.at) ?? found.set(action.at, []).get(action.at)).push(action);
    }
    return [...found.entries()].sort((a, b) => a[0] - b[0]);
  }

  draw() {
    this.drawnAt = performance.now();
    const film = this.film, charts = this.drawn, units = this.units;
    charts.clear();
    const many = !this.unit && units.length > 1;
    const colour = (i) => COLOURS[i % COLOURS.length];
    const line = (column, more = {}) => units.flatMap((name, i) => (film.seen[name] ? [{ label: name, at: film.seen[name].at, values: film.seen[name][column], colour: colour(i), ...more }] : []));
    charts.add({ title: "Decisions", height: 150, marks: KINDS.map(kindWord), zero: false, click: (at) => this.nearest(at), series: this.markers(), note: film.names.length > units.length && !this.unit ? `lines below: the ${units.length} of ${film.names.length} units with most waiting` : "" });
    if (many) this.charts.append(element("p", { class: "note units" }, "Lines below: ", charts.legend(units.map((label, i) => ({ label, colour: colour(i) })))));
    charts.add({ title: "Load", unit: "/s", named: !many, note: this.filterNote("in_filtered"), series: [...line("in", { step: true, ...this.taken("in_filtered") }), ...this.smooth("in_filtered"), ...this.band()] });
    charts.add({ title: "Waiting records", whole: true, named: !many, note: this.filterNote("waiting_filtered"), series: [...line("waiting", this.taken("waiting_filtered")), ...this.smooth("waiting_filtered")] });
    charts.add({ title: "Instances", whole: true, named: !many, series: this.unit ? [...line("instances", { step: true, label: "wanted", dash: [5, 4] }), ...line("running", { step: true, label: "running", colour: COLOURS[2] })] : line("instances", { step: true }) });
    charts.add({ title: "Hosts", height: 100, whole: true, series: [{ label: "leased", at: film.ticks.at, values: film.ticks.hosts, colour: COLOURS[0], step: true }, { label: "up", at: film.ticks.at, values: film.ticks.up, colour: COLOURS[2], step: true }] });
    const ratio = (name, column) => film.seen[name][column].map((value) => (value === null ? null : Math.max(0.01, value / film.units[name].slo)));
    charts.add({ title: "Duration as a multiple of the SLO", log: true, line: 1, named: !many, series: units.flatMap((name, i) => (film.seen[name] ? [{ label: this.unit ? "mean" : name, at: film.seen[name].at, values: ratio(name, "duration"), colour: colour(i) }, ...(this.has("duration_filtered") ? [{ label: "mean, filtered", at: film.seen[name].at, values: film.seen[name].duration_filtered.map((value, k) => (value === null ? null : Math.max(0.01, value / film.units[name].slo))), colour: COLOURS[2] }] : []), ...(this.unit ? [{ label: "95th percentile", at: film.seen[name].at, values: ratio(name, "p95"), colour: COLOURS[5], thin: true }] : [])] : [])) });
    if (this.unit) charts.add({ title: "Age of records at the end, from their source on", unit: " s", height: 100, series: line("latency", { label: "mean latency" }) });
    charts.add({ title: "CPU", named: !many, series: this.cpu(units, line), note: !this.unit ? "" : film.units[this.unit].filter === "none" ? "as it was read: this unit has no filter" : `filter ${film.units[this.unit].filter}; the band is one standard deviation of its estimate` });
    charts.zoom(this.range);
    charts.point(this.opened);
    this.fill();
  }

  // What was measured is drawn thin beside what a filter made of it, where one did.
  has(column) { return this.unit && this.film.seen[this.unit]?.[column]; }
  taken(column) { return this.has(column) ? { label: "measured", colour: COLOURS[6], thin: true } : {}; }
  smooth(column) {
    if (!this.has(column)) return [];
    const own = this.film.seen[this.unit], plain = own[column.replace("_filtered", "")];
    return [{ label: "filtered: what the policy saw", at: own.at, values: own[column].map((value, i) => value ?? plain[i]), colour: COLOURS[0] }];
  }
  filterNote(column) { return this.has(column) ? `filter ${this.film.units[this.unit].filter}` : ""; }

  cpu(units, line) {
    if (!this.unit) return line("cpu");
    const own = this.film.seen[this.unit];
    if (!own) return [];
    const raw = own.cpu_read ? [{ label: "as it was read", at: own.at, values: own.cpu_read, colour: COLOURS[6], thin: true }] : [];
    const mean = { label: raw.length ? "filtered" : "CPU", at: own.at, values: own.cpu, colour: COLOURS[0] };
    if (!own.cpu_std.some((value) => value !== null)) return [...raw, mean];
    const moved = (sign) => own.cpu.map((value, i) => (value === null || own.cpu_std[i] === null ? null : value + sign * own.cpu_std[i]));
    return [...raw, { label: "", at: own.at, values: moved(-1), colour: COLOURS[0], thin: true, hidden: true, band: true }, { label: "", at: own.at, values: moved(1), colour: COLOURS[0], thin: true, hidden: true }, mean];
  }

  band() {
    const told = this.forecast;
    if (!told || told.unit !== this.unit && this.unit || !told.ahead.length) return [];
    const at = told.ahead.map((ahead) => told.at + ahead);
    return [
      { label: "", hidden: true, at, values: told.quantiles["0.1"], colour: COLOURS[5], thin: true, band: true },
      { label: "", hidden: true, at, values: told.quantiles["0.9"], colour: COLOURS[5], thin: true },
      { own: true, label: `forecast for ${told.unit} (10 to 90 %)`, at, values: told.quantiles["0.5"], colour: COLOURS[5], dash: [4, 3] },
    ];
  }

  markers() {
    return KINDS.flatMap((kind, i) => ["done", "refused"].map((how) => {
      const own = this.film.actions.filter((action) => action.kind === kind && (how === "refused") === (action.status === "refused" || action.status === "failed") && (!this.unit || !action.unit || action.unit === this.unit));
      const times = [...new Set(own.map((action) => action.at))];
      return { label: how === "done" ? kindWord(kind) : "", hidden: how === "refused" || !times.length, at: times, values: times.map(() => i), colour: how === "done" ? COLOURS[i] : COLOURS[5], points: true, hollow: how === "refused", gaps: true };
    }));
  }

  fill() {
    const inside = this.groups.filter(([at]) => !this.range || (at >= this.range[0] && at <= this.range[1]));
    const shown = inside.slice(-MOST_LISTED).reverse();
    this.count.textContent = inside.length > shown.length ? `the last ${shown.length} of ${inside.length}; zoom the charts for others` : `${inside.length} moments, newest first`;
    this.list.replaceChildren(...shown.map(([at, actions]) => element("li", {}, element("button", { type: "button", "aria-pressed": at === this.opened ? "true" : "false", "data-at": at, onclick: () => this.open(at) },
      element("time", {}, instant(this.film, at)), summary(actions)))));
  }

  nearest(at) {
    const groups = this.groups;
    if (groups.length) this.open(groups.reduce((best, one) => (Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best))[0]);
  }

  step(by) {
    const times = this.groups.map(([at]) => at), place = times.indexOf(this.opened);
    const next = place < 0 ? (by > 0 ? 0 : times.length - 1) : Math.min(times.length - 1, Math.max(0, place + by));
    if (times.length) this.open(times[next]);
  }

  async open(at) {
    this.opened = at;
    this.forecast = null;  // the one before was of another instant
    this.drawn.point(at);
    for (const button of this.list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(+button.dataset.at === at));
    this.uncover(this.list.querySelector("[aria-pressed=true]"));
    const told = await this.app.ask(`moment?run=${this.film.number}&at=${at}`);
    if (this.opened !== at) return;
    const concerned = new Set(told.decided.filter((one) => one.status !== "held").map((one) => one.unit).filter(Boolean));
    const unit = this.unit || [...concerned][0] || this.film.names[0];
    this.describe(told, concerned);
    const forecast = await this.app.ask(`forecast?run=${this.film.number}&unit=${encodeURIComponent(unit)}&at=${at}`);
    if (this.opened !== at) return;  // another decision was opened meanwhile: this forecast is not its own
    this.forecast = forecast;
    this.describe(told, concerned);
    this.draw();
  }

  // Moves the list alone: the page stays where it is.
  uncover(row) {
    if (!row) return;
    const { list } = this, top = row.parentNode.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + row.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
  }

  describe(told, concerned) {
    const film = this.film, wanted = (one) => !this.unit || !one.unit || one.unit === this.unit;
    const rows = told.seen.filter((row) => (this.unit ? row.unit === this.unit : !concerned.size || concerned.has(row.unit))).slice(0, 30);
    const lines = (status) => told.decided.filter((one) => status.includes(one.status) && wanted(one));
    const list = (title, items, write) => (items.length ? [element("h3", {}, title), element("ul", { class: "facts" }, ...items.slice(0, 40).map((one) => element("li", {}, ...write(one))))] : []);
    const paid = told.paid.reduce((sum, one) => sum + +one.amount, 0);
    const forecast = this.forecast && this.forecast.ahead.length ? [element("p", { class: "note" }, `Forecast for ${this.forecast.unit} (${this.forecast.by}): in ${duration(this.forecast.ahead[0])} ${number(this.forecast.quantiles["0.5"][0])}/s (${number(this.forecast.quantiles["0.1"][0])} to ${number(this.forecast.quantiles["0.9"][0])}).`)] : [];
    this.detail.replaceChildren(
      element("h2", {}, `${instant(film, told.at)}${film.start > 1e9 ? "" : " into the run"}`),
      element("h3", {}, "Seen"),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What was seen" }, element("table", {}, element("thead", {}, element("tr", {}, ...["unit", "in /s", "wait", "took", "SLO", "CPU", "inst."].map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...rows.map((row) => element("tr", {}, ...[row.unit, number((row.arrived ?? 0) / row.interval_s), number(row.waiting), duration(row.duration_s), duration(film.units[row.unit]?.slo), percent(row.cpu_ratio), `${row.running}/${row.instances}`].map((text) => element("td", {}, text))))))),
      ...forecast,
      ...list("Done", together(lines(["enacted", "intended"])), ({ what, one }) => [element("b", {}, what), `: ${one.reason} (${one.policy})`]),
      ...list("Refused by a guard", together(lines(["refused"])), ({ what, one }) => [element("b", {}, what), `: ${one.reason}. Refused: ${one.refused}`]),
      ...list("Failed", lines(["failed"]), (one) => [element("b", {}, verb({ ...one, host: null })), `: ${one.refused}`]),
      ...list("Left as it is", lines(["held"]), (one) => [element("b", {}, one.unit ?? one.subject), `: ${one.reason}`]),
      ...(told.paid.length ? [element("h3", {}, `Paid at this tick: ${money(paid, film.currency)}`), element("ul", { class: "facts" }, ...told.paid.slice(0, 20).map((one) => element("li", {}, `${one.host}: ${money(+one.amount, film.currency)}${told.decided.some((made) => made.reason === one.reason) ? "" : `, ${one.reason}`}`)))] : [element("p", { class: "note" }, "Nothing was paid at this tick.")]),
    );
  }
}

// What was decided for one reason is one line.
function together(decided) {
  const found = new Map();
  for (const one of decided) {
    const key = `${one.reason}|${one.policy}|${one.refused ?? ""}`, own = found.get(key) ?? found.set(key, { one, kinds: new Map() }).get(key);
    (own.kinds.get(one.kind) ?? own.kinds.set(one.kind, []).get(one.kind)).push(one.subject);
  }
  return [...found.values()].map(({ one, kinds }) => ({ one, what: [...kinds].map(([kind, subjects]) => `${kindWord(kind)} ${subjects.join(", ")}`).join("; ") }));
}

function summary(actions) {
  const counts = new Map();
  for (const action of actions) {
    const key = `${kindWord(action.kind)}|${action.unit ?? ""}|${action.status === "refused" ? " (refused)" : ""}`;
    (counts.get(key) ?? counts.set(key, []).get(key)).push(action.subject);
  }
  return [...counts].map(([key, subjects]) => { const [word, unit, refused] = key.split("|"); return `${word} ${subjects.length > 1 ? `${subjects.length} × ${unit || "hosts"}` : subjects[0]}${refused}`; }).join("; ");
}
