"""The same reports in batch: plain loops over the positions that were sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from cabs.operators import between_km
from cabs.rides import Position


def reports(positions: Iterable[Position]) -> dict[str, tuple[float, float]]:
    """(average speed in km/h, distance in km) of every ride that is over."""
    rides: dict[str, list[Position]] = {}
    for position in positions:
        rides.setdefault(position.ride, []).append(position)
    found = {}
    for name, ride in rides.items():
        if not ride[-1].last:
            continue
        speeds, lengths = [], []
        for before, after in itertools.pairwise(ride):
            km = between_km((before.latitude, before.longitude), (after.latitude, after.longitude))
            hours = (after.at_s - before.at_s) / 3600
            lengths.append(km)
            speeds.append(km / hours if hours > 0 else 0.0)
        found[name] = (sum(speeds) / len(speeds), sum(lengths))
    return found
