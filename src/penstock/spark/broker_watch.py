"""Looks after the Kafka broker of a run: says when it is away and back, and starts ours again.

A broker that Penstock started (for this run alone, or by `penstock broker up`) and that died is started
again on the same folder and port, so units find their records where they were. Somebody else's is waited
for. Meanwhile records wait in whatever stands before the broker; nothing is lost.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from penstock.channels.broker import Broker, listens, read_record
from penstock.channels.maven import broker_jars
from penstock.errors import ClusterError
from penstock.quantities import format_duration
from penstock.spark.folders import cache_folder
from penstock.spark.java import find_java
from penstock.spark.processes import ChildProcesses, log_tail, wait_until

LOG = logging.getLogger(__name__)

START_S = 60.0


def shared_folder() -> Path:
    """Where the broker of `penstock broker up` lies."""
    return cache_folder("broker")


class RunBroker:
    """A broker for one run: its records are in the run's folder, its process ends with the run."""

    def __init__(self, name: str, folder: Path) -> None:
        """`name` is the run's, so that a restarted owner finds the process again."""
        self._children = ChildProcesses(f"{name}-broker")
        self._broker = Broker(folder, find_java().executable, broker_jars(cache_folder("jars")))

    def start(self) -> str:
        """Start it, or adopt the one an earlier owner left running; its address."""
        self._children.adopt()
        self.revive()
        record = self._broker.record()
        assert record is not None
        wait_until(lambda: listens(record.port) or not self._children.alive("broker"), START_S)
        if not listens(record.port):
            raise ClusterError(
                f"the broker did not come up at {record.bootstrap}; its last words:\n"
                + log_tail(self._broker.log)
            )
        return record.bootstrap

    def revive(self) -> None:
        """Start it where it does not run, without waiting for it."""
        if self._children.alive("broker"):
            return
        self._children.stop("broker", grace_s=0.0)
        command, port, controller_port = self._broker.prepared()
        started = self._children.start("broker", command, log=self._broker.log)
        self._broker.note(started.pid, port, controller_port)

    def stop(self) -> None:
        """Stop it; its records stay."""
        self._children.stop_all(10.0)


class BrokerWatch:
    """Whether a broker takes connections, told when that changes."""

    def __init__(self, bootstrap: str, revive: Callable[[], None] | None = None) -> None:
        """`bootstrap` is its address, or several; `revive` starts it again where it is ours to start."""
        self.bootstrap = bootstrap
        self._addresses = [_address(text) for text in bootstrap.split(",")]
        self._revive = revive
        self._away_since_s: float | None = None

    def tick(self, now_s: float) -> list[str]:
        """Look once, and do what is to be done; what there is to say."""
        notices = []
        if any(listens(port, host) for host, port in self._addresses):
            if self._away_since_s is not None:
                away = format_duration(now_s - self._away_since_s)
                notices.append(f"the broker at {self.bootstrap} is back after {away}; units go on")
            self._away_since_s = None
            return notices
        if self._away_since_s is None:
            self._away_since_s = now_s
            then = "it is started again" if self._revive is not None else "units wait until it is back"
            notices.append(
                f"the broker at {self.bootstrap} takes no connections: {then}; records wait where they are"
            )
        if self._revive is not None:
            try:
                self._revive()
            except (ClusterError, OSError) as error:
                LOG.warning("the broker could not be started again: %s", error)
        return notices


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    with contextlib.suppress(ValueError):
        return host or "127.0.0.1", int(port)
    return text.strip(), 9092


def shared_revival(bootstrap: str) -> Callable[[], None] | None:
    """How to start the broker of `penstock broker up` again, where it is the one at this address."""
    record = read_record(shared_folder())
    if record is None or record.bootstrap != bootstrap:
        return None
    broker = Broker(shared_folder(), find_java().executable, broker_jars(cache_folder("jars")))

    def revive() -> None:
        if not broker.told_to_stop:
            broker.launch()

    return revive
