"""Clusters for tests of the loop: one written by hand, and a simulated one that can be made to die."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.controller.cluster import Cluster, Observation, Outcome
from penstock.controller.journal import Journal, TickRecord
from penstock.infrastructure.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.monitoring.measurements import Measurement
from penstock.policies.actions import (
    Action,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.topology.model import Topology
from tests.builders import a_measurement


@dataclass
class HandCluster:
    """A cluster whose every wish comes true at once, unless an error is set for it."""

    topology: Topology
    queues: dict[str, int] = field(default_factory=dict)
    """Waiting records reported for each unit; a unit that is missing says nothing."""
    errors: dict[str, str] = field(default_factory=dict)
    """What to answer, by the host or instance an action is about."""
    hosts: dict[str, Host] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    enacted: list[Action] = field(default_factory=list)

    def observe(self, now_s: float) -> Observation:
        found: tuple[Measurement, ...] = tuple(
            a_measurement(unit, at_s=now_s, queue=queue) for unit, queue in self.queues.items()
        )
        return Observation(now_s, found)

    def deployment(self) -> Deployment:
        return Deployment(dict(self.hosts), dict(self.instances))

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        outcomes = []
        for action in actions:
            subject = getattr(action, "instance", None) or getattr(action, "host", "")
            error = self.errors.get(subject)
            if error is None:
                self._do(action, now_s)
                self.enacted.append(action)
            outcomes.append(Outcome(action, error))
        return tuple(outcomes)

    def _do(self, action: Action, now_s: float) -> None:
        if isinstance(action, LeaseHost):
            flavour = self.topology.site_by_name[action.site].flavour(action.flavour)
            self.hosts[action.host] = Host(action.host, action.site, flavour, HostState.UP, now_s, now_s)
        elif isinstance(action, ReleaseHost):
            self.hosts.pop(action.host, None)
        elif isinstance(action, StartInstance):
            self._start(action.instance, action.unit, action.host, now_s)
        elif isinstance(action, StopInstance):
            self.instances.pop(action.instance, None)
        elif isinstance(action, MigrateInstance):
            self._start(action.replacement, action.unit, action.to_host, now_s)
            self.instances.pop(action.instance, None)

    def _start(self, name: str, unit: str, host: str | None, now_s: float) -> None:
        cores, memory_mib = self.topology.unit_cores(unit), self.topology.unit_memory_mib(unit)
        self.instances[name] = Instance(
            name, unit, host, InstanceState.RUNNING, cores, memory_mib, now_s, now_s
        )

    def host_dies(self, host: str) -> None:
        self.hosts[host] = replace(self.hosts[host], state=HostState.FAILED)
        self.instances = {name: i for name, i in self.instances.items() if i.host != host}


class KilledError(Exception):
    """The controller's process died here."""


Bomb = Callable[[str], None]
"""Called with the name of a point of a tick; raises KilledError where the process dies there."""


class MortalJournal(Journal):
    """A journal whose process can die before or after each of its transactions."""

    bomb: Bomb

    def record(self, tick: TickRecord) -> None:
        self.bomb("before record")
        super().record(tick)
        self.bomb("after record")

    def confirm(self, at_s: float, failed: Mapping[tuple[str, str], str]) -> None:
        self.bomb("before confirm")
        super().confirm(at_s, failed)
        self.bomb("after confirm")

    def die(self) -> None:
        """Let go of the file without writing anything, as a killed process does."""
        self._rows.clear()
        self._connection.close()
        self._engine.dispose()


@dataclass
class MortalCluster:
    """A cluster that outlives the controller, which can die before, amid and after telling it what to do."""

    cluster: Cluster
    bomb: Bomb

    def observe(self, now_s: float) -> Observation:
        return self.cluster.observe(now_s)

    def deployment(self) -> Deployment:
        return self.cluster.deployment()

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        self.bomb("before enact")
        half = len(actions) // 2
        first = self.cluster.enact(actions[:half], now_s)
        self.bomb("amid enact")
        rest = self.cluster.enact(actions[half:], now_s)
        self.bomb("after enact")
        return first + rest
