"""The port between the loop and a cluster; the simulated and the Spark cluster are its two adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.infrastructure.deployment import Deployment
from penstock.monitoring.measurements import Measurement
from penstock.policies.actions import Action


@dataclass(frozen=True, slots=True)
class Observation:
    """What was measured since the last observation."""

    at_s: float
    measurements: tuple[Measurement, ...] = ()
    """One for each unit that reported; a unit that said nothing is missing."""
    notices: tuple[str, ...] = ()
    """Faults and other news in words, for the journal: "executor 3 of unit a was lost"."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an action was accepted; `error` says in words why not."""

    action: Action
    error: str | None = None


class Cluster(Protocol):
    """A cluster the loop can watch and change.

    Consistency: `deployment` shows everything enacted so far, at the latest as requested. Enacting is
    idempotent: hosts and instances carry names, and an action about one that is already as wanted changes
    nothing. No call blocks for longer than it takes to hand the wish over.
    """

    def observe(self, now_s: float) -> Observation:
        """What was measured since the last call. Changes nothing that runs."""
        ...

    def deployment(self) -> Deployment:
        """The hosts and instances that exist now, as last observed."""
        ...

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Ask for these actions, in this order; one outcome each."""
        ...
