"""How long one tick of each filter takes for 10,000 instances with two metrics."""

from __future__ import annotations

import statistics
import time

import numpy as np

from penstock.filters import FILTERS, Readings, make_filter
from penstock.report.figures import Figure
from penstock.topology.model import Choice

INSTANCES = 10_000
UNITS = 100
WARM_TICKS = 130
"""More than the Gaussian's window at 2 Hz, and than the Kalman filter's start."""
TIMED_TICKS = 40
BAR_MS = 20.0


def tick_ms(name: str) -> float:
    """The median time of one tick once the filter is fully at work, some instances changing all the while."""
    random = np.random.default_rng(1)
    filter_ = make_filter(Choice(name))
    keys = tuple(f"unit{i % UNITS}-{i}" for i in range(INSTANCES))
    taken_ms = []
    for tick in range(WARM_TICKS + TIMED_TICKS):
        if tick % 10 == 9:
            # One instance goes, one comes: the rows have to be found anew.
            keys = (*keys[1:], f"unit0-{INSTANCES + tick}")
        values = np.clip(random.normal(0.6, 0.05, (INSTANCES, 2)), 0.0, 1.0)
        inputs = np.column_stack([np.full(INSTANCES, 3.0), random.normal(0.0, 0.05, INSTANCES)])
        readings = Readings(0.5 * tick, keys, values, inputs)
        begun = time.perf_counter()
        filter_.step(readings)
        if tick >= WARM_TICKS:
            taken_ms.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken_ms)


def figures() -> list[Figure]:
    """One figure a filter."""
    found = []
    for name in FILTERS:
        taken_ms = tick_ms(name)
        found.append(
            Figure(
                f"filter {name}: one tick of {INSTANCES:,} instances × 2 metrics",
                taken_ms,
                bar=f"< {BAR_MS:g} ms",
                holds=taken_ms < BAR_MS,
                unit="ms",
            )
        )
    return found


if __name__ == "__main__":
    from penstock.report.figures import print_figures

    print_figures(figures(), "filters")
