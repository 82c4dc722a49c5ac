"""What all existing clusters have in common: they are somebody else's, and are asked, never started.

Their machines belong to them, so nobody joins. Whether one answers is found by a connection to its address.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ClusterError
from penstock.topology.model import Site

ANSWER_S = 3.0
"""How long a connection may take; on one network it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is this machine, reached by nobody else."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @staticmethod
    def read(text: str, default_port: int) -> Address:
        """An address as `host:port` or `host`; ValueError where the port is no number."""
        host, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            return Address(text.strip("[]"), default_port)
        return Address(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """A cluster that was there before us and stays. Implements `Manager`."""

    kind: str
    """What it is, in words: `the standalone master`."""
    master_url: str
    addresses: tuple[Address, ...] = ()
    """Where it listens, the first that answers counts; none where there is nothing to be asked."""
    session: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> Mapping[str, str]:
        """Spark settings of a session there."""
        return self.session

    def environment(self) -> Mapping[str, str]:
        """Environment variables of a driver there."""
        return self.variables

    def alive(self) -> bool:
        """Whether something listens at its address."""
        return not self.addresses or any(_listens(address) for address in self.addresses)

    def require(self) -> None:
        """ClusterError where it does not answer; told before anything is started."""
        if not self.alive():
            raise ClusterError(
                f"{self.kind} does not answer at {' or '.join(str(a) for a in self.addresses)} "
                f"(master: {self.master_url}); is it started, and can this machine reach it?"
            )


def driver_address(chosen: str, addresses: tuple[Address, ...]) -> dict[str, str]:
    """Settings that say where executors reach the driver: as chosen, or the loopback with a cluster there."""
    if not chosen and addresses and all(address.loopback for address in addresses):
        chosen = "127.0.0.1"
    return {"spark.driver.host": chosen, "spark.driver.bindAddress": chosen} if chosen else {}


def python_of(chosen: str) -> dict[str, str]:
    """The variable that says which Python executors run; none means the driver's own path."""
    return {"PYSPARK_PYTHON": chosen} if chosen else {}


def shared_folder(site: Site) -> str | None:
    """The folder that all machines of a site share; None where they share a file system by URL, or none."""
    storage = site.storage
    if storage is None or "://" in storage:
        return storage.removeprefix("file://") if storage and storage.startswith("file://") else None
    return storage


def remote_storage(site: Site) -> str | None:
    """The URL of the file system that all machines of a site share; None where it is a folder, or none."""
    return site.storage if site.storage is not None and shared_folder(site) is None else None


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), ANSWER_S):
            return True
    except OSError:
        return False
