"""Policy `threshold`: scale by the number of waiting records, the baseline of paper 000.

Up by one instance above 50 waiting records, by two above 250, down by one below 1. Hosts are leased
when no host has room and released as soon as nothing runs on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from penstock.choosing import Range
from penstock.fleet.actions import Action
from penstock.policies.planning import Plan
from penstock.policies.view import View


@dataclass(frozen=True, slots=True)
class Threshold:
    """Scale by the number of waiting records (paper 000, section "Baseline")."""

    name: ClassVar[str] = "threshold"
    decides_on: ClassVar[tuple[str, ...]] = ("waiting",)
    up_queue: Annotated[int, Range(least=0)] = 50
    """More waiting records than this: one instance more."""
    up_twice_queue: Annotated[int, Range(least=0)] = 250
    """More waiting records than this: two instances more."""
    down_queue: Annotated[int, Range(least=0)] = 1
    """Fewer waiting records than this: one instance less."""

    def decide(self, view: View) -> tuple[Action, ...]:
        """One step up, two steps up, one step down or nothing, for each unit."""
        plan = Plan(view)
        for unit in view.units:
            signal = view.latest(unit)
            if signal is None:
                plan.hold(unit, "no measurement yet")
                continue
            waiting = signal.measurement.waiting
            if waiting > self.up_twice_queue:
                reason = f"up twice: {waiting} waiting > {self.up_twice_queue}"
                if plan.start(unit, reason):
                    plan.start(unit, reason)
            elif waiting > self.up_queue:
                plan.start(unit, f"up: {waiting} waiting > {self.up_queue}")
            elif waiting < self.down_queue and plan.count(unit) > 1:
                plan.stop(plan.instances(unit)[-1], f"down: {waiting} waiting < {self.down_queue}")
            else:
                plan.hold(unit, f"{waiting} waiting, between {self.down_queue} and {self.up_queue}")
        plan.release_empty_hosts()
        return plan.actions
