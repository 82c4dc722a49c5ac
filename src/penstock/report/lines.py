"""Small line charts for a report: the page's own plotting script, 50 KB, and no more points than show.

A report is sent around and kept. With plotly's script it has 5 MB; with this one it stays below one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

MOST_POINTS = 500
"""Points of a line; of more, the lowest and the highest of each stretch are kept."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    minutes: Sequence[float]
    values: Sequence[float | None]
    stepped: bool = False


def script() -> str:
    """The plotting script and what draws every chart of the page with it."""
    return (files("penstock.page") / "static" / "vendor" / "uPlot.js").read_text() + _DRAW


def style() -> str:
    """What the plotting script needs of a style sheet."""
    return (files("penstock.page") / "static" / "vendor" / "uPlot.css").read_text()


def chart_json(
    lines: Sequence[Line], axis: str, colours: Sequence[str], *, log: bool, reference: float | None
) -> str:
    """A chart as the page's script takes it."""
    shown = []
    for number, line in enumerate(lines):
        minutes, values = thinned(line.minutes, line.values)
        shown.append(
            {
                "name": line.name,
                "at": [round(minute, 3) for minute in minutes],
                "values": [None if value is None else float(f"{value:.4g}") for value in values],
                "stepped": line.stepped,
                "colour": colours[number % len(colours)],
            }
        )
    chart = {"lines": shown, "axis": axis, "log": log, "reference": reference}
    return json.dumps(chart, separators=(",", ":")).replace("</", "<\\/")


def thinned(
    times: Sequence[float], values: Sequence[float | None], most: int = MOST_POINTS
) -> tuple[list[Any], list[Any]]:
    """At most so many points, with every peak still in."""
    if len(times) <= most:
        return list(times), list(values)
    stride = -(-len(times) * 2 // most)
    kept: list[int] = []
    for begin in range(0, len(times), stride):
        known = [i for i in range(begin, min(begin + stride, len(times))) if values[i] is not None]
        if known:
            chosen = {min(known, key=lambda i: values[i] or 0.0), max(known, key=lambda i: values[i] or 0.0)}
            kept += sorted(chosen)
    kept = sorted({0, *kept, len(times) - 1})
    return [times[i] for i in kept], [values[i] for i in kept]


_DRAW = """
function drawChart(id, chart) {
  const holder = document.getElementById(id);
  const legend = document.createElement("div"); legend.className = "legend";
  for (const line of chart.lines) {
    const entry = document.createElement("span"), swatch = document.createElement("i");
    swatch.style.background = line.colour; entry.append(swatch, line.name); legend.append(entry);
  }
  if (chart.lines.length > 1) holder.append(legend);
  const data = chart.lines.length ? uPlot.join(chart.lines.map(l => [l.at, l.values])) : [[0, 1]];
  const width = () => Math.max(280, holder.clientWidth);
  const plot = new uPlot({
    width: width(), height: 240, legend: {show: false}, cursor: {y: false, sync: {key: "report"}},
    scales: {x: {time: false}, y: chart.log ? {distr: 3} : {range: (_, low, high) =>
      [Math.min(0, low), high > low ? high * 1.05 : high + 1]}},
    axes: [{label: "minutes", labelSize: 18, size: 34}, {label: chart.axis, labelSize: 18, size: 56}],
    series: [{}, ...chart.lines.map(l => ({stroke: l.colour, width: 1.6, spanGaps: true,
      paths: l.stepped ? uPlot.paths.stepped({align: 1}) : undefined, points: {show: false}}))],
    hooks: {draw: [plot => {
      if (chart.reference === null) return;
      const y = plot.valToPos(chart.reference, "y", true), c = plot.ctx;
      c.save(); c.setLineDash([6, 4]); c.strokeStyle = "#777"; c.beginPath();
      c.moveTo(plot.bbox.left, y); c.lineTo(plot.bbox.left + plot.bbox.width, y); c.stroke(); c.restore();
    }]},
  }, data, holder);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", chart.lines.map(l => l.name).join(", "));
  addEventListener("resize", () => plot.setSize({width: width(), height: 240}));
}
"""
