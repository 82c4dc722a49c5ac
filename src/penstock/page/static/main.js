// The page: reads the films, follows a run that goes on, and shows one view at a time.

import { Change } from "./change.js";
import { Film } from "./film.js";
import { Money } from "./money.js";
import { Now } from "./now.js";
import { Replay } from "./replay.js";
import { duration, element, instant, money, number, percent } from "./text.js";
import { askForToken, readToken, theme } from "./token.js";
import { Why } from "./why.js";

const TITLES = { now: "Now", why: "Why", money: "Money", replay: "Replay", change: "Change" };
const AGAIN_MS = 2000;

class App {
  constructor() {
    this.token = readToken();
    this.views = {};
    this.view = null;
    this.theme();
    document.getElementById("theme").addEventListener("click", () => this.theme(true));
    document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  async start() {
    try { await this.load(); } catch (error) {
      if (error.status === 401) { askForToken(document.getElementById("view"), document.getElementById("headline")); return; }
      if (error.status === 409) { this.headline("unknown", "The run is starting; nothing is known of it yet."); setTimeout(() => this.start(), AGAIN_MS); return; }
      this.headline("late", `The page cannot be shown: ${error.message}`); return;
    }
    document.title = `${this.film.name} · Penstock`;
    document.getElementById("run-name").textContent = this.films.map((film) => film.label).join(" beside ");
    const names = ["now", "why", "money", "replay", ...(this.film.live ? ["change"] : [])];
    const tabs = document.getElementById("tabs");
    names.forEach((name, i) => tabs.append(element("button", { role: "tab", type: "button", id: `tab-${name}`, "aria-controls": "view", "aria-selected": "false", title: `key ${i + 1}`, onclick: () => this.show(name) }, TITLES[name])));
    this.names = names;
    const asked = location.hash.slice(1);
    this.show(names.includes(asked) ? asked : this.films.length > 1 ? "replay" : "now");
    if (this.film.live) this.follow();
    document.body.dataset.ready = "yes";
    await this.fill();
    document.body.dataset.whole = "yes";
  }

  // A long run is shown by its last moments first; all the others come behind.
  async fill() {
    if (!this.films.some((film) => film.partial)) return;
    const films = this.films;
    try {
      const observed = await this.ask("observed");
      films.forEach((film, i) => { if (film.partial) film.fill(observed[i]); });
    } catch (error) { this.headline("late", `Older observations cannot be read: ${error.message}`); return; }
    if (films !== this.films) return;
    if (this.name === "why" || this.name === "replay") this.view.shown?.(); else this.refresh();
  }

  async load() {
    this.films = (await this.ask("films")).map((one, i) => new Film(one, i));
    this.film = this.films[0];
  }

  // The run goes on with another version of its topology, or this page has missed something: all is read anew.
  async renew() {
    await this.load();
    await this.fill();
    const { change } = this.views;
    this.views = change ? { change } : {};
    change?.renewed(this.film);
    this.show(this.name);
  }

  show(name, unit = undefined) {
    this.view?.hidden?.();
    const make = { now: () => new Now(this.film, this), why: () => new Why(this.film, this, unit ?? ""), money: () => new Money(this.film, this), replay: () => new Replay(this.films, this), change: () => new Change(this.film, this) };
    this.name = name;
    this.view = this.views[name] ??= make[name]();
    if (unit !== undefined) this.view.unit = unit;
    for (const tab of document.querySelectorAll("[role=tab]")) { const chosen = tab.id === `tab-${name}`; tab.setAttribute("aria-selected", String(chosen)); tab.tabIndex = chosen ? 0 : -1; }
    const main = document.getElementById("view");
    main.replaceChildren(this.view.root);
    main.setAttribute("aria-labelledby", `tab-${name}`); main.setAttribute("role", "tabpanel");
    history.replaceState(null, "", `#${name}`);
    if (name === "why" && unit !== undefined) this.view.show(unit); else this.view.shown?.();
    if (name !== "replay") this.refresh();
  }

  why(unit) { this.show("why", unit); window.scrollTo(0, 0); }

  refresh() {
    const state = this.film.at(this.film.end);
    this.say(this.film, state);
    this.view?.update?.(state);
  }

  // One line on top: what is wrong and what is being done about it, or that all is well.
  say(film, state, whose = "") {
    this.whose = whose;
    const clock = document.getElementById("clock"), status = film.status;
    const phase = film.live ? status?.phase ?? "running" : "over";
    clock.textContent = film.live ? `${phase} · ${instant(film, state.t)}` : `${film.result?.kind ?? ""} run of ${duration(film.newest - film.start)}, ${film.result ? "over" : "interrupted"}`.trim();
    if (!film.ticks.at.length) { this.headline("unknown", "The run is starting; nothing was measured yet."); return; }
    if (!film.live && this.name !== "replay" && film.result) { this.verdict(film); return; }
    const troubles = film.troubles(state), first = troubles[0];
    if (film.live && status?.problem) this.headline("late", `The run ended: ${status.problem}`);
    else if (film.live && status?.asks?.length) this.headline("late", `A person is asked: ${status.asks.join(", ")}.`, "Resume, under Change, has it tried again.");
    else if (film.live && status && !status.acting) this.headline("near", `${status.paused ? "Paused: nothing is decided, what runs goes on as it is." : "Only advising: it decides and records, but does nothing."} ${status.reason ?? ""}`.trim(), first ? this.wrong(first) : "");
    else if (phase === "starting") this.headline("unknown", "The run is starting: sources begin once every unit runs.");
    else if (!first && state.units.some((unit) => unit.level === "unknown")) this.headline("unknown", `Nothing is wrong so far; nothing was finished yet by ${state.units.filter((unit) => unit.level === "unknown").slice(0, 5).map((unit) => unit.name).join(", ")}.`);
    else if (!first) this.headline("kept", `All is well: ${state.units.length === 1 ? "the unit keeps" : `all ${state.units.length} units keep`} their SLOs, ${number(state.units.reduce((sum, unit) => sum + unit.waiting, 0))} records wait.`.replace("the unit keeps their SLOs", "the unit keeps its SLO"));
    else {
      this.headline(first.level, `${this.wrong(first)}: ${first.doing}.`, troubles.length > 1 ? `${troubles.length - 1} more: ${troubles.slice(1, 6).map((one) => one.unit ?? one.what).join(", ")}${troubles.length > 6 ? ", …" : ""}` : "");
    }
  }

  wrong(trouble) { return trouble.what ?? `${trouble.unit} takes ${trouble.ratio.toFixed(1)} times its SLO, ${number(trouble.waiting)} records wait`; }

  verdict(film) {
    const kept = film.result.compliance?.real_time;
    const worst = Object.entries(film.result.units ?? {}).sort((a, b) => a[1].compliance.real_time - b[1].compliance.real_time)[0];
    // As bad as its worst unit: many records of another one do not make up for it.
    const least = Math.min(kept, worst?.[1].compliance.real_time ?? kept), level = least >= 0.9 ? "kept" : least >= 0.5 ? "near" : "late";
    this.headline(level, `${percent(kept)} of records were kept within their SLOs, for ${money(+film.result.resource_cost, film.currency)}.`,
      worst && worst[1].compliance.real_time < 0.99 ? `Least kept: ${worst[0]}, ${percent(worst[1].compliance.real_time)}, its largest queue ${number(worst[1].largest_queue)} records.` : "");
  }

  headline(level, text, more = "") {
    const line = document.getElementById("headline"), key = `${level}|${this.whose}|${text}|${more}`;
    if (line.lastKey === key) return;
    line.lastKey = key;
    line.className = `headline ${level}`;
    line.replaceChildren(`${{ kept: "✓ ", near: "~ ", late: "✕ ", unknown: "" }[level]}${this.whose ?? ""}${text}`, more ? element("small", {}, more) : "");
  }

  async request(path, options = {}) {
    const answer = await fetch(`data/${path}`, { ...options, headers: { Authorization: `Bearer ${this.token}`, ...(options.headers ?? {}) } })
      .catch(() => { throw Object.assign(new Error("the server of this page does not answer"), { gone: true }); });
    if (!answer.ok) {
      const told = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(told.error ?? told.errors?.join("\n") ?? answer.statusText), { status: answer.status });
    }
    return answer;
  }
  gone() { document.getElementById("clock").textContent = "the server of this page is gone: `penstock page RUN` shows all of it again"; }
  async ask(path) { return (await this.request(path)).json(); }
  async tell(what, said) { return (await this.request(what, { method: "POST", body: JSON.stringify(said), headers: { "Content-Type": "application/json" } })).json(); }

  async follow() {
    // fetch and not EventSource: that one cannot send the token but in the address.
    while (this.film.live) {
      try {
        const answer = await this.request(`live?after=${this.film.tick}`), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          rest += value;
          const events = rest.split("\n\n");
          rest = events.pop();
          for (const event of events) await this.hear(event);
        }
      } catch { /* the server may be gone for a moment, or for good: what is known stays on the page */ }
      if (this.film.live) {
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
  }

  async hear(event) {
    const name = /^event: (.*)$/m.exec(event)?.[1], data = /^data: (.*)$/m.exec(event)?.[1];
    if (name === "again") { if (JSON.parse(data).revision !== this.film.revision) await this.renew(); return; }
    if (name !== "news") return;
    this.film.take(JSON.parse(data));
    if (!this.film.live) this.ended();
    if (!this.pending) {
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; if (this.name !== "replay") this.refresh(); });
    }
  }

  // Nothing can be changed any more; who looks at what came of a change goes on looking.
  ended() {
    if (this.name === "change" || !this.names.includes("change")) return;
    this.names = this.names.filter((name) => name !== "change");
    document.getElementById("tab-change").remove();
  }

  theme(change = false) {
    theme(change);
    if (change) { const kept = this.views.change; this.views = kept ? { change: kept } : {}; if (this.name) this.show(this.name); }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range") return;
    const number = +event.key;
    if (number >= 1 && number <= (this.names?.length ?? 0)) { this.show(this.names[number - 1]); document.getElementById(`tab-${this.name}`).focus(); }
    else if (event.key === "t") this.theme(true);
    else if (event.key === "?") document.getElementById("keys").showModal();
    else if (this.name === "why" && (event.key === "j" || event.key === "k")) this.view.step(event.key === "j" ? 1 : -1);
    else if (this.name === "replay" && event.target.type !== "range" && (event.key === "ArrowRight" || event.key === "ArrowLeft") && !event.target.closest?.("[role=tablist]")) this.view.step(event.key === "ArrowRight" ? 1 : -1);
    else if (this.name === "replay" && event.key === " " && event.target.tagName !== "BUTTON") { event.preventDefault(); this.view.play(); }
    else if (event.target.getAttribute?.("role") === "tab" && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const place = this.names.indexOf(this.name), next = this.names[(place + (event.key === "ArrowRight" ? 1 : -1) + this.names.length) % this.names.length];
      this.show(next); document.getElementById(`tab-${next}`).focus();
    }
  }
}

const app = new App();
window.penstock = app;
// What is known stays on the page; a view that would ask for more has nobody to ask.
window.addEventListener("unhandledrejection", (event) => { if (event.reason?.gone) { event.preventDefault(); app.gone(); } });
app.start();
