"""`penstock check`: every mistake of a topology file, each with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.errors import TopologyError
from penstock.policies.registry import why_filter_is_idle
from penstock.runs.clusters import not_runnable
from penstock.runs.known import known_names
from penstock.topology.file import load_topology


def check(file: Annotated[Path, typer.Argument(help="The topology file.", show_default=False)]) -> None:
    """Check a topology file and list all its mistakes at once."""
    console = Console(soft_wrap=True, highlight=False)
    try:
        topology = load_topology(file, known_names())
    except TopologyError as error:
        for mistake in error.mistakes:
            place = ":".join(str(part) for part in (mistake.file, mistake.line) if part is not None)
            console.print(Text.assemble((f"{place}: ", "bold"), mistake.message))
        count = len(error.mistakes)
        console.print(f"{count} mistake{'' if count == 1 else 's'}", style="red")
        raise typer.Exit(1) from None
    counts = ", ".join(
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in (
            (len(topology.sources), "source"),
            (len(topology.operators), "operator"),
            (len(topology.sinks), "sink"),
            (len(topology.units), "unit"),
            (len(topology.sites), "site"),
        )
    )
    console.print(Text.assemble((f"{file}: ", "bold"), ("right", "green"), f" ({counts})"))
    idle = [why for unit in topology.units if (why := why_filter_is_idle(unit)) is not None]
    for limit in (*not_runnable(topology), *idle):
        console.print(Text.assemble(("but ", "yellow"), limit))
