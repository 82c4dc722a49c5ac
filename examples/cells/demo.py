"""The demo: paper 001's laboratory on a real, elastic Spark cluster, for about three minutes.

`python examples/cells/demo.py` draws pictures, sends them at the pace of a pyramid, asks queries meanwhile,
scales executors on filtered CPU, and checks every count and every answer at the end.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

EXAMPLES = Path(__file__).resolve().parents[1]
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cells.checking import PROMISES_S, count_results
from cells.faults import Killer
from cells.feed import Load
from cells.laboratory import Outcome, require_packages, run_laboratory, topology_of
from cells.page import parts_table, waits_table, write_page
from cells.shard import IMAGE, QUERY
from penstock.cli.choices import read_choice
from penstock.cli.console import console as make_console
from penstock.cli.main import told_in_words
from penstock.controller.loop import Tick
from penstock.errors import ClusterError
from penstock.page.server import live_page
from penstock.quantities import format_duration
from penstock.report.terminal import LiveView, flow_of
from penstock.runs.run import Run
from penstock.spark.training import ensure_archive
from penstock.topology.model import Topology

STEPS = 6
"""Levels a pyramid goes through in a demo: up, up, up, down, down, down."""


def demo(
    minutes: Annotated[float, typer.Option(help="How long images are sent.")] = 2.0,
    megapixels: Annotated[float, typer.Option(help="Size of a picture; the paper's are 1.7.")] = 0.4,
    filter: Annotated[str, typer.Option(help="kalman, gaussian or none.")] = "kalman",
    policy: Annotated[str, typer.Option(help="Policy of the unit that scales.")] = "utilisation:step=multi",
    most: Annotated[float, typer.Option(help="Images a second at the top of the pyramid.")] = 90.0,
    query_every: Annotated[int, typer.Option(help="Images to one query; the paper's are 100.")] = 10,
    together: Annotated[bool, typer.Option("--together", help="Images and the state in one unit.")] = False,
    faults: Annotated[bool, typer.Option("--faults", help="Kill an executor, then the driver.")] = False,
    seed: Annotated[int, typer.Option(help="Which pictures, regions and queries.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Run paper 001's laboratory on a local elastic cluster, live, and check every count and answer."""
    console = make_console()
    require_packages()
    load = load_of(minutes * 60, most, megapixels=megapixels, query_every=query_every, seed=seed)
    topology = topology_of(load, filter=read_choice(filter), policy=read_choice(policy), together=together)
    folder = (out / f"cells-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(
        f"The laboratory with filter [bold]{filter}[/bold] for {format_duration(load.duration_s)}: up to "
        f"{most:g} images/s of {megapixels:g} megapixels. Ctrl-C ends it in order. Folder: {folder}"
    )
    console.print(flow_of(topology), style="dim", markup=False)
    with live_page(folder, topology) as served:
        console.print(f"page: {served.address}", soft_wrap=True, highlight=False, markup=False)
        with console.status("preparing Java (the first time takes a minute) …"):
            ensure_archive()
        outcome = _run(topology, load, folder, console, Killer(load.duration_s) if faults else None)
    print_outcome(console, outcome)
    print_timing(console, outcome)
    console.print(f"report: {write_page(outcome)}", soft_wrap=True, highlight=False, markup=False)
    if not outcome.check.right and not outcome.interrupted:
        raise ClusterError("counts or answers do not agree with the batch computation; see the table above")


def load_of(
    duration_s: float,
    most_per_s: float,
    *,
    megapixels: float = 1.7,
    query_every: int = 100,
    seed: int = 1,
) -> Load:
    """A pyramid that goes up and down once in a duration."""
    parameters = {
        "low_per_s": most_per_s / 12,
        "high_per_s": most_per_s,
        "step_per_s": (most_per_s - most_per_s / 12) / (STEPS / 2),
        "hold_s": duration_s / STEPS,
    }
    return Load("pyramid", parameters, duration_s, query_every, seed, megapixels)


def _run(
    topology: Topology, load: Load, folder: Path, console: Console, killer: Killer | None = None
) -> Outcome:
    begun_s = time.time()
    view: list[LiveView] = []

    def each(run: Run, tick: Tick) -> None:
        if not view:
            view.append(LiveView(time.time, lambda: _headline(run, load, begun_s), lambda: _line(run)))
            live.update(view[0])
        view[0].show(run.status())
        if killer is not None:
            killer(run, tick)
        if not console.is_terminal:
            for text in run.news():
                console.print(f"{time.time() - begun_s:5.0f} s  {text}", markup=False)

    live = Live(console=console, refresh_per_second=2, transient=True)
    with live if console.is_terminal else contextlib.nullcontext():
        return run_laboratory(topology, load, folder, watch=each)


def _headline(run: Run, load: Load, begun_s: float) -> str:
    started_s = run.feed.started_s
    if started_s is None:
        return f"cells · starting for {format_duration(time.time() - begun_s)}"
    since_s = max(0.0, time.time() - started_s)
    if since_s >= load.duration_s:
        return f"cells · microscope off, {format_duration(since_s - load.duration_s)} of draining"
    return f"cells · {format_duration(since_s)} of {format_duration(load.duration_s)}"


def _line(run: Run) -> str:
    return f"results: {count_results(run.folder.units.results / 'results'):,} images and queries answered"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Promises, truth and cost of a run, as tables."""
    checked, result = outcome.check, outcome.result
    promises = Table(title="promises, counted separately", title_justify="left")
    for name in ("what", "records", "mean", "p95", "promised", "kept", "violations"):
        promises.add_column(name, justify="left" if name == "what" else "right")
    for kind, title in ((IMAGE, "images"), (QUERY, "queries")):
        found, kept = checked.durations[kind], checked.compliance[kind]
        promises.add_row(
            title,
            f"{found.count:,}",
            format_duration(found.mean_s),
            format_duration(found.p95_s),
            format_duration(PROMISES_S[kind]),
            kept.shown("real_time"),
            str(checked.broken(kind)),
        )
    console.print(promises)
    if outcome.interrupted:
        console.print("interrupted: what was on its way stays in the run's folder")
    truth = Table(title="against the truth", title_justify="left")
    for name in ("what", "expected", "found", ""):
        truth.add_column(name, justify="right" if name in ("expected", "found") else "left")
    for what, expected, found_count in checked.rows:
        truth.add_row(what, f"{expected:,}", f"{found_count:,}", "✓" if expected == found_count else "✗")
    console.print(truth)
    console.print(
        f"count accuracy against the cells drawn: {checked.accuracy:.2%}; {checked.behind} queries were "
        "answered while images before them were still on their way"
    )
    console.print(
        f"{outcome.events} scaling events, {result.host_s / 60:.1f} host-minutes, "
        f"bill {result.resource_cost} {result.currency}".rstrip()
    )


def print_timing(console: Console, outcome: Outcome) -> None:
    """Where the time of micro-batches goes, and queries around rescales, as tables."""
    parts = Table(title="micro-batches with rows, medians", title_justify="left")
    for name in ("unit", "number", "records", "whole", "of it", "on state", "state"):
        parts.add_column(name, justify="right" if name in ("number", "records", "whole") else "left")
    for row in parts_table(outcome):
        parts.add_row(*row)
    console.print(parts)
    if not outcome.waits:
        console.print("no instance came or went while queries were asked")
        return
    waits = Table(title="queries while instances came and went", title_justify="left")
    for name in ("at", "unit", "instances", "queries around it", "longest"):
        waits.add_column(name, justify="left" if name == "unit" else "right")
    for row in waits_table(outcome):
        waits.add_row(*row)
    console.print(waits)


if __name__ == "__main__":
    # Ctrl-C and SIGTERM both end it in order, also where a shell's background ignores the first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with told_in_words():
        typer.run(demo)
