"""What a run is doing, in one type for a simulated run, a run on Spark, the demo and an attached job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.fleet.actions import described
from penstock.fleet.deployment import INSTANCE_COUNTED, Host, HostState, Instance, InstanceState
from penstock.fleet.units import UnitState
from penstock.infrastructure.leases import Lease, month_at
from penstock.monitoring.health import operator_health
from penstock.monitoring.measurements import Measurement

if TYPE_CHECKING:
    from penstock.controller.loop import Controller, Tick

LAST = 50
"""Decisions and pieces of news that a status carries."""


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """One unit as of the last tick."""

    name: str
    """Its name in the topology."""
    state: UnitState
    """Where it is in its life, such as `submitted`, `running` or `failed`."""
    policy: str
    """What decides for it."""
    instances: int
    """Instances that serve or were asked for."""
    running: int
    """Instances that serve."""
    least: int
    """The fewest instances it may have."""
    most: int
    """The most instances it may have."""
    slo_s: float
    """The longest acceptable duration, as the topology has it."""
    hosts: tuple[str, ...] = ()
    """The hosts its instances are on."""
    silent_s: float = 0.0
    """How long nothing was heard of it."""
    problem: str | None = None
    """Why it failed, where it did."""
    measurement: Measurement | None = None
    """What was measured of it last."""
    why: str = ""
    """Why nothing was changed at the last decision, where nothing was."""
    health: float | None = None
    """What it executed over what came to it in the last minute; below 0.9 it is congested. None where it is
    not known: nothing came, or nothing was finished yet."""
    operator_health: Mapping[str, float | None] = field(default_factory=dict)
    """The same for each of its operators."""
    site: str = ""
    """The site it is at; empty where its instances may be at several."""
    members: Mapping[str, str] = field(default_factory=dict)
    """The host of each of its instances that serve or were asked for, by the instance's id, which is what
    `move` takes; empty text where it has none yet."""

    @property
    def health_told(self) -> str:
        """Its health for people; a dash where it has nothing to do."""
        if self.health is not None:
            return f"{self.health:.2f}"
        measured = self.measurement
        idle = measured is not None and not measured.waiting and not measured.arrived
        return "–" if idle else "not known yet"

    @property
    def cpu_ratio(self) -> float | None:
        """Mean CPU utilisation over its instances; None where nothing is known."""
        readings = self.measurement.readings if self.measurement is not None else ()
        known = [reading.cpu_ratio for reading in readings if reading.cpu_ratio is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One streaming query of an attached session, as of the last tick."""

    name: str
    """Its name, else its id."""
    id: str
    slo_s: float
    priority: float = 1.0
    active: bool = True
    trigger: str = ""
    """When it starts a batch, in words; empty where that is not told."""
    processed: int = 0
    """Records it has read since it was first seen."""
    waiting: int | None = None
    told_by: str = ""
    """What tells how many wait: `offsets`, `files`, `source`, or `batch time`, which is an estimate."""
    duration_s: float | None = None
    batch_s: float | None = None
    restarts: int = 0
    problem: str | None = None
    """Why it failed, where it did."""

    @property
    def keeps(self) -> bool | None:
        """Whether it keeps its SLO; None where nothing is known or it has ended."""
        return None if self.duration_s is None or not self.active else self.duration_s <= self.slo_s


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host as of the last tick."""

    name: str
    """Its name in the fleet."""
    site: str
    """Where it is leased."""
    flavour: str
    """Its kind of machine."""
    state: HostState
    """Where it is in its life, such as `requested`, `up` or `draining`."""
    units: tuple[str, ...] = ()
    """The units of the instances on it, one for each."""
    address: str | None = None
    """Where it is reached, once that is known."""
    paid_until_s: float | None = None
    """When its paid time ends."""
    btu_s: float | None = None
    """The billing time unit of its lease."""
    paid: str = ""
    """What was paid for it so far, in words."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source whose records the run makes."""

    name: str
    health: float | None = None
    """Records emitted over records due in the last minute."""


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """What a run is doing, as of its last tick."""

    run: str
    """The name of the run."""
    at_s: float
    """When the loop last looked."""
    units: tuple[UnitStatus, ...]
    """Every unit."""
    hosts: tuple[HostStatus, ...]
    """Every host there is."""
    bill: str
    """What was paid so far."""
    currency: str = ""
    """Of the bill; empty where the topology names none."""
    month: str = ""
    """What 30 days cost with the hosts there are now."""
    standings: tuple[str, ...] = ()
    """How it stands with providers that are reached over an API: the age of what is known, and troubles."""
    phase: str = "running"
    """`starting`, `running`, `draining` or `ended`."""
    since_s: float | None = None
    """When its sources began."""
    duration_s: float | None = None
    """How long its sources run; None means until it is told to stop."""
    acting: bool = True
    """False where it decides and records, but does nothing, and where it is paused."""
    paused: bool = False
    """True where nothing is decided: what runs goes on as it is."""
    reason: str = ""
    """Why it acts or only advises."""
    decisions: tuple[str, ...] = ()
    """The last ones, newest last, each with its reason."""
    notices: tuple[str, ...] = ()
    """The last news, newest last."""
    journal: str = ""
    """Where everything is on record."""
    problem: str | None = None
    """Why it ended, where it did not end on purpose."""
    capabilities: tuple[str, ...] = field(default=())
    """What the ground it runs on lacks, in words."""
    queries: tuple[QueryStatus, ...] = ()
    """The streaming queries of an attached session."""
    service: str = ""
    """What an attachment can do in its session: `full`, `advice`, `advice over Spark Connect`, or `hosts for
    a Spark Connect server`."""
    metrics: str = ""
    """Where its metrics are served, where they are."""
    sources: tuple[SourceStatus, ...] = ()
    """Sources whose records the run makes."""
    asks: tuple[str, ...] = ()
    """What was started again too often and is left until a person has looked; `resume` has all of it tried
    again, `restart` one unit."""

    @property
    def standing(self) -> str:
        """What it does less than acting, and what waits for a person, in words; empty where all is well."""
        told = "" if self.acting else "paused: nothing is decided" if self.paused else "advising only"
        parts = [f"{told}: {self.reason}" if told and self.reason else told]
        parts.append(f"a person is asked: {', '.join(self.asks)}" if self.asks else "")
        return "; ".join(filter(None, parts))

    def unit(self, name: str) -> UnitStatus:
        """One unit by name."""
        return next(unit for unit in self.units if unit.name == name)

    def __str__(self) -> str:
        head = f"{self.run}: {self.phase}, bill {self.bill} {self.currency}".rstrip()
        head += f", {self.month} a month at this rate" if self.month else ""
        lines = [f"{head}{f' ({self.standing})' if self.standing else ''}"]
        for unit in self.units:
            measured = unit.measurement
            load = (
                ""
                if measured is None
                else f", {measured.arrival_rate_per_s:.0f}/s in, {measured.waiting} waiting"
            )
            load += f", health {unit.health_told}" if measured is not None else ""
            lines.append(f"  {unit.name}: {unit.state}, {unit.running} of {unit.instances} instances{load}")
        for query in self.queries:
            waiting = "" if query.waiting is None else f", {query.waiting} waiting"
            took = "" if query.duration_s is None else f", {query.duration_s:.2g} of {query.slo_s:g} s"
            state = "runs" if query.active else ("failed" if query.problem else "ended")
            lines.append(f"  query {query.name}: {state}{took}{waiting}")
        lines += [f"  {text}" for text in self.decisions[-3:]]
        if self.problem is not None:
            lines.append(f"  ended: {self.problem}")
        return "\n".join(lines)

    __repr__ = __str__  # a person at a prompt sees the same


class Watching:
    """Makes the status of a run out of its controller, tick by tick."""

    def __init__(self, controller: Controller, run: str, journal: str = "") -> None:
        self._controller = controller
        self._run = run
        self._journal = journal
        self._measured: dict[str, Measurement] = {}
        self._holds: dict[str, str] = {}
        self._decisions: list[str] = []
        self._notices: list[str] = []

    def see(self, tick: Tick) -> list[str]:
        """Take in a tick; what is new in words: decisions and news."""
        for signal in tick.signals:
            self._measured[signal.unit] = signal.taken
        for verdict in tick.verdicts:
            if not verdict.action.changes and verdict.action.unit is not None:
                self._holds[verdict.action.unit] = verdict.action.reason
        decided = [
            described(verdict.action) if verdict.refused is None
            else f"{described(verdict.action)} (not done: {verdict.refused})"
            for verdict in tick.verdicts
            if verdict.action.changes
        ]  # fmt: skip
        self._decisions = [*self._decisions, *decided][-LAST:]
        self._notices = [*self._notices, *tick.notices][-LAST:]
        return [*decided, *tick.notices]

    def status(self, at_s: float, asks: tuple[str, ...] = (), **further: object) -> Status:
        """The status at an instant; `further` fields are taken as they are, `asks` besides those of units."""
        controller = self._controller
        deployment, leases = controller.fleet.deployment(), controller.state.ledger.open_leases()
        left = [life.name for life in controller.fleet.units.values() if life.asks]
        return Status(
            run=self._run,
            at_s=at_s,
            units=tuple(self._unit(name, at_s) for name in controller.topology.unit_by_name),
            hosts=tuple(
                _host(host, deployment.on_host(host.id), leases.get(host.id))
                for host in deployment.hosts.values()
            ),
            bill=str(controller.state.ledger.total),
            month=f"{month_at(leases.values()):.2f}" if leases else "",
            standings=tuple(
                f"{site}: seen {standing.age_s:.0f} s ago"
                + (f", {standing.waiting} under way" if standing.waiting else "")
                + (f"; {standing.problem}" if standing.problem else "")
                for site, standing in controller.paying.standings(at_s).items()
            ),
            currency=next((s.currency for s in controller.topology.sites if s.currency), ""),
            decisions=tuple(self._decisions),
            notices=tuple(self._notices),
            journal=self._journal,
            asks=(*(f"unit {name} does not stay up" for name in left), *asks),
            **further,  # type: ignore[arg-type]
        )

    def _unit(self, name: str, at_s: float) -> UnitStatus:
        topology, fleet = self._controller.topology, self._controller.fleet
        unit, life = topology.unit_by_name[name], fleet.units[name]
        members = [i for i in fleet.deployment().instances.values() if i.unit == name]
        health = self._controller.state.health(name, at_s)
        return UnitStatus(
            name,
            life.state,
            unit.policy.name,
            sum(i.state in INSTANCE_COUNTED for i in members),
            sum(i.state is InstanceState.RUNNING for i in members),
            unit.min_instances,
            unit.max_instances,
            topology.unit_slo_s(name),
            tuple(sorted({i.host for i in members if i.host is not None})),
            fleet.silent_s(name, at_s),
            life.problem,
            self._measured.get(name),
            self._holds.get(name, ""),
            health,
            operator_health(topology, name, health),
            unit.sites[0] if len(unit.sites) == 1 else "",
            {i.id: i.host or "" for i in members if i.state in INSTANCE_COUNTED},
        )


def _host(host: Host, members: Sequence[Instance], lease: Lease | None) -> HostStatus:
    found = HostStatus(
        host.id,
        host.site,
        host.flavour.name,
        host.state,
        tuple(sorted(i.unit for i in members)),
        host.address,
    )
    if lease is None:
        return found
    return replace(
        found,
        paid_until_s=lease.paid_until_s,
        btu_s=lease.btu_s,
        paid=f"{lease.units} × {lease.price_per_btu}",
    )
