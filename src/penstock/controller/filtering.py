"""From measurements to signals: each unit's readings go through the filter it chose.

Units that chose the same filter share one filter object, which sees all their instances in one call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.filters import Filter, Readings, make_filter
from penstock.monitoring.measurements import Measurement, Signal
from penstock.topology.model import Choice, Topology


class Filtering:
    """The filters of a run, one for each distinct choice among the units."""

    def __init__(self, topology: Topology) -> None:
        self._choice = {unit.name: unit.filter for unit in topology.units}
        self._filters: dict[Choice, Filter] = {
            choice: make_filter(choice) for choice in set(self._choice.values()) if choice.name != "none"
        }
        self._last_demand: dict[str, float] = {}

    def signals(self, measurements: Sequence[Measurement]) -> tuple[tuple[Signal, ...], tuple[str, ...]]:
        """The signals of these measurements, and what the filters have to say (resets and the like)."""
        found: dict[str, Signal] = {}
        groups: dict[Choice, list[Measurement]] = {}
        for measurement in measurements:
            choice = self._choice.get(measurement.unit)
            if choice is None:
                continue
            if choice.name == "none":
                found[measurement.unit] = _unfiltered(measurement)
            else:
                groups.setdefault(choice, []).append(measurement)
        notices: list[str] = []
        for choice, members in groups.items():
            notices.extend(self._filtered(choice, members, found))
        return tuple(found[m.unit] for m in measurements if m.unit in found), tuple(notices)

    def _filtered(
        self, choice: Choice, members: Sequence[Measurement], found: dict[str, Signal]
    ) -> tuple[str, ...]:
        keys: list[str] = []
        values: list[tuple[float, float]] = []
        inputs: list[tuple[float, float]] = []
        spans: list[tuple[Measurement, int, int]] = []
        for measurement in members:
            first = len(keys)
            # Eq. 6 of paper 001: the input is the demand of one instance, not the operator's total.
            demand = measurement.arrival_rate_per_s / max(1, len(measurement.readings))
            change = demand - self._last_demand.get(measurement.unit, demand)
            self._last_demand[measurement.unit] = demand
            for reading in measurement.readings:
                keys.append(reading.instance)
                values.append((_number(reading.cpu_ratio), _number(reading.memory_ratio)))
                inputs.append((demand, change))
            spans.append((measurement, first, len(keys)))
        if not keys:  # nobody runs yet: nothing to estimate
            found.update({measurement.unit: Signal(measurement, trusted=False) for measurement in members})
            return ()
        readings = Readings(
            members[0].at_s,
            tuple(keys),
            np.array(values).reshape(-1, 2),
            np.array(inputs).reshape(-1, 2),
            tuple(measurement.unit for measurement, first, last in spans for _ in range(first, last)),
        )
        estimates = self._filters[choice].step(readings)
        for measurement, first, last in spans:
            if first == last:
                found[measurement.unit] = Signal(measurement, trusted=False)
                continue
            mean, number = _known_mean(estimates.values[first:last])
            # The mean of n independent estimates has the mean variance divided by n.
            variance = _known_mean(estimates.variances[first:last])[0] / np.maximum(number, 1)
            found[measurement.unit] = Signal(
                measurement,
                _known(mean[0]),
                _known(mean[1]),
                _known(variance[0] ** 0.5),
                _known(variance[1] ** 0.5),
                bool(estimates.trusted[first:last].any()),
            )
        return estimates.notices


def _unfiltered(measurement: Measurement) -> Signal:
    cpu = [r.cpu_ratio for r in measurement.readings if r.cpu_ratio is not None]
    memory = [r.memory_ratio for r in measurement.readings if r.memory_ratio is not None]
    return Signal(
        measurement,
        sum(cpu) / len(cpu) if cpu else None,
        sum(memory) / len(memory) if memory else None,
    )


def _known_mean(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The mean over the rows of what is known in each column, NaN where nothing is; how many were known."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan), number


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
