"""The taxi scenario of paper 003: 75 rides whose positions are replayed within 110 minutes.

Rides are the moving parts of a real day of taxi positions where that file is at hand, else drawn with a
seed. One day is played in 110 minutes and every position stands for as many records as make 50,742.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np

from penstock.errors import ConfigurationError
from penstock.experiments.recordings import TAXIS
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

RIDES = 75
LOCATIONS = 50_742
REPLAY_S = 6600.0
DAY_S = 86_400.0
PAUSE_S = 3600.0
"""A taxi that stands longer than this has ended its ride."""
BIN_S = 60.0
"""The arrival rate is taken over bins of so many seconds of the replay."""
SETTLE_S = 1800.0
"""Simulated time after the last position, for what is left to be worked off."""

UNDER = {"speed": 5, "average_speed": 6, "aggregation": 2, "distance": 1, "analysis": 1, "monitor": 1}
OVER = {"speed": 8, "average_speed": 10, "aggregation": 3, "distance": 1, "analysis": 1, "monitor": 1}
"""Table II: nodes of each operator."""

SERVICE_S = {
    "speed": 0.36,
    "average_speed": 0.46,
    "aggregation": 0.13,
    "distance": 1.0,
    "analysis": 4.0,
    "monitor": 0.03,
}
"""Seconds one record takes. The paper does not say; these make Table II's smaller setup fall behind over
the busy part of the day and its larger one keep up, which is what the paper picked the two setups for."""

SITES = {
    "speed": "singapore",
    "aggregation": "sydney",
    "average_speed": "tokyo",
    "distance": "ireland",
    "monitor": "oregon",
    "analysis": "private",
}
"""Where each operator runs (Section V-A-4)."""


@dataclass(frozen=True, slots=True)
class Rides:
    """The rides of a replay: when each ends, and how many positions come in each bin."""

    ends_s: tuple[float, ...]
    per_bin: tuple[int, ...]
    origin: str
    """Where they come from, in words."""

    def levels_per_s(self) -> tuple[float, ...]:
        """Records a second in each bin, so that all bins together have `LOCATIONS` records."""
        total = sum(self.per_bin)
        return tuple(count * LOCATIONS / total / BIN_S for count in self.per_bin)


def recorded_rides(path: Path) -> Rides:
    """The longest 75 rides of a recorded day: a taxi's moving positions, cut at long pauses."""
    moving: dict[str, list[float]] = {}
    with path.open(newline="") as file:
        for line, row in enumerate(csv.reader(file), 1):
            try:
                speed, at_s = float(row[5]), datetime.fromisoformat(row[2]).timestamp()
            except (IndexError, ValueError):
                raise ConfigurationError(
                    f"{path}:{line}: expected the columns {TAXIS.columns}, got {','.join(row)!r}"
                ) from None
            if speed > 0:
                moving.setdefault(row[1], []).append(at_s)
    rides: list[list[float]] = []
    for times in moving.values():
        times.sort()
        cuts = [i for i in range(1, len(times)) if times[i] - times[i - 1] > PAUSE_S]
        rides += [times[a:b] for a, b in zip([0, *cuts], [*cuts, len(times)], strict=True)]
    rides.sort(key=len, reverse=True)
    return _replayed(rides[:RIDES], f"the {RIDES} longest rides of {path.name}")


def drawn_rides(seed: int) -> Rides:
    """Rides drawn with a seed: they begin over the day, most in its second half, and last some hours."""
    rng = np.random.default_rng(seed)
    begins = DAY_S * np.clip(rng.beta(3.0, 2.2, RIDES), 0.0, 0.97)
    lengths = np.minimum(rng.lognormal(np.log(9000.0), 0.5, RIDES), DAY_S - begins)
    rides = [list(np.arange(b, b + n, 60.0)) for b, n in zip(begins, lengths, strict=True)]
    return _replayed(rides, f"{RIDES} rides drawn with seed {seed}")


def _replayed(rides: list[list[float]], origin: str) -> Rides:
    first = min(times[0] for times in rides)
    last = max(times[-1] for times in rides)
    scale = REPLAY_S / (last - first)
    played = np.sort(np.concatenate([np.asarray(times) for times in rides]) - first) * scale
    counts, _ = np.histogram(played, bins=np.arange(0.0, REPLAY_S + BIN_S / 2, BIN_S))
    ends = tuple(sorted((times[-1] - first) * scale for times in rides))
    return Rides(ends, tuple(int(count) for count in counts), origin)


def taxi_topology(rides: Rides, policy: Choice, nodes: dict[str, int] | None = None) -> Topology:
    """Figure 3's topology, one operator a unit and one instance a host, each operator at its own site.

    `nodes` are the instances each unit starts with; one each where none are given.
    """
    nodes = nodes or dict.fromkeys(SERVICE_S, 1)
    per_ride = RIDES / LOCATIONS
    inputs: dict[str, tuple[tuple[str, ...], float]] = {
        "monitor": (("taxis",), 1.0),
        "speed": (("taxis",), 1.0),
        "aggregation": (("taxis",), per_ride),
        "average_speed": (("speed",), per_ride),
        "distance": (("aggregation",), 1.0),
        "analysis": (("average_speed", "distance"), 1.0),
    }
    # One position more than the replay has keeps the last bin from being cut; nothing comes after it.
    levels = (*rides.levels_per_s(), *[0.0] * round(2 * SETTLE_S / BIN_S))
    workload = Choice("stepwise", {"levels_per_s": levels, "hold_s": BIN_S})
    # t2.micro: one core, 1 GiB; a node is paid by the minute in the paper's cost.
    flavour = HostFlavour("micro", 1.0, 1024, Decimal(60))
    return Topology(
        "taxi",
        (Source("taxis", workload=workload),),
        tuple(
            Operator(
                name,
                sources,
                slo_s=2 * SERVICE_S[name],
                cores=1.0,
                memory_mib=900,
                ratio=ratio,
                service=Service(SERVICE_S[name]),
            )
            for name, (sources, ratio) in inputs.items()
        ),
        (Sink("reports", ("analysis",)),),
        units=tuple(
            Unit(
                name,
                (name,),
                sites=(SITES[name],),
                policy=policy,
                max_instances=50,
                initial_instances=nodes[name],
            )
            for name in inputs
        ),
        sites=tuple(
            Site(site, btu_s=3600.0, flavours=(flavour,), distance_s=dict.fromkeys(SITES.values(), 0.1))
            for site in SITES.values()
        ),
        loop=LoopSettings(monitoring_s=15.0, provisioning_s=60.0),
    )
