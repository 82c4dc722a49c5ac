"""The port of a cluster manager: who starts executors for the applications of a Spark plane.

A standalone master of our own, one of somebody else's, YARN and Kubernetes are such managers. Where machines
are leased, a manager says how one of them joins (`HostManager`); where they belong to the manager itself,
nobody asks that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.providers.joining import Join, Joined


@dataclass(frozen=True, slots=True)
class ExecutorPlace:
    """Where an executor runs, as its cluster says."""

    application: str
    executor: str
    address: str
    """The address of its host."""
    host: str | None = None
    """The host's id, where whoever tells it knows the hosts."""


class Manager(Protocol):
    """A Spark cluster's manager, whoever's it is. Asking it anything changes nothing."""

    @property
    def master_url(self) -> str:
        """The URL at which a session asks for executors; it stays the same for the manager's life."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Spark settings a session needs with this manager, besides those every session gets."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Environment variables a driver needs before its Java starts, such as HADOOP_CONF_DIR."""
        ...

    def alive(self) -> bool:
        """Whether it runs and answers, or has been silent only for a short while."""
        ...


class HostManager(Manager, Protocol):
    """A manager of ours, whose hosts are given by providers: it says how one joins, and which have.

    Only `revive` acts, and only where it has to.
    """

    def places(self) -> Sequence[ExecutorPlace]:
        """Which host every executor is on. Takes a question to each host: not for every tick."""
        ...

    def join(self, host: str, address: str, cores: int, memory_mib: int, folder: Path) -> Join:
        """What a host runs to become a member; `folder` is where it may write."""
        ...

    def joined(self) -> Mapping[str, Joined] | None:
        """Every host that is or was lately a member, by address; None where the manager does not answer."""
        ...

    def revive(self) -> bool:
        """Start it again where it is not alive; whether that was needed. Blocks for the seconds it takes.

        Applications and hosts find it again. ClusterError where it does not start.
        """
        ...
