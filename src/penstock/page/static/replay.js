// Replay: a slider through a run; with two runs both at the same time since their start, differences marked.

import { Charts, COLOURS } from "./charts.js";
import { Now } from "./now.js";
import { duration, element, money, number, percent, put } from "./text.js";

const SPEEDS = [["10 min a second", 600], ["1 min a second", 60], ["10 s a second", 10], ["as it was", 1]];

export class Replay {
  constructor(films, app) {
    this.films = films; this.app = app; this.at = 0; this.playing = null;
    this.length = Math.max(...films.map((film) => film.end - film.start), 1);
    this.root = element("div");
    const speed = element("select", { "aria-label": "Speed" }, ...SPEEDS.map(([text, value]) => element("option", { value, selected: value === (this.length > 7200 ? 600 : this.length > 900 ? 60 : 10) }, text)));
    this.speed = speed;
    this.slider = element("input", { type: "range", min: 0, max: Math.ceil(this.length), value: 0, step: 1, id: "replay-slider", oninput: () => this.go(+this.slider.value) });
    this.button = element("button", { type: "button", onclick: () => this.play() }, "▶ play");
    this.time = element("output", { for: "replay-slider" });
    this.root.append(element("div", { class: "card slider" }, this.button, element("label", { for: "replay-slider" }, "Time "), this.slider, this.time, speed));
    if (films.length > 1) {
      this.rows = element("tbody");
      const names = films.map((film, i) => `${i ? "B" : "A"}: ${film.label}`);
      this.root.append(element("section", { class: "card" }, element("h2", {}, "Differences"), element("p", { class: "note" }, names.join("; ")),
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Differences" }, element("table", {}, element("thead", {}, element("tr", {}, element("td"), ...["A", "B", "B − A"].map((text) => element("th", { scope: "col" }, text)))), this.rows))));
      this.curves = element("div");
      this.root.append(element("section", { class: "card", "aria-label": "Both runs" }, this.curves));
      this.charts = new Charts({ start: 0, newest: this.length }, this.curves);
    }
    this.panels = films.map((film, i) => new Now(film, app, { compact: films.length > 1, title: films.length > 1 ? `${i ? "B" : "A"}: ${film.label}` : "" }));
    this.root.append(films.length > 1 ? element("div", { class: "columns two" }, ...this.panels.map((panel) => element("div", {}, panel.root))) : this.panels[0].root);
  }

  shown() { if (this.charts) this.draw(); this.go(this.at || Math.round(this.length / 2)); }
  hidden() { this.stop(); }
  update() {}
  stop() { clearInterval(this.playing); this.playing = null; this.button.textContent = "▶ play"; }
  play() {
    if (this.playing) { this.stop(); return; }
    if (this.at >= this.length) this.at = 0;
    this.button.textContent = "■ stop";
    this.playing = setInterval(() => { if (this.at >= this.length) this.stop(); else this.go(Math.min(this.length, this.at + +this.speed.value / 5)); }, 200);
  }
  step(by) { this.go(Math.max(0, Math.min(this.length, this.at + by * Math.max(15, this.length / 100)))); }

  go(at) {
    this.at = at;
    this.slider.value = at;
    put(this.time, `${duration(at)} of ${duration(this.length)}`);
    this.slider.setAttribute("aria-valuetext", this.time.textContent);
    const states = this.films.map((film) => film.at(Math.min(film.start + at, film.end)));
    const differs = this.films.length > 1 ? differing(...states) : null;
    this.panels.forEach((panel, i) => panel.update(states[i], differs));
    this.app.say(this.films[0], states[0], this.films.length > 1 ? "A: " : "");
    if (this.rows) { this.compare(states, differs); this.charts.point(at); }
  }

  compare(states, differs) {
    const sum = (state, key) => state.units.reduce((total, unit) => total + (unit[key] ?? 0), 0), currency = this.films[0].currency;
    const rows = [
      ["bill so far", states.map((one) => one.bill), (v) => money(v, currency), -1], ["rate", states.map((one) => one.rate), (v) => `${money(v, currency)}/h`, -1],
      ["kept so far", states.map((one) => one.kept), percent, 1, (gap) => `${+(gap * 100).toFixed(1)} points`], ["hosts", states.map((one) => one.hosts.length), number, -1],
      ["instances", states.map((one) => sum(one, "instances")), number, 0], ["waiting", states.map((one) => sum(one, "waiting")), number, -1],
      ...[...differs].slice(0, 20).map((name) => [`${name}: instances`, states.map((one) => one.units.find((unit) => unit.name === name)?.instances ?? 0), number, 0]),
    ];
    this.rows.replaceChildren(...rows.map(([name, [a, b], write, good, apart = write]) => {
      const gap = a === null || b === null || a === undefined || b === undefined ? null : b - a, same = gap === null || Math.abs(gap) < 1e-9;
      const look = same || !good ? (same ? "" : "more") : gap * good > 0 ? "better" : "worse";
      return element("tr", {}, element("th", { scope: "row", class: "left" }, name), element("td", {}, write(a)), element("td", {}, write(b)), element("td", { class: look }, same ? "=" : `${gap > 0 ? "+" : "−"}${apart(Math.abs(gap))}`));
    }));
  }

  draw() {
    this.charts.clear();
    const total = (film, key) => {
      const sums = new Map();
      for (const own of Object.values(film.seen)) own?.at.forEach((at, i) => sums.set(at - film.start, (sums.get(at - film.start) ?? 0) + (own[key][i] ?? 0)));
      const times = [...sums.keys()].sort((a, b) => a - b);
      return { at: times, values: times.map((at) => sums.get(at)) };
    };
    const both = (pick, more = {}) => this.films.map((film, i) => ({ label: i ? "B" : "A", colour: COLOURS[i ? 5 : 0], dash: i ? [5, 3] : undefined, ...pick(film), ...more }));
    this.charts.add({ title: "Instances, all units", series: both((film) => total(film, "instances"), { step: true }) });
    this.charts.add({ title: "Waiting, all units", series: both((film) => total(film, "waiting")) });
    this.charts.add({ title: "Bill", series: both((film) => ({ at: film.ticks.at.map((at) => at - film.start), values: film.ticks.bill }), { step: true }) });
  }
}

function differing(a, b) {
  const other = new Map(b.units.map((unit) => [unit.name, unit])), found = new Set();
  for (const unit of a.units) if (!other.has(unit.name) || other.get(unit.name).instances !== unit.instances || other.get(unit.name).level !== unit.level) found.add(unit.name);
  for (const unit of b.units) if (!a.units.some((one) => one.name === unit.name)) found.add(unit.name);
  return found;
}
