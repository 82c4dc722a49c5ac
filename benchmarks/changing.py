"""A run that is changed over the API of a service, and what is measured of that: the ground of `make sites`.

Records are numbered, so that those that come out are held against those that went in. Pauses are read from
the instants at which batches came out: the longest time without one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kinds import CHANGES, CODE, ENDS, FIRST, LIGHT, MOVES
from benchmarks.rigged import ENVIRONMENT, ROOT, Api, Sites
from penstock.channels.batches import BatchFolder, batches_in
from penstock.channels.sinks import read_results
from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.runs.folder import RunFolder
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology
from penstock.topology.model import Topology

RUN = "changing"
WARM_S = 20.0
"""The first batches of a Java that has just started are later than usual: they are no measure."""
CALM_S = 120.0
"""How long nothing is changed at the beginning, to see what is usual: a batch a second. Of a minute the 99th
percentile is little more than the latest of sixty."""
LONGEST_S = 600.0
"""After so long no further kind of change is begun in a part."""
PATIENCE_S = 330.0
"""Far beyond what a change takes, for machines that do much else."""


class Service(Api):
    """A service of its own on this machine, and its API."""

    def __init__(self, folder: Path, *, journal: str | None = None, log: str = "service.log") -> None:
        """`journal` is the URL of the journal that a pair of services shares."""
        super().__init__(folder / "runs")
        self.root.mkdir(parents=True, exist_ok=True)
        self._told = folder / log
        self._log = self._told.open("ab")
        command = [sys.executable, "-m", "penstock.cli.main", "serve", str(self.root), "--port", "0"]
        environment = {**ENVIRONMENT, **({} if journal is None else {"PENSTOCK_JOURNAL": journal})}
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def ready(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            for line in self._told.read_text().splitlines():
                for word in line.split():
                    if word.startswith("http://127.0.0.1:") and "/api/v1" in word:
                        self.base = word.rstrip(".,;)")
            return bool(self.base)

        if not wait_until(answers, 60.0):
            raise ClusterError(f"the service did not come up: {self._told.read_text()}")

    def stop(self) -> None:
        """End it; its runs go on."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        self._log.close()


@dataclass(frozen=True, slots=True)
class Made:
    """One change that was made."""

    name: str
    asked_s: float
    """By the wall's clock."""
    done_s: float
    """When every unit ran again."""
    touched: tuple[str, ...]

    @property
    def took_s(self) -> float:
        """From the wish to the first record made after it that came out of every sink."""
        return self.done_s - self.asked_s


class Changed:
    """A run that is changed over the API, and what is known of it."""

    def __init__(self, service: Api, *others: Api) -> None:
        """`others` are the services of other sites, where each has a run of its own."""
        self.service, self.services, self.name = service, (service, *others), RUN
        self.places = tuple(RunFolder(each.root / RUN) for each in self.services)
        self.place = self.places[0]
        self.made: list[Made] = []

    def start(self, code: Path | str) -> None:
        """Start it, and wait until records come out of every sink."""
        body = {"name": self.name, "topology": dump_topology(FIRST), "code": str(code)}
        status, answer = self.service.ask("/runs", body)
        if status != 202:
            raise ClusterError(f"the run was not started: {answer}")
        self.begun()

    def begun(self) -> None:
        """Wait until records come out of every sink."""
        started = wait_until(lambda: all((p.root / "plan.json").exists() for p in self.places), PATIENCE_S)
        if not started:
            raise ClusterError("the run did not begin")
        self.wait(lambda: all(map(self.newest, ENDS)), "records came out")

    def revision(self) -> int:
        """The version that runs."""
        return self.place.plan().revision

    def attempts(self) -> dict[str, str]:
        """Which start each unit is."""
        found: dict[str, str] = {}
        for place in self.places:
            for file in sorted((place.root / "units").glob("*/attempt")):
                found[file.parent.name] = f"{found.get(file.parent.name, '')} {file.read_text()}"
        return found

    def apply(self, name: str, topology: Topology) -> None:
        """Apply a change and wait until what it touched runs."""
        asked_s, before = time.time(), self.attempts()
        body = {"topology": dump_topology(topology), "reason": name, "revision": self.revision()}
        status, answer = self.service.ask(f"/runs/{self.name}/apply", body)
        if status != 200:
            raise ClusterError(f"{name}: {status} {answer}")
        self.settled(name, asked_s, before)

    def move(self, name: str, unit: str, to: str) -> None:
        """Tell a unit to go to a site, and wait until it runs there."""
        asked_s, before = time.time(), self.attempts()
        self.command(self.service, kind="move-unit", subject=unit, to=to, reason=name)
        self.wait(lambda: all(p.plan().places[unit] == to for p in self.places), f"{unit} is at {to}")
        self.settled(name, asked_s, before)

    def command(self, service: Api, **told: str) -> None:
        """Tell the run of a service something."""
        status, answer = service.ask(f"/runs/{self.name}/commands", told)
        if status != 202:
            raise ClusterError(f"{told}: {status} {answer}")

    def drain_a_host(self) -> None:
        """Have the host that was leased first emptied and given back."""
        status = self.place.status()
        names = [host.name for host in status.hosts] if status is not None else []
        hosts = sorted(names, key=lambda name: int(name.rpartition("-h")[2]))
        if hosts:
            self.command(self.service, kind="drain", subject=hosts[0], reason="hosts come and go")

    def undo(self, name: str, service: Api | None = None) -> None:
        """Take the last change back, by the service of the site that can."""
        asked_s, before, revision = time.time(), self.attempts(), self.revision()
        self.command(service or self.service, kind="undo", reason=name)
        self.wait(lambda: self.revision() > revision, f"{name} was taken back")
        self.settled(f"{name}, taken back", asked_s, before)

    def settled(self, name: str, asked_s: float, before: dict[str, str], at_least: int = 0) -> None:
        """Wait until all units run and a record that was made after the change has come out."""
        self.wait(lambda: self.revision() >= at_least, f"revision {at_least} runs after {name}")
        self.wait(self._all_run, f"every unit ran after {name}")
        changed_s = time.time()
        sinks = [sink.name for sink in self.place.plan().read_topology().sinks]
        self.wait(lambda: all(self.newest(sink) > changed_s for sink in sinks), f"records came after {name}")
        touched = tuple(unit for unit, attempt in self.attempts().items() if before.get(unit) != attempt)
        self.made.append(Made(name, asked_s, time.time(), touched))

    def _all_run(self) -> bool:
        found = [status.units for place in self.places if (status := place.status()) is not None]
        units = [unit for units in found for unit in units]
        if {unit.name for unit in units} != set(self.place.plan().read_topology().unit_by_name):
            return False
        return all(unit.state.value == "running" and unit.running > 0 for unit in units)

    def results(self, sink: str) -> list[Path]:
        """Where a sink's records are: a folder at each site."""
        return [place.root / "results" / sink for place in self.places]

    def newest(self, sink: str) -> float:
        """When the newest record of a sink was made, in seconds since 1970; 0 where there is none."""
        spans = [b.span_s for b in _batches(self.results(sink)) if b.span_s is not None]
        return max((until_s for _, until_s in spans), default=0.0)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so; ClusterError where it takes too long, or the run ends before."""
        if not wait_until(lambda: self.place.result() is not None or condition(), PATIENCE_S, poll_s=0.2):
            raise ClusterError(f"waited in vain until {what}; {[place.status() for place in self.places]}")
        if self.place.result() is not None:
            raise ClusterError(f"the run ended before {what}")

    def in_background(self, what: str, body: dict[str, Any]) -> threading.Thread:
        """Ask for something, and do not wait for the answer."""
        asked = threading.Thread(
            target=self.service.ask, args=(f"/runs/{self.name}/{what}", body), daemon=True
        )
        asked.start()
        return asked

    def finish(self) -> None:
        """Let the sources end, and wait until everything under way is done."""
        self.command(self.service, kind="finish")
        if not wait_until(lambda: self.place.result() is not None, PATIENCE_S, poll_s=0.3):
            raise ClusterError(f"the run did not end: {self.place.status()}")


Also = Callable[[Changed], list[Figure]]
"""What else is done with a run before it ends."""


@contextlib.contextmanager
def a_ground(folder: Path) -> Iterator[tuple[Api, str]]:
    """A service on a host of the rig, and where the functions are there; on this machine without a rig."""
    if unavailable() is not None:
        with a_service(folder) as service:
            yield service, str(folder / "code")
        return
    ensure_archive()  # once, and not on the host
    with Rig(("here",)) as rig:
        sites = Sites(rig, folder, RUN)
        sites.up()
        sites.write("here", f"{ROOT}/code/work.py", CODE)
        try:
            yield sites.api("here"), f"{ROOT}/code"
        finally:
            sites.stop()
            sites.keep()


@contextlib.contextmanager
def a_service(folder: Path, journal: str | None = None) -> Iterator[Service]:
    """A service in a folder, with the functions beside it; at the end its run is stopped, then itself."""
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "work.py").write_text(CODE)
    service = Service(folder, journal=journal)
    try:
        service.ready()
        yield service
    finally:
        place = RunFolder(service.root / RUN)
        if service.base and place.root.exists() and place.result() is None:
            with contextlib.suppress(OSError):
                service.ask(f"/runs/{RUN}/commands", {"kind": "stop"})
            wait_until(lambda: place.result() is not None, 60.0)
        service.stop()


def _batches(folders: Sequence[Path]) -> list[BatchFolder]:
    return [batch for folder in folders for batch in batches_in(folder)]


def gaps_s(folders: Sequence[Path], from_s: float, until_s: float) -> list[float]:
    """The times between two batches of a sink, of those that began or ended between two instants."""
    times_s = sorted(batch.path.stat().st_mtime for batch in _batches(folders))
    return [
        later - earlier
        for earlier, later in itertools.pairwise(times_s)
        if later >= from_s and earlier <= until_s
    ]


def came_out(folders: Sequence[Path]) -> tuple[int, int, int]:
    """Records of a sink, ids that are there more than once, and ids between first and last that are not."""
    records = [record for folder in folders for record in read_results(folder)]
    ids = [int(record["record_id"].rpartition("-")[2]) for record in records]
    once = set(ids)
    return len(ids), len(ids) - len(once), (max(once) + 1 - len(once)) if once else 0


def changed(
    wanted: Sequence[str], folder: Path, say: Callable[[str], None], also: Also | None = None
) -> list[Figure]:
    """Make the wanted changes, each taken back once, while hosts come and go, and measure.

    `also` does more with the run before it ends.
    """
    found: list[Figure] = []
    with a_ground(folder) as (service, code):
        run = Changed(service)
        run.start(code)
        found.append(on_the_rig(service))
        time.sleep(WARM_S + CALM_S)  # what is usual is measured before anything changes
        calm_s = time.time()
        for name in wanted:
            if time.time() - calm_s > LONGEST_S:
                say(f"{name} is left out: {LONGEST_S:.0f} s are over")
                found.append(Figure(f"{name}: left out", "no time was left", "made", holds=False))
                continue
            if name in MOVES:
                run.move(name, *MOVES[name])
            else:
                run.apply(name, CHANGES[name](FIRST))
            if name not in LIGHT:
                run.drain_a_host()
            run.undo(name)
            say(f"{name}: {run.made[-2].took_s:.0f} s, taken back in {run.made[-1].took_s:.0f} s")
        if also is not None:
            found += also(run)
        run.finish()
        found += measured(run, calm_s)
    return found


def on_the_rig(service: Api) -> Figure:
    """Whether a service is on a host of the rig."""
    why = "so" if service.host is not None else str(unavailable())
    return Figure("on a host of the rig", why, "so", holds=service.host is not None)


def measured(run: Changed, calm_s: float) -> list[Figure]:
    """What came of the changes that were made."""
    calm = {sink: gaps_s(run.results(sink), calm_s - CALM_S, calm_s) for sink in ENDS}
    usual = {sink: float(np.percentile(found_s, 99)) if found_s else 0.0 for sink, found_s in calm.items()}
    found = [Figure("changes made, half of them taking one back", float(len(run.made))), *whole(run)]
    leases = [x for each in run.services for x in each.ask(f"/runs/{run.name}/bill")[1]["leases"]]
    given_back = sum(lease["ended_s"] is not None for lease in leases)
    found.append(Figure("hosts leased", float(len(leases))))
    found.append(Figure("hosts given back before the end", float(given_back)))
    for sink, longest_s in usual.items():
        found.append(Figure(f"usual time between batches of {sink}, p99", longest_s, unit="s"))
    held = cases = later = seen = 0
    by_chance = 0.0
    for made in run.made:
        for sink, units in ENDS.items():
            found_s = gaps_s(run.results(sink), made.asked_s, made.done_s)
            gap_s = max(found_s, default=None)
            if gap_s is None:
                continue
            if set(units) & set(made.touched):
                found.append(Figure(f"{made.name}: pause before {sink}", gap_s, unit="s"))
            else:
                most_s = usual[sink]
                held, cases = held + (gap_s <= most_s), cases + 1
                later, seen = later + sum(each > most_s for each in found_s), seen + len(found_s)
                by_chance += 1 - 0.99 ** len(found_s)
                found.append(
                    Figure(f"{made.name}: {sink} goes on, longest time between batches", gap_s,
                           f"<= {most_s:.2f} s", holds=gap_s <= most_s, unit="s")
                )  # fmt: skip
    pauses = [f.here for f in found if "pause before" in f.name and isinstance(f.here, float)]
    if pauses:
        found.append(Figure("longest pause", max(pauses), unit="s"))
        found.append(Figure("pause, median", float(np.median(pauses)), unit="s"))
    if cases:
        # Of a hundred usual batches one is later than that, whether something changes or not.
        told = f"{held} of {cases} ({cases - by_chance:.1f} where nothing changes, by what a p99 is)"
        found += [
            Figure("untouched units no later than their usual p99", told, "all", holds=held == cases),
            Figure("batches of untouched units later than that", f"{later} of {seen}", "<= 1 %",
                   holds=later <= math.ceil(0.01 * seen)),
        ]  # fmt: skip
    return found


def whole(run: Changed) -> list[Figure]:
    """Records in, held against those that came out, once each."""
    total = run.place.result()
    assert total is not None
    count, doubled, missing = came_out(run.results("out"))
    right = doubled == missing == 0 and count == total.records_in
    return [
        Figure("records in", float(total.records_in)),
        Figure("records out", float(count), f"= {total.records_in}", holds=right),
        Figure("records that came out twice", float(doubled), "= 0", holds=doubled == 0),
        Figure("records that did not come out", float(missing), "= 0", holds=missing == 0),
        *_beside(run, total.records_in),
    ]


def _beside(run: Changed, records_in: int) -> list[Figure]:
    """The same of the other sink, which misses what came while its unit was taken away."""
    count, doubled, _ = came_out(run.results("seen"))
    away = any(made.name.startswith("unit removed") for made in run.made)
    bar = f"< {records_in}, the unit was away" if away else f"= {records_in}"
    right = count < records_in if away else count == records_in
    return [
        Figure("records out of seen", float(count), bar, holds=right),
        Figure("records that came out of seen twice", float(doubled), "= 0", holds=doubled == 0),
    ]
