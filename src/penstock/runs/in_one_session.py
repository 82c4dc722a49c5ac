"""Runs a topology in one `local[*]` session, for development: the same queries, no cluster, no elasticity.

Every unit's query is started in the one session, feeders write in real time as in a real run, channels are
the real ones. What is not there: hosts, leases, instances, the controller.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.channels.feeder import FINISHED
from penstock.channels.registry import jars_of
from penstock.errors import ClusterError
from penstock.machine.folders import private_folder
from penstock.machine.processes import ChildProcesses
from penstock.runs.sources import start_feeders
from penstock.spark.settings import start_session
from penstock.spark.unit.faults import Skipped, decide
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import generated_sources, plan_unit
from penstock.spark.unit.query import UnitQuery
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalUnitResult:
    """What one unit did in a local run."""

    processed: int = 0
    batches: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class LocalResult:
    """What a local run did."""

    records_in: int
    units: Mapping[str, LocalUnitResult] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


class LocalRun:
    """All units of a topology in one session; stop it when done."""

    def __init__(self, spark: Any, topology: Topology, folder: Path, bootstrap: str | None = None) -> None:
        self.spark = spark
        self.topology = topology
        self.folders = RunFolders(folder.resolve())
        self.notices: list[str] = []
        self._attempts: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._processed: dict[str, int] = {unit.name: 0 for unit in topology.units}
        self._batches: dict[str, int] = {unit.name: 0 for unit in topology.units}
        self._seen: dict[str, tuple[str, int]] = {}
        self.queries = {}
        self._skipped = {}
        for unit in topology.units_in_order:
            skipped = Skipped(self.folders.dead_letters(unit.name))
            self._skipped[unit.name] = skipped
            self.queries[unit.name] = UnitQuery(
                spark, topology, unit.name, self.folders, bootstrap, skipped.ids()
            )
        self.running: dict[str, Any] = {}

    def start(self) -> None:
        """Start every unit's query, from its checkpoint where there is one."""
        for name, query in self.queries.items():
            self.running[name] = query.start()
            for told in query.mended():
                self._say(f"unit {name}: {told}")

    def check(self) -> None:
        """Count what was done, clean up behind, and start again what failed where that may help."""
        for name, query in self.queries.items():
            running = self.running[name]
            self._count(name, running)
            if not running.isActive:
                if (error := running.exception()) is not None:
                    attempt = self._attempts[name] = self._attempts.get(name, -1) + 1
                    self._say(f"unit {name}: {decide(query, error, attempt, self._skipped[name])}")
                try:
                    self.running[name] = query.start()
                except (OSError, ClusterError) as problem:
                    # The disk is still full, or a server away; the next check tries again.
                    self._say(f"unit {name} cannot start: {problem}")
            query.clean()
            for told in filter(None, (query.publishing_problem, query.cleaning_problem)):
                if self._problems.get(name) != told:
                    self._problems[name] = told
                    self._say(f"unit {name}: {told}")

    def _say(self, notice: str) -> None:
        LOG.warning("%s", notice)
        self.notices.append(notice)

    def process_all(self) -> None:
        """Block until everything that lies in the sources has gone through every unit, in order."""
        for name in self.queries:
            while True:
                try:
                    self.running[name].processAllAvailable()
                    self.queries[name].publish()
                    self._count(name, self.running[name])
                    break
                except Exception:
                    self.check()

    def stop(self) -> None:
        """Stop every query; what waits stays in the channels."""
        for name, running in self.running.items():
            with contextlib.suppress(Exception):
                running.stop()
            self.queries[name].stop_publishing()
            self._count(name, running)

    def result(self) -> LocalResult:
        """What was done so far."""
        records_in = 0
        for source in generated_sources(self.topology):
            with contextlib.suppress(OSError, ValueError, KeyError):
                records_in += json.loads((self.folders.sources / source / FINISHED).read_text())["records"]
        units = {
            name: LocalUnitResult(self._processed[name], self._batches[name], query.backlog().waiting)
            for name, query in self.queries.items()
        }
        return LocalResult(records_in, units, tuple(self.notices))

    def _count(self, name: str, running: Any) -> None:
        for progress in running.recentProgress:
            run, last = self._seen.get(name, ("", -1))
            number = int(progress["batchId"])
            if progress["numInputRows"] and (run != progress["runId"] or number > last):
                self._seen[name] = (progress["runId"], number)
                self._processed[name] += int(progress["numInputRows"])
                self._batches[name] += 1


def run_locally(
    topology: Topology,
    folder: Path,
    *,
    duration_s: float | None = None,
    code: Path | None = None,
    bootstrap: str | None = None,
    settings: Mapping[str, str] | None = None,
    watch: Callable[[LocalResult], None] | None = None,
) -> LocalResult:
    """Run all units in this process for a duration (None: until Ctrl-C), then until nothing waits."""
    for unit in topology.units:
        plan_unit(topology, unit.name)
    if code is not None:
        sys.path.insert(0, str(code.resolve()))
    user = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "100000", **dict(settings or {})}
    if jars := jars_of(topology):
        user["spark.jars"] = ",".join(str(jar) for jar in jars)
    spark = start_session(topology.name, "local[*]", settings=user)
    feeders = ChildProcesses(f"local-{topology.name}-feeders")
    run = LocalRun(spark, topology, private_folder(folder), bootstrap)
    try:
        run.start()
        started_s = time.time()
        start_feeders(
            feeders,
            topology,
            run.folders,
            started_s,
            duration_s,
            code=None if code is None else str(code.resolve()),
        )
        sources = tuple(generated_sources(topology))
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(0.5)
                run.check()
                if watch is not None:
                    watch(run.result())
                over = duration_s is not None and time.time() >= started_s + duration_s
                if over or (sources and not any(feeders.alive(source) for source in sources)):
                    break
        feeders.stop_all(3.0)
        run.process_all()
        return run.result()
    finally:
        feeders.stop_all(2.0)
        run.stop()
        spark.stop()
