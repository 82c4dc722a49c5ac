"""`penstock apply`: change a topology while it runs; what would happen is shown before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.runs.applying import applied, previewed
from penstock.runs.assembly import load
from penstock.runs.changes import require_possible
from penstock.runs.folder import RunFolder


def apply(
    folder: Annotated[Path, typer.Argument(help="The folder of the run.")],
    file: Annotated[Path, typer.Argument(help="The topology file to go on with.")],
    plan: Annotated[bool, typer.Option("--plan", help="Show what would happen, and change nothing.")] = False,
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
    revision: Annotated[
        int | None, typer.Option(help="The version this was written for; the present one by default.")
    ] = None,
    give_up_state: Annotated[
        bool, typer.Option("--give-up-state", help="Do it although state is lost that cannot be kept.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Give it up where it cannot be tried on records that are there."),
    ] = False,
) -> None:
    """Go on with another version of a topology while it runs, nothing lost.

    `penstock tell RUN undo` takes the last change back.
    """
    console, place = open_console(), RunFolder(folder)
    present, topology = place.plan(), load(file)
    found = previewed(place, topology)
    console.print(f"revision {present.revision} of {topology.name} runs; this would change:")
    for line in found.lines():
        console.print(f"  {line}", markup=False)
    require_possible(found, give_up_state=give_up_state or plan)
    if plan or not found.changes:
        return
    now, _ = applied(
        place, topology, reason=reason, revision=revision, give_up_state=give_up_state, rehearse=rehearse
    )
    console.print(f"done: revision {now} runs. `penstock tell {folder} undo` takes it back", markup=False)
