"""`penstock simulate`: one simulated run of a topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from penstock.cli.assembly import load, with_choices
from penstock.cli.budget import budgeting_for
from penstock.cli.choices import new_folder, read_choice
from penstock.cli.console import console as open_console
from penstock.cli.tables import result_table
from penstock.controller.journal import Journal
from penstock.controller.loop import Tick
from penstock.controller.warm_start import warm_started
from penstock.quantities import duration_s
from penstock.report.run_report import write_run_report
from penstock.simulator import SimulationSettings
from penstock.simulator import simulate as run_simulation


def simulate(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    duration: Annotated[str, typer.Option(help="How long to simulate.")] = "120 min",
    policy: Annotated[str | None, typer.Option(help="Policy for every unit, such as btu.")] = None,
    filter: Annotated[str | None, typer.Option(help="Filter for every unit, such as kalman.")] = None,
    workload: Annotated[str | None, typer.Option(help="Workload for every source.")] = None,
    btu: Annotated[str | None, typer.Option(help="Billing time unit of every site.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 1,
    poisson: Annotated[bool, typer.Option(help="Records arrive at random, not evenly.")] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            help="Folder or journal of an earlier run: units start with its mean number of instances."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for journal, summary and report.")] = None,
) -> None:
    """Simulate a topology under its policies; leaves a journal, a summary and a report."""
    console = open_console()
    topology = with_choices(
        load(file),
        policy=read_choice(policy) if policy else None,
        filter=read_choice(filter) if filter else None,
        workload=read_choice(workload) if workload else None,
        btu_s=duration_s(btu) if btu else None,
    )
    if warm_start is not None:
        topology = warm_started(topology, warm_start)
    length_s = duration_s(duration)
    folder = new_folder(out, topology.name)
    (folder / "journal.db").unlink(missing_ok=True)
    settings = SimulationSettings(seed=seed, process="poisson" if poisson else "regular")
    with Journal(folder / "journal.db", topology.name, buffered=True) as journal:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(f"simulating {topology.name}", total=length_s)

            def advance(tick: Tick) -> None:
                progress.update(bar, completed=tick.at_s)

            result = run_simulation(
                topology, settings, duration_s=length_s, journal=journal, each=advance,
                budgeting=budgeting_for(topology),
            )  # fmt: skip
        report = write_run_report(folder, topology, result, journal)
    console.print(result_table(result))
    console.print(f"report: {report}")
