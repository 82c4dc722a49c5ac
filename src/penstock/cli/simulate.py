"""`penstock simulate`: one simulated run of a topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from penstock.cli.choices import checked, new_folder, read_choice, read_span
from penstock.cli.console import console as open_console
from penstock.cli.extent import refuse_endless
from penstock.cli.tables import result_table
from penstock.controller.journal import Journal
from penstock.controller.loop import Tick
from penstock.controller.warm_start import earlier_seasons, warm_started
from penstock.experiments.twin import best_cost_of
from penstock.forecasts.season import Season
from penstock.report.run_report import write_run_report
from penstock.runs.assembly import budgeting_for, load, with_choices
from penstock.runs.known import known_names
from penstock.simulator import SimulationSettings
from penstock.simulator import simulate as run_simulation


def simulate(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    duration: Annotated[str, typer.Option(help="How long to simulate.")] = "120 min",
    policy: Annotated[str | None, typer.Option(help="Policy for every unit, such as btu.")] = None,
    filter: Annotated[str | None, typer.Option(help="Filter for every unit, such as kalman.")] = None,
    workload: Annotated[str | None, typer.Option(help="Workload for every source.")] = None,
    btu: Annotated[str | None, typer.Option(help="Billing time unit of every site.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.", min=0)] = 1,
    poisson: Annotated[bool, typer.Option(help="Records arrive at random, not evenly.")] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            help="Folder or journal of an earlier run: units start with its mean number of instances, "
            "and know what its load did over the day."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for journal, summary and report.")] = None,
) -> None:
    """Simulate a topology under its policies; leaves a journal, a summary and a report."""
    console = open_console()
    topology = with_choices(
        load(file),
        policy=None if policy is None else read_choice(policy),
        filter=None if filter is None else read_choice(filter),
        workload=None if workload is None else read_choice(workload),
        btu_s=None if btu is None else read_span(btu, "--btu"),
    )
    length_s = read_span(duration, "--duration")
    refuse_endless(checked(topology, known_names()), length_s)
    seasons: dict[str, Season] = {}
    if warm_start is not None:
        topology, seasons = warm_started(topology, warm_start), earlier_seasons(warm_start)
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
                budgeting=budgeting_for(topology), seasons=seasons,
            )  # fmt: skip
        report = write_run_report(
            folder, topology, result, journal, best_cost=best_cost_of(journal, topology)
        )
    console.print(result_table(result))
    console.print(f"report: {report}")
