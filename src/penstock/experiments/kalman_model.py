"""The testbed of paper 001 as a cluster: images and state queries on sharded state, read at 2 Hz.

It is an adapter of the one control loop: the controller, the filters and the policy are those of every
other run. The general simulator has one kind of record a unit and no shards; here images (5 s SLA) share
one queue, queries (1 s SLA) go to the instance that owns the area they ask for, and every change of the
instances moves state, during which queries for moved areas wait and instances lose a moment of work.
All seeds of a configuration run side by side as units of one topology, so a tick filters all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.controller.cluster import Observation, Outcome
from penstock.infrastructure.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.monitoring.measurements import InstanceReading, Measurement
from penstock.policies.actions import Action, Hold, StartInstance, StopInstance
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
NOISE_BLOCK = 64
"""Ticks whose noise is drawn at once."""


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
def _advance(
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


@dataclass(slots=True)
class _Life:
    """One instance: which slot it has, when it is ready, when it is gone."""

    instance: Instance
    slot: int
    ready_s: float
    gone_s: float = np.inf


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run (one seed) came to."""

    images: int
    queries: int
    image_s: float
    """Mean processing time of an image."""
    query_s: float
    violations: int
    """Images and queries beyond their SLA, also those still waiting for longer than it at the end."""
    vm_h: float


@dataclass
class _Run:
    """The mutable side of one seed."""

    unit: str
    random: np.random.Generator
    noise: np.random.Generator
    lives: dict[str, _Life] = field(default_factory=dict)
    read: list[tuple[str, int]] | None = None
    """Running instances with their slots; None after a change."""
    next_change_s: float = np.inf
    vm_s: float = 0.0
    arrived: int = 0
    begun: int = 0


class TestbedCluster:
    """Many independent testbeds, one a unit, behind the port of the control loop."""

    __test__ = False  # the name begins with "Test", but it is no test

    def __init__(self, units: Mapping[str, tuple[Workload, int]], testbed: Testbed) -> None:
        """One testbed for each unit, given its workload and its seed."""
        self.testbed = testbed
        self._at_s = 0.0
        self._runs = [
            _Run(unit, np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2]))
            for unit, (_, seed) in units.items()
        ]
        self._by_unit = {run.unit: row for row, run in enumerate(self._runs)}
        drawn = [_records(workload, seed, testbed) for workload, seed in units.values()]
        self._images, self._work = (
            _stacked([d[0] for d in drawn], np.inf),
            _stacked([d[1] for d in drawn], 0.0),
        )
        self._queries = _stacked([d[2] for d in drawn], np.inf)
        self._area, self._chance = _stacked([d[3] for d in drawn], 0.0), _stacked([d[4] for d in drawn], 1.0)
        rows, slots = len(self._runs), 2 * testbed.most_instances
        self._head = np.zeros(rows, dtype=np.int64)
        self._query_head = np.zeros(rows, dtype=np.int64)
        self._arrived = np.zeros(rows, dtype=np.int64)
        self._closed_until = np.zeros(rows)
        self._moved_share = np.zeros(rows)
        self._free = np.zeros((rows, slots))
        self._opened = np.zeros((rows, slots), dtype=np.int64)
        self._busy = np.zeros((rows, slots))
        self._sums = np.zeros((rows, 6))
        self._memory = np.full(rows, 0.4)
        flavour = HostFlavour(HOST, float(rows * slots), rows * slots * 1024, Decimal(0))
        self._host = Host(HOST, HOST, flavour, HostState.UP, 0.0, 0.0)
        self._deployment: Deployment | None = None
        self._next_change_s = np.inf
        self._recut: set[int] = set()
        self._noise_left = 0
        self._noise_block: Array = np.empty(0)

    # --- the port ---

    def observe(self, now_s: float) -> Observation:
        """Work through the time since the last call and read every running instance."""
        t0, t1 = self._at_s, now_s
        if t1 <= t0:
            return Observation(now_s)
        if self._next_change_s <= t0:
            self._change(t0)
        for row in sorted(self._recut):
            self._reshard(row, t0)
        self._recut.clear()
        bed = self.testbed
        _advance(
            t0, t1, self._images, self._work, self._head, self._queries, self._area, self._chance,
            self._query_head, bed.query_s, self._closed_until, self._moved_share, self._free, self._opened,
            self._busy, self._arrived, self._sums, bed.image_slo_s, bed.query_slo_s,
        )  # fmt: skip
        self._at_s = t1
        noise = self._noise()
        cpu = np.clip(self._busy / (t1 - t0) + bed.cpu_std * noise[:, 0], 0.0, 1.0).tolist()
        # The window of the last images is cut over the instances; the program itself takes its share.
        share = 0.15 + 0.25 / np.maximum(self._opened.sum(axis=1), 1)
        self._memory += (share - self._memory) * -np.expm1(-(t1 - t0) / bed.memory_lag_s)
        memory = np.clip(self._memory[:, None] + bed.memory_std * noise[:, 1], 0.0, 1.0).tolist()
        return Observation(
            now_s,
            tuple(
                self._measured(row, run, t0, t1, cpu[row], memory[row]) for row, run in enumerate(self._runs)
            ),
        )

    def deployment(self) -> Deployment:
        """The cloud and the instances alive on it."""
        if self._deployment is None:
            self._deployment = Deployment.of(
                [self._host], [life.instance for run in self._runs for life in run.lives.values()]
            )
        return self._deployment

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Start and stop instances; nothing else can be asked of this testbed."""
        return tuple(Outcome(action, self._enact(action, now_s)) for action in actions)

    # --- results ---

    def result(self, unit: str) -> RunResult:
        """What a unit's run came to so far; images that wait count with their age."""
        row = self._by_unit[unit]
        images, image_s, late, queries, query_s, late_queries = self._sums[row]
        waiting = self._images[row, self._head[row] :]
        ages = self._at_s - waiting[waiting < self._at_s]
        all_images = images + len(ages)
        return RunResult(
            images=int(all_images),
            queries=int(queries),
            image_s=float((image_s + ages.sum()) / max(all_images, 1)),
            query_s=float(query_s / max(queries, 1)),
            violations=int(late + late_queries + np.count_nonzero(ages > self.testbed.image_slo_s)),
            vm_h=self._runs[row].vm_s / 3600.0,
        )

    # --- inside ---

    def _enact(self, action: Action, now_s: float) -> str | None:
        if isinstance(action, Hold):
            return None
        if isinstance(action, StartInstance):
            run = self._runs[self._by_unit[action.unit]]
            if action.instance in run.lives:
                return None
            used = {life.slot for life in run.lives.values()}
            slot = next(slot for slot in range(self._free.shape[1]) if slot not in used)
            # Instances a unit starts with are there when the run begins: the run is measured, not its setup.
            ready_s = now_s if now_s <= 0.0 else now_s + run.random.uniform(*self.testbed.start_s)
            instance = Instance(action.instance, action.unit, HOST, InstanceState.STARTING, requested_s=now_s)
            run.lives[action.instance] = _Life(instance, slot, ready_s)
            self._next_change_s = min(self._next_change_s, ready_s)
            run.next_change_s = min(run.next_change_s, ready_s)
        elif isinstance(action, StopInstance):
            run = self._runs[self._by_unit[action.unit]]
            life = run.lives.get(action.instance)
            if life is None or life.instance.state is InstanceState.RETIRING:
                return None
            self._retire(run, life, now_s)
        else:
            return f"this testbed only starts and stops instances, got {type(action).__name__}"
        self._deployment = None
        return None

    def _retire(self, run: _Run, life: _Life, now_s: float) -> None:
        run.read = None
        if life.instance.state is not InstanceState.RUNNING:
            del run.lives[life.instance.id]
            return
        row = self._by_unit[run.unit]
        self._opened[row, life.slot] = 0
        self._recut.add(row)
        life.instance = life.instance.moved(InstanceState.RETIRING)
        # It hands its state over and finishes its image before its machine is given back.
        handed_s = now_s + self.testbed.transfer_s[1]
        life.gone_s = max(handed_s, float(self._free[row, life.slot]))
        self._next_change_s = min(self._next_change_s, life.gone_s)
        run.next_change_s = min(run.next_change_s, life.gone_s)

    def _change(self, now_s: float) -> None:
        """Open instances that have become ready, drop those that are gone."""
        self._next_change_s = np.inf
        self._deployment = None
        for row, run in enumerate(self._runs):
            if run.next_change_s <= now_s:
                self._change_run(row, run, now_s)
            self._next_change_s = min(self._next_change_s, run.next_change_s)

    def _change_run(self, row: int, run: _Run, now_s: float) -> None:
        run.next_change_s = np.inf
        run.read = None
        for name, life in tuple(run.lives.items()):
            if life.gone_s <= now_s:
                del run.lives[name]
                continue
            if life.instance.state is InstanceState.STARTING and life.ready_s <= now_s:
                alone = not self._opened[row].any()
                self._opened[row, life.slot] = 1
                self._free[row, life.slot] = now_s
                life.instance = life.instance.moved(InstanceState.RUNNING, running_s=now_s)
                if not alone:
                    self._recut.add(row)
            starting = life.instance.state is InstanceState.STARTING
            run.next_change_s = min(run.next_change_s, life.ready_s if starting else life.gone_s)

    def _reshard(self, row: int, now_s: float) -> None:
        """Cut the plane anew for the instances there are: once a tick, however many came or went."""
        bed, opened = self.testbed, self._opened[row] == 1
        count = max(int(opened.sum()), 1)
        # Areas of 1/n and 1/(n ± 1) laid along the plane: on average half of it gets another owner.
        share = 0.5 if count > 1 else 1.0
        closed_s = now_s + self._runs[row].random.uniform(*bed.transfer_s)
        self._moved_share[row] = share
        self._closed_until[row] = max(self._closed_until[row], closed_s)
        self._free[row, opened] = np.maximum(self._free[row, opened], now_s) + bed.pause_s

    def _noise(self) -> Array:
        """Standard normal noise for every slot's two metrics, drawn by each run's own generator in blocks."""
        if self._noise_left == 0:
            shape = (NOISE_BLOCK, 2, self._free.shape[1])
            self._noise_block = np.stack([run.noise.standard_normal(shape) for run in self._runs], axis=1)
            self._noise_left = NOISE_BLOCK
        self._noise_left -= 1
        drawn: Array = self._noise_block[self._noise_left]
        return drawn

    def _measured(
        self, row: int, run: _Run, t0: float, t1: float, cpu: list[float], memory: list[float]
    ) -> Measurement:
        run.vm_s += (t1 - t0) * len(run.lives)
        if run.read is None:
            run.read = [
                (name, life.slot)
                for name, life in run.lives.items()
                if life.instance.state is InstanceState.RUNNING
            ]
        arrived, begun = int(self._arrived[row]), int(self._head[row])
        measurement = Measurement(
            run.unit,
            t1,
            t1 - t0,
            arrived=arrived - run.arrived,
            processed=begun - run.begun,
            waiting=max(arrived - begun, 0),
            readings=tuple([InstanceReading(name, cpu[slot], memory[slot]) for name, slot in run.read]),
        )
        run.arrived, run.begun = arrived, begun
        return measurement


def _records(workload: Workload, seed: int, bed: Testbed) -> tuple[Array, Array, Array, Array, Array]:
    """Images with their work, and queries with the area they ask for; the same for every filter."""
    random = np.random.default_rng([seed, 0])
    regular = arrivals(workload, 0.0, bed.duration_s)
    images = np.sort(np.maximum(regular + random.uniform(-bed.jitter_s, bed.jitter_s, len(regular)), 0.0))
    spread = np.sqrt(np.log1p(bed.image_cv**2))
    work = bed.image_s * np.exp(spread * random.standard_normal(len(images)) - spread**2 / 2)
    asked = images[random.random(len(images)) < 1.0 / bed.images_a_query]
    return images, work, asked, random.random(len(asked)), random.random(len(asked))


def _stacked(rows: Sequence[Array], filler: float) -> Array:
    """Rows of unequal length as one array, with at least one filler behind each."""
    result = np.full((len(rows), max(len(row) for row in rows) + 1), filler)
    for stacked, row in zip(result, rows, strict=True):
        stacked[: len(row)] = row
    return result


def topology_of(units: Sequence[Unit], testbed: Testbed) -> Topology:
    """The units, each a testbed of its own, on one private cloud read at 2 Hz."""
    operators = tuple(
        Operator(
            unit.name, ("images",), slo_s=testbed.image_slo_s, memory_mib=1024, stateful=True,
            service=Service(testbed.image_s, testbed.image_cv),
        )
        for unit in units
    )  # fmt: skip
    cloud = len(units) * 2 * testbed.most_instances
    flavour = HostFlavour(HOST, float(cloud), cloud * 1024, Decimal(0))
    return Topology(
        "paper-001",
        sources=(Source("images"),),
        operators=operators,
        units=tuple(units),
        sites=(Site(HOST, btu_s=86400.0, max_hosts=1, flavours=(flavour,)),),
        loop=LoopSettings(monitoring_s=testbed.reading_s, provisioning_s=testbed.reading_s),
    )
