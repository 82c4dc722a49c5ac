"""`penstock experiment`: the evaluation of one of the papers, from this code."""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.choosing import nearest
from penstock.cli.choices import new_folder
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.quantities import price
from penstock.report.figures import print_figures, write_figures

EXPERIMENTS = {
    "btu": ("penstock.experiments.btu", 3, "paper 000: leasing by billing time unit"),
    "kalman": ("penstock.experiments.kalman", 20, "paper 001: filtered scaling decisions"),
    "pesp": ("penstock.experiments.pesp", 3, "paper 003: the taxi topology"),
    "budgets": ("penstock.experiments.budgets", 50, "paper 004: latency budgets"),
}
"""Experiments by name: module, the paper's number of seeds or graphs, what it is about."""
MOST_SHOWN = 60
"""Of more figures than this, only those with a bar are printed; all are in summary.json."""


def experiment(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}.")],
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each cell; the paper's number by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables, plots and summary.json.")] = None,
    vm_price: Annotated[
        str | None, typer.Option(help='kalman: what a VM costs, for the break-even, such as "0.05 EUR/h".')
    ] = None,
    violation_price: Annotated[
        str | None, typer.Option(help='kalman: what a missed SLA costs, such as "0.001 EUR".')
    ] = None,
) -> None:
    """Run a paper's evaluation: tables, plots and a verdict beside the paper's figures."""
    if name not in EXPERIMENTS:
        raise ConfigurationError(f'unknown experiment "{name}"{nearest(name, EXPERIMENTS)}')
    if seeds is not None and seeds < 1:
        raise ConfigurationError(f"expected at least one seed, got {seeds}")
    module, default_seeds, about = EXPERIMENTS[name]
    given = _prices(name, vm_price, violation_price)
    folder = new_folder(out, f"experiment-{name}")
    console = open_console()
    began_s = time.perf_counter()
    with _Bar(console, about) as bar:
        figures = importlib.import_module(module).run(seeds or default_seeds, folder, bar.say, *given)
    write_figures(figures, folder / "summary.json")
    shown = figures if len(figures) <= MOST_SHOWN else [figure for figure in figures if figure.bar]
    print_figures(shown, about, console)
    if len(shown) < len(figures):
        console.print(f"{len(figures) - len(shown)} further figures in {folder / 'summary.json'}")
    verdict = folder / "verdict.txt"
    if verdict.is_file():
        console.print(verdict.read_text(), markup=False, highlight=False)
    console.print(f"{time.perf_counter() - began_s:.1f} s; results in {folder}")
    for page in sorted(folder.glob("*.html")):
        console.print(f"  {page}")


def _prices(name: str, vm_price: str | None, violation_price: str | None) -> tuple[object, ...]:
    """The user's own prices as the experiment takes them; none where none were given."""
    if vm_price is None and violation_price is None:
        return ()
    if name != "kalman":
        raise ConfigurationError(f"--vm-price and --violation-price are for kalman, not for {name}")
    from penstock.experiments.kalman_evaluation import Prices

    default = Prices()
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
    return (
        Prices(
            an_hour,
            default.violation if violation is None else float(violation.amount),
            named.pop() if named else default.currency,
        ),
    )


class _Bar:
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

    def __enter__(self) -> _Bar:
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
