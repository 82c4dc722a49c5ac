// The topology as a drawing: units with their state on them, edges with their rates.

import * as dagre from "./vendor/dagre.js";
import { CONGESTED, edgeRates, LEVELS, MARKS } from "./film.js";
import { duration, element, number, put, style, svg } from "./text.js";

const FULL = { width: 216, height: 92 }, SMALL = { width: 132, height: 30 }, PLAIN = { width: 110, height: 30 };
const LEAST = 0.78;    // a drawing is made smaller to this share at most: below, letters cannot be read
const MANY = 60;       // units from which on they are drawn small
const TOO_MANY = 150;  // nodes from which on rows by depth take the place of the careful layout
const DOTS = 8;

export class Graph {
  // `room` is the width there is: a drawing that does not fit goes down instead of to the right.
  constructor(film, { choose, room = 1200, label = "Topology" } = {}) {
    this.film = film;
    this.small = film.names.length > MANY;
    this.nodes = new Map();
    this.edges = [];
    this.root = element("div", { class: "graph", tabindex: "0", role: "group", "aria-label": label });
    const places = film.graph.nodes.length > TOO_MANY ? rows(film.graph, this.small) : fitting(film.graph, this.small, room);
    this.drawing = svg("svg", { width: places.width, height: places.height, viewBox: `0 0 ${places.width} ${places.height}`, role: "group", "aria-label": label });
    if (!this.small) { this.drawing.style.maxWidth = "100%"; this.drawing.style.height = "auto"; this.drawing.style.minWidth = `${LEAST * places.width}px`; }
    this.drawing.append(arrow());
    places.edges.forEach((points, i) => this.drawEdge(points, i));
    for (const node of film.graph.nodes) this.drawNode(node, places.nodes.get(node.id), choose);
    this.note = element("p", { class: "note", hidden: true }, "≈: here only all that comes in, or goes out, is counted. It is shared among the edges of which nothing else is known, by what their sources are said to send, else evenly.");
    this.root.append(this.drawing, this.note);
    this.drawing.addEventListener("keydown", (event) => this.walk(event));
  }

  drawEdge(points, i) {
    const path = points.map(([x, y], k) => (k ? `L${x},${y}` : `M${x},${y}`)).join(" ");
    this.drawing.append(svg("path", { d: path, "marker-end": "url(#arrow)" }));
    if (this.small) return;
    const [x, y] = points[Math.floor(points.length / 2)];
    const back = svg("rect", { class: "rate-back", x: x - 24, y: y - 8, width: 48, height: 14, rx: 3 });
    const text = svg("text", { class: "rate", x, y: y + 3, "text-anchor": "middle" });
    this.drawing.append(back, text);
    this.edges[i] = { text, back };
  }

  drawNode(node, place, choose) {
    const { x, y, width, height } = place;
    const group = svg("g", { transform: `translate(${x - width / 2},${y - height / 2})` });
    const box = svg("rect", { class: "box", width, height, rx: 7 });
    if (node.kind !== "unit") {
      group.setAttribute("class", "node plain");
      group.append(box, svg("text", { x: width / 2, y: height / 2 + 4, "text-anchor": "middle" }, short(node.name, width < 100 ? 13 : 15)));
      group.append(svg("title", {}, `${node.kind} ${node.name}`));
      this.drawing.append(group);
      return;
    }
    group.setAttribute("tabindex", this.small && this.nodes.size ? "-1" : "0");
    group.setAttribute("role", "button");
    group.dataset.unit = node.id;
    const parts = { group, name: node.id, band: svg("rect", { class: "band", width: 8, height, rx: 4 }), mark: svg("text", { class: "mark", x: width - 16, y: this.small ? 19 : 19 }) };
    group.append(box, parts.band, svg("text", { class: "name", x: 16, y: 19 }, short(node.name, this.small ? 13 : 23)), parts.mark);
    if (!this.small) {
      parts.load = svg("text", { x: 16, y: 38 }); parts.time = svg("text", { class: "soft", x: 16, y: 55 }); parts.count = svg("text", { class: "soft", x: 16, y: 79 });
      parts.dots = Array.from({ length: DOTS }, (_, k) => svg("circle", { cx: 78 + k * 13, cy: 75, r: 4.5, visibility: "hidden" }));
      parts.cpu = svg("text", { class: "soft", x: width - 10, y: 38, "text-anchor": "end" }); parts.health = svg("text", { x: width - 10, y: 55, "text-anchor": "end" });
      group.append(parts.load, parts.time, parts.count, ...parts.dots, parts.cpu, parts.health);
    }
    const chosen = () => choose?.(node.id);
    group.addEventListener("click", chosen);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); chosen(); } });
    this.nodes.set(node.id, parts);
    this.drawing.append(group);
  }

  update(state, differs = null) {
    for (const unit of state.units) {
      const parts = this.nodes.get(unit.name);
      if (!parts) continue;
      style(parts.group, `node unit ${unit.level}${differs?.has(unit.name) ? " differs" : ""}`);
      put(parts.mark, MARKS[unit.level]);
      const time = !unit.begun ? "time, health: not known yet" : unit.duration === null ? "nothing finished lately" : `${duration(unit.duration)} of ${duration(unit.slo)}`;
      const told = `${unit.name}: ${LEVELS[unit.level]}; ${time}; ${number(unit.flowIn)}/s in, ${number(unit.waiting)} waiting; ${unit.running} of ${unit.instances} instances${unit.begun ? `; health ${unit.health === null ? "not known" : unit.health.toFixed(2)}` : ""}`;
      if (parts.told !== told) { parts.group.setAttribute("aria-label", told); parts.told = told; }
      if (this.small) continue;
      put(parts.load, `${number(unit.flowIn)}/s · ${number(unit.waiting)} wait`);
      put(parts.time, time); put(parts.cpu, unit.cpu === null ? "" : `CPU ${Math.round(unit.cpu * 100)} %`);
      put(parts.count, `${unit.running}/${unit.instances} inst.`);
      const healthy = unit.health === null || unit.health >= CONGESTED;
      put(parts.health, unit.health === null ? "" : `${healthy ? "" : "✕ "}health ${unit.health.toFixed(2)}`);
      style(parts.health, healthy ? "soft" : "congested");
      parts.dots.forEach((dot, k) => {
        const shown = unit.instances <= DOTS && k < unit.instances;
        if (dot.lastShown !== shown) { dot.setAttribute("visibility", shown ? "visible" : "hidden"); dot.lastShown = shown; }
        if (shown) style(dot, k < unit.running ? "instance" : "instance waiting");
      });
    }
    if (this.small) return;
    let guessed = false;
    edgeRates(this.film, state).forEach(([rate, known], i) => {
      if (!this.edges[i]) return;
      put(this.edges[i].text, rate === null ? "" : `${known ? "" : "≈ "}${number(rate)}/s`);
      guessed ||= rate !== null && !known;
    });
    if (this.note.hidden === guessed) this.note.hidden = !guessed;
  }

  walk(event) {
    const from = event.target.closest?.("[data-unit]")?.dataset.unit;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!from || !step) return;
    const names = [...this.nodes.keys()], next = names[(names.indexOf(from) + step + names.length) % names.length];
    event.preventDefault(); event.stopPropagation();
    this.nodes.get(next).group.focus();
  }
}

function arrow() {
  const defs = svg("defs"), marker = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" });
  marker.append(svg("path", { d: "M0,0 L8,4 L0,8 z", class: "arrow" }));
  defs.append(marker);
  return defs;
}

const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
const sizeOf = (node, small, down = false) => (node.kind !== "unit" ? (down ? { ...PLAIN, width: 92 } : PLAIN) : small ? SMALL : FULL);

function fitting(graph, small, room) {
  const across = careful(graph, small, false);
  if (LEAST * across.width <= room) return across;
  const down = careful(graph, small, true);
  return down.width < across.width ? down : across;
}

function careful(graph, small, down) {
  const drawn = new dagre.Graph();
  drawn.setGraph({ rankdir: down ? "TB" : "LR", nodesep: small ? 10 : down ? 12 : 22, ranksep: small ? 34 : down ? 46 : 62, marginx: 8, marginy: 8 });
  drawn.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) drawn.setNode(node.id, { ...sizeOf(node, small, down) });
  for (const [from, to] of graph.edges) drawn.setEdge(from, to, { width: 40, height: 14 });
  dagre.layout(drawn);
  const size = drawn.graph();
  return {
    width: Math.ceil(size.width), height: Math.ceil(size.height),
    nodes: new Map(graph.nodes.map((node) => [node.id, drawn.node(node.id)])),
    edges: graph.edges.map(([from, to]) => drawn.edge(from, to).points.map(({ x, y }) => [x, y])),
  };
}

function rows(graph, small) {
  const depth = new Map(graph.nodes.map((node) => [node.id, 0])), after = new Map();
  for (const [from, to] of graph.edges) (after.get(from) ?? after.set(from, []).get(from)).push(to);
  // Nodes come in order: each after those it takes from.
  for (const node of graph.nodes) for (const to of after.get(node.id) ?? []) depth.set(to, Math.max(depth.get(to), depth.get(node.id) + 1));
  const layers = new Map();
  for (const node of graph.nodes) (layers.get(depth.get(node.id)) ?? layers.set(depth.get(node.id), []).get(depth.get(node.id))).push(node);
  const across = 9, nodes = new Map();
  let y = 10;
  for (const level of [...layers.keys()].sort((a, b) => a - b)) {
    layers.get(level).forEach((node, i) => {
      const size = sizeOf(node, small);
      nodes.set(node.id, { ...size, x: 10 + SMALL.width / 2 + (i % across) * (SMALL.width + 12), y: y + size.height / 2 + Math.floor(i / across) * (size.height + 8) });
    });
    y += Math.ceil(layers.get(level).length / across) * (SMALL.height + 8) + 26;
  }
  const edges = graph.edges.length > 3 * TOO_MANY ? [] : graph.edges.map(([from, to]) => [nodes.get(from), nodes.get(to)].map((one, k) => [one.x, one.y + (k ? -1 : 1) * one.height / 2]));
  return { width: 20 + across * (SMALL.width + 12), height: y, nodes, edges };
}
