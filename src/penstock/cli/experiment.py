"""`penstock experiment`: the evaluation of one of the papers, from this code."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.choosing import nearest
from penstock.cli.choices import new_folder
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.report.figures import print_figures, write_figures

EXPERIMENTS = {
    "btu": ("penstock.experiments.btu", 3, "paper 000: leasing by billing time unit"),
    "kalman": ("penstock.experiments.kalman", 20, "paper 001: filtered scaling decisions"),
    "pesp": ("penstock.experiments.pesp", 3, "paper 003: the taxi topology"),
    "budgets": ("penstock.experiments.budgets", 50, "paper 004: latency budgets"),
}
"""Experiments by name: module, the paper's number of seeds or graphs, what it is about."""


def experiment(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}.")],
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each cell; the paper's number by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables, plots and summary.json.")] = None,
) -> None:
    """Run a paper's evaluation: tables, plots and a verdict beside the paper's figures."""
    if name not in EXPERIMENTS:
        raise ConfigurationError(f'unknown experiment "{name}"{nearest(name, EXPERIMENTS)}')
    if seeds is not None and seeds < 1:
        raise ConfigurationError(f"expected at least one seed, got {seeds}")
    module, default_seeds, about = EXPERIMENTS[name]
    folder = new_folder(out, f"experiment-{name}")
    console = open_console()
    began_s = time.perf_counter()
    with console.status(about) as status:
        figures = importlib.import_module(module).run(seeds or default_seeds, folder, status.update)
    write_figures(figures, folder / "summary.json")
    print_figures(figures, about, console)
    verdict = folder / "verdict.txt"
    if verdict.is_file():
        console.print(verdict.read_text(), markup=False, highlight=False)
    console.print(f"{time.perf_counter() - began_s:.1f} s; results in {folder}")
    for page in sorted(folder.glob("*.html")):
        console.print(f"  {page}")
