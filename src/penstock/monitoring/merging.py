"""Several measurements of one unit as one: what a loop that looks rarely makes of frequent reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.monitoring.measurements import Counted, InstanceReading, Measurement


def merged(measurements: Sequence[Measurement], now_s: float) -> Measurement:
    """One measurement of several consecutive ones: sums, the last backlog, means weighted by records."""
    last = measurements[-1]
    if len(measurements) == 1:
        return replace(last, at_s=now_s)
    processed = sum(m.processed for m in measurements)

    def mean(name: str) -> float | None:
        having = [(getattr(m, name), m.processed) for m in measurements if getattr(m, name) is not None]
        weight = sum(records for _, records in having)
        if not weight:
            return None
        return float(sum(value * records for value, records in having) / weight)

    on_time = [m.on_time for m in measurements if m.on_time is not None]
    return replace(
        last,
        at_s=now_s,
        interval_s=sum(m.interval_s for m in measurements),
        arrived=sum(m.arrived for m in measurements),
        processed=processed,
        emitted=sum(m.emitted for m in measurements),
        duration_s=mean("duration_s"),
        duration_p95_s=mean("duration_p95_s"),
        duration_p99_s=mean("duration_p99_s"),
        service_s=mean("service_s"),
        latency_s=mean("latency_s"),
        latency_p95_s=mean("latency_p95_s"),
        readings=_mean_readings(measurements),
        on_time=sum(on_time) if len(on_time) == len(measurements) else None,
        arrived_from=_summed([m.arrived_from for m in measurements]),
        emitted_by=_summed([m.emitted_by for m in measurements]),
        beginning=any(m.beginning for m in measurements),
    )  # fmt: skip


def _summed(counts: Sequence[Sequence[Counted]]) -> tuple[Counted, ...]:
    """Records by name over several measurements; of one that does not tell them all, nothing is told."""
    if not all(counts):
        return ()
    sums: dict[str, int] = {}
    for name, records in (counted for some in counts for counted in some):
        sums[name] = sums.get(name, 0) + records
    return tuple(Counted(name, records) for name, records in sums.items())


def _mean_readings(measurements: Sequence[Measurement]) -> tuple[InstanceReading, ...]:
    """Readings of the instances there are now, averaged over the measurements that have them."""
    result = []
    for reading in measurements[-1].readings:
        same = [r for m in measurements for r in m.readings if r.instance == reading.instance]
        cpu = [r.cpu_ratio for r in same if r.cpu_ratio is not None]
        memory = [r.memory_ratio for r in same if r.memory_ratio is not None]
        result.append(
            reading._replace(
                cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
                memory_ratio=sum(memory) / len(memory) if memory else None,
                executed=sum(r.executed for r in same),
            )
        )
    return tuple(result)
