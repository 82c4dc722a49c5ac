"""Health, after paper 002: what was executed over what was emitted towards it in the same period.

Below 1 records pile up; below `CONGESTED` a unit counts as congested. Working off a backlog is not better
than keeping up, so health ends at 1. It is computed from counts, over as many measurements as the period has:
over less than a micro-batch it would say nothing. Until a unit has finished its first record its health is
not known: what came in waits for the first micro-batch, however well it will keep up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.monitoring.measurements import Measurement
from penstock.topology.model import Topology

CONGESTED = 0.9
"""Paper 002, section 5.2: a unit whose health is below this needs more."""
BATCHES = 1.5
"""What waits beside a micro-batch has gathered since that began, and the next one takes it: up to about as
many records as are in hand. More than this many times as many are a backlog."""
PERIOD_S = 60.0
"""The period over which a unit's health is told."""


def health(executed: float, received: float) -> float | None:
    """Executed over received, at most 1; None where nothing was received."""
    # Paper 002, section 2.2: health_T(c) = processed_T(c) / received_T(c).
    return min(1.0, executed / received) if received > 0 else None


def health_over(measurements: Iterable[Measurement]) -> float | None:
    """The health over a period of several measurements; None where nothing came in."""
    found = [(m.processed, m.arrived) for m in measurements]
    return health(sum(done for done, _ in found), sum(came for _, came in found))


def is_backlog(waiting: float, in_hand: float) -> bool:
    """Whether more waits than the next micro-batch takes; `in_hand` is the most that was in service lately.

    Over a few micro-batches health swings by one of them, and is below 1 for no other reason.
    """
    return waiting > BATCHES * in_hand


def told_healths(
    observations: Iterable[Mapping[str, Any]], finished: Iterable[str] = ()
) -> list[float | None]:
    """The health of a unit as of each of its observations, in their order: over the period up to it.

    None where nothing came in, and until the unit has finished something; `finished` are those that had
    before the first of these.
    """
    told: list[float | None] = []
    periods: dict[str, deque[tuple[float, int, int]]] = {}
    able = set(finished)
    for row in observations:
        unit, at_s, done = row["unit"], row["at_s"], row["processed"] or 0
        period = periods.setdefault(unit, deque())
        period.append((at_s, done, row["arrived"] or 0))
        while period[0][0] <= at_s - PERIOD_S:
            period.popleft()
        if done:
            able.add(unit)
        known = unit in able
        told.append(health(sum(p[1] for p in period), sum(p[2] for p in period)) if known else None)
    return told


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
