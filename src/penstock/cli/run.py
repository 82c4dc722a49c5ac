"""`penstock run`: a topology on real Spark, with a live view, a summary and a report."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.assembly import load
from penstock.cli.broker import running_bootstrap
from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.controller.warm_start import warm_started
from penstock.errors import ConfigurationError
from penstock.quantities import duration_s, format_duration
from penstock.report.run_report import write_run_report
from penstock.spark.local_run import LocalResult, run_locally
from penstock.spark.run import JOURNAL, run_topology
from penstock.topology.model import Topology


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
    warm_start: Annotated[
        Path | None,
        typer.Option(
            help="Folder or journal of an earlier run: units start with its mean number of instances."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--conf", "-c", help="A Spark setting as NAME=VALUE; may be given again. Yours win."),
    ] = None,
) -> None:
    """Run a topology on Spark: a local cluster that grows and shrinks by each unit's policy."""
    console = Console()
    topology = load(file)
    if warm_start is not None:
        topology = warm_started(topology, warm_start)
    chosen_s = None if duration is None else duration_s(duration)
    folder = out or Path("runs") / f"{topology.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    code = file.resolve().parent
    settings = _settings(setting or [])
    bootstrap = running_bootstrap() if _uses_kafka(topology) else None
    own_broker = _needs_broker(topology) and bootstrap is None and not local
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
    with Live(Text("starting the cluster and the units …"), console=console, refresh_per_second=2) as live:
        result = run_topology(
            topology,
            folder,
            duration_s=chosen_s,
            code=code,
            bootstrap=bootstrap,
            own_broker=own_broker,
            settings=settings,
            watch=lambda status: live.update(_view(status)),
        )
    with Journal(folder / JOURNAL, _run_name(folder)) as journal:
        page = write_run_report(folder, topology, result, journal)
    _summary(console, result)
    console.print(f"Report: {page}")


def _settings(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigurationError(f"expected a setting as NAME=VALUE, got {text!r}")
        found[name.strip()] = value.strip()
    return found


def _uses_kafka(topology: Topology) -> bool:
    return any(channel.kind == "kafka" for channel in topology.channels)


def _needs_broker(topology: Topology) -> bool:
    """Whether a kafka channel names no broker of the user's."""
    return any(c.kind == "kafka" and not c.options.get("bootstrap") for c in topology.channels)


def _run_name(folder: Path) -> str:
    from penstock.spark.unit_driver import RunSpecification

    return RunSpecification.read(folder).name


def _view(status: dict[str, Any]) -> Group:
    """The live view of a run."""
    table = Table(expand=False, title=status["name"], title_justify="left")
    for name in ("unit", "state", "instances", "in /s", "done /s", "waiting", "duration", "latency", "CPU"):
        table.add_column(name, justify="left" if name in ("unit", "state") else "right")
    for name, unit in status["units"].items():
        measured = unit["measurement"] or {}
        interval_s = measured.get("interval_s") or 1.0
        cpu = measured.get("cpu_ratios") or []
        table.add_row(
            name,
            unit["state"],
            f"{unit['running']}/{unit['instances']}",
            f"{measured.get('arrived', 0) / interval_s:.0f}",
            f"{measured.get('processed', 0) / interval_s:.0f}",
            str(measured.get("waiting", "–")),
            _seconds(measured.get("duration_s")),
            _seconds(measured.get("latency_s")),
            f"{sum(cpu) / len(cpu):.0%}" if cpu else "–",
        )
    hosts = ", ".join(f"{name} {state}" for name, state in status["hosts"].items()) or "none"
    since_s = status["feeding_since_s"]
    clock = "starting" if since_s is None else format_duration(max(0.0, status["at_s"] - since_s))
    if since_s is not None and status["duration_s"] is not None:
        clock += f" of {format_duration(status['duration_s'])}"
    lines = [Text(f"{clock} · hosts: {hosts} · bill {Decimal(status['bill']):.4f}")]
    lines += [Text(f"  {text}", style="dim") for text in [*status["decisions"], *status["notices"]][:6]]
    return Group(table, *lines)


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
        f"{result.leases} leases, bill {result.resource_cost:.4f} {result.currency}".rstrip()
    )
