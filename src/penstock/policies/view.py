"""What a policy sees, and the shape every policy has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Protocol, runtime_checkable

from penstock.fleet.actions import Action
from penstock.fleet.deployment import Deployment, Instance
from penstock.fleet.times import MeasuredTimes
from penstock.forecasts.record import Load
from penstock.forecasts.season import Season
from penstock.infrastructure.leases import Lease
from penstock.monitoring.health import health_over, operator_health
from penstock.monitoring.measurements import Signal
from penstock.topology.model import Topology


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """One enacted scaling of the past: `kind` is the action's class name, such as "StartInstance"."""

    at_s: float
    kind: str
    unit: str | None
    subject: str
    """The instance or host it was about."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a rescale taught: more instances than this do not help."""

    enough: int
    learned_s: float
    told: str
    """What was seen, in words."""


UNKNOWN_LEAD_S = 45.0
"""How long a host and an instance are thought to take before the first one was measured."""


@dataclass(frozen=True)
class View:
    """Everything a decision may depend on, frozen at one instant."""

    now_s: float
    topology: Topology
    deployment: Deployment
    leases: Mapping[str, Lease] = field(default_factory=dict)
    """Open leases by host."""
    windows: Mapping[str, tuple[Signal, ...]] = field(default_factory=dict)
    """The last signals of each unit, oldest first. A unit of which nothing fresh is known is missing."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Latency budgets in seconds, by unit, where a bound was distributed."""
    history: tuple[ScalingEvent, ...] = ()
    """Scalings enacted lately, oldest first."""
    scalings: Mapping[str, int] = field(default_factory=dict)
    """How often each unit was scaled since the run began."""
    units: tuple[str, ...] = ()
    """The units this policy decides for; the others are there to be seen only."""
    next_host: int = 1
    """The number the next new host gets in its name."""
    next_instance: int = 1
    """The number the next new instance gets in its name."""
    started: int = 0
    """Instances that were planned in this turn before this view, which bounds how many more are."""
    interval_s: float = 60.0
    """Time until the next decision."""
    times: MeasuredTimes = field(default_factory=MeasuredTimes)
    """How long starts, retirements and moves take on this fleet, as measured."""

    loads: Mapping[str, Load] = field(default_factory=dict)
    """What came to each unit, what it finished and what was late, over the last days."""
    seasons: Mapping[str, Season] = field(default_factory=dict)
    """What each unit's load usually does over a day or a week, where an earlier record tells it."""
    lead_s: Mapping[str, float] = field(default_factory=dict)
    """For each unit, the usual time from the decision on an instance with a new host until it serves."""

    withheld: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Flavours of which no host can be leased now, by site and flavour, with the reason in words."""
    left: Mapping[str, Decimal] = field(default_factory=dict)
    """What may still be spent on leases, by site, where it has a budget."""

    lessons: Mapping[str, Lesson] = field(default_factory=dict)
    """What rescales of the past taught about a unit."""

    def lead_time_s(self, unit: str) -> float:
        """From the decision on an instance until it serves, as measured; a careful guess before that."""
        return self.lead_s.get(unit) or self.times.lead_s or UNKNOWN_LEAD_S

    def window(self, unit: str) -> tuple[Signal, ...]:
        """The unit's last signals, oldest first; empty where nothing is known yet."""
        return self.windows.get(unit, ())

    def latest(self, unit: str) -> Signal | None:
        """The unit's newest signal; None where nothing is known yet."""
        window = self.windows.get(unit)
        return window[-1] if window else None

    def health(self, unit: str, over_s: float = 60.0) -> float | None:
        """What the unit executed over what came to it in the last `over_s`; None where nothing is known."""
        return health_over(s.measurement for s in self.window(unit) if s.at_s > self.now_s - over_s)

    def operator_health(self, unit: str, over_s: float = 60.0) -> Mapping[str, float | None]:
        """The same for each operator of the unit."""
        return operator_health(self.topology, unit, self.health(unit, over_s))

    def instances(self, unit: str) -> tuple[Instance, ...]:
        """The unit's instances that serve or will serve."""
        return self.deployment.of_unit(unit)

    def slo_s(self, unit: str) -> float:
        """The processing duration the unit has to keep: its latency budget where it has one, else its SLO."""
        budget = self.budgets.get(unit)
        return budget if budget is not None else self.topology.unit_slo_s(unit)


@runtime_checkable
class Policy(Protocol):
    """Decides for the units in `view.units`. Pure: the same view always gives the same actions."""

    name: ClassVar[str]

    def decide(self, view: View) -> tuple[Action, ...]:
        """The actions wanted now, each with its reason; never blocks, reads no clock."""
        ...
