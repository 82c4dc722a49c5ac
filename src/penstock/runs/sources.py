"""A run's generated sources: processes that write records at the pace of a workload.

They start once every unit runs, go on where they were after a crash, and are started again where one dies,
after growing pauses and up to a limit at which a person is asked.
A demo with sensors of its own gives its own `Feed`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock.channels.batches import last_batch
from penstock.channels.feeder import ALIVE, DEFAULT_SCHEMA, FINISHED, TICK_S
from penstock.channels.registry import is_durable
from penstock.errors import ClusterError
from penstock.machine.files import written
from penstock.machine.processes import ChildProcesses
from penstock.monitoring.health import health
from penstock.quantities import format_duration
from penstock.runs.anchor import clock_of
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import generated_sources
from penstock.topology.model import Topology
from penstock.trying import ASKED, Then, Tries
from penstock.workload.registry import make_workload

LOG = logging.getLogger(__name__)

FEED = "feed.json"
LEAD_S = 0.2
"""How far ahead the sources' beginning is set, so that all of them begin together."""


HEALTH_S = 60.0
"""The period over which a source's health is told."""
PAUSE_S = 5.0
"""How long a source that is to wait may take for the batch it is writing."""
LATE_S = 1.0
"""A record that was due less than this ago is not late: a batch is written after its time."""


class Feed:
    """The sources of one run. `launch` may be overridden by whoever makes records in another way."""

    def __init__(
        self,
        run: str,
        topology: Topology,
        folders: RunFolders,
        duration_s: float | None = None,
        code: str | None = None,
    ) -> None:
        self.code = code
        """The folder of the functions that make records."""
        self.topology = topology
        self.folders = folders
        self.duration_s = duration_s
        self.children = ChildProcesses(f"{run}-feeders")
        self.sources = tuple(generated_sources(topology))
        """Sources whose records are written here."""
        self._file = folders.root / FEED
        self._paused: frozenset[str] = frozenset()
        self._seen: dict[str, tuple[int, float]] = {}
        """What a feeder's sign of life last was, and since when it is, by a clock that is never set."""
        self.tries: defaultdict[str, Tries] = defaultdict(Tries)
        """How often each feeder was started again."""

    @property
    def started_s(self) -> float | None:
        """When the sources began; None before that."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(self._file.read_text())["started_s"])
        return None

    def start(self, now_s: float) -> None:
        """Let all sources begin; where what is known of an earlier beginning was lost, they go on."""
        self._begin(now_s + LEAD_S - self._position_s())
        self.launch(self.sources)

    def launch(self, sources: Collection[str]) -> None:
        """Start the processes of these sources; each goes on after the last batch it wrote."""
        start_feeders(
            self.children,
            self.topology,
            self.folders,
            self.started_s or 0.0,
            self.duration_s,
            sources,
            clock_of(self.folders.root).anchor_s,
            self.code,
        )

    @property
    def can_wait(self) -> bool:
        """Whether each source has a process of its own here, which can be let wait."""
        return type(self).launch is Feed.launch

    def pause(self, sources: Collection[str]) -> None:
        """Let these sources, and no others, wait; those that waited go on after the last batch they wrote."""
        wanted = frozenset(sources)
        on, self._paused = self._paused - wanted, wanted
        if waiting := [name for name in wanted if self.children.alive(name)]:
            self.children.stop(*waiting, grace_s=PAUSE_S)
        if on and self.started_s is not None:
            self.launch([name for name in self.unfinished() if name in on])

    def finish(self) -> None:
        """Let all sources end now, for good, with what they have written."""
        self.children.stop_all(PAUSE_S)
        for name in self.sources:
            told = {"records": 0, **self._told(name), "complete": True}
            (self.folders.sources / name).mkdir(parents=True, exist_ok=True)
            written(self.folders.sources / name / FINISHED, json.dumps(told))

    def change(self, topology: Topology) -> None:
        """Go on with another version of the topology: sources that waited write for those who read now."""
        self.topology = topology
        self.pause(())

    def take_up(self, now_s: float, *, adopted: bool) -> str | None:
        """Go on where an earlier controller of the run was; what there is to say about it.

        Where nobody was there for a while, sources go on where they were, as if no time had passed.
        """
        if self.started_s is None or not self.unfinished() or self.running():
            return None
        notice = None
        if not adopted:
            position_s = self._position_s()
            self._begin(now_s - position_s)
            notice = f"the run is taken up again, {format_duration(position_s)} into its sources"
        self.launch([name for name in self.unfinished() if name not in self._paused])
        return notice

    def watch(self, now_s: float) -> list[str]:
        """Start again what died or hung before its end; says so once, and once that a person is asked.

        Instants are of a clock that is never set.
        """
        if self.started_s is None:
            return []
        ours = [name for name in self.unfinished() if self._runs(name) and name not in self._paused]
        return [notice for name in ours for notice in self._watched(name, now_s)]

    def _watched(self, name: str, now_s: float) -> list[str]:
        tries, hung = self.tries[name], self._hangs(name, now_s)
        if hung:
            self.children.stop(name, grace_s=0.0)
        if self.children.alive(name):
            tries.well(now_s)
            return []
        then = tries.down(now_s)
        if then is Then.ASK:
            return [f"the feeder of source {name} was started {tries.count} times and did not last; {ASKED}"]
        if then is Then.TRY:
            try:
                self.launch([name])
            except (ClusterError, OSError) as error:
                LOG.warning("the feeder of source %s could not be started again: %s", name, error)
            if tries.count == 1:
                how = "hung" if hung else "died"
                return [f"the feeder of source {name} {how}; it is started again and goes on"]
        return []

    @property
    def asks(self) -> tuple[str, ...]:
        """What a person is asked to look at."""
        return tuple(f"the feeder of source {name} does not last" for name, t in self.tries.items() if t.asks)

    def running(self) -> bool:
        """Whether any of the sources' processes runs, or is about to be started again."""
        pending = {name for name, tries in self.tries.items() if tries.pending}
        return any(
            self.children.alive(name) or (name in pending and name in self.unfinished())
            for name in self.children.records
        )

    def health(self, now_s: float) -> dict[str, float | None]:
        """By source, records emitted over records due in the last minute; None where none were due.

        Whoever makes records in another way knows best what is due, and nothing is said here.
        """
        if self.started_s is None or type(self).launch is not Feed.launch:
            return {}
        at_s = now_s - self.started_s - LATE_S
        return {name: self._health(name, at_s) for name in self.sources}

    def _health(self, source: str, at_s: float) -> float | None:
        workload = self.topology.source_by_name[source].workload
        assert workload is not None
        folders = [self.folders.sources / source / unit for unit in generated_sources(self.topology)[source]]
        reached_s = min(at_s, (min(last_batch(folder) for folder in folders) + 1) * TICK_S)
        curve = make_workload(workload).curve
        until_s = at_s if self.duration_s is None else min(at_s, self.duration_s)
        before, emitted, due = (float(curve.records(t)) for t in (at_s - HEALTH_S, reached_s, until_s))
        # A record is there once half of it is due: what is due by less than one is not late.
        return health(emitted - before + 1.0, due - before) if due - before >= 1.0 else None

    def unfinished(self) -> tuple[str, ...]:
        """Sources that have not written all they had to."""
        return tuple(name for name in self.sources if not self._told(name).get("complete"))

    def records(self) -> int:
        """Records written by sources that have ended, each counted once however many units read it."""
        return sum(int(self._told(name).get("records", 0)) for name in self.sources)

    def all_arrived(self) -> bool | None:
        """Whether everything they gave rise to has come out; None where only the units can tell."""
        return None

    def stop(self) -> None:
        """Stop them."""
        self.children.stop_all(2.0)

    def _runs(self, name: str) -> bool:
        return name in self.children.records

    def _hangs(self, name: str, now_s: float) -> bool:
        """Whether a feeder that gives signs of life gave none for longer than it may be silent."""
        try:
            sign = (self.folders.sources / name / ALIVE).stat().st_mtime_ns
        except OSError:
            return False
        known, since_s = self._seen.get(name, (None, now_s))
        if sign != known or not self.children.alive(name):
            self._seen[name] = (sign, now_s)
            return False
        if now_s - since_s <= self.topology.loop.silence_s:
            return False
        self._seen.pop(name)
        return True

    def _begin(self, started_s: float) -> None:
        written(self._file, json.dumps({"started_s": started_s}))

    def _position_s(self) -> float:
        folders = [
            self.folders.sources / source / unit
            for source, units in generated_sources(self.topology).items()
            for unit in units
        ]
        return max(((last_batch(folder) + 1) * TICK_S for folder in folders), default=0.0)

    def _told(self, source: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            told = json.loads((self.folders.sources / source / FINISHED).read_text())
            return told if isinstance(told, dict) else {}
        return {}


def start_feeders(
    feeders: ChildProcesses,
    topology: Topology,
    folders: RunFolders,
    started_s: float,
    duration_s: float | None,
    only: Collection[str] | None = None,
    anchor_s: float | None = None,
    code: str | None = None,
) -> None:
    """Start a feeder for every generated source (or `only` some); again they go on where they were.

    `anchor_s` is that of the run's clock, which feeders then follow. `code` is the folder of the functions
    that make records.
    """
    for source, units in generated_sources(topology).items():
        if only is not None and source not in only:
            continue
        found = topology.source_by_name[source]
        assert found.workload is not None
        specification = {
            "source": source,
            "workload": {"name": found.workload.name, "parameters": dict(found.workload.parameters)},
            "schema": found.schema or DEFAULT_SCHEMA,
            "folders": [str(folders.sources / source / unit) for unit in units],
            "started_s": started_s,
            "duration_s": duration_s,
            "anchor_s": anchor_s,
            "records": found.records,
            "code": code,
            "durable": is_durable(topology),
        }
        folders.root.mkdir(parents=True, exist_ok=True)
        file: Path = folders.root / f"feeder-{source}.json"
        written(file, json.dumps(specification))
        command = [sys.executable, "-m", "penstock.channels.feeder", str(file)]
        feeders.start(source, command, log=folders.root / f"feeder-{source}.log")


def waited_until_s(topology: Topology, end_s: float, moved_s: float) -> float:
    """From when on nothing more is waited for: the sources' end, or the last record that was finished since.

    A source that reads by itself may never end, and then records move for ever: only its end counts.
    """
    reads_itself = any(source.function is not None for source in topology.sources)
    return end_s if reads_itself else max(end_s, moved_s)
