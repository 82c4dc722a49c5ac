"""`penstock compare`: policies × filters × billing units × seeds, side by side."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import plotly.graph_objects as go
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.cli.assembly import load, with_choices
from penstock.cli.budget import budgeting_for
from penstock.cli.choices import new_folder, read_choice, read_list
from penstock.cli.console import console as open_console
from penstock.controller.result import RunResult
from penstock.errors import ConfigurationError
from penstock.experiments.clairvoyant import clairvoyant_cost
from penstock.filters.registry import make_filter
from penstock.policies.registry import make_policy
from penstock.quantities import duration_s, format_duration
from penstock.report.page import Page
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Topology


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination that is compared."""

    policy: str
    filter: str
    btu_s: float


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
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")] = "threshold,btu,rate",
    filters: Annotated[str, typer.Option(help="Filters, separated by commas.")] = "none",
    btus: Annotated[str | None, typer.Option(help="Billing time units, separated by commas.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each combination.")] = 3,
    duration: Annotated[str, typer.Option(help="How long to simulate.")] = "120 min",
    workload: Annotated[str | None, typer.Option(help="Workload for every source.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 means one for each core.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the page.")] = None,
) -> None:
    """Simulate a topology under several policies, filters and billing units, side by side."""
    topology = with_choices(load(file), workload=read_choice(workload) if workload else None)
    if seeds < 1:
        raise ConfigurationError(f"expected at least one seed, got {seeds}")
    spans = [duration_s(text) for text in read_list(btus)] if btus else [topology.sites[0].btu_s]
    cells = [Cell(*parts) for parts in itertools.product(read_list(policies), read_list(filters), spans)]
    rows = run_comparison(topology, cells, range(1, seeds + 1), duration_s(duration), jobs)
    folder = new_folder(out, f"compare-{topology.name}")
    open_console().print(_table(topology, rows, seeds))
    open_console().print(f"report: {_write(folder, topology, rows, seeds)}")


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


def _one(topology: Topology, seed: int, length_s: float) -> RunResult:
    settings = SimulationSettings(seed=seed)
    return simulate(topology, settings, duration_s=length_s, budgeting=budgeting_for(topology))


def _clairvoyant(topology: Topology, btu_s: float, length_s: float) -> float:
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
        row.cell.policy, row.cell.filter, format_duration(row.cell.btu_s), f"{row.cost:.5g}",
        "–" if row.ratio is None else f"{row.ratio:.2f}", f"{row.total:.5g}", f"{row.real_time:.1%}",
        f"{row.relaxed:.1%}", format_duration(row.p95_s), f"{row.rescales:.0f}", f"{row.host_minutes:.0f}",
    ]  # fmt: skip


def _table(topology: Topology, rows: Sequence[Row], seeds: int) -> Table:
    table = Table(title=f"{topology.name}: means over {seeds} seeds", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*_written(row))
    return table


def _write(folder: Path, topology: Topology, rows: Sequence[Row], seeds: int) -> Path:
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
    page.table("Policies side by side", COLUMNS, [_written(row) for row in rows], left=2)
    figure = go.Figure()
    for row in rows:
        label = f"{row.cell.policy} / {row.cell.filter} / {format_duration(row.cell.btu_s)}"
        figure.add_scatter(
            x=[row.cost], y=[row.relaxed * 100], mode="markers+text", text=[row.cell.policy], name=label,
            textposition="top center", marker={"size": 14},
        )  # fmt: skip
    figure.update_xaxes(title="resource cost").update_yaxes(title="% of records within 5 × SLO")
    page.plot("Cost against compliance", figure, "Up and to the left is better.", height=420)
    return page.write(folder / "report.html")
