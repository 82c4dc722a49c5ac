"""The broker behind `kafka` channels: the user's, the one of `penstock broker up`, or a run's own."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from penstock.channels.broker import LOOPBACK, Broker, listens, read_record
from penstock.channels.kafka_jars import broker_jars
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import ChildProcesses

ANSWER_S = 1.0
"""How long a broker's answer may take; it takes milliseconds."""


def shared_folder() -> Path:
    """Where the broker of `penstock broker up` lies."""
    return cache_folder("broker")


def shared_address(folder: Path | None = None) -> str | None:
    """The address of the broker of `penstock broker up`; None where it does not run."""
    record = read_record(folder or shared_folder())
    if record is None or not record.alive or not listens(record.port, record.address):
        return None
    return record.bootstrap


def installed_broker(
    folder: Path, children: ChildProcesses | None = None, address: str = LOOPBACK, port: int = 0
) -> Broker:
    """A broker of this machine's Java and Maven's jars, which are fetched where not there yet."""
    java, jars = find_java().executable, broker_jars(cache_folder("jars"))
    return Broker(folder, java, jars, children=children, address=address, port=port)


class RunBroker:
    """A broker for one run: its records are in the run's folder, its process ends with the run."""

    def __init__(self, run: str, folder: Path) -> None:
        """`run` is the run's name, so that a restarted owner finds the process again."""
        self._children = ChildProcesses(f"{run}-broker")
        self._broker = installed_broker(folder, self._children)

    def start(self) -> str:
        """Start it, or adopt the one an earlier owner left running; its address."""
        return self._broker.start().bootstrap

    def revive(self) -> None:
        """Start it where it does not run, without waiting for it."""
        self._broker.launch()

    def end(self) -> None:
        """End one that hangs at once: it would not listen to anything gentler."""
        self._children.stop(*self._children.records, grace_s=0.0)

    def stop(self) -> None:
        """Stop it; its records stay."""
        self._broker.stop()


@dataclass(frozen=True, slots=True)
class BrokerService:
    """A Kafka broker; `named` is the address the user gave."""

    named: str | None = None
    name: ClassVar[str] = "broker"

    def address(self) -> str | None:
        """As the user said, else the one of `penstock broker up` where it runs."""
        return self.named or shared_address()

    def answers(self, address: str) -> bool:
        """Whether it takes connections at one of its addresses."""
        return any(listens(port, host) for host, port in map(_parsed, address.split(",")))

    def silent(self, address: str) -> bool:
        """Whether it takes connections and does not answer on any: a frozen process does just that."""
        places = [_parsed(text) for text in address.split(",")]
        taking = [(host, port) for host, port in places if listens(port, host)]
        return bool(taking) and not any(_speaks(host, port) for host, port in taking)

    def own(self, run: str, folder: Path) -> RunBroker:
        """One for a run alone."""
        return RunBroker(run, folder)

    def revival(self, address: str) -> Callable[[], None] | None:
        """How to start the broker of `penstock broker up` again, where it is the one at this address."""
        record = read_record(shared_folder())
        if record is None or record.bootstrap != address:
            return None
        broker = installed_broker(shared_folder())

        def revive() -> None:
            if not broker.told_to_stop:
                broker.launch()

        return revive


_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)
"""The question which requests a broker knows: every broker answers it, before any authentication."""


def _speaks(host: str, port: int) -> bool:
    """Whether somebody answers there, with anything at all; one that hangs up on us is awake too."""
    try:
        with socket.create_connection((host, port), ANSWER_S) as connection:
            connection.sendall(struct.pack(">i", len(_VERSIONS)) + _VERSIONS)
            connection.recv(4)
            return True
    except TimeoutError:
        return False
    except OSError:
        return True


def _parsed(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    with contextlib.suppress(ValueError):
        return host or "127.0.0.1", int(port)
    return text.strip(), 9092
