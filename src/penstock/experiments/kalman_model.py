"""The testbed of paper 001: its numbers, its records and how they are worked through.

The general simulator has one kind of record a unit and no shards; here images (5 s SLA) share one queue,
queries (1 s SLA) go to the instance that owns the area they ask for, and every change of the instances
moves state, during which queries for moved areas wait and instances lose a moment of work.
All seeds of a configuration run side by side as units of one topology, so a tick filters all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.topology.model import (
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Site,
    Source,
    Topology,
    Unit,
)
from penstock.workload.arrivals import arrivals
from penstock.workload.model import Workload

Array = NDArray[np.float64]
HOST = "cloud"


@dataclass(frozen=True, slots=True)
class Testbed:
    """The numbers of the testbed: the paper's, and marked as ours where the paper gives none."""

    __test__: ClassVar[bool] = False  # the name begins with "Test", but it is no test

    duration_s: float = 2700.0
    """Paper 001, section 3.3: one run lasts 45 minutes."""
    reading_s: float = 0.5
    """Paper 001, section 2.5: measurements at 2 Hz."""
    image_slo_s: float = 5.0
    query_slo_s: float = 1.0
    images_a_query: float = 100.0
    start_s: tuple[float, float] = (5.0, 25.0)
    """Paper 001, section 3.1: an instance is ready after 5 to 25 s, boot and state transfer together."""
    most_instances: int = 32
    """Eight nodes of four cores, one core an instance."""
    image_s: float = 0.22
    """Ours: 8 h of VM time in 0.75 h at a mean of 30 images/s and some 62 % utilisation (Table 3)."""
    image_cv: float = 0.25
    query_s: float = 0.05
    jitter_s: float = 0.01
    """Ours: how far a submitted image may be off its regular instant (1.3 MB take 10 ms at 1 Gbit/s)."""
    transfer_s: tuple[float, float] = (1.0, 4.0)
    """Ours: how long the areas that change hands are closed to queries after a change of the instances."""
    pause_s: float = 0.2
    """Ours: work each instance spends on handing over state at each change; it takes no image meanwhile."""
    cpu_std: float = 0.03
    """Ours: noise of a CPU reading (Figure 7 shows a few per cent)."""
    memory_lag_s: float = 3.0
    """Ours: memory follows the moved state with this time constant."""
    memory_std: float = 0.002
    """Paper 001, section 3.3: almost no noise in memory."""


@njit(cache=True)  # type: ignore[untyped-decorator]
def advance(
    t0: float,
    t1: float,
    images: Any,  # (runs, most): arrival instants, inf behind the last one
    work: Any,  # (runs, most): service times
    head: Any,  # (runs,): first image not begun
    queries: Any,  # (runs, most queries): arrival instants
    area: Any,  # (runs, most queries): where in the plane, 0 to 1
    chance: Any,  # (runs, most queries): below the moved share, the area is among those that moved
    query_head: Any,
    query_s: float,
    closed_until: Any,  # (runs,): end of the state transfer
    moved_share: Any,  # (runs,): share of the plane that changed hands
    free: Any,  # (runs, slots): when each slot is free
    opened: Any,  # (runs, slots): 1 where it takes work
    busy: Any,  # (runs, slots): out, time worked in the window
    arrived: Any,  # (runs,): images that have arrived before t1 (counted on)
    sums: Any,  # (runs, 6): added to: images, their durations, late; queries, their durations, late
    image_slo_s: float,
    query_slo_s: float,
) -> None:
    """Work through one window, record by record: queries go before images at the instance they need."""
    runs, slots = free.shape
    for r in range(runs):
        for i in range(slots):
            busy[r, i] = min(max(free[r, i] - t0, 0.0), t1 - t0)
        while images[r, arrived[r]] < t1:
            arrived[r] += 1
        count = 0
        for i in range(slots):
            count += opened[r, i]
        while True:
            first = -1
            for i in range(slots):
                if opened[r, i] == 1 and (first < 0 or free[r, i] < free[r, first]):
                    first = i
            begin = max(images[r, head[r]], free[r, first]) if first >= 0 else np.inf
            begin = max(begin, t0)
            asked = queries[r, query_head[r]]
            if min(begin, asked) >= t1:
                break
            if asked <= begin:
                wanted = min(int(area[r, query_head[r]] * count), count - 1)
                owner = -1
                for i in range(slots):
                    if opened[r, i] == 1:
                        if wanted == 0:
                            owner = i
                            break
                        wanted -= 1
                if chance[r, query_head[r]] < moved_share[r] and closed_until[r] > asked:
                    end = max(closed_until[r], free[r, owner]) + query_s
                else:
                    start = max(asked, free[r, owner])
                    end = start + query_s
                    busy[r, owner] += max(0.0, min(end, t1) - max(start, t0))
                    free[r, owner] = end
                sums[r, 3] += 1
                sums[r, 4] += end - asked
                if end - asked > query_slo_s:
                    sums[r, 5] += 1
                query_head[r] += 1
            else:
                end = begin + work[r, head[r]]
                busy[r, first] += min(end, t1) - begin
                free[r, first] = end
                lasted = end - images[r, head[r]]
                sums[r, 0] += 1
                sums[r, 1] += lasted
                if lasted > image_slo_s:
                    sums[r, 2] += 1
                head[r] += 1


def drawn_records(workload: Workload, seed: int, bed: Testbed) -> tuple[Array, Array, Array, Array, Array]:
    """Images with their work, and queries with the area they ask for; the same for every filter."""
    random = np.random.default_rng([seed, 0])
    regular = arrivals(workload, 0.0, bed.duration_s)
    images = np.sort(np.maximum(regular + random.uniform(-bed.jitter_s, bed.jitter_s, len(regular)), 0.0))
    spread = np.sqrt(np.log1p(bed.image_cv**2))
    work = bed.image_s * np.exp(spread * random.standard_normal(len(images)) - spread**2 / 2)
    asked = images[random.random(len(images)) < 1.0 / bed.images_a_query]
    return images, work, asked, random.random(len(asked)), random.random(len(asked))


def stacked(rows: Sequence[Array], filler: float) -> Array:
    """Rows of unequal length as one array, with at least one filler behind each."""
    result = np.full((len(rows), max(len(row) for row in rows) + 1), filler)
    for stacked, row in zip(result, rows, strict=True):
        stacked[: len(row)] = row
    return result


def cloud_flavour(units: int, testbed: Testbed) -> HostFlavour:
    """The one machine of the private cloud: room for every testbed's instances, old and new."""
    slots = units * 2 * testbed.most_instances
    return HostFlavour(HOST, float(slots), slots * 1024, Decimal(0))


def topology_of(units: Sequence[Unit], testbed: Testbed) -> Topology:
    """The units, each a testbed of its own, on one private cloud read at 2 Hz."""
    operators = tuple(
        Operator(
            unit.name, ("images",), slo_s=testbed.image_slo_s, memory_mib=1024, stateful=True,
            service=Service(testbed.image_s, testbed.image_cv),
        )
        for unit in units
    )  # fmt: skip
    flavour = cloud_flavour(len(units), testbed)
    return Topology(
        "paper-001",
        sources=(Source("images"),),
        operators=operators,
        units=tuple(units),
        sites=(Site(HOST, btu_s=86400.0, max_hosts=1, flavours=(flavour,)),),
        loop=LoopSettings(monitoring_s=testbed.reading_s, provisioning_s=testbed.reading_s),
    )
