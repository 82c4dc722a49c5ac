// Change: what a running controller can be told, and another version of its topology. Each asks once and shows what
// came of it.

import { duration, element, instant, put } from "./text.js";

const ORDERS = {
  pause: ["Pause", "It decides nothing any more. What runs goes on as it is, and is paid. What you ask for is still done.", ""],
  advise: ["Only advise", "It goes on deciding and puts on record what it would do, but does not do it.", ""],
  resume: ["Resume", "It decides again, and does what it decides.", ""],
  undo: ["Undo the last change", "It goes back to the version of the topology before this one.", ""],
  stop: ["End the run", "Sources stop and everything is given back. It cannot be undone.", "danger"],
  drain: ["Drain", "What is on the host moves elsewhere; then the host is given back.", ""],
  move: ["Move", "A replacement starts there; once it serves, the instance here retires.", ""],
  "move-unit": ["Move unit", "The unit finishes what there is to read, leaves its site and starts at the other one, from its checkpoint.", ""],
  restart: ["Start again", "The unit starts again from its checkpoint, with the code that is there now.", ""],
};
const MOST_NEWS = 30, PARTS = { changes: "What changes", restarts: "Started again, keeping their state", renewals: "Started again without their state", given_up: "Lost by it", costs: "What it costs", starts: "New units", stops: "Units that end, after what waits for them", untouched: "Units that go on without a stop", because: "Why they stop", refused: "Refused" };

const MODES = { pause: "nothing is decided now", advise: "it only advises now", resume: "it acts again" };
const modeOf = (film) => (film.status?.paused ? "pause" : film.status?.acting ?? true ? "resume" : "advise");

export class Change {
  constructor(film, app) {
    this.film = film; this.app = app; this.orders = []; this.seen = null;
    const choice = (id, label) => { const found = element("select", { id, "aria-label": label }); return found; };
    this.host = choice("change-host", "host to drain"); this.instance = choice("change-instance", "instance to move");
    this.target = choice("change-target", "where it moves to"); this.unit = choice("change-unit", "unit to start again");
    this.goes = choice("change-goes", "unit to move"); this.goes.addEventListener("change", () => this.update(this.film.at(this.film.end))); this.site = choice("change-site", "site it moves to");
    this.reason = element("input", { type: "text", id: "change-reason", maxlength: 200, size: 36, placeholder: "goes on record" });
    this.buttons = Object.fromEntries(Object.entries(ORDERS).map(([kind, [text, , look]]) => [kind, element("button", { type: "button", class: look, "data-order": kind, onclick: () => this.order(kind) }, text)]));
    const row = (...parts) => element("div", { class: "orders" }, ...parts), b = this.buttons;
    this.text = element("textarea", { id: "change-text", rows: 18, spellcheck: "false", wrap: "off", oninput: () => this.edited() });
    this.version = element("span");
    this.look = element("button", { type: "button", "data-change": "preview", onclick: () => this.preview() }, "Preview");
    this.apply = element("button", { type: "button", "data-change": "apply", disabled: true, onclick: () => this.ask("Apply this version", this.shownChanges(), "apply", () => this.applied()) }, "Apply");
    this.again = element("button", { type: "button", onclick: () => this.load() }, "Take the running version");
    this.previewed = element("div", { role: "status", id: "change-preview" });
    this.done = element("ol", { class: "came", id: "change-done" });
    this.nothing = element("p", { class: "note" }, "Nothing was asked for from here yet.");
    this.news = element("ul", { class: "facts" });
    this.root = element("div", { class: "columns why" },
      element("section", { class: "card" }, element("h2", {}, "Topology ", this.version),
        element("p", { class: "note" }, "Change the text, look at what that would do, then apply it. Nothing is lost; what would lose something is refused."),
        element("label", { for: "change-text", class: "left" }, "The topology file"), this.text, row(this.look, this.apply, this.again), this.previewed),
      element("div", {},
        element("section", { class: "card" }, element("h2", {}, "Tell the run"),
          element("p", { class: "note" }, "It is obeyed at the next tick and put on record."),
          row(element("label", { for: "change-reason" }, "why"), this.reason), row(b.pause, b.advise, b.resume), row(b.undo, b.stop),
          row(b.drain, this.host), row(b.move, this.instance, " to ", this.target), this.between = row(b["move-unit"], this.goes, " to ", this.site), row(b.restart, this.unit)),
        element("section", { class: "card" }, element("h2", {}, "What came of it"), this.nothing, this.done),
        element("section", { class: "card" }, element("h2", {}, "News"), this.news)));
  }

  shown() { if (!this.loaded) this.load(); this.update(this.film.at(this.film.end)); }

  // The run goes on with another version: what was asked for from here stays on the page.
  renewed(film) {
    this.film = film;
    if (this.text.value === this.loaded?.text || this.text.value === this.sent) this.load();
    else put(this.version, `· revision ${film.revision} runs, this text was written for ${this.loaded?.revision}`);
  }

  async load() {
    try { this.loaded = await this.app.ask("topology"); } catch (error) { this.fail(error); return; }
    this.text.value = this.loaded.text;
    put(this.version, `· revision ${this.loaded.revision}`);
    this.edited();
    this.update(this.film.at(this.film.end));
  }

  edited() { this.seen = null; this.apply.disabled = true; this.previewed.replaceChildren(); }

  async preview() {
    const text = this.text.value;
    this.previewed.replaceChildren(element("p", { class: "note" }, "looking …"));
    let told;
    try { told = await this.app.tell("preview", { topology: text }); } catch (error) { this.fail(error); return; }
    if (this.text.value !== text) return;
    this.previewed.replaceChildren(...this.parts(told));
    const possible = told.changes.length > 0 && !told.refused.length && this.film.live;
    this.seen = possible ? { text, told } : null;
    this.apply.disabled = !possible;
  }

  parts(told) {
    if (!told.changes.length) return [element("p", {}, "Nothing changes.")];
    return Object.entries(PARTS).filter(([key]) => told[key].length).map(([key, title]) => element("div", { class: key === "refused" ? "refused" : "", "data-part": key }, element("h3", {}, title), element("ul", { class: "facts" }, ...told[key].map((one) => element("li", {}, one)))));
  }
  shownChanges() { return this.seen ? this.seen.told.changes.join("; ") : ""; }

  async applied() {
    const { text } = this.seen, entry = this.enter("apply", `apply: ${this.shownChanges()}`);
    this.sent = text;
    this.apply.disabled = true;
    entry.outcome = "waits for the run's next tick …";
    this.write();
    try {
      const told = await this.app.tell("apply", { topology: text, revision: this.loaded.revision, reason: this.reason.value });
      entry.outcome = `done: revision ${told.revision} runs`; entry.over = true;
      this.edited();
      if (this.text.value === text) await this.load();
    } catch (error) { entry.outcome = `not done: ${error.message}`; entry.over = true; entry.bad = true; }
    this.write();
  }

  fail(error) { this.previewed.replaceChildren(element("div", { class: "refused" }, element("h3", {}, "It cannot be done"), element("ul", { class: "facts" }, ...error.message.split("\n").map((line) => element("li", {}, line))))); }

  order(kind) {
    const subject = { drain: this.host, move: this.instance, restart: this.unit, "move-unit": this.goes }[kind]?.value ?? null, to = { move: this.target, "move-unit": this.site }[kind]?.value ?? null;
    const [title, means] = ORDERS[kind];
    this.ask(subject ? `${title}: ${subject}${to ? ` to ${to}` : ""}` : title, means, kind, async () => {
      const entry = this.enter(kind, `${title.toLowerCase().split(":")[0]}${subject ? ` ${subject}` : ""}${to ? ` to ${to}` : ""}`);
      Object.assign(entry, { subject, to, revision: this.film.revision });
      try { Object.assign(entry, await this.app.tell("tell", { kind, subject, to, reason: this.reason.value })); entry.outcome = `told: ${entry.told}; waits for the next tick`; }
      catch (error) { entry.outcome = `not told: ${error.message}`; entry.over = true; entry.bad = true; }
      this.write();
    });
  }

  // Asks once.
  ask(title, means, kind, then) {
    const close = () => { dialog.close(); dialog.remove(); };
    const dialog = element("dialog", { "aria-label": title }, element("h2", {}, title), element("p", {}, means),
      element("div", { class: "orders" }, element("button", { type: "button", "data-yes": kind, onclick: () => { close(); then(); } }, "Yes, do it"), element("button", { type: "button", onclick: close }, "No")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  enter(kind, text) {
    const entry = { kind, text, at: this.film.newest, outcome: "", over: false, bad: false };
    this.orders.unshift(entry);
    return entry;
  }

  update(state) {
    const fill = (select, names, first = []) => {
      const key = names.join("\n");
      if (select.lastNames === key) return;
      const chosen = select.value;
      select.lastNames = key;
      select.replaceChildren(...first, ...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
    };
    fill(this.host, state.hosts.map((host) => host.name));
    fill(this.instance, state.instances.map((one) => one.name));
    fill(this.target, state.hosts.filter((host) => host.state === "up").map((host) => host.name), [element("option", { value: "" }, "wherever there is room")]);
    fill(this.unit, this.film.names);
    // A unit is at one site at a time, and goes to another one that it may be at.
    const elsewhere = (name) => (this.film.units[name]?.sites ?? []).filter((site) => site !== this.film.status?.units?.[name]?.site);
    fill(this.goes, this.film.names.filter((name) => elsewhere(name).length)); fill(this.site, elsewhere(this.goes.value));
    const live = this.film.live, mode = modeOf(this.film), b = this.buttons;
    for (const button of Object.values(b)) button.disabled = !live;
    b.pause.hidden = mode === "pause"; b.advise.hidden = mode === "advise"; b.resume.hidden = mode === "resume" && !this.film.status?.asks?.length;
    this.between.hidden = Object.keys(this.film.sites ?? {}).length < 2;
    b.undo.disabled = !live || !this.loaded?.before;
    b.drain.disabled ||= !state.hosts.length; b.move.disabled ||= !state.instances.length; b["move-unit"].disabled ||= !this.site.value;
    this.look.disabled = this.again.disabled = !live;
    for (const entry of this.orders) if (!entry.over) this.follow(entry, state);
    this.write();
    const news = this.film.notices.slice(-MOST_NEWS).reverse(), key = `${this.film.notices.length}|${this.film.revision}`;
    if (this.lastNews === key) return;
    this.lastNews = key;
    this.news.replaceChildren(...(news.length ? news.map(([at, text]) => element("li", {}, element("time", {}, `${instant(this.film, at)} `), text)) : [element("li", {}, "nothing yet")]));
  }

  // What came of an order, as far as the run has told.
  follow(entry, state) {
    const film = this.film, since = film.notices.filter(([at]) => at >= entry.at - 1e-6), end = (outcome, bad = false) => Object.assign(entry, { outcome, over: true, bad });
    const refused = since.find(([, text]) => entry.id && text.startsWith(`refused: ${entry.kind} (${entry.id}): `));
    if (refused) { end(`refused: ${refused[1].split("): ").slice(1).join("): ")}`, true); return; }
    if (entry.kind === "stop" && !film.live) { end("the run is over"); return; }
    if (!film.live) { if (entry.id) end("the run ended before it was obeyed", true); return; }
    if (!entry.id || !since.some(([, text]) => text === `told from outside: ${entry.told}`)) return;
    const mode = modeOf(film), gone = (names) => !names.some((one) => one.name === entry.subject), took = duration(state.t - entry.at);
    if (entry.kind in MODES) { if (mode === entry.kind) end(`obeyed: ${MODES[entry.kind]}`); }
    else if (entry.kind === "undo") { if (film.revision > entry.revision) end(`done: revision ${film.revision} runs`); }
    else if (entry.kind === "move-unit") {
      if (film.revision > entry.revision && film.status?.units?.[entry.subject]?.site === entry.to) end(`done: ${entry.subject} is at ${entry.to}, ${took} later; revision ${film.revision} runs`);
      else entry.outcome = "obeyed: it finishes what there is to read first";
    }
    else if (entry.kind === "drain") {
      const host = state.hosts.find((one) => one.name === entry.subject);
      if (!host) end(`done: ${entry.subject} was given back, ${took} later`);
      else entry.outcome = `obeyed: ${Object.values(host.units).reduce((sum, count) => sum + count, 0)} instances are still on it${host.state === "draining" ? ", it goes when it is empty" : ", it waits for room elsewhere"}`;
    } else if (entry.kind === "move") {
      const action = film.actions.findLast((one) => one.at >= entry.at && one.kind === "MigrateInstance" && one.subject === entry.subject);
      if (action?.status === "refused" || action?.status === "failed") end(`refused: ${action.refused}`, true);
      else if (action && gone(state.instances)) end(`done: its replacement serves on ${action.host}, ${took} later`);
      else if (action) entry.outcome = `obeyed: its replacement starts on ${action.host}`;
      else if (state.t > entry.at + 3 * film.loop.monitoring_s) end("nothing was moved: there was no room for it; Why tells more", true);
    } else if (entry.kind !== "stop") end("obeyed");
    else entry.outcome = "obeyed: what is on its way is finished first";
  }

  write() {
    const key = this.orders.map((one) => one.outcome).join("|");
    if (this.lastDone === key) return;
    this.lastDone = key;
    this.nothing.hidden = this.orders.length > 0;
    this.done.replaceChildren(...this.orders.map((one) => element("li", { "data-kind": one.kind, class: one.bad ? "bad" : one.over ? "done" : "" }, element("b", {}, one.text), element("span", { role: "status" }, ` ${one.outcome}`))));
  }
}
