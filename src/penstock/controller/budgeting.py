"""Budgets in the loop: when the loads have moved enough, the latency bounds are distributed anew.

The controller calls this once a decision; what it answers becomes the SLO of every unit and is written to
the journal with its reason. Between two distributions the budgets stand, so that policies have a steady aim.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import dropwhile

from penstock.budgets.costs import CostFunction
from penstock.budgets.distribution import (
    Distribution,
    Load,
    distribute,
    loads_from_measurements,
    loads_from_sources,
    needs_redistribution,
)
from penstock.budgets.remote import RemoteCost
from penstock.controller.loop import NewBudgets
from penstock.errors import PenstockError
from penstock.policies.view import View

LOG = logging.getLogger("penstock.budgets")

AVERAGE_S = 120.0
"""The span over which loads are averaged before they are compared with the threshold."""

LEAST_S = 60.0
"""The least span measured before it takes the place of what the sources' rates let expect."""


class LatencyBudgeting:
    """Distributes a topology's latency bounds; the one thing it remembers is its last distribution."""

    def __init__(
        self,
        *,
        solver: str = "hull",
        step_s: float | None = None,
        source_rates_per_s: Mapping[str, float] | None = None,
        costs: Mapping[str, CostFunction] | None = None,
        fixed_s: Mapping[str, float] | None = None,
        overhead_s: float = 0.0,
    ) -> None:
        """`source_rates_per_s` stand in for the load of units that nothing was measured of yet."""
        self._solver = solver
        self._step_s = step_s
        self._source_rates = source_rates_per_s
        self._costs = dict(costs or {})
        self._fixed_s = dict(fixed_s or {})
        self._overhead_s = overhead_s
        self._trouble = ""
        self.last: Distribution | None = None

    def __call__(self, view: View) -> NewBudgets | None:
        """New budgets where the loads or the topology changed enough; None where the present ones stand."""
        if not view.topology.latency_bounds:
            return None
        loads = self._loads(view)
        if any(unit.name not in loads for unit in view.topology.units if unit.name not in self._costs):
            return None
        reason = needs_redistribution(self.last, loads)
        if reason is None:
            return None
        for function in self._costs.values():
            if isinstance(function, RemoteCost):
                function.refresh()
        try:
            self.last = distribute(
                view.topology,
                loads,
                reason=reason,
                solver=self._solver,
                step_s=self._step_s,
                last=self.last,
                costs=self._costs,
                fixed_s=self._fixed_s,
                overhead_s=self._overhead_s,
            )
        except PenstockError as error:
            return self._stand(view, str(error))
        self._trouble = ""
        return NewBudgets(self.last.budgets_s, self.last.reason)

    def _stand(self, view: View, trouble: str) -> NewBudgets | None:
        """A wrong cost function must not stop the loop: the budgets stand, and the journal says why, once."""
        LOG.warning("budgets were not distributed: %s", trouble)
        if trouble == self._trouble or not view.budgets:
            return None
        self._trouble = trouble
        return NewBudgets(view.budgets, f"the budgets stand: {trouble}")

    def _loads(self, view: View) -> dict[str, Load]:
        expected = loads_from_sources(view.topology, self._source_rates) if self._source_rates else {}
        windows = {}
        for unit in view.topology.units:
            recent = [s.measurement for s in view.window(unit.name) if s.at_s > view.now_s - AVERAGE_S]
            # What comes before the first records says nothing about the load: the units before it start.
            begun = list(dropwhile(lambda measurement: measurement.arrived == 0, recent))
            if not expected or sum(measurement.interval_s for measurement in begun) >= LEAST_S:
                windows[unit.name] = begun
        return expected | loads_from_measurements(view.topology, windows)
