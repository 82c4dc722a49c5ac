"""`penstock study`: what levels are worth on the platform at hand, or what a load does over a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import plotly.graph_objects as go
import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.choices import new_folder, read_span
from penstock.cli.console import console as open_console
from penstock.cli.experiment import Bar
from penstock.errors import ConfigurationError
from penstock.experiments.twin import opened
from penstock.levels.day import learned
from penstock.policies.levels import entry_units
from penstock.report.page import Page
from penstock.studies.levels import Found, Plan, profile_of
from penstock.studies.levels import study as study_platform
from penstock.topology.file import load_topology

ROWS = {"jvm": 60_000, "python": 30_000, "stateful": 120_000}
"""Records of a micro-batch of each query."""
USUAL_CORES = 2
LEVEL_COLUMNS = ("level", "effect", "beyond the cores", "memory MiB", "time to serve (s)")
COLUMNS = (
    "query", "hosts", "instances", "slots", "partitions", "healthy up to /s", "memory MiB", "cores used",
)  # fmt: skip


def study(
    what: Annotated[Literal["levels", "day"], typer.Argument(help="`levels` of this platform, or a `day`.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="levels: a topology file, for hosts like its own; day: folder or journal of a run."
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(help="levels: cores of a host; 2 where no file says it.", min=2),
    ] = None,
    span: Annotated[str, typer.Option(help="levels: how long each shape is measured.")] = "4 s",
    query: Annotated[
        list[str] | None, typer.Option(help="levels: jvm, python or stateful; all by default.")
    ] = None,
    length: Annotated[str, typer.Option(help="day: how long a day is.")] = "24 h",
    steps: Annotated[int, typer.Option(help="day: steps of the profile.", min=1, max=10_000)] = 24,
    out: Annotated[Path | None, typer.Option(help="Folder for profile, table and plot.")] = None,
) -> None:
    """Measure slots, instances and hosts on Spark (`levels`), or learn a daily profile (`day`)."""
    console = open_console()
    if what == "day":
        if file is None:
            raise ConfigurationError("expected the folder or the journal of a run: penstock study day FOLDER")
        _day(console, file, read_span(length, "--length"), steps, new_folder(out, "study-day"))
        return
    cores = cores or (USUAL_CORES if file is None else _cores_of(file))
    _levels(console, cores, read_span(span, "--span"), tuple(query or ROWS), new_folder(out, "study-levels"))


def _cores_of(file: Path) -> int:
    """Whole cores of the smallest host of a topology: what fits there fits everywhere."""
    flavours = [flavour for site in load_topology(file).sites for flavour in site.flavours]
    if not flavours:
        raise ConfigurationError(f"{file} has no hosts of its own; say --cores")
    cores = int(min(flavour.cores for flavour in flavours))
    if cores < USUAL_CORES:
        raise ConfigurationError(f"a host of {file} has room for one slot alone; say --cores")
    return cores


def _day(console: Console, record: Path, day_s: float, steps: int, folder: Path) -> None:
    with opened(record) as journal:
        rows = journal.rows("observation", ("unit", "at_s", "interval_s", "arrived"))
    text = record / "topology.yaml"
    units = entry_units(load_topology(text)) if text.is_file() else (rows[0]["unit"],) if rows else ()
    loads: dict[float, float] = {}
    for row in rows:
        if row["unit"] in units and row["interval_s"]:
            middle_s = row["at_s"] - row["interval_s"] / 2
            loads[middle_s] = loads.get(middle_s, 0.0) + row["arrived"] / row["interval_s"]
    file = learned(sorted(loads.items()), day_s=day_s, steps=steps).write(folder / "day.yaml")
    console.print(f"daily profile of {', '.join(units)}: {file}", soft_wrap=True, highlight=False)


def _levels(console: Console, cores: int, span_s: float, queries: tuple[str, ...], folder: Path) -> None:
    unknown = [name for name in queries if name not in ROWS]
    if unknown:
        raise ConfigurationError(f"expected queries out of {', '.join(ROWS)}, got {', '.join(unknown)}")
    from penstock.spark.probing import SparkProbe

    plan = Plan(queries, cores, ROWS, span_s)
    began_s = time.perf_counter()
    with Bar(console, "studying the levels of Spark") as bar:
        bar.say("starting a cluster and a session")
        with SparkProbe(cores) as ground:
            rows, times = study_platform(ground, plan, bar.say)
            host_mib = ground.host_memory_mib()
    platform = f"Spark standalone on one machine, hosts of {cores} cores"
    found = profile_of(platform, rows, times, plan, host_mib)
    file = found.write(folder / "platform.yaml")
    shapes = [_cells(row) for row in rows]
    levels = [
        [name, f"{v.effect_ratio:.2f}", f"{v.beyond_cores_ratio:.2f}", v.memory_mib, f"{v.start_s:.2f}"]
        for name, v in found.levels.items()
    ]
    for title, columns, cells in (
        (platform, COLUMNS, shapes),
        ("what one more of a level brings, and costs", LEVEL_COLUMNS, levels),
    ):
        table = Table(title=title, title_justify="left")
        for place, name in enumerate(columns):
            table.add_column(name, justify="right" if place else "left")
        for given in cells:
            table.add_row(*(str(cell) for cell in given))
        console.print(table)
    for text in found.findings:
        console.print(f"- {text}", highlight=False, soft_wrap=True)
    page = Page("Levels of Spark", platform)
    page.table(
        "Levels", LEVEL_COLUMNS, levels, " ".join(f"{text[0].upper()}{text[1:]}." for text in found.findings)
    )
    page.table("Shapes", COLUMNS, shapes)
    for title, what, value in PLOTS:
        figure = go.Figure()
        for query in queries:
            mine = [row for row in rows if row.query == query]
            figure.add_bar(x=[_shape(row) for row in mine], y=[value(row) for row in mine], name=query)
        figure.update_yaxes(title=what)
        page.plot(title, figure, "Hosts, instances × slots of each, partitions.")
    written = page.write(folder / "study.html")
    took_s = time.perf_counter() - began_s
    console.print(
        f"{took_s:.0f} s; profile: {file} (policy levels reads it: `platform: FILE`)\nplot: {written}",
        soft_wrap=True,
        highlight=False,
    )


def _shape(row: Found) -> str:
    hosts = "" if row.hosts == 1 else f"{row.hosts} hosts, "
    return f"{hosts}{row.instances} × {row.slots}, {row.partitions}"


PLOTS: tuple[tuple[str, str, Callable[[Found], float]], ...] = (
    ("Highest healthy load", "records a second at health 0.9", lambda row: row.healthy_per_s),
    ("Memory", "MiB of all instances", lambda row: row.memory_mib),
    ("CPU", "cores used by all instances", lambda row: row.cpu_cores),
)
"""Paper 002's Figures 3 to 5 for Spark: title, axis, and what is drawn."""


def _cells(row: Found) -> list[object]:
    return [
        row.query, row.hosts, row.instances, row.slots, row.partitions, f"{row.healthy_per_s:,.0f}",
        f"{row.memory_mib:,.0f}", f"{row.cpu_cores:.2f}",
    ]  # fmt: skip
