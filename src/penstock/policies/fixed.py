"""Policy `fixed`: a constant number of instances; the over- and under-provisioned baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from penstock.choosing import Range
from penstock.fleet.actions import Action
from penstock.policies.planning import Plan
from penstock.policies.view import View
from penstock.quantities import counted


@dataclass(frozen=True, slots=True)
class Fixed:
    """Keep a constant number of instances: `instances`, or what the unit started with."""

    name: ClassVar[str] = "fixed"
    decides_on: ClassVar[tuple[str, ...]] = ()
    instances: Annotated[int | None, Range(least=1)] = None
    """Instances to keep; none means the unit's initial number."""

    def decide(self, view: View) -> tuple[Action, ...]:
        """Start or stop instances until the constant number is there."""
        plan = Plan(view)
        for name in view.units:
            unit = view.topology.unit_by_name[name]
            wanted = unit.initial_instances if self.instances is None else self.instances
            wanted = min(max(wanted, unit.min_instances, 1), unit.max_instances)
            count = plan.count(name)
            reason = f"fixed: {counted(count, 'instance')}, {wanted} wanted"
            if count == wanted:
                plan.hold(name, reason)
            plan.grow(name, wanted, reason)
            while plan.count(name) > wanted and plan.stop(plan.instances(name)[-1], reason):
                pass
        plan.release_empty_hosts()
        return plan.actions
