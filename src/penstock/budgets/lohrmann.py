"""Lohrmann's algorithm for homogeneous units (paper 004, Section 6.4, after Lohrmann et al. 2015).

It thinks in instances, not in budgets: start with the fewest that can follow the load and, while a path is
too long, add instances to the unit on it whose latency falls most by one more, until another unit would
gain more. It needs a queueing model of every unit and one price for all of them: where it applies it is
quick and nearly optimal, elsewhere `hull` is. As in the paper's comparison c_A follows the new parallelism.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.budgets.network import TOLERANCE
from penstock.budgets.pricing import Prepared
from penstock.budgets.problem import BudgetProblem, Solution
from penstock.budgets.queues import QueueCost
from penstock.errors import ConfigurationError


def solve_lohrmann(problem: BudgetProblem) -> Solution:
    """Budgets from parallelism; ConfigurationError where units differ in price or are no queues."""
    prepared = Prepared(problem)
    network = prepared.network
    queues: dict[int, QueueCost] = {}
    for v in prepared.free:
        function = network.units[v].function
        if not isinstance(function, QueueCost):
            raise ConfigurationError(
                f"the lohrmann solver needs a queueing cost function for every unit, but unit "
                f"{network.names[v]!r} has {type(function).__name__}; use hull or exact"
            )
        queues[v] = function
    prices = {queue.price for queue in queues.values()}
    if len(prices) > 1:
        raise ConfigurationError(
            "the lohrmann solver needs one price for all units (a homogeneous infrastructure), got prices "
            f"from {min(prices):g} to {max(prices):g}; use hull or exact"
        )
    step_s = network.step_s

    def steps_of(v: int, instances: int) -> int:
        """The unit's latency on the grid of budgets, no less than its minimum."""
        kept_s = queues[v].latency_s(instances)
        return max(int(prepared.least[v]), math.ceil(kept_s / step_s - 1e-9))

    instances = {v: queue.least_instances() for v, queue in queues.items()}
    calls = len(instances)
    steps = prepared.least.copy()
    for v in queues:
        steps[v] = steps_of(v, instances[v])

    def gain_s(v: int) -> float:
        """How much one more instance shortens the unit; none where the unit is at its minimum."""
        queue = queues[v]
        if steps[v] <= prepared.least[v] or (queue.max_instances or math.inf) <= instances[v]:
            return -math.inf
        return queue.latency_s(instances[v]) - queue.latency_s(instances[v] + 1)

    while True:
        slack = network.slack(steps)
        late = [v for v in network.covered if slack[v] < -TOLERANCE]
        if not late:
            break
        # The units of the longest path are those with the least slack.
        worst = min(float(slack[v]) for v in late)
        path = [v for v in queues if slack[v] <= worst + TOLERANCE]
        gains = sorted(((gain_s(v), v) for v in path), reverse=True)
        best, runner_up = gains[0], gains[1][0] if len(gains) > 1 else -math.inf
        v, excess = best[1], -worst
        begin = int(steps[v])
        if best[0] == -math.inf:  # pragma: no cover - the least budgets were found feasible before
            raise AssertionError("no unit of a late path can be shortened")
        # "Until no more improvement": go on with this unit while it gains more than the next best would.
        while True:
            instances[v] += 1
            calls += 1
            steps[v] = steps_of(v, instances[v])
            if begin - steps[v] >= excess - TOLERANCE or gain_s(v) < runner_up or gain_s(v) == -math.inf:
                break
    return prepared.solution("lohrmann", np.minimum(steps, prepared.most), calls=calls)
