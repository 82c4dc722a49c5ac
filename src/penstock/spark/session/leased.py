"""Hosts for a driver that takes no orders: a Connect server cannot be asked for executors, its cluster can.

An application at a standalone master has an executor on every host that joins, unless it was told to take
fewer. So whoever leases a host for that cluster adds an executor, and whoever gives one back takes one away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ConfigurationError
from penstock.fleet.ports import Provider
from penstock.spark.gateway.connect import ConfiguredExecutors
from penstock.spark.gateway.executors import Executor, Scalability
from penstock.spark.gateway.session import is_connect, session_facts, setting
from penstock.spark.managers.manager import ExecutorPlace
from penstock.spark.session.readings import size_mib
from penstock.topology.model import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASON = "a Spark Connect session: its driver cannot be asked for executors, so hosts are leased for them"


class HostCluster(Protocol):
    """A cluster that hosts can join, such as `LocalCluster`, wherever its hosts are."""

    @property
    def master_url(self) -> str:
        """The URL applications connect to."""
        ...

    def provider(self, site: Site) -> Provider:
        """Who gives the hosts of a site to this cluster."""
        ...

    def executors(self) -> Sequence[ExecutorPlace]:
        """Every executor with the address of its host."""
        ...


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where hosts for a Connect server come from: the cluster it runs on, and a site with its provider.

    All hosts of the cluster should be the site's: executors on others are not counted.
    """

    cluster: HostCluster
    site: Site

    def require(self, spark: SparkSession, most: int) -> None:
        """ConfigurationError where hosts would not become executors of the Connect server."""
        if not is_connect(spark):
            raise ConfigurationError(
                "hosts are for sessions of Spark Connect: of this one executors can be changed"
            )
        master, cores = setting(spark, "spark.master", ""), _cores(spark)
        if master != self.cluster.master_url:
            raise ConfigurationError(
                f"the server runs at {master}, and hosts would join {self.cluster.master_url}"
            )
        if setting(spark, "spark.dynamicAllocation.enabled", "false") == "true":
            raise ConfigurationError(
                "the server has dynamic allocation on: it would give executors back by itself; start it with "
                "spark.dynamicAllocation.enabled=false"
            )
        limit = int(setting(spark, "spark.cores.max", "0") or 0)
        if 0 < limit < most * cores:
            raise ConfigurationError(
                f"the server takes {limit} cores at most (spark.cores.max), and {most} executors have "
                f"{most * cores}"
            )
        memory_mib = size_mib(setting(spark, "spark.executor.memory", "1g"))
        for flavour in self.site.flavours:
            if int(flavour.cores) // cores != 1 or flavour.memory_mib < memory_mib:
                raise ConfigurationError(
                    f"site {self.site.name}, flavour {flavour.name}: a host must hold one executor of "
                    f"{cores} cores and {memory_mib} MiB, and no second one"
                )


class Serving:
    """Which of the executors that are there shall serve, and under which names.

    One that shall go is no longer shown: its host is then empty to the fleet and given back, and the executor
    ends with it. Where it is wanted again before that, it is shown under a new name.
    """

    def __init__(self) -> None:
        self._let_go: set[str] = set()
        self._times: dict[str, int] = {}
        """How often each executor was wanted again."""

    def let_go(self, names: Collection[str]) -> None:
        """These shall serve no longer."""
        self._let_go |= {name.partition("+")[0] for name in names}

    def shown(self, present: Mapping[str, str], wanted: int) -> dict[str, str]:
        """The addresses of those that serve, by name, out of all there are; `wanted` is how many shall."""
        self._let_go &= set(present)
        missing = wanted - len(present) + len(self._let_go)
        for executor in sorted(self._let_go)[: max(0, missing)]:
            self._let_go.discard(executor)
            self._times[executor] = self._times.get(executor, 0) + 1
        self._times = {executor: times for executor, times in self._times.items() if executor in present}
        return {self._name(one): address for one, address in present.items() if one not in self._let_go}

    def _name(self, executor: str) -> str:
        times = self._times.get(executor, 0)
        return f"{executor}+{times}" if times else executor


class LeasedExecutors(ConfiguredExecutors):
    """The executors a server has on leased hosts, as its cluster tells. Used by two threads."""

    def __init__(self, spark: SparkSession, hosts: Hosts) -> None:
        super().__init__(spark)
        self._cluster = hosts.cluster
        self._application = session_facts(spark).application_id
        self._size = _cores(spark)
        self._lock = threading.Lock()
        self._serving = Serving()
        self._since_s: dict[str, float] = {}
        """When each was first seen, by the name it is shown under."""

    def scalability(self) -> Scalability:
        """That hosts change them."""
        return Scalability(True, REASON)

    def executors(self) -> tuple[Executor, ...]:
        """Those on the cluster's hosts that shall serve."""
        places = [place for place in self._cluster.executors() if place.application == self._application]
        with self._lock:
            shown = self._serving.shown({place.executor: place.address for place in places}, self.target or 0)
            self._since_s = {name: self._since_s.get(name, time.time()) for name in shown}
            return tuple(
                Executor(name, address, self._size, self._since_s[name], 0, 0, 0.0, 0)
                for name, address in shown.items()
            )

    def present(self) -> tuple[Executor, ...]:
        """The same."""
        return self.executors()

    def set_target(self, number: int) -> None:
        """How many shall serve; hosts bring them."""
        self.target = number

    def retire(self, ids: Collection[str], *, grace_s: float | None = None) -> None:
        """Show these no longer."""
        with self._lock:
            self._serving.let_go(ids)

    def kill(self, ids: Collection[str]) -> None:
        """Show these no longer."""
        self.retire(ids)


def _cores(spark: SparkSession) -> int:
    return int(setting(spark, "spark.executor.cores", "1") or 1)
