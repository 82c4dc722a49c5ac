"""From measurements to signals: each unit's readings go through the filter it chose, and so do those of its
numbers (arrivals, queue, durations, health) that its policy decides on.

Units that chose the same filter share one filter object, which sees all their instances in one call.
The journal keeps signals, not a filter's memory: a restarted controller's filters start again as at the
start of a run. That is said in a notice, and so is when a unit's estimates are trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.filters import Filter, Readings, make_filter, make_tracker
from penstock.filters.tracking import Tracker
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.registry import decides_on
from penstock.topology.model import Choice, Topology, Unit


def filtered_by(topology: Topology) -> list[tuple[str, Choice, tuple[str, ...]]]:
    """What the filters of a run depend on: each unit's filter, and what its policy decides on."""
    return [(unit.name, unit.filter, decides_on(unit.policy)) for unit in topology.units]


class Filtering:
    """The filters of a run, one for each distinct choice among the units."""

    def __init__(self, topology: Topology) -> None:
        filters: dict[Choice, Filter] = {}
        self._filter_of: dict[str, Filter | None] = {}
        """Each unit's filter, the same object for all units that chose alike; None where none filters."""
        for unit in topology.units:
            if unit.filter.name == "none":
                self._filter_of[unit.name] = None
                continue
            if unit.filter not in filters:
                filters[unit.filter] = make_filter(unit.filter)
            self._filter_of[unit.name] = filters[unit.filter]
        self._trackers = {unit.name: _trackers(unit) for unit in topology.units}
        """What smooths the numbers of a unit that its policy decides on, by the measurement's field."""
        self._last_demand: dict[str, float] = {}
        self._trusted: dict[str, bool] = {}
        """Units whose filter has started; True once its estimates were trusted."""

    def signals(self, measurements: Sequence[Measurement]) -> tuple[tuple[Signal, ...], tuple[str, ...]]:
        """The signals of these measurements, and what the filters have to say (resets and the like)."""
        found: dict[str, Signal] = {}
        groups: dict[int, tuple[Filter, list[Measurement]]] = {}
        for measurement in measurements:
            if measurement.unit not in self._filter_of:
                continue
            chosen = self._filter_of[measurement.unit]
            if chosen is None:
                found[measurement.unit] = _unfiltered(measurement)
            else:
                groups.setdefault(id(chosen), (chosen, []))[1].append(measurement)
        notices: list[str] = []
        for chosen, members in groups.values():
            notices.extend(self._filtered(chosen, members, found))
        for unit, trackers in self._trackers.items():
            if trackers and unit in found:
                found[unit] = _smoothed(found[unit], trackers)
        return tuple(found[m.unit] for m in measurements if m.unit in found), tuple(notices)

    def _filtered(
        self, chosen: Filter, members: Sequence[Measurement], found: dict[str, Signal]
    ) -> tuple[str, ...]:
        read = []
        for measurement in members:
            if measurement.readings:
                read.append(measurement)
            else:  # nobody runs yet: nothing to estimate
                found[measurement.unit] = Signal(measurement, trusted=False)
        if not read:
            return ()
        counts = np.array([len(measurement.readings) for measurement in read])
        inputs = np.repeat([self._input(measurement) for measurement in read], counts, axis=0)
        rows = [reading for measurement in read for reading in measurement.readings]
        # As floats, None becomes NaN: not read.
        values = np.array([[row.cpu_ratio, row.memory_ratio] for row in rows], dtype=np.float64)
        keys = tuple([row.instance for row in rows])
        units = tuple([measurement.unit for measurement in read for _ in measurement.readings])
        estimates = chosen.step(Readings(read[0].at_s, keys, values, inputs, units))

        first = np.cumsum(counts) - counts
        mean, number = _known_means(estimates.values, first)
        # The mean of n independent estimates has the mean variance divided by n.
        std = np.sqrt(_known_means(estimates.variances, first)[0] / np.maximum(number, 1))
        seen = _known_means(values, first)[0].tolist()
        notices = list(estimates.notices)
        trusted = np.logical_or.reduceat(estimates.trusted, first).tolist()
        for row, (measurement, ratios, stds) in enumerate(
            zip(read, mean.tolist(), std.tolist(), strict=True)
        ):
            found[measurement.unit] = Signal(
                measurement,
                _known(ratios[0]),
                _known(ratios[1]),
                _known(stds[0]),
                _known(stds[1]),
                trusted[row],
                cpu_read_ratio=_known(seen[row][0]),
                memory_read_ratio=_known(seen[row][1]),
            )
            if not self._trusted.get(measurement.unit, False):
                notices.extend(self._beginning(measurement.unit, chosen.name, trusted[row]))
        return tuple(notices)

    def _beginning(self, unit: str, name: str, trusted: bool) -> list[str]:
        """What is to be said of a unit whose filter starts, now or until now."""
        said = []
        if unit not in self._trusted:
            hold = "" if trusted else "; the unit is held until its estimates are trusted"
            said.append(f"unit {unit}: filter {name} starts without memory of earlier readings{hold}")
        elif trusted:
            said.append(f"unit {unit}: filter {name} is trusted from now on")
        self._trusted[unit] = trusted
        return said

    def _input(self, measurement: Measurement) -> tuple[float, float]:
        """The demand of one instance and its change since the last measurement."""
        # Eq. 6 of paper 001: the input is the demand of one instance, not the operator's total.
        demand = measurement.arrival_rate_per_s / max(1, len(measurement.readings))
        change = demand - self._last_demand.get(measurement.unit, demand)
        self._last_demand[measurement.unit] = demand
        return demand, change


FIELDS = {
    "arrivals": ("arrived",),
    "waiting": ("waiting",),
    "durations": ("duration_s", "duration_p95_s"),
    "service": ("service_s",),
    "health": ("processed", "arrived"),
}
"""A measurement's fields behind what a policy decides on; utilisation has filters of its own."""
_COUNTS = ("arrived", "processed", "waiting")


def _trackers(unit: Unit) -> dict[str, Tracker]:
    found = {}
    for name in decides_on(unit.policy):
        for field in FIELDS.get(name, ()):
            tracker = make_tracker(unit.filter)
            if tracker is not None:
                found[field] = tracker
    return found


def _smoothed(signal: Signal, trackers: Mapping[str, Tracker]) -> Signal:
    """The signal with what its policy decides on smoothed; the measurement itself is kept beside it."""
    taken = signal.measurement
    changes: dict[str, Any] = {}
    for field, tracker in trackers.items():
        value = getattr(taken, field)
        if value is not None:
            estimate = max(0.0, tracker.step(taken.at_s, float(value)))
            changes[field] = round(estimate) if field in _COUNTS else estimate
    return replace(signal, measurement=replace(taken, **changes), raw=taken)


def _unfiltered(measurement: Measurement) -> Signal:
    cpu = [r.cpu_ratio for r in measurement.readings if r.cpu_ratio is not None]
    memory = [r.memory_ratio for r in measurement.readings if r.memory_ratio is not None]
    return Signal(
        measurement,
        sum(cpu) / len(cpu) if cpu else None,
        sum(memory) / len(memory) if memory else None,
    )


def _known_means(
    values: NDArray[np.float64], first: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The mean of what is known in each column, by unit, NaN where nothing is; how many were known.

    A unit's rows go from its first row to the next unit's.
    """
    known = ~np.isnan(values)
    number = np.add.reduceat(known, first, axis=0, dtype=np.int64)
    total = np.add.reduceat(np.where(known, values, 0.0), first, axis=0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan), number


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
