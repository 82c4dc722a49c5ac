"""`penstock page`: a run in the browser, while it goes on or afterwards; two runs side by side."""

from __future__ import annotations

import signal
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.page.server import PageServer
from penstock.page.shown import Shown


def page(
    run: Annotated[Path, typer.Argument(help="A run's folder, or its journal.")],
    other: Annotated[Path | None, typer.Argument(help="A second run, to look at side by side.")] = None,
    port: Annotated[int, typer.Option(help="The port; 0 means a free one.", min=0, max=65535)] = 0,
    topology: Annotated[
        Path | None, typer.Option(help="The topology's file, where the run's folder has none.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open it in the browser.")] = False,
) -> None:
    """Show a run in the browser: now, why, its money, and a replay. Ends with Ctrl-C."""
    console = open_console()
    runs = [Shown(place, topology) for place in (run, other) if place is not None]
    with PageServer(runs, port) as server:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Set here and not inherited: a shell starts what runs in its background with SIGINT ignored.
            signal.signal(number, lambda *_: ended.set())
        console.print(f"page: {server.address}", soft_wrap=True, highlight=False)
        console.print("It is for this machine and whoever has the address. Ctrl-C ends it.")
        if browser:
            webbrowser.open(server.address)
        while not ended.wait(0.5):
            pass
