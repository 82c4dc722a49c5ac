"""A job whose small batches cost much whatever is in them, simulated, under the real loop and `auto`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from penstock.clock import VirtualClock
from penstock.controller import Controller, Journal
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import Ground, SeenInstance, Submission, UnitReport, Wanted
from penstock.fleet.units import UnitState
from penstock.monitoring import Measurement
from penstock.providers.managed import HOST, ManagedProvider
from penstock.spark.session.work import Work
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Site, Source, Topology, Unit

SLO_S, INTERVAL_S, STEP_S = 10.0, 2.0, 0.05
FIXED_S, RECORD_S, START_S, MOST = 2.0, 0.005, 6.0, 4
LOADS = ((80, 60.0), (320, 60.0), (80, 90.0))
"""Records a second, and for how many seconds."""


@dataclass
class SimulatedBatches:
    """A plane of one unit: batches follow each other, and all executors share their work evenly."""

    work: Work = field(default_factory=Work)
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    executors: dict[str, float] = field(default_factory=lambda: {"1": 0.0})
    coming: list[float] = field(default_factory=list)
    counts: list[tuple[float, int]] = field(default_factory=list)
    now_s: float = 0.0
    waiting: float = 0.0
    arrived: float = 0.0
    batch: tuple[float, float, float] | None = None
    """When it began, its records, and the slot time it still takes."""
    finished: list[tuple[float, float]] = field(default_factory=list)
    """Duration and records of batches since the last report."""
    busy_s: float = 0.0
    service_s: float | None = None

    def submit(self, submission: Submission) -> None:
        self.tell(submission.unit, submission.wanted, 0.0)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        for name in (*wanted.retire, *wanted.kill):
            self.executors.pop(name, None)
        missing = wanted.target - len(self.executors) - len(self.coming)
        self.coming += [self.now_s + START_S] * missing
        del self.coming[len(self.coming) + min(0, missing) :]

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        while self.now_s < now_s - 1e-9:
            self._step()
        shown = tuple(SeenInstance(n, InstanceState.RUNNING, HOST, s) for n, s in self.executors.items())
        self.counts.append((now_s, len(shown)))
        return [UnitReport("job", now_s, UnitState.RUNNING, "app", shown, self._measured(now_s))], []

    def _step(self) -> None:
        self.now_s += STEP_S
        since_s = self.now_s
        for rate_per_s, seconds in LOADS:
            if 0 <= since_s < seconds:
                self.arrived += rate_per_s * STEP_S
                self.waiting += rate_per_s * STEP_S
            since_s -= seconds
        for ready_s in [ready_s for ready_s in self.coming if ready_s <= self.now_s]:
            self.coming.remove(ready_s)
            self.executors[f"{self.now_s:.2f}-{len(self.executors)}"] = self.now_s
        if self.batch is None and self.waiting >= 1:
            noise = self.chance.uniform(0.85, 1.15)
            self.batch, self.waiting = (
                (self.now_s, self.waiting, noise * FIXED_S + RECORD_S * self.waiting),
                0.0,
            )
        elif self.batch is not None:
            began_s, rows, left_s = self.batch
            worked_s = min(left_s, STEP_S * len(self.executors))
            self.busy_s += worked_s
            self.batch = (began_s, rows, left_s - worked_s) if left_s > worked_s else None
            if self.batch is None:
                self.finished.append((self.now_s - began_s, rows))

    def _measured(self, now_s: float) -> Measurement | None:
        if now_s <= 0:
            return None
        done, self.finished = self.finished, []
        arrived, self.arrived = round(self.arrived), 0.0
        rows = round(sum(records for _, records in done))
        self.work.arrive(INTERVAL_S, arrived)
        if done:
            self.service_s = self.work.record_s(len(done), rows, self.busy_s, 0.4 * SLO_S)
            self.busy_s = 0.0
        return Measurement(
            "job", now_s, INTERVAL_S, arrived, rows, rows, round(self.waiting),
            round(self.batch[1]) if self.batch else 0,
            duration_s=1.5 * sum(d for d, _ in done) / len(done) if done else None, service_s=self.service_s,
        )  # fmt: skip


def test_a_job_of_small_batches_has_many_executors_at_its_peak_alone(tmp_path: Path) -> None:
    room = HostFlavour("any", 1e4, 1 << 20, Decimal(0))
    site = Site("theirs", Choice("managed"), btu_s=365 * 86400.0, flavours=(room,), max_hosts=1)
    topology = Topology(
        "job",
        (Source("input"),),
        (Operator("job", ("input",), slo_s=SLO_S, memory_mib=1),),
        units=(Unit("job", ("job",), policy=Choice("auto"), max_instances=MOST),),
        sites=(site,),
        loop=LoopSettings(monitoring_s=INTERVAL_S, provisioning_s=INTERVAL_S),
    )
    plane = SimulatedBatches()
    with Journal(tmp_path / "journal.db", run="job") as journal:
        ground = Ground(plane, {site.name: ManagedProvider(site)})
        Controller(topology, ground, VirtualClock(0.0), journal).run(sum(seconds for _, seconds in LOADS))
    at_peak = [count for at_s, count in plane.counts if 80 <= at_s < 120]
    later = [count for at_s, count in plane.counts if at_s >= 165]
    assert min(at_peak) >= 2, "1.6 slots' work and what batches cost"
    assert max(later) <= 2, "45 s after the peak"
    assert later[-1] == 1, "0.4 slots' work and what batches cost: one does it in batches of three seconds"
