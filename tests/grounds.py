"""Grounds for tests: stepped by hand, true to every wish at once, or with a controller that can die."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.controller.enacting import carry_out
from penstock.controller.journal import Journal, TickRecord
from penstock.errors import ClusterError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import Deployment, Host, HostState, InstanceState
from penstock.fleet.fleet import Fleet
from penstock.fleet.ports import Ground, Plane, Provider, SeenInstance, Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.monitoring.measurements import Measurement
from penstock.simulator import SimulatedPlane, SimulationSettings
from penstock.topology.model import HostFlavour, Topology
from tests.builders import a_measurement


@dataclass(frozen=True)
class Seen:
    """What one look at a ground told."""

    measurements: tuple[Measurement, ...]
    notices: tuple[str, ...]


class Steps:
    """A fleet on a ground, stepped by hand: look, do, look again. No controller, no policy."""

    def __init__(self, topology: Topology, ground: Ground) -> None:
        self.fleet = Fleet(topology)
        self.ground = ground

    def observe(self, now_s: float) -> Seen:
        """Look at the ground, and say what the fleet wants of it by then."""
        reports, news = self.ground.plane.reports(now_s)
        hosts = {site: provider.hosts(now_s) for site, provider in self.ground.providers.items()}
        notices = [*news, *self.fleet.observed(hosts, reports, now_s)]
        carry_out(self.fleet.orders(now_s), self.fleet, self.ground, now_s)
        found = tuple(self.fleet.named(r.measurement) for r in reports if r.measurement is not None)
        return Seen(found, tuple(notices))

    def enact(self, actions: Sequence[Action], now_s: float) -> list[str | None]:
        """Do actions at an instant; what is wrong with each, in words."""
        errors = [self.fleet.apply(action, now_s) for action in actions]
        carry_out(self.fleet.orders(now_s), self.fleet, self.ground, now_s)
        return errors

    def deployment(self) -> Deployment:
        return self.fleet.deployment()


class SimulatedSteps(Steps):
    """The same on a simulated ground."""

    def __init__(self, topology: Topology, settings: SimulationSettings | None = None) -> None:
        self.plane = SimulatedPlane(topology, settings)
        super().__init__(topology, Ground(self.plane, self.plane.providers))
        self.stations = self.plane.stations


@dataclass
class HandGround:
    """A ground whose every wish comes true at once, unless an error is set for it."""

    topology: Topology
    queues: dict[str, int] = field(default_factory=dict)
    """Waiting records reported for each unit; a unit that is missing measures nothing."""
    errors: dict[str, str] = field(default_factory=dict)
    """What a provider answers, by host."""
    hosts: dict[str, Host] = field(default_factory=dict)
    instances: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Unit and host of what runs, by name."""
    silent: set[str] = field(default_factory=set)
    """Units that are not heard of."""
    told: list[tuple[str, Wanted]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    """Units that do not do what they are told."""

    @property
    def ground(self) -> Ground:
        return Ground(self, {site.name: HandProvider(self, site.name) for site in self.topology.sites})

    def submit(self, submission: Submission) -> None:
        self.tell(submission.unit, submission.wanted, 0.0)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        self.told.append((unit, wanted))
        if unit in self.deaf:
            return
        wished = {instance.name: instance.host for instance in wanted.instances}
        self.instances = {n: place for n, place in self.instances.items() if place[0] != unit or n in wished}
        for name, host in wished.items():
            if host is None or (host in self.hosts and self.hosts[host].state is HostState.UP):
                self.instances[name] = (unit, host)

    def reports(self, now_s: float) -> tuple[list[UnitReport], list[str]]:
        reports = []
        for unit in self.topology.unit_by_name:
            if unit in self.silent:
                continue
            shown = tuple(
                SeenInstance(name, InstanceState.RUNNING, host, now_s, name)
                for name, (owner, host) in self.instances.items()
                if owner == unit
            )
            queue = self.queues.get(unit)
            measured = None if queue is None else a_measurement(unit, at_s=now_s, queue=queue)
            reports.append(UnitReport(unit, now_s, UnitState.RUNNING, "hand", shown, measured))
        return reports, []

    def host_dies(self, host: str) -> None:
        self.hosts[host] = replace(self.hosts[host], state=HostState.FAILED)
        self.instances = {name: place for name, place in self.instances.items() if place[1] != host}


@dataclass
class HandProvider:
    """Hosts of one site that are up at once."""

    on: HandGround
    site: str

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        self._maybe_refuse(host)
        self.on.hosts.setdefault(host, Host(host, self.site, flavour, HostState.UP, now_s, now_s))

    def delete(self, host: str, now_s: float) -> None:
        self._maybe_refuse(host)
        self.on.hosts.pop(host, None)

    def hosts(self, now_s: float) -> tuple[Host, ...]:
        return tuple(host for host in self.on.hosts.values() if host.site == self.site)

    def _maybe_refuse(self, host: str) -> None:
        if host in self.on.errors:
            raise ClusterError(self.on.errors[host])


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
        self.abandon()


@dataclass
class MortalProvider:
    """A provider that outlives the controller, which can die before and after each call."""

    provider: Provider
    bomb: Bomb

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        self.bomb("before create")
        self.provider.create(host, flavour, now_s)
        self.bomb("after create")

    def delete(self, host: str, now_s: float) -> None:
        self.bomb("before delete")
        self.provider.delete(host, now_s)
        self.bomb("after delete")

    def hosts(self, now_s: float) -> Sequence[Host]:
        return self.provider.hosts(now_s)


@dataclass
class MortalPlane:
    """A plane that outlives the controller, which can die before and after each call."""

    plane: Plane
    bomb: Bomb

    def submit(self, submission: Submission) -> None:
        self.bomb("before submit")
        self.plane.submit(submission)
        self.bomb("after submit")

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        self.bomb("before tell")
        self.plane.tell(unit, wanted, now_s)
        self.bomb("after tell")

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        return self.plane.reports(now_s)


def mortal(ground: Ground, bomb: Bomb) -> Ground:
    """A ground at which the controller's process can die at every call."""
    return Ground(
        MortalPlane(ground.plane, bomb),
        {site: MortalProvider(provider, bomb) for site, provider in ground.providers.items()},
    )
