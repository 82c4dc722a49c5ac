"""Health, after paper 002: what was executed over what was emitted towards it in the same period.

Below 1 records pile up; below `CONGESTED` a unit counts as congested. Working off a backlog is not better
than keeping up, so health ends at 1. It is computed from counts, over as many measurements as the period has:
over less than a micro-batch it would say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.monitoring.measurements import Measurement
from penstock.topology.model import Topology

CONGESTED = 0.9
"""Paper 002, section 5.2: a unit whose health is below this needs more."""


def health(executed: float, received: float) -> float | None:
    """Executed over received, at most 1; None where nothing was received."""
    # Paper 002, section 2.2: health_T(c) = processed_T(c) / received_T(c).
    return min(1.0, executed / received) if received > 0 else None


def health_over(measurements: Iterable[Measurement]) -> float | None:
    """The health over a period of several measurements; None where nothing came in."""
    found = [(m.processed, m.arrived) for m in measurements]
    return health(sum(done for done, _ in found), sum(came for _, came in found))


def operator_health(topology: Topology, unit: str, of_unit: float | None) -> Mapping[str, float | None]:
    """The health of each operator of a unit.

    Operators of a unit run one after the other on the same records, in one micro-batch: what one emits the
    next has executed when the batch is done. So all congestion of a unit stands before the operators that
    take records from outside it, and the others are healthy wherever anything is executed at all.
    """
    members = topology.unit_by_name[unit].operators
    return {
        name: of_unit
        if of_unit is None or any(i not in members for i in topology.operator_by_name[name].inputs)
        else 1.0
        for name in members
    }
