"""`penstock serve`: the service of a site, with its runs and its API."""

from __future__ import annotations

import contextlib
import getpass
import logging
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.cli.console import console as open_console
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.processes import exit_on_sigterm, interrupt_on_signals

if TYPE_CHECKING:
    from fastapi import FastAPI

    from penstock.api.peers import Peers
    from penstock.api.runs import Runs
    from penstock.runs.turns import Turn

LOG = logging.getLogger(__name__)

TAKEN_UP_EVERY_S = 3.0
"""How often it is looked for runs that nobody runs."""
GRACE_S = 3
"""How long whoever still listens (events, a page) may keep a service that ends."""
UNIT = """[Unit]
Description=Penstock in {folder}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
# Where Java is, credentials of a cloud and the like: lines of NAME=value, if there is such a file.
EnvironmentFile=-{folder}/environment
{environment}ExecStart={command}
Restart=always
# A database or an address may come up later than this.
RestartSec=5
# Runs go on when the service is started anew; it takes them up.
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def serve(
    folder: Annotated[Path, typer.Argument(help="Where the runs' folders are.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes a free one.")] = 8765,
    journal: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_JOURNAL",
            help="The URL of a PostgreSQL database for the journals of runs. Of two services of one folder "
            "and one journal one serves; the other stands by and takes over within seconds.",
        ),
    ] = None,
    peer: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with service.json and token of another site; may be given again."),
    ] = None,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a systemd unit that starts it with the machine, and end.")
    ] = False,
) -> None:
    """Serve the runs below a folder: see them, start them, change them, over HTTP with a token.

    Runs that nobody runs and that are not over, as after a reboot, are taken up again, at any time.
    """
    console = open_console()
    if systemd:
        unit = _unit(folder.resolve(), host, port, journal, [one.resolve() for one in peer or ()])
        console.print(unit, markup=False, soft_wrap=True, highlight=False)
        return
    try:
        from penstock.api.app import create_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the service needs {error.name}, which is not installed: `pip install 'penstock[serve]'`"
        ) from None
    from penstock.api.client import service_at
    from penstock.api.peers import Peers
    from penstock.api.runs import Runs
    from penstock.runs.turns import Turn

    runs = Runs(folder, journal)
    listening = _listening(host, port)
    with contextlib.ExitStack() as stack:
        turn = None if journal is None else stack.enter_context(Turn(journal, runs.identity))
        if turn is not None:
            interrupt_on_signals()
            console.print(f"standing by for {runs.root} until no other service serves it", soft_wrap=True)
            turn.wait()
            console.print(f"this service's turn: number {turn.epoch}")
        asking = Peers(runs, [service_at(other) for other in peer or ()])
        _serve(console, runs, create_app(runs), listening, turn, asking)


def _serve(
    console: Console,
    runs: Runs,
    app: FastAPI,
    listening: socket.socket,
    turn: Turn | None,
    peers: Peers,
) -> None:
    """Take runs up and answer requests, until told to end or until another service has taken over."""
    import uvicorn

    from penstock.api.client import made_known
    from penstock.api.punctual import PunctualProtocol
    from penstock.runs.turns import SILENT_S

    ended = threading.Event()

    def say(names: Sequence[str]) -> None:
        for name in names:
            console.print(f"taken up again: {name}", markup=False)

    say(runs.take_up(hung_s=None if turn is None else SILENT_S))
    host, port = listening.getsockname()[:2]
    address = f"http://{host}:{port}/"
    told = f"serving {runs.root} at {address}api/v1; the token is in {runs.root / 'token'}"
    console.print(told, soft_wrap=True, highlight=False)
    # A log is no place for a token: on a terminal the address is whole, else the page asks for it.
    console.print(f"page: {address}{f'#token={runs.token}' if console.is_terminal else ''}", soft_wrap=True)
    config = uvicorn.Config(
        app, http=PunctualProtocol, log_level="warning", timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
    server = uvicorn.Server(config)
    lost: list[str] = []

    def leave(why: str) -> None:
        lost.append(why)
        ended.set()
        server.should_exit = True

    if turn is not None:
        turn.keep(leave)
    exit_on_sigterm()  # uvicorn ends in order, then passes the signal on
    peers.start()
    looking = threading.Thread(target=_taking_up, args=(runs, ended, say), daemon=True, name="taking-up")
    looking.start()
    with made_known(runs.root, address, has_turn=turn is not None):
        try:
            server.run([listening])
        finally:
            ended.set()
    if lost:
        raise ClusterError(f"another service has taken over, this one ends: {lost[0]}")


def _taking_up(
    runs: Runs,
    ended: threading.Event,
    say: Callable[[Sequence[str]], None],
    every_s: float = TAKEN_UP_EVERY_S,
) -> None:
    """Take up runs that nobody runs, until told to end.

    Who hangs is ended when a service begins its turn alone: later on that is the matter of each run's
    watcher, which knows how often its controller has something to say.
    """
    while not ended.wait(every_s):
        try:
            say(runs.take_up())
        except Exception:  # who looks must not end: a run that dies would stay down
            LOG.exception("runs could not be looked at; it is tried again")


def _unit(folder: Path, host: str, port: int, journal: str | None, peers: Sequence[Path]) -> str:
    """A systemd unit; the journal's URL, which may hold a password, is in a file for its owner alone."""
    found = shutil.which("penstock")
    program = [sys.executable, "-m", "penstock.cli.main"] if found is None else [found]
    given = ["serve", str(folder), "--host", host, "--port", str(port)]
    given += [word for one in peers for word in ("--peer", str(one))]
    environment = ""
    if journal is not None:
        file = private_folder(folder) / "journal.env"
        written(file, f"PENSTOCK_JOURNAL={_word(journal, expanded=False)}\n", mode=PRIVATE)
        environment = f"EnvironmentFile={str(file).replace('%', '%%')}\n"
    command = " ".join(map(_word, [*program, *given]))
    return UNIT.format(
        folder=str(folder).replace("%", "%%"),
        user=getpass.getuser(),
        environment=environment,
        command=command,
    )


def _word(text: str, *, expanded: bool = True) -> str:
    """A word of a command as systemd reads it; in a command, % and $ would be replaced."""
    if expanded:
        text = text.replace("%", "%%").replace("$", "$$")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if escaped != text or any(c.isspace() or c in "'$;`" for c in text) else text


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.create_server((host, port), backlog=128)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error}") from None
    return found
