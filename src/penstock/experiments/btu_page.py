"""Tables 3 to 6 and Figures 8 to 11 of paper 000 from our runs, the paper's values beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.experiments.btu_claims import LEVEL_NAMES, mean_of, value_of, verdict
from penstock.experiments.btu_paper import FIGURE_NUMBERS, PAPER, TABLE_NUMBERS
from penstock.experiments.btu_runs import BTUS_MIN, POLICIES, Cell, Outcome
from penstock.monitoring.sla import LEVELS
from penstock.report.figures import Figure
from penstock.report.page import Page

ROWS = (
    *LEVELS,
    "resource",
    *(f"{level} cost" for level in LEVELS),
    "hosts leased",
    "leases prolonged",
    "hosts released early",
    "upscalings",
    "downscalings",
    "migrations",
    "time to adapt (s)",
)


def table_of(
    outcomes: Mapping[Cell, Sequence[Outcome]], bounds: Mapping[tuple[str, int], float], pattern: str
) -> tuple[list[str], list[list[str]]]:
    """The analogue of a table: columns and rows, each value as "ours (σ) | paper's"."""
    columns = ["", *(f"{policy} BTU{b}" for policy in POLICIES for b in BTUS_MIN)]
    cells = [Cell(pattern, policy, b) for policy in POLICIES for b in BTUS_MIN]
    rows = []
    for what in ROWS:
        row = [_row_name(what)]
        for number, cell in enumerate(cells):
            values = [value_of(outcome, what) for outcome in outcomes[cell]]
            text = f"{_written(fmean(values), what)} (σ {_written(pstdev(values), what)})"
            paper = PAPER[pattern].get(what)
            row.append(text if paper is None else f"{text} | {_written(paper[number], what)}")
        rows.append(row)
    ratio = ["resource cost / clairvoyant"]
    for cell in cells:
        bound = bounds[pattern, cell.btu_min]
        ratio.append(f"{mean_of(outcomes, cell, 'resource') / bound:.2f} (of {bound:g})")
    rows.append(ratio)
    return columns, rows


def _row_name(what: str) -> str:
    if what in LEVELS:
        return f"{LEVEL_NAMES[what]} compliance"
    if what == "resource":
        return "resource cost"
    if what.endswith(" cost"):
        return f"{LEVEL_NAMES[what.removesuffix(' cost')]} total cost"
    return what


def _written(value: float, what: str) -> str:
    return f"{value:.0%}" if what in LEVELS else f"{value:.1f}"


def tables_as_text(
    outcomes: Mapping[Cell, Sequence[Outcome]], bounds: Mapping[tuple[str, int], float]
) -> str:
    """The tables and the verdict as Markdown."""
    parts = ["# Leasing by billing time unit: ours (σ over the seeds) | the paper's\n"]
    for pattern in dict.fromkeys(cell.pattern for cell in outcomes):
        columns, rows = table_of(outcomes, bounds, pattern)
        parts.append(f"\n## Table {TABLE_NUMBERS[pattern]}: {pattern}\n")
        parts.append("| " + " | ".join(columns) + " |")
        parts.append("|" + " --- |" * len(columns))
        parts += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    parts.append("\n## Verdict\n")
    parts += [f"- {line}" for line in verdict(outcomes)]
    return "\n".join(parts) + "\n"


def write_page(
    path: Path,
    outcomes: Mapping[Cell, Sequence[Outcome]],
    bounds: Mapping[tuple[str, int], float],
    figures: Sequence[Figure],
    seeds: int,
    walks: str,
) -> None:
    """One self-contained page: verdict, claims, tables and plots; `walks` says which walks were played."""
    page = Page(
        "Leasing by billing time unit",
        f"paper 000: 4 patterns × BTU 10/30/60 × btu and threshold × {seeds} seeds, 120 minutes each",
    )
    page.text("Verdict", [*verdict(outcomes), walks])
    page.table(
        "Claims",
        ("claim", "here", "bar", "paper", "holds"),
        [
            (f.name, str(f.here), f.bar or "", "" if f.paper is None else str(f.paper), f.holds)
            for f in figures
        ],
    )
    for pattern in dict.fromkeys(cell.pattern for cell in outcomes):
        columns, rows = table_of(outcomes, bounds, pattern)
        page.table(
            f"Table {TABLE_NUMBERS[pattern]}: {pattern}",
            columns,
            rows,
            "Ours (σ over the seeds) | the paper's.",
        )
        page.plot(
            f"Figure {FIGURE_NUMBERS[pattern]}: {pattern}",
            _plot(outcomes, pattern),
            "Machines that send data, instances of all units, and hosts, over the first seed's run.",
            height=900,
        )
    page.write(path)


def _plot(outcomes: Mapping[Cell, Sequence[Outcome]], pattern: str) -> go.Figure:
    shown = [Cell(pattern, "btu", b) for b in BTUS_MIN] + [Cell(pattern, "threshold", 60)]
    titles = [f"btu, BTU{b}" for b in BTUS_MIN] + ["threshold"]
    figure = make_subplots(
        rows=4, cols=1, shared_xaxes=True, vertical_spacing=0.03, specs=[[{"secondary_y": True}]] * 4
    )
    colours = {"instances": "#0b6e99", "machines": "#d9730d", "hosts": "#0f7b6c"}
    for row, cell in enumerate(shown, 1):
        series = next((o.series for o in outcomes[cell] if o.series is not None), None)
        if series is None:
            continue
        for name, values, second in (
            ("instances", series.instances, False),
            ("machines", series.machines, True),
            ("hosts", series.hosts, True),
        ):
            figure.add_scatter(
                x=series.minutes, y=values, name=name, legendgroup=name, showlegend=row == 1,
                line={"shape": "hv", "color": colours[name]}, row=row, col=1, secondary_y=second,
            )  # fmt: skip
        figure.update_yaxes(
            title=f"{titles[row - 1]}: instances", row=row, col=1, secondary_y=False, rangemode="tozero"
        )
        figure.update_yaxes(title="machines, hosts", row=row, col=1, secondary_y=True, rangemode="tozero")
    figure.update_xaxes(title="minutes", row=4, col=1)
    return figure
