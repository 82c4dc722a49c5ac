"""`penstock broker`: a Kafka broker for tests and demos, from Maven's jars."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.channels.broker import LOOPBACK, Broker, read_record
from penstock.channels.kafka_access import CLIENT_FILE
from penstock.channels.kafka_jars import KAFKA_VERSION
from penstock.channels.kafka_service import installed_broker, shared_address, shared_folder
from penstock.errors import ClusterError

app = typer.Typer(no_args_is_help=True, help="A single Kafka broker on this machine, for tests and demos.")

Folder = Annotated[
    Path | None, typer.Option("--folder", help="Where it keeps its records; by default in the user's cache.")
]


@app.command()
def up(
    folder: Folder = None,
    address: Annotated[
        str, typer.Option(help="Where clients reach it; off the loopback address it speaks TLS.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(help="The port it takes where that is free.", min=0, max=65535)] = 0,
) -> None:
    """Start the broker where it does not run; it stays until `penstock broker down`."""
    console = Console()
    place = folder or shared_folder()
    if (running := shared_address(place)) is not None:
        console.print(f"A broker runs already at [bold]{running}[/bold].")
        return
    with console.status(f"Fetching Kafka {KAFKA_VERSION} and starting it …"):
        broker = installed_broker(place, address=address, port=port)
        record = broker.start()
    console.print(f"Kafka {KAFKA_VERSION} runs at [bold]{record.bootstrap}[/bold] (log: {broker.log}).")
    if address != LOOPBACK:
        console.print(f"Clients elsewhere need a copy of {place / CLIENT_FILE} as client_file.")
    elif folder is None:
        console.print("Topologies with a kafka channel use it by themselves.")
    console.print("End it with `penstock broker down`.")


@app.command()
def status(folder: Folder = None) -> None:
    """Say whether a broker runs, and where; exit code 1 where none does."""
    console = Console()
    place = folder or shared_folder()
    address = shared_address(place)
    if address is None:
        console.print("No broker runs. Start one with `penstock broker up`.")
        raise typer.Exit(1)
    record = read_record(place)
    assert record is not None
    console.print(f"Kafka {KAFKA_VERSION} runs at [bold]{address}[/bold], process {record.process.pid}.")


@app.command()
def down(folder: Folder = None) -> None:
    """Stop the broker; its records stay and are there at the next start."""
    place = folder or shared_folder()
    record = read_record(place)
    if record is None or not record.alive:
        Console().print("No broker runs.")
        return
    if not Broker(place, Path("java"), []).stop():
        raise ClusterError(f"the broker (process {record.process.pid}) did not stop")
    Console().print("The broker is stopped.")
