"""`penstock experiment`: the evaluation of one of the papers, from this code."""

from __future__ import annotations

import importlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.choosing import nearest
from penstock.cli.choices import new_folder
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.experiments.recordings import (
    CLICKS,
    MESSAGES,
    TAXIS,
    VARIABLE,
    WALK_1,
    WALK_2,
    Recording,
    find_recordings,
)
from penstock.machine.processes import interrupt_on_signals
from penstock.quantities import price
from penstock.report.figures import print_figures, write_figures


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment by its module, which is imported when it is asked for."""

    module: str
    seeds: int
    """Runs of each cell (or graphs a setting) where the user says nothing; the paper's number."""
    about: str
    recordings: tuple[Recording, ...] = ()
    """The recorded series it plays."""


EXPERIMENTS = {
    "btu": Experiment(
        "penstock.experiments.btu", 3, "paper 000: leasing by billing time unit", (WALK_1, WALK_2)
    ),
    "kalman": Experiment("penstock.experiments.kalman", 20, "paper 001: filtered scaling decisions"),
    "pesp": Experiment("penstock.experiments.pesp", 3, "paper 003: the taxi topology", (TAXIS,)),
    "budgets": Experiment("penstock.experiments.budgets", 50, "paper 004: latency budgets"),
    "rate": Experiment(
        "penstock.experiments.rate", 3, "the rate policy on a jump and a click stream", (CLICKS,)
    ),
    "levels": Experiment(
        "penstock.experiments.levels", 1, "paper 002: multi-level elasticity", (CLICKS, MESSAGES)
    ),
    "cells": Experiment("penstock.experiments.cells", 3, "paper 001 on real Spark: the cell laboratory"),
}
"""Experiments by name."""
MOST_SHOWN = 60
"""Of more figures than this, only those with a bar are printed; all are in summary.json."""


def experiment(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}.")],
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each cell; the paper's number by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables, plots and summary.json.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help=f"Folder with the recorded series an experiment plays; {VARIABLE} by default."),
    ] = None,
    vm_price: Annotated[
        str | None,
        typer.Option(help='kalman, cells: what a VM costs, for the break-even, such as "0.05 EUR/h".'),
    ] = None,
    violation_price: Annotated[
        str | None, typer.Option(help='kalman, cells: what a missed SLA costs, such as "0.001 EUR".')
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="cells: how long each run sends images; 3.5 by default.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option(help="cells: some of Pyramid,Square,Lab; all by default.")
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="cells: some of none,gaussian,kalman; all by default.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="cells: the R of kalman, by `penstock calibrate`; measured first by default."),
    ] = None,
    warm_start: Annotated[
        bool, typer.Option("--warm-start", help="cells: begin as an earlier run of a kind was on average.")
    ] = False,
    on: Annotated[
        Literal["simulator", "spark"],
        typer.Option(
            help="spark: levels measures there first (four minutes), pesp runs Table III in small (24)."
        ),
    ] = "simulator",
    setups: Annotated[
        str | None,
        typer.Option(help="pesp --on spark: some of elastic,over,under, eight minutes each; all by default."),
    ] = None,
) -> None:
    """Run a paper's evaluation: tables, plots and a verdict beside the paper's figures.

    A recorded series that is absent is described, and the rest is run.
    """
    if name not in EXPERIMENTS:
        raise ConfigurationError(f'unknown experiment "{name}"{nearest(name, EXPERIMENTS)}')
    if seeds is not None and seeds < 1:
        raise ConfigurationError(f"expected at least one seed, got {seeds}")
    chosen = EXPERIMENTS[name]
    options = _prices(name, vm_price, violation_price) | _runs(name, minutes, workloads, filters)
    options |= _starts(name, calibration, warm_start)
    if on == "spark":
        if name not in ("levels", "pesp"):
            raise ConfigurationError(f"--on is for levels and pesp, not for {name}")
        options["on"] = on
    if setups is not None:
        if name != "pesp" or on != "spark":
            raise ConfigurationError("--setups is for pesp --on spark")
        options["setups"] = [part.strip() for part in setups.split(",") if part.strip()]
    recordings = find_recordings(data)
    if chosen.recordings:
        options["recordings"] = recordings
    elif data is not None:
        takers = ", ".join(other for other, found in EXPERIMENTS.items() if found.recordings)
        raise ConfigurationError(f"--data is for {takers}, not for {name}: it plays no recorded series")
    folder = new_folder(out, f"experiment-{name}")
    console = open_console()
    began_s = time.perf_counter()
    if name == "cells" or on == "spark":
        interrupt_on_signals()  # what a run has started ends with it
    for recording in chosen.recordings:
        if recordings.find(recording) is None:
            console.print(recordings.absent(recording), markup=False, highlight=False)
    with Bar(console, chosen.about) as bar:
        figures = importlib.import_module(chosen.module).run(
            seeds or chosen.seeds, folder, bar.say, **options
        )
    write_figures(figures, folder / "summary.json")
    shown = figures if len(figures) <= MOST_SHOWN else [f for f in figures if f.bar]
    print_figures(shown, chosen.about, console)
    if len(shown) < len(figures):
        console.print(f"{len(figures) - len(shown)} further figures in {folder / 'summary.json'}")
    verdict = folder / "verdict.txt"
    if verdict.is_file():
        console.print(verdict.read_text(), markup=False, highlight=False)
    console.print(f"{time.perf_counter() - began_s:.1f} s; results in {folder}")
    for page in sorted(folder.glob("*.html")):
        console.print(f"  {page}")


def _runs(name: str, minutes: float | None, workloads: str | None, filters: str | None) -> dict[str, object]:
    """Which runs on real Spark, as the experiment takes it; empty where nothing was said."""
    given: dict[str, object] = {} if minutes is None else {"minutes": minutes}
    for key, text in (("workloads", workloads), ("filters", filters)):
        if text is not None:
            given[key] = [part.strip() for part in text.split(",") if part.strip()]
    if given and name != "cells":
        raise ConfigurationError(f"--minutes, --workloads and --filters are for cells, not for {name}")
    return given


def _starts(name: str, calibration: Path | None, warm_start: bool) -> dict[str, object]:
    """How runs on real Spark start, as the experiment takes it; empty where nothing was said."""
    given: dict[str, object] = {} if calibration is None else {"calibration": calibration}
    if warm_start:
        given["warm"] = True
    if given and name != "cells":
        raise ConfigurationError(f"--calibration and --warm-start are for cells, not for {name}")
    return given


def _prices(name: str, vm_price: str | None, violation_price: str | None) -> dict[str, object]:
    """The user's own prices as the experiment takes them; none where none were given."""
    if vm_price is None and violation_price is None:
        return {}
    if name not in ("kalman", "cells"):
        raise ConfigurationError(f"--vm-price and --violation-price are for kalman and cells, not for {name}")
    from penstock.experiments.cells import PRICES
    from penstock.experiments.kalman_evaluation import Prices

    default = PRICES if name == "cells" else Prices()
    vm = None if vm_price is None else price(vm_price)
    violation = None if violation_price is None else price(violation_price)
    if violation is not None and violation.per_s is not None:
        raise ConfigurationError(
            f"expected the price of one violation, such as 0.001 EUR, got {violation_price!r}"
        )
    # A plain amount is for an hour.
    an_hour = default.vm_hour if vm is None else float(vm.for_span(3600.0))
    named = {found.currency for found in (vm, violation) if found is not None and found.currency}
    if len(named) > 1:
        raise ConfigurationError(f"expected both prices in one currency, got {' and '.join(sorted(named))}")
    if an_hour < 0 or (violation is not None and violation.amount < 0):
        raise ConfigurationError(f"expected prices of at least 0, got {vm_price!r} and {violation_price!r}")
    return {
        "prices": Prices(
            an_hour,
            default.violation if violation is None else float(violation.amount),
            named.pop() if named else default.currency,
        )
    }


class Bar:
    """A progress bar; it moves when an experiment says "3 of 21 …", and pulses before that."""

    def __init__(self, console: Console, about: str) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[about]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", style="dim"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, about=about)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """What the experiment is at."""
        counted = re.match(r"(\d+) of (\d+)", text)
        if counted:
            self._progress.update(
                self._task, completed=int(counted[1]), total=int(counted[2]), description=text
            )
        else:
            self._progress.update(self._task, description=text)
