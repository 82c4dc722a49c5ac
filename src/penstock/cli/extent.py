"""How much a simulation would be: one that would not end within a working day is refused before it starts."""

from __future__ import annotations

from penstock.errors import ConfigurationError
from penstock.quantities import format_duration
from penstock.topology.model import Topology
from penstock.workload.registry import make_workload

MOST_TICKS = 5_000_000
"""Observations of one simulation: two years of the default 15 seconds."""
MOST_RECORDS = 2e10
"""Records of one simulation, over all its sources."""


def refuse_endless(topology: Topology, length_s: float) -> None:
    """ConfigurationError where so long a simulation has more ticks or records than anybody would wait for."""
    interval_s = min(topology.loop.monitoring_s, topology.loop.provisioning_s)
    if length_s / interval_s > MOST_TICKS:
        raise ConfigurationError(
            f"{format_duration(length_s)} are {length_s / interval_s:.3g} intervals of {interval_s:g} s, "
            f"more than {MOST_TICKS:,}; simulate a shorter time or monitor less often"
        )
    for source in topology.sources:
        if source.workload is None:
            continue
        records = float(make_workload(source.workload).curve.records(length_s)) * source.share
        if records > MOST_RECORDS:
            raise ConfigurationError(
                f'source "{source.name}" would emit {records:.3g} records in {format_duration(length_s)}, '
                f"more than {MOST_RECORDS:g}; simulate a shorter time or a lower rate"
            )
