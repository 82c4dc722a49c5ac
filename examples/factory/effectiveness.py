"""Overall equipment effectiveness: the formulas of paper 000, and what a batch over the truth gives.

The formulas are used by the streaming operators and by the batch alike. What differs is how totals come
about: the operators carry them in Spark's state from record to record, the batch sums up a whole life at
once. That both agree for every machine and timestamp is the example's proof of correctness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from factory.machines import DEFECT, Minute


@dataclass(frozen=True, slots=True)
class Effectiveness:
    """The three components of one machine at one cycle, and their product."""

    performance: float
    availability: float
    quality: float
    oee: float


def performance(produced: int, ideal_ms: int, reporting_cycle_s: float) -> float:
    """Share of the ideal production reached in one reporting cycle."""
    # Eq. (2) of 000: performance = producedItems · idealProductionTime / reportingCycle
    return produced * ideal_ms / 1000 / reporting_cycle_s


def availability(total_s: float, planned_stop_s: float, defect_stop_s: float) -> float:
    """Share of its whole life a machine was available."""
    # Eq. (3) of 000: availability = (totalTime − scheduledDowntime − unscheduledDowntime) / totalTime
    return (total_s - planned_stop_s - defect_stop_s) / total_s


def quality(total_produced: int, total_defective: int) -> float:
    """Share of good ones among all goods of its whole life; 1 before the first."""
    # Eq. (4) of 000: quality = (totalProducedGoods − totalDefectiveGoods) / totalProducedGoods
    return (total_produced - total_defective) / total_produced if total_produced else 1.0


def oee(availability_ratio: float, performance_ratio: float, quality_ratio: float) -> float:
    """Overall equipment effectiveness."""
    # Eq. (5) of 000: OEE = availability · performance · quality
    return availability_ratio * performance_ratio * quality_ratio


def effectiveness_in_batch(
    minutes: Sequence[Minute], unreadable: Collection[tuple[str, int]] = ()
) -> Mapping[tuple[str, int], Effectiveness]:
    """The truth: effectiveness by (machine, cycle), from the generator's own numbers.

    Cycles in `unreadable` give no value, and their goods and stops are unknown to later ones.
    """
    found: dict[tuple[str, int], Effectiveness] = {}
    for machine in sorted({minute.machine for minute in minutes}):
        life = sorted((m for m in minutes if m.machine == machine), key=lambda minute: minute.number)
        known = np.array([(machine, minute.number) not in unreadable for minute in life])
        columns = np.array(
            [
                (m.cycle.produced, m.cycle.defective, m.cycle.planned_stop_s, m.cycle.defect_stop_s)
                for m in life
            ],
            dtype=np.int64,
        )
        produced, defective, planned_s, defect_s = np.cumsum(columns * known[:, None], axis=0).T
        ends_s = np.array([minute.end_s for minute in life])
        spans_s = np.diff(ends_s, prepend=0)
        for place, minute in enumerate(life):
            if not known[place]:
                continue
            parts = (
                performance(minute.cycle.produced, minute.cycle.ideal_ms, int(spans_s[place])),
                availability(int(ends_s[place]), int(planned_s[place]), int(defect_s[place])),
                quality(int(produced[place]), int(defective[place])),
            )
            found[machine, minute.number] = Effectiveness(*parts, oee(parts[1], parts[0], parts[2]))
    return found


def new_defects(minutes: Sequence[Minute]) -> set[tuple[str, int]]:
    """(machine, sequence) of each availability record that shows a defect where the one before did not."""
    return _rising(
        (minute.machine, minute.availability_sequence(place), status == DEFECT)
        for minute in minutes
        for place, status in enumerate(minute.statuses)
    )


def new_violations(minutes: Sequence[Minute], threshold: float) -> set[tuple[str, int]]:
    """(machine, sequence) of each temperature above the threshold where the one before was not."""
    return _rising(
        (minute.machine, minute.temperature_sequence(place), temperature > threshold)
        for minute in minutes
        for place, temperature in enumerate(minute.temperatures)
    )


def _rising(readings: object) -> set[tuple[str, int]]:
    """Where a condition becomes true within a machine's readings taken in order."""
    rows = sorted(readings)  # type: ignore[call-overload]
    return {
        (machine, sequence)
        for place, (machine, sequence, holds) in enumerate(rows)
        if holds and not (place and rows[place - 1][0] == machine and rows[place - 1][2])
    }
