"""`penstock broker`: a Kafka broker for tests and demos, from Maven's jars."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.channels.broker import Broker, read_record
from penstock.channels.kafka_jars import KAFKA_VERSION
from penstock.channels.kafka_service import installed_broker, shared_address, shared_folder
from penstock.errors import ClusterError

app = typer.Typer(no_args_is_help=True, help="A single Kafka broker on this machine, for tests and demos.")

Folder = Annotated[
    Path | None, typer.Option("--folder", help="Where it keeps its records; by default in the user's cache.")
]


@app.command()
def up(folder: Folder = None) -> None:
    """Start the broker where it does not run; it stays until `penstock broker down`."""
    console = Console()
    place = folder or shared_folder()
    if (address := shared_address(place)) is not None:
        console.print(f"A broker runs already at [bold]{address}[/bold].")
        return
    with console.status(f"Fetching Kafka {KAFKA_VERSION} and starting it …"):
        broker = installed_broker(place)
        record = broker.start()
    console.print(f"Kafka {KAFKA_VERSION} runs at [bold]{record.bootstrap}[/bold] (log: {broker.log}).")
    console.print("Topologies with a kafka channel use it by themselves. End it with `penstock broker down`.")


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
