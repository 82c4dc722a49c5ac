"""Draws a topology: as boxes and arrows in the terminal, and as one page of HTML.

Both go from the sources down to the sinks. In the terminal every edge has its own way: a line that
crosses another is drawn ┼ and never joins it. The page holds its whole drawing (SVG) and style inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import groupby
from operator import itemgetter

from rich.text import Text

from penstock.quantities import format_duration
from penstock.topology.file import duration_text, memory_text
from penstock.topology.layout import Layout, Node, layout
from penstock.topology.model import Choice, Topology

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    _UP: "│", _DOWN: "│", _LEFT: "─", _RIGHT: "─", _UP | _DOWN: "│", _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "┌", _DOWN | _LEFT: "┐", _UP | _RIGHT: "└", _UP | _LEFT: "┘",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤", _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _LEFT | _RIGHT: "┴", _UP | _DOWN | _LEFT | _RIGHT: "┼",
}  # fmt: skip
_BORDERS = {"source": "╭─╮│╰─╯", "operator": "┌─┐│└─┘", "sink": "╔═╗║╚═╝"}
_GAP = 3
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green")
_PAGE_COLOURS = ("#2a9d8f", "#e9a23b", "#5b7db1", "#c8553d", "#7a5195", "#4f9d4f", "#b5838d", "#607d8b")


def _details(topology: Topology, name: str, kind: str) -> list[str]:
    """What stands in a box below the name."""
    if kind == "source":
        source = topology.source_by_name[name]
        lines = ["source"]
        if source.workload is not None:
            lines.append(f"workload {source.workload.name}")
        if source.share != 1:
            lines.append(f"share {source.share:g}")
        return lines
    if kind == "sink":
        return ["sink"]
    operator = topology.operator_by_name[name]
    lines = [f"slo {format_duration(operator.slo_s)}, ratio {operator.ratio:.3g}"]
    cores = "1 core" if operator.cores == 1 else f"{operator.cores:.3g} cores"
    lines.append(f"{cores}, {memory_text(operator.memory_mib)}")
    unit = topology.unit_of[name]
    if unit != name:
        lines.append(f"unit {unit}")
    return lines


class _Canvas:
    """Characters and their styles, addressed by row and column."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], tuple[str, str]] = {}
        self._ways: dict[tuple[int, int], int] = {}

    def write(self, row: int, column: int, text: str, style: str = "") -> None:
        """Put text from a column on."""
        for i, character in enumerate(text):
            self._cells[row, column + i] = (character, style)

    def vertical(self, column: int, first: int, last: int) -> None:
        """A line down a column, both rows included."""
        for row in range(first, last + 1):
            way = (_UP if row > first else 0) | (_DOWN if row < last else 0)
            self._ways[row, column] = self._ways.get((row, column), 0) | way

    def horizontal(self, row: int, first: int, last: int) -> None:
        """A line along a row, both columns included."""
        for column in range(first, last + 1):
            way = (_LEFT if column > first else 0) | (_RIGHT if column < last else 0)
            self._ways[row, column] = self._ways.get((row, column), 0) | way

    def text(self) -> Text:
        """The drawing, ready to print; boxes cover lines."""
        cells = {place: (_LINES.get(way, " "), "dim") for place, way in self._ways.items()} | self._cells
        last: dict[int, int] = {}
        for row, column in cells:
            last[row] = max(last.get(row, -1), column)
        drawing = Text(no_wrap=True, overflow="crop")
        for row in range(max(last, default=-1) + 1):
            shown = [cells.get((row, column), (" ", "")) for column in range(last.get(row, -1) + 1)]
            for style, run in groupby(shown, key=itemgetter(1)):
                drawing.append("".join(character for character, _ in run), style or None)
            drawing.append("\n")
        return drawing


def draw(topology: Topology) -> Text:
    """The topology as boxes and arrows, from the sources down."""
    placed = layout(topology)
    units = [unit.name for unit in topology.units]
    boxes = {node.key: _box_lines(topology, node) for layer in placed.layers for node in layer}
    widths = {key: max((len(line) for line in lines), default=-3) + 4 for key, lines in boxes.items()}
    centres = _centres(placed, widths)
    canvas = _Canvas()
    row = 0
    for level, layer in enumerate(placed.layers):
        height = max(len(boxes[node.key]) for node in layer) + 2
        for node in layer:
            if node.is_waypoint:
                canvas.vertical(centres[node.key], row, row + height - 1)
                continue
            colour = ""
            if node.kind == "operator":
                colour = _COLOURS[units.index(topology.unit_of[node.key]) % len(_COLOURS)]
            _draw_box(canvas, node, boxes[node.key], widths[node.key], centres[node.key], row, height, colour)
        row += height
        if level + 1 < len(placed.layers):
            row = _draw_edges(canvas, placed, level, centres, widths, row)
    return canvas.text()


def _box_lines(topology: Topology, node: Node) -> list[str]:
    return [] if node.name is None else [node.name, *_details(topology, node.name, node.kind)]


def _draw_box(
    canvas: _Canvas, node: Node, lines: list[str], width: int, centre: int, row: int, height: int, colour: str
) -> None:
    top_left, flat, top_right, side, bottom_left, bottom_flat, bottom_right = tuple(_BORDERS[node.kind])
    left = centre - width // 2
    canvas.write(row, left, top_left + flat * (width - 2) + top_right, colour)
    for i in range(height - 2):
        line = lines[i] if i < len(lines) else ""
        canvas.write(row + 1 + i, left, side, colour)
        canvas.write(row + 1 + i, left + 1, f" {line:<{width - 3}}", "bold" if i == 0 else "")
        canvas.write(row + 1 + i, left + width - 1, side, colour)
    canvas.write(row + height - 1, left, bottom_left + bottom_flat * (width - 2) + bottom_right, colour)


def _centres(placed: Layout, widths: Mapping[str, int]) -> dict[str, int]:
    """The middle column of each node: near its neighbours', in order, without overlap."""
    centres: dict[str, float] = {}
    for layer in placed.layers:
        cursor = 0.0
        for node in layer:
            centres[node.key] = cursor + widths[node.key] / 2
            cursor += widths[node.key] + _GAP
    for sweep in range(12):
        downward = sweep % 2 == 0
        for layer in placed.layers if downward else placed.layers[::-1]:
            wanted = []
            for node in layer:
                near = placed.sources_of(node.key) if downward else placed.targets_of(node.key)
                mean = sum(centres[key] for key in near) / len(near) if near else centres[node.key]
                wanted.append(mean)
            for node, place in zip(layer, _apart(layer, wanted, widths), strict=True):
                centres[node.key] = place
    least = min((centres[k] - widths[k] // 2 for k in centres), default=0.0)
    return {key: round(centre - least) for key, centre in centres.items()}


def _apart(layer: tuple[Node, ...], wanted: list[float], widths: Mapping[str, int]) -> list[float]:
    """Places as near to the wanted ones as order and gaps allow (pool adjacent violators)."""
    offsets, reach = [], 0.0
    for i, node in enumerate(layer):
        if i:
            reach += widths[layer[i - 1].key] / 2 + _GAP + widths[node.key] / 2
        offsets.append(reach)
    groups: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        groups.append((want - offset, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, n), (b, m) = groups[-2:]
            groups[-2:] = [((a * n + b * m) / (n + m), n + m)]
    shifts = [shift for shift, count in groups for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _draw_edges(
    canvas: _Canvas,
    placed: Layout,
    level: int,
    centres: Mapping[str, int],
    widths: Mapping[str, int],
    row: int,
) -> int:
    """The edges below a layer; gives the row the next layer begins at.

    Each node that leads on gets a row of its own for turning, each arrival a column of its own.
    """
    upper = [node.key for node in placed.layers[level] if placed.targets_of(node.key)]
    arrivals = _arrivals(placed, level, centres, widths)
    turning = [
        key
        for key in upper
        if any(arrivals[key, target] != centres[key] for target in placed.targets_of(key))
    ]
    # Lines to the left turn from the left on, lines to the right from the right on: fewer crossings.
    mean = {k: sum(arrivals[k, t] for t in placed.targets_of(k)) / len(placed.targets_of(k)) for k in upper}
    turning.sort(key=lambda k: centres[k] if mean[k] <= centres[k] else 10_000 - centres[k])
    tracks = {key: row + 1 + i for i, key in enumerate(turning)}
    end = row + len(turning) + 1
    lower = {node.key: node for node in placed.layers[level + 1]}
    for key in upper:
        track = tracks.get(key)
        targets = placed.targets_of(key)
        columns = [arrivals[key, target] for target in targets]
        if track is not None:
            canvas.vertical(centres[key], row, track)
            canvas.horizontal(track, min([centres[key], *columns]), max([centres[key], *columns]))
        for target, column in zip(targets, columns, strict=True):
            first = row if column == centres[key] or track is None else track
            canvas.vertical(column, first, end)
            if not lower[target].is_waypoint:
                canvas.write(end, column, "▼", "dim")
    return end + 1


def _arrivals(
    placed: Layout, level: int, centres: Mapping[str, int], widths: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """The column each edge arrives at: spread over the box, never in the column of another edge's start."""
    starts = {centres[node.key] for node in placed.layers[level] if placed.targets_of(node.key)}
    found: dict[tuple[str, str], int] = {}
    for node in placed.layers[level + 1]:
        sources = sorted(placed.sources_of(node.key), key=lambda key: centres[key])
        if node.is_waypoint or (len(sources) == 1 and centres[sources[0]] == centres[node.key]):
            found.update({(source, node.key): centres[node.key] for source in sources})
            continue
        width = widths[node.key]
        left = centres[node.key] - width // 2
        taken: set[int] = set()
        for i, source in enumerate(sources):
            column = left + round(width * (i + 1) / (len(sources) + 1))
            if left + 1 < centres[source] < left + width - 2 and centres[source] not in taken:
                column = centres[source]  # straight down
            while column in taken or (column in starts and column != centres[source]):
                column += 1
            taken.add(column)
            found[source, node.key] = column
    return found


# The page

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; color: #223; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #dde; }
th { font-weight: 600; color: #556; } svg text { font: 12px system-ui, sans-serif; fill: #223; }
svg .name { font-weight: 600; font-size: 13px; } svg .edge { fill: none; stroke: #889; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #dde; }
  svg text { fill: #dde; } th { color: #aab; } th, td { border-color: #334; }
  svg rect { fill-opacity: .25; } }
"""


def page(topology: Topology) -> str:
    """The topology as one page of HTML: its graph and its tables, all inside, nothing loaded."""
    tables = [
        _table(
            "Operators",
            ("operator", "inputs", "SLO", "cores", "memory", "state", "ratio", "unit"),
            [
                (
                    o.name,
                    ", ".join(o.inputs),
                    duration_text(o.slo_s),
                    f"{o.cores:.3g}",
                    memory_text(o.memory_mib),
                    "stateful" if o.stateful else "none",
                    f"{o.ratio:.3g}",
                    topology.unit_of[o.name],
                )
                for o in topology.operators
            ],
        ),
        _table(
            "Units",
            ("unit", "operators", "sites", "policy", "filter", "instances", "slots"),
            [
                (
                    u.name,
                    ", ".join(u.operators),
                    ", ".join(u.sites) or "every site",
                    _choice(u.policy),
                    _choice(u.filter),
                    f"{u.min_instances} to {u.max_instances}, first {u.initial_instances}",
                    str(u.slots),
                )
                for u in topology.units
            ],
        ),
        _table(
            "Sites",
            ("site", "provider", "billing time unit", "flavours", "hosts at most"),
            [
                (
                    s.name,
                    _choice(s.provider),
                    duration_text(s.btu_s),
                    "; ".join(
                        f"{f.name}: {f.cores:g} cores, {memory_text(f.memory_mib)}, "
                        f"{'list' if f.unread else f'{f.price_per_btu:.6g}'} {s.currency}".rstrip()
                        for f in s.flavours
                    ),
                    str(s.max_hosts),
                )
                for s in topology.sites
            ],
        ),
    ]
    if topology.latency_bounds:
        tables.append(
            _table(
                "Latency bounds",
                ("from", "to", "bound"),
                [
                    (b.source or "every source", b.sink or "every sink", duration_text(b.bound_s))
                    for b in topology.latency_bounds
                ],
            )
        )
    title = escape(topology.name)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>Topology {title}</h1>\n{_svg(topology)}\n"
        + "\n".join(tables)
        + "\n</body></html>\n"
    )


def _choice(choice: Choice) -> str:
    given = ", ".join(f"{key} {value}" for key, value in choice.parameters.items())
    return f"{choice.name} ({given})" if given else choice.name


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h2>{escape(title)}</h2>\n<table><tr>{header}</tr>\n{body}</table>"


_CHARACTER, _LINE, _CHANNEL = 7.2, 17, 56


def _svg(topology: Topology) -> str:
    """The graph as SVG: the same layers as in the terminal, curves for edges, a colour for each unit."""
    placed = layout(topology)
    units = [unit.name for unit in topology.units]
    boxes = {node.key: _box_lines(topology, node) for layer in placed.layers for node in layer}
    columns = {key: max((len(line) for line in lines), default=-3) + 4 for key, lines in boxes.items()}
    centres = {key: column * _CHARACTER + 20 for key, column in _centres(placed, columns).items()}
    width = max(centres[key] + columns[key] * _CHARACTER / 2 for key in centres) + 20
    tops: dict[str, float] = {}
    bottoms: dict[str, float] = {}
    y = 12.0
    for layer in placed.layers:
        height = max(len(boxes[node.key]) for node in layer) * _LINE + 14
        for node in layer:
            tops[node.key], bottoms[node.key] = y, y + height
        y += height + _CHANNEL
    waypoints = {node.key for layer in placed.layers for node in layer if node.is_waypoint}
    parts = [_curve(centres[a], bottoms[a], centres[b], tops[b], b in waypoints) for a, b in placed.edges]
    parts += [
        f'<path class="edge" d="M{centres[k]:.1f},{tops[k]:.1f} V{bottoms[k]:.1f}"/>'
        for k in sorted(waypoints)
    ]
    for layer in placed.layers:
        for node in layer:
            if node.name is None:
                continue
            colour = "#99a"
            if node.kind == "operator":
                colour = _PAGE_COLOURS[units.index(topology.unit_of[node.name]) % len(_PAGE_COLOURS)]
            half = columns[node.key] * _CHARACTER / 2
            top, bottom = tops[node.key], bottoms[node.key]
            corner, border = (14 if node.kind == "source" else 4), (3 if node.kind == "sink" else 1.5)
            parts.append(
                f'<rect x="{centres[node.key] - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" '
                f'height="{bottom - top:.1f}" rx="{corner}" fill="{colour}" fill-opacity="0.14" '
                f'stroke="{colour}" stroke-width="{border}"/>'
            )
            parts += [
                f'<text x="{centres[node.key]:.1f}" y="{top + 20 + i * _LINE:.1f}" text-anchor="middle" '
                f'class="{"detail" if i else "name"}">{escape(line)}</text>'
                for i, line in enumerate(boxes[node.key])
            ]
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#889"/></marker></defs>'
    )
    bottom_edge = y - _CHANNEL + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom_edge:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom_edge:.0f}" role="img" style="max-width:100%;height:auto">'
        f"{marker}" + "".join(parts) + "</svg>"
    )


def _curve(x1: float, y1: float, x2: float, y2: float, passes: bool) -> str:
    middle = (y1 + y2) / 2
    arrow = "" if passes else ' marker-end="url(#arrow)"'
    return (
        f'<path class="edge" d="M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} '
        f'{x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}"{arrow}/>'
    )
