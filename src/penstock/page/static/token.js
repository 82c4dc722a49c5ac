// Who may look: the token of the address, kept for this tab alone. And whether it is light or dark.

import { element } from "./text.js";

export function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) { sessionStorage.setItem("token", given); history.replaceState(null, "", location.pathname); }
  return given ?? sessionStorage.getItem("token") ?? "";
}

export function askForToken(root, line) {
  line.className = "headline late";
  line.textContent = "✕ The token is missing or wrong: use the address as it was printed, or give the token here.";
  const given = element("input", { type: "password", id: "token", autocomplete: "off", size: 48 });
  const form = element("form", { class: "card orders", onsubmit: (event) => { event.preventDefault(); sessionStorage.setItem("token", given.value.trim()); location.reload(); } },
    element("label", { for: "token" }, "Token"), given, element("button", {}, "Look"));
  root.replaceChildren(form);
}

export function theme(change = false) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  let now = localStorage.getItem("theme") ?? (dark ? "dark" : "light");
  if (change) { now = now === "dark" ? "light" : "dark"; localStorage.setItem("theme", now); }
  document.documentElement.dataset.theme = now;
}
