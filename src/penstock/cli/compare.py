"""`penstock compare`: policies × filters × billing units × seeds, side by side."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import plotly.graph_objects as go
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.cli.choices import checked, new_folder, read_choice, read_list, read_share, read_span
from penstock.cli.console import console as open_console
from penstock.cli.extent import refuse_endless
from penstock.controller.result import RunResult
from penstock.errors import ConfigurationError
from penstock.experiments.clairvoyant import clairvoyant_cost
from penstock.filters.registry import make_filter
from penstock.policies.registry import decides_on, make_policy
from penstock.quantities import format_duration
from penstock.report.page import Page
from penstock.runs.assembly import budgeting_for, load, with_choices
from penstock.runs.known import known_names
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Topology

MOST_RUNS = 10_000
"""Simulations of one comparison."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination that is compared."""

    policy: str
    filter: str
    btu_s: float | None
    """The billing unit of every site; None where each is billed as the file says."""

    @property
    def billed(self) -> str:
        """The billing unit as a table has it."""
        return "as the file" if self.btu_s is None else format_duration(self.btu_s)


@dataclass(frozen=True, slots=True)
class Row:
    """A combination's figures, as means over the seeds."""

    cell: Cell
    cost: float
    ratio: float | None
    """Cost over the clairvoyant lower bound."""
    total: float
    real_time: float
    relaxed: float
    p95_s: float
    rescales: float
    host_minutes: float


def compare(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")] = "auto,rate,btu",
    filters: Annotated[str, typer.Option(help="Filters, separated by commas.")] = "none",
    btus: Annotated[
        str | None, typer.Option(help="Billing time units, separated by commas; else as the file says.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each combination.")] = 3,
    duration: Annotated[str, typer.Option(help="How long to simulate.")] = "120 min",
    workload: Annotated[str | None, typer.Option(help="Workload for every source.")] = None,
    keep: Annotated[
        str, typer.Option(help="A share of records; the cheapest that keeps it is told.")
    ] = "99%",
    jobs: Annotated[int, typer.Option(help="Processes; 0 means one for each core.", min=0, max=256)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the page.")] = None,
) -> None:
    """Simulate a topology under several policies, filters and billing units, side by side."""
    topology = with_choices(load(file), workload=None if workload is None else read_choice(workload))
    if seeds < 1:
        raise ConfigurationError(f"expected at least one seed, got {seeds}")
    least = read_share(keep, "--keep")
    length_s = read_span(duration, "--duration")
    refuse_endless(checked(topology, known_names()), length_s)
    spans: list[float | None] = [None]
    if btus is not None:
        spans = [read_span(text, "--btus") for text in read_list(btus)]
    cells = [Cell(*parts) for parts in itertools.product(read_list(policies), read_list(filters), spans)]
    if len(cells) * seeds > MOST_RUNS:
        raise ConfigurationError(f"expected at most {MOST_RUNS:,} runs, got {len(cells) * seeds:,}")
    rows = run_comparison(topology, cells, range(1, seeds + 1), length_s, jobs)
    folder = new_folder(out, f"compare-{topology.name}")
    open_console().print(_table(topology, rows, seeds, cheapest(rows, least)))
    open_console().print(_found(rows, least), soft_wrap=True, highlight=False)
    for note in same_lines(rows):
        open_console().print(f"[yellow]note[/yellow] {note}", soft_wrap=True)
    open_console().print(f"report: {_write(folder, topology, rows, seeds, least)}")


def run_comparison(
    topology: Topology, cells: Sequence[Cell], seeds: Sequence[int], length_s: float, jobs: int = 0
) -> list[Row]:
    """Simulate every cell with every seed, over all cores, with a progress bar."""
    varied = {cell: _varied(topology, cell) for cell in cells}  # names are checked before anything runs
    tasks = [(cell, seed) for cell in cells for seed in seeds]
    results: dict[Cell, list[RunResult]] = {cell: [] for cell in cells}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress, ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        bar = progress.add_task("comparing", total=len(tasks))
        pending = {pool.submit(_one, varied[cell], seed, length_s): cell for cell, seed in tasks}
        for done in as_completed(pending):
            results[pending[done]].append(done.result())
            progress.advance(bar)
    bounds = {span: _clairvoyant(topology, span, length_s) for span in {cell.btu_s for cell in cells}}
    return [_row(cell, results[cell], bounds[cell.btu_s]) for cell in cells]


def _varied(topology: Topology, cell: Cell) -> Topology:
    policy, chosen_filter = read_choice(cell.policy), read_choice(cell.filter)
    make_policy(policy)
    make_filter(chosen_filter)
    return with_choices(topology, policy=policy, filter=chosen_filter, btu_s=cell.btu_s)


def cheapest(rows: Sequence[Row], least: float) -> Row | None:
    """The cheapest row that keeps its records to at least this share; None where none does."""
    return min((row for row in rows if row.real_time >= least), key=lambda row: row.cost, default=None)


def _found(rows: Sequence[Row], least: float) -> str:
    """What a reader looks for first: the least cost for what was asked."""
    best = cheapest(rows, least)
    if best is None:
        nearest = max(rows, key=lambda row: row.real_time)
        return (
            f"none keeps {100 * least:.4g}% of the records within the SLO; "
            f"{nearest.cell.policy} with filter {nearest.cell.filter} is nearest with {nearest.real_time:.1%}"
        )
    billed = "" if best.cell.btu_s is None else f" and a billing unit of {best.cell.billed}"
    return (
        f"the cheapest that keeps {100 * least:.4g}% within the SLO: {best.cell.policy} with filter "
        f"{best.cell.filter}{billed}, for {best.cost:.5g}"
    )


def same_lines(rows: Sequence[Row]) -> list[str]:
    """Where filters gave the very same figures, a sentence that says so and, where it is known, why."""
    groups: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.cell.policy, row.cell.btu_s), []).append(row)
    notes: dict[str, None] = {}
    for (policy, _), members in groups.items():
        first, *others = members
        same = [row.cell.filter for row in others if replace(row, cell=first.cell) == first]
        if same:
            decided = bool(decides_on(read_choice(policy)))
            why = "its decisions would not have been others" if decided else "it decides on nothing measured"
            names = ", ".join((first.cell.filter, *same))
            notes[f"{policy}: filters {names} give the same line, {why}"] = None
    return list(notes)


def _one(topology: Topology, seed: int, length_s: float) -> RunResult:
    settings = SimulationSettings(seed=seed)
    return simulate(topology, settings, duration_s=length_s, budgeting=budgeting_for(topology))


def _clairvoyant(topology: Topology, btu_s: float | None, length_s: float) -> float:
    return float(clairvoyant_cost(with_choices(topology, btu_s=btu_s), length_s))


def _row(cell: Cell, results: Sequence[RunResult], bound: float) -> Row:
    cost = fmean(float(r.resource_cost) for r in results)
    return Row(
        cell,
        cost,
        cost / bound if bound else None,
        fmean(float(r.total_cost()) for r in results),
        fmean(r.compliance.ratio("real_time") for r in results),
        fmean(r.compliance.ratio("relaxed") for r in results),
        fmean(r.end_to_end.p95_s for r in results),
        fmean(r.rescales for r in results),
        fmean(r.host_s / 60 for r in results),
    )


COLUMNS = (
    "policy", "filter", "BTU", "cost", "/ clairvoyant", "cost + penalty", "real-time", "relaxed", "p95",
    "rescales", "host-min",
)  # fmt: skip


def _written(row: Row) -> list[str]:
    return [
        row.cell.policy, row.cell.filter, row.cell.billed, f"{row.cost:.5g}",
        "–" if row.ratio is None else f"{row.ratio:.2f}", f"{row.total:.5g}", f"{row.real_time:.1%}",
        f"{row.relaxed:.1%}", format_duration(row.p95_s), f"{row.rescales:.0f}", f"{row.host_minutes:.0f}",
    ]  # fmt: skip


def _table(topology: Topology, rows: Sequence[Row], seeds: int, best: Row | None) -> Table:
    table = Table(title=f"{topology.name}: means over {seeds} seeds", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*_written(row), style="bold green" if row is best else "")
    return table


POSITIONS = ("top center", "bottom center", "middle right", "middle left")


def label_positions(rows: Sequence[Row]) -> list[str | None]:
    """Where each point's label stands so that none covers another; None for no label, the legend has it.

    Points nearer than a tenth of the plot share its room: each takes another side, the fifth none.
    """
    span = [max(values) - min(values) or 1.0 for values in zip(*_points(rows), strict=True)]
    placed: list[tuple[tuple[float, ...], str | None]] = []
    for point in _points(rows):
        at = tuple(value / width for value, width in zip(point, span, strict=True))
        near = {side for other, side in placed if max(abs(at[0] - other[0]), abs(at[1] - other[1])) < 0.1}
        placed.append((at, next((side for side in POSITIONS if side not in near), None)))
    return [side for _, side in placed]


def _points(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return [(row.cost, row.relaxed) for row in rows]


def _write(folder: Path, topology: Topology, rows: Sequence[Row], seeds: int, least: float) -> Path:
    plain: list[dict[str, Any]] = [
        {
            "policy": row.cell.policy, "filter": row.cell.filter, "btu_s": row.cell.btu_s, "cost": row.cost,
            "cost_over_clairvoyant": row.ratio, "total_cost": row.total, "real_time": row.real_time,
            "relaxed": row.relaxed, "p95_s": row.p95_s, "rescales": row.rescales,
            "host_minutes": row.host_minutes,
        }
        for row in rows
    ]  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(plain, indent=2) + "\n")
    page = Page(f"{topology.name}: comparison", f"means over {seeds} seeds, simulated")
    page.text("What was asked for", [_found(rows, least)])
    page.table("Policies side by side", COLUMNS, [_written(row) for row in rows], left=2)
    notes = same_lines(rows)
    if notes:
        page.text("What made no difference", notes)
    figure = go.Figure()
    for row, position in zip(rows, label_positions(rows), strict=True):
        label = f"{row.cell.policy} / {row.cell.filter} / {row.cell.billed}"
        figure.add_scatter(
            x=[row.cost], y=[row.relaxed * 100], mode="markers" if position is None else "markers+text",
            text=[row.cell.policy], name=label, textposition=position, marker={"size": 14},
        )  # fmt: skip
    figure.update_xaxes(title="resource cost").update_yaxes(title="% of records within 5 × SLO")
    page.plot("Cost against compliance", figure, "Up and to the left is better.", height=420)
    return page.write(folder / "report.html")
