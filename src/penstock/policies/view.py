"""What a policy sees, and the shape every policy has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from penstock.infrastructure.deployment import Deployment, Instance
from penstock.infrastructure.leases import Lease
from penstock.monitoring.measurements import Signal
from penstock.policies.actions import Action
from penstock.topology.model import Topology


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """One enacted scaling of the past: `kind` is the action's class name, such as "StartInstance"."""

    at_s: float
    kind: str
    unit: str | None
    subject: str
    """The instance or host it was about."""


@dataclass(frozen=True)
class View:
    """Everything a decision may depend on, frozen at one instant."""

    now_s: float
    topology: Topology
    deployment: Deployment
    leases: Mapping[str, Lease] = field(default_factory=dict)
    """Open leases by host."""
    windows: Mapping[str, tuple[Signal, ...]] = field(default_factory=dict)
    """The last signals of each unit, oldest first; the newest may be missing a unit that said nothing."""
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
    interval_s: float = 60.0
    """Time until the next decision."""
    host_start_s: float = 45.0
    """How long a host usually takes from lease to use."""

    def window(self, unit: str) -> tuple[Signal, ...]:
        """The unit's last signals, oldest first; empty where nothing is known yet."""
        return self.windows.get(unit, ())

    def latest(self, unit: str) -> Signal | None:
        """The unit's newest signal; None where nothing is known yet."""
        window = self.windows.get(unit)
        return window[-1] if window else None

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
