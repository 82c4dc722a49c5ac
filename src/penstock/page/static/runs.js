// The runs of a service; each leads to its page.

import { element, money, put } from "./text.js";
import { askForToken, readToken, theme } from "./token.js";

const AGAIN_MS = 2000;

async function show() {
  const line = document.getElementById("headline");
  const answer = await fetch("api/v1/runs", { headers: { Authorization: `Bearer ${readToken()}` } }).catch(() => null);
  if (answer?.status === 401) { askForToken(document.getElementById("view"), line); document.body.dataset.ready = "yes"; return; }
  if (answer?.ok) {
    const runs = await answer.json();
    const going = runs.filter((one) => !["ended", "interrupted"].includes(one.phase)).length;
    put(line, runs.length === 1 ? `1 run: ${going ? "it goes on" : "it does not go on"}.` : runs.length ? `${going} of ${runs.length} runs go on.` : "There are no runs yet: start one with `penstock run` into this service's folder, or over the API.");
    const key = JSON.stringify(runs), table = document.getElementById("runs");
    if (table.lastRuns !== key) {
      table.lastRuns = key;
      table.replaceChildren(...runs.map((run) => element("tr", {}, element("th", { scope: "row", class: "left" }, element("a", { href: `page/${run.name}/` }, run.name)), ...[[run.topology, "left"], [run.revision, ""], [run.phase, "left"], [run.bill ? money(+run.bill) : "–", ""]].map(([text, side]) => element("td", { class: side }, String(text))))));
    }
  } else put(line, "The service does not answer; what is shown may be old.");
  document.body.dataset.ready = "yes";
  setTimeout(show, AGAIN_MS);
}

theme();
show();
