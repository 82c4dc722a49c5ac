"""`penstock benchmark`: which hosts, instances and slots each load of a topology needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import plotly.graph_objects as go
import typer
from rich.table import Table

from penstock.cli.choices import new_folder, read_span
from penstock.cli.console import console as open_console
from penstock.cli.experiment import Bar
from penstock.cli.extent import refuse_endless
from penstock.errors import ConfigurationError, QuantityError
from penstock.quantities import rate_per_s
from penstock.report.page import Page
from penstock.runs.assembly import load
from penstock.studies.benchmark import (
    Benchmarked,
    Plan,
    benchmark_simulated,
    benchmark_spark,
    rows_of,
    staircase,
)
from penstock.topology.model import Choice, Topology

COLUMNS = ("load /s", "hosts", "instances", "slots", "on each host")


def benchmark(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    to: Annotated[str, typer.Option("--to", help='The highest load, such as "16000/s".')],
    step: Annotated[str, typer.Option(help="By how much the load rises.")],
    first: Annotated[str | None, typer.Option("--from", help="The first load; by default one step.")] = None,
    hold: Annotated[str, typer.Option(help="How long each load is held.")] = "10 min",
    spark: Annotated[bool, typer.Option(help="On Spark, in real time, instead of on the simulator.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulator.", min=0)] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for the map, the table and the plot.")] = None,
) -> None:
    """Raise the load step by step and find the smallest configuration for each: a map for policy `levels`."""
    console = open_console()
    topology = load(file)
    plan = Plan(
        _rate(first or step, "--from"), _rate(to, "--to"), _rate(step, "--step"), read_span(hold, "--hold")
    )
    refuse_endless(staircase(topology, plan, Choice("levels")), plan.length_s)
    folder = new_folder(out, f"benchmark-{topology.name}")
    with Bar(console, f"benchmarking {topology.name}") as bar:
        if spark:
            found = benchmark_spark(topology, plan, bar.say, folder / "run", file.resolve().parent)
        else:
            found = benchmark_simulated(topology, plan, bar.say, seed=seed)
    written = found.map.write(folder / "map.yaml")
    units = [unit.name for unit in topology.units]
    table = Table(title=f"{topology.name}: configurations ({found.map.ground})", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == COLUMNS[-1] else "right")
    for row in rows_of(found, units):
        table.add_row(*row)
    console.print(table)
    if found.map.ended:
        console.print(f"no higher load was tried: {found.map.ended}", highlight=False)
    page = benchmark_page(topology, found).write(folder / "benchmark.html")
    console.print(f"map: {written}\nplot: {page}", soft_wrap=True, highlight=False)


def benchmark_page(topology: Topology, found: Benchmarked) -> Page:
    """The map as a page: a table, health and slots over the load."""
    units = [unit.name for unit in topology.units]
    page = Page(
        f"{topology.name}: configurations by load", f"{found.map.ground}, paper 002, Algorithms 1 and 2"
    )
    page.table("Configurations", COLUMNS, rows_of(found, units), found.map.ended)
    loads = [step.load_per_s for step in found.steps]
    slots, health = go.Figure(), go.Figure()
    for unit in units:
        slots.add_scatter(
            x=loads,
            y=[sum(sum(layout.get(unit, ())) for layout in step.hosts) for step in found.steps],
            name=f"{unit}: slots",
            line_shape="hv",
        )
        health.add_scatter(x=loads, y=[step.health.get(unit) for step in found.steps], name=unit)
    slots.add_scatter(
        x=loads, y=[len(step.hosts) for step in found.steps], name="hosts", line_shape="hv", line_dash="dot"
    )
    health.add_hline(y=found.map.least_health, line_dash="dash", line_color="#888")
    slots.update_xaxes(title="load, records a second").update_yaxes(rangemode="tozero")
    health.update_xaxes(title="load, records a second").update_yaxes(title="executed / received")
    page.plot("Slots and hosts", slots, "What stood at the end of each load.")
    page.plot("Health", health, "Over the last third of each load; below the line a unit is congested.")
    return page


def _rate(text: str, option: str) -> float:
    try:
        return rate_per_s(text)
    except QuantityError as error:
        raise ConfigurationError(f"{option}: {error}") from None
