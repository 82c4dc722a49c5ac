"""`penstock top`: what a run in another terminal is doing; `penstock tell`: what it shall do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from penstock.cli.console import console as open_console
from penstock.clock import WallClock
from penstock.errors import ConfigurationError
from penstock.report.terminal import LiveView, line_of
from penstock.runs import commands
from penstock.runs.folder import RunFolder

Folder = Annotated[Path, typer.Argument(help="The folder of the run.")]


def top(
    folder: Folder,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """Show what a run is doing, until it is over or Ctrl-C."""
    console, place = open_console(), RunFolder(folder)
    place.plan()
    view = LiveView(WallClock().now_s)
    status = place.status()
    if once or not console.is_terminal:
        console.print(line_of(status) if status is not None else "nothing is known of it yet", soft_wrap=True)
        return
    with Live(view, console=console, refresh_per_second=2):
        while place.result() is None:
            status = place.status()
            if status is not None:
                view.show(status)
            time.sleep(0.5)


def tell(
    folder: Folder,
    command: Annotated[str, typer.Argument(help=f"One of {', '.join(commands.KINDS)}.")],
    subject: Annotated[
        str | None,
        typer.Argument(help="The host, for drain; the instance, for move; the unit, for restart."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="For move: the host to go to; else wherever there is room.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
) -> None:
    """Tell a running controller something; it is obeyed at its next tick and put on record."""
    place = RunFolder(folder)
    place.plan()
    if place.result() is not None:
        raise ConfigurationError(f"the run in {folder} is over")
    commands.put(place.commands, commands.Command(command, reason, subject, to=to))
    open_console().print(f"told: {command}{f' {subject}' if subject else ''}")
