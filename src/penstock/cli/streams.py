"""`penstock subscribe`, `unsubscribe`, `listen` and `lookup`: what units send, and what they look up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.channels import lookups
from penstock.channels.subscriptions import MOST_RECORDS, Terms
from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.runs import commands, streams
from penstock.runs.folder import RunFolder

Folder = Annotated[Path, typer.Argument(help="The folder of the run.")]
Operator = Annotated[str, typer.Argument(help="The operator whose records they are.")]
Name = Annotated[str, typer.Argument(help="The subscriber's name.")]
LOOK_S = 0.2


def subscribe(
    folder: Folder,
    operator: Operator,
    name: Name,
    most: Annotated[
        int, typer.Option(help="So many records wait at most; older ones are dropped.")
    ] = MOST_RECORDS,
) -> None:
    """Subscribe to an operator's records from its next batch on; nobody is started again."""
    streams.subscribed(RunFolder(folder), operator, Terms(name, most))
    at = streams.topic_of(RunFolder(folder), operator, name)
    how = "`penstock listen` shows what comes"
    if at is not None:
        how = f"read topic {at.topic} as group {at.group}" + (f" at {at.bootstrap}" if at.bootstrap else "")
    if others := streams.other_sites(RunFolder(folder), operator):
        how += f"; subscribe at site {' and '.join(others)} as well, by the same name: it is read there, too"
    open_console().print(f"{name} subscribes to {operator}; {how}", markup=False, soft_wrap=True)


def unsubscribe(folder: Folder, operator: Operator, name: Name) -> None:
    """Leave a stream; what waited is gone."""
    streams.left(RunFolder(folder), operator, name)
    open_console().print(f"{name} has left {operator}", markup=False)


def listen(
    folder: Folder,
    operator: Operator,
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
) -> None:
    """Print what waits for a subscriber, a record a line as JSON; what was printed is done."""
    place = RunFolder(folder)
    found = streams.readable(place, operator, name)
    while True:
        over = place.result() is not None
        while found.waiting():
            records, number = found.read()
            for record in records:
                typer.echo(json.dumps(record, default=str))
            found.done(number)
        if not follow or over:
            return
        time.sleep(LOOK_S)


def lookup(
    folder: Folder,
    name: Annotated[str | None, typer.Argument(help="The look-up.")] = None,
    file: Annotated[Path | None, typer.Argument(help="Its next version, a file with JSON.")] = None,
    reason: Annotated[str, typer.Option(help="Why; goes into the journal.")] = "",
) -> None:
    """Show what a run's units look up, or give it a further version while they run."""
    place, console = RunFolder(folder), open_console()
    place.plan()
    root = place.units.lookups
    if name is None:
        for each in lookups.names(root):
            console.print(f"{each}: version {lookups.current(root, each)[0]}", markup=False)
        return
    if file is None:
        typer.echo(json.dumps(lookups.current(root, name)[1]))
        return
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: expected a file with JSON: {error}") from None
    made = lookups.update(root, name, value, reason=reason)
    said = f"version {made.version}" + (f": {reason}" if reason else "")
    commands.put(place.commands, commands.Command("lookup", said, name))
    console.print(f"{name}: version {made.version} from now on", markup=False)
