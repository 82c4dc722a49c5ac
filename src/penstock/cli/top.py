"""`penstock top`: what a run in another terminal is doing; `penstock tell`: what it shall do."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from penstock.api import client
from penstock.cli.apply import shown_by
from penstock.cli.console import console as open_console
from penstock.clock import WallClock
from penstock.errors import ConfigurationError
from penstock.report.terminal import LinePerTick, LiveView
from penstock.runs import commands
from penstock.runs.changes import require_possible
from penstock.runs.folder import RunFolder
from penstock.runs.telling import taken_back, told

LOOK_S = 0.5
Folder = Annotated[Path, typer.Argument(help="The folder of the run.")]


def top(
    folder: Folder,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """Show what a run is doing, until it is over or Ctrl-C; without a terminal, in one line a tick."""
    console, place = open_console(), RunFolder(folder)
    place.plan()
    status = place.status()
    if status is None and once:
        console.print("nothing is known of it yet")
    if once or not console.is_terminal:
        line = LinePerTick(console)
        while True:
            if status is not None:
                line(status)
            if once or _over(place):
                break
            time.sleep(LOOK_S)
            status = place.status()
    else:
        view = LiveView(WallClock().now_s)
        with Live(view, console=console, refresh_per_second=2):
            while status is None or not _over(place):
                status = place.status() or status
                if status is not None:
                    view.show(status)
                time.sleep(LOOK_S)
            view.show(place.status() or status)
    if not once:
        console.print(_end(place), markup=False, soft_wrap=True)


def _over(place: RunFolder) -> bool:
    return place.result() is not None or not place.running()


def _end(place: RunFolder) -> str:
    """What became of a run that does not go on."""
    result = place.result()
    if result is None:
        return f"it was interrupted: `penstock run` into {place.root} takes it up again"
    cost = f"{result.resource_cost} {result.currency}".rstrip()
    return f"it is over: {result.compliance.shown('real_time')} kept within the SLO, for {cost}"


def tell(
    folder: Folder,
    command: Annotated[str, typer.Argument(help=f"One of {', '.join(commands.KINDS)}.")],
    subject: Annotated[
        str | None,
        typer.Argument(help="For drain the host, for move the instance, for move-unit and restart the unit."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="For move: the host to go to; for move-unit: the site; else the best there is."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
    give_up_state: Annotated[
        bool, typer.Option("--give-up-state", help="For undo: although state is lost that cannot be kept.")
    ] = False,
    revision: Annotated[
        int | None,
        typer.Option(help="The version it was written for; for undo and move-unit the present one."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="For undo: show what would happen, and change nothing.")
    ] = False,
) -> None:
    """Tell a running controller something; it is obeyed at its next tick and put on record.

    Where it is refused then, the run's news say so by the number that is told here.

    A run of a site elsewhere is named by the folder that stands for its site, and its name below it.
    """
    there = client.elsewhere(folder)
    if plan:
        _look_back(folder, there, command)
        return
    if there is not None:
        service, run = there
        said: dict[str, object] = {"kind": command, "subject": subject, "to": to, "reason": reason}
        said |= {"by": getpass.getuser()}
        said |= {} if revision is None else {"revision": revision}
        id = service.post(f"/runs/{run}/commands", {**said, "give_up_state": give_up_state})["id"]
    else:
        wish = commands.Command(
            command, reason, subject, revision=revision, to=to, give_up_state=give_up_state
        )
        id = told(RunFolder(folder), wish).id
    open_console().print(f"told: {command}{f' {subject}' if subject else ''} ({id})", highlight=False)


def _look_back(folder: Path, there: tuple[client.Service, str] | None, command: str) -> None:
    """Show what taking the last change back would do."""
    if command != "undo":
        raise ConfigurationError("--plan shows what undo would do; `penstock apply --plan` shows a change")
    if there is None:
        present, found = taken_back(RunFolder(folder))
    else:
        service, run = there
        present, found = shown_by(service.get(f"/runs/{run}/undo"))
    console = open_console()
    console.print(f"revision {present} runs; taking it back would change:")
    for line in found.lines():
        console.print(f"  {line}", markup=False)
    require_possible(found, give_up_state=True)
