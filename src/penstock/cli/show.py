"""`penstock show`: a topology as a drawing, in the terminal or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.runs.known import known_names
from penstock.topology.drawing import draw, page
from penstock.topology.file import load_topology


def show(
    file: Annotated[Path, typer.Argument(help="The topology file.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the drawing as a page of HTML to this file, too.")
    ] = None,
) -> None:
    """Draw a topology in the terminal, and as a page of HTML where asked."""
    topology = load_topology(file, known_names())
    console = Console(highlight=False)
    console.print(draw(topology), soft_wrap=True)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(topology), encoding="utf-8")
        console.print(f"page written to {html}", soft_wrap=True)
