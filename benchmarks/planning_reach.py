"""What no policy could have had: the most that can be kept without foresight, and `rate` at the same share.

A load that rises beyond what is held makes records late until something asked for after the rise serves.
What is held before a rise is a matter of the policy; so the more of what `auto` and `rate` held is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.controller.loop import Tick
from penstock.experiments.clairvoyant import unit_loads
from penstock.fleet.deployment import InstanceState
from penstock.simulator import SimulationSettings, simulate
from penstock.simulator.provider import SimulatedParameters
from penstock.topology.model import Choice, Topology

Floats = NDArray[np.float64]
Made = Callable[[Choice], Topology]
"""The topology of a cell under a policy."""

STEP_S = 1.0
UNIT = "count"
LOWEST_TARGET = 0.3
"""The lowest utilisation that `rate` is tried with."""


def most_kept(made: Made, keep: float, seed: int, length_s: float) -> float:
    """Percent kept if every first decision after a rise asked for without limit, and not before.

    Until what it asks for serves, there is what the more careful of `auto` and `rate` held at each time.
    """
    held = np.maximum(
        *(_held(made(choice), seed, length_s) for choice in (Choice("auto", {"keep": keep}), Choice("rate")))
    )
    topology = made(Choice("rate"))
    loads, service_s = unit_loads(topology, length_s, STEP_S)[UNIT]
    able = held / service_s
    start = SimulatedParameters()
    soonest_s = start.host_start_least_s + start.instance_start_least_s + start.image_pull_s
    return 100.0 - 100.0 * unavoidable(
        loads, able, topology.loop.provisioning_s, soonest_s, topology.unit_slo_s(UNIT) - service_s
    )


def unavoidable(loads: Floats, able: Floats, interval_s: float, soonest_s: float, slack_s: float) -> float:
    """The share of records that are late although the first decision after each rise asked without limit.

    Both are records a second in steps of a second: what comes, and what could be done with what was there.
    """
    late = waiting = 0.0
    served_at: float | None = None
    for second, (load, could) in enumerate(zip(loads.tolist(), able.tolist(), strict=True)):
        now_s = second * STEP_S
        if served_at is None and load > could:
            # The first decision that can have seen it.
            served_at = np.ceil((now_s + STEP_S) / interval_s) * interval_s + soonest_s
        if served_at is not None and now_s >= served_at:
            waiting = 0.0
            if load <= could:
                served_at = None
            continue
        waiting = max(0.0, waiting + (load - could) * STEP_S)
        if served_at is None:
            continue
        if waiting == 0.0:
            served_at = None
            continue
        waits_s = min(waiting / max(could, 1e-9), served_at - now_s)
        late += load * STEP_S if waits_s > slack_s else 0.0
    return late / (float(loads.sum()) * STEP_S)


def rate_at(made: Made, kept: float, seed: int, length_s: float) -> tuple[float, float, float] | None:
    """The utilisation at which `rate` keeps so many percent, its cost and what it keeps; None where none."""
    low, high, found = LOWEST_TARGET, 0.8, None
    for number in range(6):
        target = low if number == 0 else round((low + high) / 2, 3)
        topology = made(Choice("rate", {"target_ratio": target}))
        result = simulate(topology, SimulationSettings(seed=seed), duration_s=length_s)
        reached = 100 * result.compliance.ratio("real_time")
        if reached >= kept:
            low, found = target, (target, float(result.resource_cost), reached)
        elif number == 0:
            return None
        else:
            high = target
    return found


def _held(topology: Topology, seed: int, length_s: float) -> Floats:
    """Instances that served in each second of a run."""
    held = np.zeros(round(length_s / STEP_S))

    def each(tick: Tick) -> None:
        running = [i for i in tick.deployment.of_unit(UNIT) if i.state is InstanceState.RUNNING]
        held[round(tick.at_s / STEP_S) :] = len(running)

    simulate(topology, SimulationSettings(seed=seed), duration_s=length_s, each=each)
    return held
