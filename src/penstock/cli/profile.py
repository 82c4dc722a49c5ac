"""`penstock profile`: what a real run measured, and the same run simulated with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.console import console as open_console
from penstock.quantities import format_duration
from penstock.runs.folder import RunFolder
from penstock.runs.profile import PROFILE, profile_of, simulated_twin


def profile(
    folder: Annotated[Path, typer.Argument(help="The folder of a run made by `penstock run` or the demo.")],
    out: Annotated[Path | None, typer.Option(help=f"The profile's file; by default {PROFILE} there.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulated twin.")] = 1,
) -> None:
    """Write what a real run measured into a profile, and simulate the same run with it."""
    console = open_console()
    topology, found = profile_of(RunFolder(folder))
    file = out or folder / PROFILE
    found.write(file)
    table = Table(title=f"{found.topology}: measured", title_justify="left")
    for name in ("unit", "records", "service", "duration", "cv", "places"):
        table.add_column(name, justify="left" if name == "unit" else "right")
    for name, unit in found.units.items():
        table.add_row(
            name,
            f"{unit.records:,}",
            format_duration(unit.service_s),
            format_duration(unit.duration_s),
            f"{unit.duration_cv:.2f}",
            str(unit.places),
        )
    console.print(table)
    console.print(
        f"host start {format_duration(found.host_start_s)}, "
        f"instance start {format_duration(found.instance_start_s)}"
    )
    twin = simulated_twin(topology, found, seed)
    console.print(
        f"simulated with it: cost {twin.resource_cost}, {twin.host_s / 60:.1f} host-minutes, "
        f"{twin.compliance.shown('real_time')} real-time, {twin.rescales} rescales"
    )
    console.print(f"profile: {file}", soft_wrap=True)
