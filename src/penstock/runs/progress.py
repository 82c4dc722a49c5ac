"""How far a run on Spark has come: what each unit did in all, and whether anything is still under way."""

from __future__ import annotations

import threading
from dataclasses import replace

from penstock.controller.journal import Journal
from penstock.monitoring import Measurement
from penstock.spark.unit.totals import UnitTotals
from penstock.topology.model import Topology

SETTLED_S = 0.5
"""What a unit sent is visible to the next one within this time."""


_RECORDS = ("arrived", "processed", "emitted", "waiting", "in_service")
_OF_AN_HOUR = (
    "unit", "at_s", "interval_s", "arrived", "processed", "emitted", "waiting", "duration_s", "latency_s",
)  # fmt: skip
_SUMMED = (*_OF_AN_HOUR, "in_service", "duration_p95_s", "duration_p99_s", "latency_p95_s")
"""What of a journalled observation goes into a unit's totals."""


class Progress:
    """Sums what units measure, as it is heard. Safe to be told and asked from several threads."""

    def __init__(self, topology: Topology) -> None:
        self.totals: dict[str, UnitTotals] = {}
        self._lock = threading.Lock()
        self._measured: dict[str, Measurement] = {}
        self._idle_from_s: dict[str, float] = {}
        """When a unit without anything to do was first measured as such."""
        self.change(topology)

    def change(self, topology: Topology) -> None:
        """Go on with another version of the topology; what units did before stays counted."""
        with self._lock:
            self.topology = topology
            for unit in topology.unit_by_name:
                self.totals.setdefault(unit, UnitTotals(topology.unit_slo_s(unit)))
            self._before = {unit: self._units_before(unit) for unit in topology.unit_by_name}

    def heard(self, measurement: Measurement) -> Measurement:
        """Take in what a unit measured; with the latency it cannot tell itself, where those before it can."""
        with self._lock:
            measured = self._with_latency(measurement)
            unit = measured.unit
            self._measured[unit] = measured
            self.totals[unit].add(measured)
            if measured.waiting or measured.in_service or measured.processed:
                self._idle_from_s.pop(unit, None)
            else:
                self._idle_from_s.setdefault(unit, measured.at_s)
            return measured

    def take_up(self, journal: Journal) -> None:
        """Go on with the sums of an earlier controller, out of the journal; what was trimmed by its hours."""
        old = [{name: row[name] for name in _OF_AN_HOUR} for row in journal.thinned()]
        with self._lock:
            for row in (*old, *journal.rows("observation", _SUMMED)):
                if row["unit"] in self.totals:
                    whole = {name: int(row[name] or 0) for name in _RECORDS if name in row}
                    self.totals[row["unit"]].add(Measurement(**{**row, **whole}))

    def processed(self) -> int:
        """Records all units have finished."""
        with self._lock:
            return sum(total.processed for total in self.totals.values())

    def idle(self, since_s: float) -> bool:
        """Whether nothing waits or is under way in any unit, with sources that ended at `since_s`.

        A unit counts only if it was measured after those before it had become idle: what they sent last
        would have been seen.
        """
        with self._lock:
            for unit in self.topology.unit_by_name:
                if unit not in self._idle_from_s:
                    return False
                before_s = [since_s, *map(self._idle_from_s.get, self._before[unit])]
                measured_s = self._measured[unit].at_s
                if any(idle_s is None or measured_s < idle_s + SETTLED_S for idle_s in before_s):
                    return False
            return True

    def _units_before(self, unit: str) -> set[str]:
        topology = self.topology
        inputs = {
            name
            for operator in topology.unit_by_name[unit].operators
            for name in topology.operator_by_name[operator].inputs
        }
        return {topology.unit_of[name] for name in inputs if name in topology.unit_of} - {unit}

    def _with_latency(self, measurement: Measurement) -> Measurement:
        """A measurement with latencies where a unit cannot tell them itself, as one that reads from Kafka.

        Records arrive as old as they left the unit before, and stay for as long as they are processed.
        """
        if measurement.latency_s is not None or measurement.duration_s is None:
            return measurement
        before = [self._measured.get(unit) for unit in self._before[measurement.unit]]
        ages_s = [m.latency_s for m in before if m is not None and m.latency_s is not None]
        if not ages_s:
            return measurement
        age_s, p95_s = max(ages_s), measurement.duration_p95_s
        return replace(
            measurement,
            latency_s=age_s + measurement.duration_s,
            latency_p95_s=None if p95_s is None else age_s + p95_s,
        )
