"""`penstock run`: a topology on real Spark, with a live view, a summary and a report."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Annotated

import psutil
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.channels.registry import service_of
from penstock.cli.choices import checked, read_choice, read_span
from penstock.clock import WallClock
from penstock.controller.result import RunResult
from penstock.controller.status import Status
from penstock.controller.warm_start import warm_started
from penstock.errors import ConfigurationError, TopologyError
from penstock.experiments.twin import best_cost_of
from penstock.machine.processes import interrupt_on_signals
from penstock.page.server import live_page
from penstock.quantities import counted, format_duration
from penstock.report.hints import hints
from penstock.report.run_report import write_run_report
from penstock.report.terminal import LinePerTick, LiveView
from penstock.runs.assembly import load, with_choices
from penstock.runs.folder import RunFolder
from penstock.runs.in_one_session import LocalResult, run_locally
from penstock.runs.known import known_names
from penstock.runs.part import here
from penstock.runs.run import require_runnable
from penstock.runs.service import run_topology
from penstock.topology.sizes import whole_cores


def run(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration", "-d", help='How long sources run, such as "2 min"; without it until Ctrl-C.'
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option(
            "--local", help="All units in one local[*] session: for development, nothing is scaled."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The run's folder; by default a new one in runs/. One of a killed run is taken up again.",
        ),
    ] = None,
    code: Annotated[
        Path | None, typer.Option(help="The folder of the functions; by default the file's own.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policy for every unit, such as auto or levels:map=map.yaml.")
    ] = None,
    filter: Annotated[str | None, typer.Option(help="Filter for every unit, such as kalman.")] = None,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            help="Folder or journal of an earlier run: units start with its mean number of instances, "
            "and know what its load did over the day."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--conf", "-c", help="A Spark setting as NAME=VALUE; may be given again. Yours win."),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_JOURNAL",
            help="The URL of a PostgreSQL database for the journal; by default a file of the folder.",
        ),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(help="Run the units at this site alone; every other site has such a run of its own."),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Serve a live page on this machine.")] = False,
    port: Annotated[int, typer.Option(help="The page's port; 0 means a free one.", min=0, max=65535)] = 0,
) -> None:
    """Run a topology on Spark, at its sites' masters or on a local cluster, scaled by each unit's policy."""
    interrupt_on_signals()
    console = Console()
    topology = load(file)
    if policy is not None or filter is not None:
        chosen = with_choices(
            topology,
            policy=None if policy is None else read_choice(policy),
            filter=None if filter is None else read_choice(filter),
        )
        topology = checked(chosen, known_names())
    if warm_start is not None:
        topology = warm_started(topology, warm_start, time.time())
    too_small = () if local else whole_cores(topology, everywhere=True)
    if too_small:
        raise TopologyError(too_small)
    chosen_s = None if duration is None else read_span(duration, "--duration")
    folder = out or Path("runs") / f"{topology.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    code = (code or file.parent).resolve()
    settings = _settings(setting or [])
    service = service_of(topology)
    bootstrap = None if service is None else service.address()
    own_broker = service is not None and bootstrap is None and not local
    console.print(f"Running [bold]{topology.name}[/bold] into {folder} (Ctrl-C ends it in order) …")
    if local:
        with Live(Text("starting one local session …"), console=console, refresh_per_second=2) as live:
            done = run_locally(
                topology,
                folder,
                duration_s=chosen_s,
                code=code,
                bootstrap=bootstrap,
                settings=settings,
                watch=lambda result: live.update(_local_view(result)),
            )
            live.update(_local_view(done))
        console.print(f"{done.records_in} records in; results are below {folder}.")
        return
    part = here(topology, {}, site)
    require_runnable(topology, part=part)  # before a page is up and a folder is made
    clock = WallClock()
    view = LiveView(clock.now_s)
    seen = LinePerTick(console)
    busy: list[float] = []
    psutil.cpu_percent()  # the first call begins to measure
    with (
        live_page(folder, topology, port) if page else nullcontext() as served,
        Live(view, console=console, refresh_per_second=2) if console.is_terminal else nullcontext(),
    ):
        if served is not None:
            console.print(f"Page: {served.address}", soft_wrap=True, highlight=False)

        def watch(status: Status) -> None:
            view.show(status)
            busy.append(psutil.cpu_percent() / 100)
            if not console.is_terminal:
                seen(status)

        result = run_topology(
            topology,
            folder,
            duration_s=chosen_s,
            code=code,
            bootstrap=bootstrap,
            own_broker=own_broker,
            settings=settings,
            journal=journal,
            site=site,
            warm_from=warm_start,
            watch=watch,
        )
    place = RunFolder(folder)
    with place.opened() as book:
        best_cost, busy_ratio = best_cost_of(book, part), fmean(busy) if busy else None
        report = write_run_report(folder, part, result, book, best_cost=best_cost, busy_ratio=busy_ratio)
    _summary(console, result)
    for hint in hints(result, busy_ratio):
        console.print(hint, style="yellow", highlight=False)
    console.print(f"Report: {report}")
    console.print(f"Look at it again: penstock page {folder}", soft_wrap=True, highlight=False)


def _settings(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigurationError(f"expected a setting as NAME=VALUE, got {text!r}")
        found[name.strip()] = value.strip()
    return found


def _local_view(result: LocalResult) -> Group:
    table = Table(expand=False)
    for name in ("unit", "processed", "batches", "waiting"):
        table.add_column(name, justify="left" if name == "unit" else "right")
    for name, unit in result.units.items():
        table.add_row(name, str(unit.processed), str(unit.batches), str(unit.waiting))
    return Group(table, *(Text(notice, style="yellow") for notice in result.notices[-4:]))


def _seconds(value: float | None) -> str:
    return "–" if value is None else format_duration(value)


def _summary(console: Console, result: RunResult) -> None:
    table = Table(title=f"{result.name}: {format_duration(result.duration_s)}", title_justify="left")
    for name in ("unit", "arrived", "processed", "left", "mean", "p95", "within SLO"):
        table.add_column(name, justify="left" if name == "unit" else "right")
    for name, unit in result.units.items():
        table.add_row(
            name,
            str(unit.arrived),
            str(unit.processed),
            str(unit.left),
            _seconds(unit.durations.mean_s),
            _seconds(unit.durations.p95_s),
            unit.compliance.shown("real_time"),
        )
    console.print(table)
    console.print(
        f"{result.records_in} records in, {result.records_out} out; "
        f"{counted(result.leases, 'lease')}, bill {result.resource_cost:.4f} {result.currency}".rstrip()
    )
