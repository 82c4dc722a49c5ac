"""Measurements and signals: the two named types between the cluster and a policy.

A measurement is what one unit did over one monitoring interval, as the cluster reported it.
A signal is the same after the unit's filter: it adds the estimated utilisation and its spread.
None means "not known", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class InstanceReading(NamedTuple):  # a tuple, for there are many of them
    """Utilisation of one instance over the interval, as measured (noisy, clamped at 1)."""

    instance: str
    cpu_ratio: float | None = None
    memory_ratio: float | None = None
    executed: int = 0
    """Records this instance finished in the interval."""


class Counted(NamedTuple):
    """Records of one source or operator."""

    name: str
    records: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one unit did over one monitoring interval."""

    unit: str
    """Whose it is."""
    at_s: float
    """The end of the interval."""
    interval_s: float
    """How long the interval was."""
    arrived: int = 0
    """Records that came in during the interval."""
    processed: int = 0
    """Records finished during the interval."""
    emitted: int = 0
    """Records sent on during the interval, to all successors together."""
    waiting: int = 0
    """Records that wait at the end of the interval; records in service do not count."""
    in_service: int = 0
    """Records that are being worked on at its end."""
    duration_s: float | None = None
    """Mean processing duration (waiting plus service) of the records finished in the interval."""
    duration_p95_s: float | None = None
    """The duration that 95 of 100 records keep."""
    duration_p99_s: float | None = None
    """The duration that 99 of 100 records keep."""
    service_s: float | None = None
    """Mean time an instance's slot worked on one record, without waiting."""
    arrival_cv: float | None = None
    """Coefficient of variation of the times between arrivals."""
    service_cv: float | None = None
    """Coefficient of variation of the service times."""
    latency_s: float | None = None
    """Mean age of the records finished in the interval, from their source on."""
    latency_p95_s: float | None = None
    """The age that 95 of 100 records keep."""
    readings: tuple[InstanceReading, ...] = ()
    """Utilisation of each instance."""
    on_time: int | None = None
    """Records finished in the interval that kept the SLO, where they were counted."""
    arrived_from: tuple[Counted, ...] = ()
    """What came in, by the source or operator it came from; empty where it is not known, or one's alone."""
    emitted_by: tuple[Counted, ...] = ()
    """What was sent on, by the operator it left behind, each record once however many take it; the same."""
    beginning: bool = False
    """Whether it is a unit's first work: it starts and compiles, and says nothing of what the unit can do."""
    kept_slots: int = 0
    """Slots that are in use all the time, as by a query in real time: with fewer of them it would end."""

    @property
    def arrival_rate_per_s(self) -> float:
        """Records that came in, per second."""
        return self.arrived / self.interval_s if self.interval_s > 0 else 0.0

    @property
    def processing_rate_per_s(self) -> float:
        """Records finished, per second."""
        return self.processed / self.interval_s if self.interval_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Signal:
    """A measurement after the unit's filter, with the estimated utilisation of its instances."""

    measurement: Measurement
    cpu_ratio: float | None = None
    """Mean CPU utilisation over the instances; an estimate may exceed 1 (demand beyond capacity)."""
    memory_ratio: float | None = None
    cpu_std: float | None = None
    """Standard deviation of the CPU estimate, where the filter knows it."""
    memory_std: float | None = None
    trusted: bool = True
    """False while the filter is still starting up or was just reset."""
    raw: Measurement | None = None
    """The measurement as it was taken, where the filter smoothed what its policy decides on."""
    cpu_read_ratio: float | None = None
    """Mean CPU utilisation as it was read, where `cpu_ratio` is a filter's estimate."""
    memory_read_ratio: float | None = None

    @property
    def taken(self) -> Measurement:
        """The measurement as it was taken."""
        return self.measurement if self.raw is None else self.raw

    @property
    def unit(self) -> str:
        """The unit this is about."""
        return self.measurement.unit

    @property
    def at_s(self) -> float:
        """The end of the interval."""
        return self.measurement.at_s
