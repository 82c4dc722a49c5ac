"""`penstock top`: what a run in another terminal is doing; `penstock tell`: what it shall do."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from penstock.api import client
from penstock.cli.console import console as open_console
from penstock.clock import WallClock
from penstock.errors import ConfigurationError
from penstock.report.terminal import LinePerTick, LiveView
from penstock.runs import commands
from penstock.runs.folder import RunFolder

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
        told = LinePerTick(console)
        while True:
            if status is not None:
                told(status)
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
) -> None:
    """Tell a running controller something; it is obeyed at its next tick and put on record.

    A run of a site elsewhere is named by the folder that stands for its site, and its name below it.
    """
    there = client.elsewhere(folder)
    if there is not None:
        service, run = there
        said = {"kind": command, "subject": subject, "to": to, "reason": reason, "by": getpass.getuser()}
        service.post(f"/runs/{run}/commands", {**said, "give_up_state": give_up_state})
    else:
        place = RunFolder(folder)
        place.plan()
        if place.result() is not None:
            raise ConfigurationError(f"the run in {folder} is over")
        wish = commands.Command(command, reason, subject, to=to, give_up_state=give_up_state)
        commands.put(place.commands, wish)
    open_console().print(f"told: {command}{f' {subject}' if subject else ''}")
