"""`penstock study`: what levels are worth on the platform at hand, or what a load does over a day."""

from __future__ import annotations

import time
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
COLUMNS = (
    "query", "hosts", "instances", "slots", "partitions", "healthy up to /s", "memory MiB", "cores used",
)  # fmt: skip


def study(
    what: Annotated[Literal["levels", "day"], typer.Argument(help="`levels` of this platform, or a `day`.")],
    record: Annotated[
        Path | None, typer.Argument(help="day: folder or journal of the run to learn from.")
    ] = None,
    cores: Annotated[int, typer.Option(help="levels: cores of a host.", min=1)] = 2,
    span: Annotated[str, typer.Option(help="levels: how long each shape is measured.")] = "4 s",
    query: Annotated[
        list[str] | None, typer.Option(help="levels: jvm, python or stateful; all by default.")
    ] = None,
    length: Annotated[str, typer.Option(help="day: how long a day is.")] = "24 h",
    steps: Annotated[int, typer.Option(help="day: steps of the profile.", min=1)] = 24,
    out: Annotated[Path | None, typer.Option(help="Folder for profile, table and plot.")] = None,
) -> None:
    """Measure slots, instances and hosts on Spark (`levels`), or learn a daily profile (`day`)."""
    console = open_console()
    if what == "day":
        if record is None:
            raise ConfigurationError("expected the folder or the journal of a run: penstock study day FOLDER")
        _day(console, record, read_span(length, "--length"), steps, new_folder(out, "study-day"))
        return
    _levels(console, cores, read_span(span, "--span"), tuple(query or ROWS), new_folder(out, "study-levels"))


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
    table = Table(title=platform, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "query" else "right")
    for row in rows:
        table.add_row(*(str(cell) for cell in _cells(row)))
    console.print(table)
    for text in found.findings:
        console.print(f"- {text}", highlight=False, soft_wrap=True)
    page = Page("Levels of Spark", platform)
    page.table("Shapes", COLUMNS, [_cells(row) for row in rows])
    page.table(
        "Levels",
        ("level", "effect", "beyond the cores", "memory MiB", "time to serve (s)"),
        [[n, v.effect_ratio, v.beyond_cores_ratio, v.memory_mib, v.start_s] for n, v in found.levels.items()],
    )
    figure = go.Figure()
    for query in queries:
        mine = [row for row in rows if row.query == query]
        shapes = [f"{r.instances} × {r.slots}, {r.partitions} parts" for r in mine]
        figure.add_bar(x=shapes, y=[row.healthy_per_s for row in mine], name=query)
    figure.update_yaxes(title="records a second at health 0.9")
    page.plot("Highest healthy load", figure, "Instances × slots on one host.")
    written = page.write(folder / "study.html")
    took_s = time.perf_counter() - began_s
    console.print(f"{took_s:.0f} s; profile: {file}\nplot: {written}", soft_wrap=True, highlight=False)


def _cells(row: Found) -> list[object]:
    return [
        row.query, row.hosts, row.instances, row.slots, row.partitions, f"{row.healthy_per_s:,.0f}",
        f"{row.memory_mib:,.0f}", f"{row.cpu_cores:.2f}",
    ]  # fmt: skip
