// Now: the graph, the sites with their hosts and lease clocks, the bill, and where to look.

import { Graph } from "./graph.js";
import { LEVELS, MARKS } from "./film.js";
import { duration, element, instant, money, number, percent, put } from "./text.js";

const MANY_HOSTS = 60, RANKED = 14;

export class Now {
  constructor(film, app, { compact = false, title = "" } = {}) {
    this.film = film;
    this.compact = compact;
    this.hosts = new Map();
    this.root = element("div");
    this.figures = figureRow(["bill", "rate", "month", "kept", "hosts"], this.root);
    this.graph = new Graph(film, { choose: (unit) => app.why(unit), room: (Math.min(window.innerWidth, 1680) - 70) / (compact && window.innerWidth >= 1100 ? 2.1 : 1), label: title || "Topology" });
    const drawing = element("section", { class: "card", "aria-label": "Topology" }, element("h2", {}, title || "Topology"), this.graph.root);
    this.sites = element("section", { class: "card", "aria-label": "Sites and hosts" }, element("h2", {}, "Sites and hosts"));
    this.ranked = element("tbody");
    const table = element("section", { class: "card" }, element("h2", {}, "Where to look first"),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Units, the one that needs it most first" },
        element("table", {}, element("thead", {}, element("tr", {}, ...["unit", "", "took / SLO", "in /s", "wait", "inst."].map((text) => element("th", { scope: "col" }, text || element("span", { class: "left" }, "state"))))), this.ranked)));
    this.app = app;
    if (compact) this.root.append(drawing, this.sites);
    else this.root.append(drawing, element("div", { class: "columns now" }, this.sites, table));
    this.siteParts = new Map();
    for (const [name, site] of Object.entries(film.sites)) this.addSite(name, site);
  }

  addSite(name, site) {
    const head = element("small"), grid = element("div", { class: "hosts" });
    this.sites.append(element("div", { class: "site" }, element("h3", {}, `${name} `, head), grid));
    this.siteParts.set(name, { head, grid, site, mode: "" });
  }

  update(state, differs = null) {
    const film = this.film, currency = film.currency;
    put(this.figures.bill.value, money(state.bill, currency)); put(this.figures.bill.label, "bill so far");
    put(this.figures.rate.value, `${money(state.rate, currency)}/h`); put(this.figures.rate.label, film.live || this.compact || this.app.name === "replay" ? "at this moment" : "at its end");
    put(this.figures.month.value, money(state.month, currency)); put(this.figures.month.label, "a month like this run");
    put(this.figures.kept.value, state.counted !== null ? percent(state.counted) : state.kept === null ? "not known yet" : `≈ ${percent(state.kept)}`); put(this.figures.kept.label, "of records within the SLO so far");
    put(this.figures.hosts.value, `${state.hosts.length}`);
    const running = state.units.reduce((sum, unit) => sum + unit.running, 0);
    put(this.figures.hosts.label, `${state.hosts.length === 1 ? "host" : "hosts"}, ${running} ${running === 1 ? "instance" : "instances"} running`);
    this.graph.update(state, differs);
    this.showHosts(state);
    if (!this.compact) this.rank(state);
  }

  rank(state) {
    const worth = (unit) => ({ late: 3e6, near: 2e6, unknown: 1e6, kept: 0 })[unit.level] + (unit.ratio ?? 0) * 1e3 + unit.waiting / 1e6;
    const shown = [...state.units].sort((a, b) => worth(b) - worth(a)).slice(0, RANKED);
    while (this.ranked.children.length > shown.length) this.ranked.lastChild.remove();
    shown.forEach((unit, i) => {
      let row = this.ranked.children[i];
      if (!row) {
        const button = element("button", { class: "link", type: "button" });
        button.addEventListener("click", () => this.app.why(button.lastText));
        row = element("tr", {}, element("td", {}, button), ...Array.from({ length: 5 }, () => element("td")));
        row.children[1].append(element("span", { class: "badge" }));
        this.ranked.append(row);
      }
      const [name, level, time, load, waiting, count] = row.children;
      put(name.firstChild, unit.name);
      const badge = level.firstChild;
      put(badge, `${MARKS[unit.level]} ${unit.state === "failed" || unit.state === "down" ? unit.state : { kept: "kept", near: "near", late: "late", unknown: "unknown" }[unit.level]}`);
      if (badge.lastLevel !== unit.level) { badge.className = `badge ${unit.level}`; badge.title = LEVELS[unit.level]; badge.lastLevel = unit.level; }
      put(time, `${duration(unit.duration)} / ${duration(unit.slo)}`);
      put(load, number(unit.flowIn)); put(waiting, number(unit.waiting)); put(count, `${unit.running}/${unit.instances}`);
    });
  }

  showHosts(state) {
    const bySite = new Map([...this.siteParts.keys()].map((name) => [name, []]));
    for (const host of state.hosts) {
      if (!this.siteParts.has(host.site)) this.addSite(host.site, { provider: "", most: 0, currency: "", flavours: {} });
      (bySite.get(host.site) ?? bySite.set(host.site, []).get(host.site)).push(host);
    }
    const there = new Set();
    for (const [name, hosts] of bySite) {
      const parts = this.siteParts.get(name), mode = hosts.length > MANY_HOSTS ? "hosts many" : "hosts";
      if (parts.mode !== mode) { parts.grid.className = mode; parts.mode = mode; }
      put(parts.head, `${parts.site.provider ? `· ${parts.site.provider} ` : ""}· ${hosts.length} of at most ${parts.site.most || "?"} ${parts.site.most === 1 ? "host" : "hosts"}${hosts.length ? "" : ": none leased"}`);
      for (const host of hosts) { there.add(host.name); this.showHost(host, parts.grid, state.t); }
    }
    for (const [name, parts] of this.hosts) if (!there.has(name)) { parts.root.remove(); this.hosts.delete(name); }
  }

  showHost(host, grid, t) {
    let parts = this.hosts.get(host.name);
    if (!parts) {
      const make = (tag, name) => element(tag, { class: name });
      parts = { root: make("div", "host"), state: element("span"), on: make("div", "on"), bar: element("i"), then: make("div", "then") };
      parts.lease = element("div", { class: "lease" }, parts.bar);
      parts.root.append(element("b", {}, host.name), " ", parts.state, parts.on, parts.lease, parts.then);
      this.hosts.set(host.name, parts);
      grid.append(parts.root);
    }
    const look = `host ${host.state}`;
    if (parts.look !== look) { parts.root.className = look; parts.look = look; }
    put(parts.state, host.state === "up" ? host.flavour : `${host.flavour} · ${host.state}`);
    const units = Object.entries(host.units);
    put(parts.on, units.length ? units.map(([unit, count]) => (count > 1 ? `${unit} ×${count}` : unit)).join(", ") : "nothing on it");
    if (host.paidUntil === null) { put(parts.then, "not leased by us"); parts.lease.hidden = true; return; }
    const left = Math.max(0, host.paidUntil - t), share = host.step ? Math.round(100 * (1 - Math.min(1, left / host.step))) : 0;
    if (parts.share !== share) { parts.bar.style.width = `${share}%`; parts.share = share; }
    const next = `${money(host.price, this.film.currency)} for ${duration(host.every)} more`;
    const then = host.state === "draining" ? "then it goes" : units.length ? `then ${next} if still needed` : "then free to go";
    put(parts.then, host.every <= 120 ? `paid by ${host.every === 1 ? "the second" : duration(host.every)}, ${money((host.price * 3600) / host.every, this.film.currency)}/h; ${host.state === "draining" ? "goes when empty" : "as long as it is needed"}` : `${duration(left)} paid, to ${instant(this.film, host.paidUntil)}; ${then}`);
  }
}

export function figureRow(names, root) {
  const row = element("div", { class: "figures" }), found = {};
  for (const name of names) {
    const value = element("b"), label = element("span");
    row.append(element("div", { class: "figure", "data-figure": name }, value, label));
    found[name] = { value, label };
  }
  root.append(row);
  return found;
}
