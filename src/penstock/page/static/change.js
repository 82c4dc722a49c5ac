// Change: what a running controller can be told. Each asks once and shows what came of it.

import { element, instant } from "./text.js";

const ORDERS = {
  pause: ["Pause", "The loop goes on deciding and recording, but does nothing.", ""],
  resume: ["Resume", "The loop acts again.", ""],
  drain: ["Drain a host", "The host is emptied and given back.", "danger"],
  stop: ["End the run", "Sources stop, everything is given back. It cannot be undone.", "danger"],
};

export class Change {
  constructor(film, app) {
    this.film = film; this.app = app;
    this.host = element("select", { id: "change-host" });
    this.reason = element("input", { type: "text", id: "change-reason", maxlength: 200 });
    this.said = element("p", { role: "status", class: "note" });
    this.news = element("ul", { class: "facts" });
    this.buttons = Object.entries(ORDERS).map(([kind, [text, , look]]) => element("button", { type: "button", class: look, "data-order": kind, onclick: () => this.ask(kind) }, text));
    this.root = element("div", {}, element("section", { class: "card" }, element("h2", {}, "Tell the run"),
      element("p", { class: "note" }, "It is obeyed at the next tick and put on record."),
      element("div", { class: "orders" }, ...this.buttons, element("label", { for: "change-host" }, "host"), this.host, element("label", { for: "change-reason" }, "why"), this.reason), this.said),
    element("section", { class: "card" }, element("h2", {}, "What came of it"), this.news));
  }

  shown() { this.update(this.film.at(this.film.end)); }

  update(state) {
    const names = state.hosts.map((host) => host.name).join("\n");
    if (names !== this.names) { this.names = names; this.host.replaceChildren(...state.hosts.map((host) => element("option", {}, host.name))); }
    for (const button of this.buttons) button.disabled = !this.film.live;
    this.news.replaceChildren(...this.film.notices.slice(-30).reverse().map(([at, text]) => element("li", {}, `${instant(this.film, at)} ${text}`)));
  }

  ask(kind) {
    const [title, means] = ORDERS[kind], subject = kind === "drain" ? this.host.value : null;
    const dialog = element("dialog", { "aria-label": title }, element("h2", {}, subject ? `${title}: ${subject}` : title), element("p", {}, means),
      element("div", { class: "orders" }, element("button", { type: "button", "data-yes": true, onclick: async () => {
        dialog.close(); dialog.remove();
        try { this.said.textContent = `told: ${(await this.app.tell({ kind, subject, reason: this.reason.value })).told}`; } catch (error) { this.said.textContent = `not told: ${error.message}`; }
      } }, "Yes, do it"), element("button", { type: "button", onclick: () => { dialog.close(); dialog.remove(); } }, "No")));
    document.body.append(dialog);
    dialog.showModal();
  }
}
