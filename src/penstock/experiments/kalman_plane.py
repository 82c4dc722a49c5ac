"""The testbed of paper 001 as a plane: images and state queries on sharded state, read at 2 Hz.

It is a plane below the one fleet: the controller, the filters and the policy are those of every other run.
Here is only what really happens on the testbed: an instance told to start is ready after its drawn time, one
told to go hands its state over first, and the records are worked through meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.errors import ClusterError
from penstock.experiments.kalman_model import (
    HOST,
    Array,
    Testbed,
    advance,
    cloud_flavour,
    drawn_records,
    stacked,
)
from penstock.fleet.deployment import Host, HostState, InstanceState
from penstock.fleet.ports import Ground, SeenInstance, Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.monitoring.measurements import InstanceReading, Measurement
from penstock.topology.model import HostFlavour
from penstock.workload.model import Workload

NOISE_BLOCK = 64
"""Ticks whose noise is drawn at once."""


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


@dataclass(slots=True)
class _Life:
    """One instance: which slot it has, when it is ready, when it is gone."""

    name: str
    slot: int
    ready_s: float
    state: InstanceState = InstanceState.STARTING
    running_s: float | None = None
    gone_s: float = np.inf


@dataclass
class _Run:
    """The mutable side of one seed."""

    unit: str
    random: np.random.Generator
    noise: np.random.Generator
    submitted: bool = False
    lives: dict[str, _Life] = field(default_factory=dict)
    shown: tuple[SeenInstance, ...] | None = None
    """Its instances as they are reported; None after a change."""
    read: list[tuple[str, int]] = field(default_factory=list)
    """Running instances with their slots, as of `shown`."""
    next_change_s: float = np.inf
    vm_s: float = 0.0
    arrived: int = 0
    begun: int = 0

    def show(self) -> tuple[SeenInstance, ...]:
        """Its instances, and with them which of them are read: the same object while nothing changed."""
        if self.shown is None:
            # Nothing dies on this testbed and the fleet gives no name twice, so a name is an id as well.
            self.shown = tuple(
                SeenInstance(life.name, life.state, HOST, life.running_s, life.name)
                for life in self.lives.values()
            )
            self.read = [
                (life.name, life.slot) for life in self.lives.values() if life.state is InstanceState.RUNNING
            ]
        return self.shown


@dataclass(frozen=True, slots=True)
class _AlwaysUp:
    """The one machine of a private cloud: there before the run and after it, nobody leases it."""

    machine: Host

    def create(self, host: str, flavour: HostFlavour, now_s: float) -> None:
        """Refused: there is this machine and no other."""
        if host != self.machine.id:
            raise ClusterError(f"{self.machine.site} has the machine {self.machine.id} alone, not {host}")

    def delete(self, host: str, now_s: float) -> None:
        """Nothing: it stays up, whoever is done with it."""

    def hosts(self, now_s: float) -> Sequence[Host]:
        """The machine."""
        return (self.machine,)


class TestbedPlane:
    """Many independent testbeds, one a unit. It works through the time since the last look at each look."""

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
        drawn = [drawn_records(workload, seed, testbed) for workload, seed in units.values()]
        self._images, self._work = (
            stacked([d[0] for d in drawn], np.inf),
            stacked([d[1] for d in drawn], 0.0),
        )
        self._queries = stacked([d[2] for d in drawn], np.inf)
        self._area, self._chance = stacked([d[3] for d in drawn], 0.0), stacked([d[4] for d in drawn], 1.0)
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
        machine = Host(HOST, HOST, cloud_flavour(rows, testbed), HostState.UP, 0.0, 0.0)
        self.ground = Ground(self, {HOST: _AlwaysUp(machine)})
        """This plane and the machine it runs on, for a controller."""
        self._next_change_s = np.inf
        self._recut: set[int] = set()
        self._noise_left = 0
        self._noise_block: Array = np.empty(0)

    # -- the port --------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """A testbed's application is there at once."""
        self._runs[self._by_unit[submission.unit]].submitted = True
        self.tell(submission.unit, submission.wanted, self._at_s)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Start what is missing; what is not wanted any more hands its state over and goes."""
        row = self._by_unit[unit]
        run = self._runs[row]
        wished = () if wanted.stop else wanted.instances
        names = {instance.name for instance in wished}
        for life in tuple(run.lives.values()):
            if life.name in wanted.kill:
                self._drop(row, run, life)
            elif life.name not in names:
                self._retire(row, run, life, now_s)
        for instance in wished:
            if instance.name not in run.lives:
                self._start(run, instance.name, now_s)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """Work through the time since the last call and read every running instance."""
        measured = self._measured(now_s) if now_s > self._at_s else {}
        reports = [
            UnitReport(run.unit, now_s, UnitState.RUNNING, run.unit, run.show(), measured.get(run.unit))
            for run in self._runs
            if run.submitted
        ]
        return reports, ()

    # -- results ---------------------------------------------------------------------------------

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

    # -- starting and going ----------------------------------------------------------------------

    def _start(self, run: _Run, name: str, now_s: float) -> None:
        used = {life.slot for life in run.lives.values()}
        slot = next(slot for slot in range(self._free.shape[1]) if slot not in used)
        # Instances a unit starts with are there when the run begins: the run is measured, not its setup.
        ready_s = now_s if now_s <= 0.0 else now_s + run.random.uniform(*self.testbed.start_s)
        run.lives[name] = _Life(name, slot, ready_s)
        self._changes_at(run, ready_s)

    def _retire(self, row: int, run: _Run, life: _Life, now_s: float) -> None:
        """It hands its state over and finishes its image before its machine is given back."""
        if life.state is InstanceState.RETIRING:
            return
        if life.state is InstanceState.STARTING:
            self._drop(row, run, life)
            return
        self._close(row, life)
        life.state = InstanceState.RETIRING
        handed_s = now_s + self.testbed.transfer_s[1]
        life.gone_s = max(handed_s, float(self._free[row, life.slot]))
        self._changes_at(run, life.gone_s)

    def _drop(self, row: int, run: _Run, life: _Life) -> None:
        del run.lives[life.name]
        run.shown = None
        if life.state is InstanceState.RUNNING:
            self._close(row, life)

    def _close(self, row: int, life: _Life) -> None:
        self._opened[row, life.slot] = 0
        self._recut.add(row)

    def _changes_at(self, run: _Run, at_s: float) -> None:
        run.shown = None
        run.next_change_s = min(run.next_change_s, at_s)
        self._next_change_s = min(self._next_change_s, at_s)

    def _change(self, now_s: float) -> None:
        """Open instances that have become ready, drop those that are gone."""
        self._next_change_s = np.inf
        for row, run in enumerate(self._runs):
            if run.next_change_s <= now_s:
                self._change_run(row, run, now_s)
            self._next_change_s = min(self._next_change_s, run.next_change_s)

    def _change_run(self, row: int, run: _Run, now_s: float) -> None:
        run.next_change_s = np.inf
        run.shown = None
        for name, life in tuple(run.lives.items()):
            if life.gone_s <= now_s:
                del run.lives[name]
                continue
            if life.state is InstanceState.STARTING and life.ready_s <= now_s:
                alone = not self._opened[row].any()
                self._opened[row, life.slot] = 1
                self._free[row, life.slot] = now_s
                life.state, life.running_s = InstanceState.RUNNING, now_s
                if not alone:
                    self._recut.add(row)
            starting = life.state is InstanceState.STARTING
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

    # -- measuring -------------------------------------------------------------------------------

    def _measured(self, now_s: float) -> dict[str, Measurement]:
        """Work until now, and what was measured meanwhile by unit."""
        t0, t1 = self._at_s, now_s
        if self._next_change_s <= t0:
            self._change(t0)
        for row in sorted(self._recut):
            self._reshard(row, t0)
        self._recut.clear()
        bed = self.testbed
        advance(
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
        return {
            run.unit: self._read(row, run, t0, t1, cpu[row], memory[row])
            for row, run in enumerate(self._runs)
        }

    def _read(
        self, row: int, run: _Run, t0: float, t1: float, cpu: list[float], memory: list[float]
    ) -> Measurement:
        run.vm_s += (t1 - t0) * len(run.lives)
        run.show()
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

    def _noise(self) -> Array:
        """Standard normal noise for every slot's two metrics, drawn by each run's own generator in blocks."""
        if self._noise_left == 0:
            shape = (NOISE_BLOCK, 2, self._free.shape[1])
            self._noise_block = np.stack([run.noise.standard_normal(shape) for run in self._runs], axis=1)
            self._noise_left = NOISE_BLOCK
        self._noise_left -= 1
        drawn: Array = self._noise_block[self._noise_left]
        return drawn
