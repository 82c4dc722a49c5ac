"""`penstock serve`: the service of a site, with its runs and its API."""

from __future__ import annotations

import getpass
import shutil
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError

UNIT = """[Unit]
Description=Penstock in {folder}
After=network-online.target

[Service]
User={user}
ExecStart={program} serve {folder} --port {port}
Restart=always
# Runs go on when the service is started anew; it takes them up.
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def serve(
    folder: Annotated[Path, typer.Argument(help="Where the runs' folders are.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes a free one.")] = 8765,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a systemd unit that starts it with the machine, and end.")
    ] = False,
) -> None:
    """Serve the runs below a folder: see them, start them, change them, over HTTP with a token.

    Runs that nobody runs and that are not over, as after a reboot, are taken up again.
    """
    console = open_console()
    if systemd:
        program = shutil.which("penstock") or f"{sys.executable} -m penstock.cli.main"
        unit = UNIT.format(folder=folder.resolve(), user=getpass.getuser(), program=program, port=port)
        console.print(unit, markup=False, soft_wrap=True, highlight=False)
        return
    try:
        import uvicorn

        from penstock.api.app import create_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the service needs {error.name}, which is not installed: `pip install 'penstock[serve]'`"
        ) from None
    from penstock.api.runs import Runs

    runs = Runs(folder)
    listening = _listening(host, port)
    app = create_app(runs)
    for name in runs.take_up():
        console.print(f"taken up again: {name}", markup=False)
    address = f"http://{host}:{listening.getsockname()[1]}/"
    told = f"serving {runs.root} at {address}api/v1; the token is in {runs.root / 'token'}"
    console.print(told, soft_wrap=True, highlight=False)
    # A log is no place for a token: on a terminal the address is whole, else the page asks for it.
    console.print(f"page: {address}{f'#token={runs.token}' if console.is_terminal else ''}", soft_wrap=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_keep_alive=5)).run([listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.create_server((host, port), backlog=128)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error}") from None
    return found
