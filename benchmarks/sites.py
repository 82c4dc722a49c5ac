"""`make sites`: changes of every kind by the API to a topology that runs, under load; to build/sites.json.

A service is started, and a run through it, on a local cluster. Each kind of change is applied and taken back
once while records flow. Every record is numbered, so that those that come out are held against those that
went in. Pauses are read from the instants at which batches came out: the longest time without one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from penstock.channels.batches import batches_in
from penstock.channels.sinks import read_results
from penstock.errors import ClusterError, PenstockError
from penstock.machine.processes import exit_on_sigterm, wait_until
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.runs.folder import RunFolder
from penstock.topology.file import dump_topology
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

RESULT = Path("build") / "sites.json"
RATE_PER_S = 50.0
CALM_S = 20.0
"""How long nothing is changed at the beginning, to see what is usual."""
PATIENCE_S = 240.0
"""Far beyond what a change takes, for machines that do much else."""
CODE = '''
from pyspark.sql import functions as sql


def worked(records):
    """A column more."""
    return records.withColumn("twice", sql.col("number") * 2)


def broken(records):
    """Throws on every record."""
    @sql.udf("long")
    def thrown(number):
        raise ValueError("nobody can do this")

    return records.withColumn("twice", thrown("number"))


def worked_better(records):
    """The same in another way."""
    return records.withColumn("twice", sql.col("number") + sql.col("number"))
'''


def passing(name: str, given: str, function: str | None = None, schema: str = "number long") -> Operator:
    """An operator that hands on what it gets."""
    return Operator(name, (given,), function, schema=schema)


FIRST = Topology(
    "changing",
    (Source("numbers", workload=Choice("constant", {"level_per_s": RATE_PER_S}), schema="number long"),),
    (
        passing("read", "numbers"),
        passing("work", "read", "work:worked", "number long, twice long"),
        passing("look", "read"),
    ),
    (Sink("out", ("work",), "jsonl:out"), Sink("seen", ("look",), "jsonl:seen")),
    tuple(
        Unit(unit, (operator,), policy=Choice("fixed"), max_instances=1)
        for unit, operator in (("front", "read"), ("middle", "work"), ("side", "look"))
    ),
    (
        Site(
            "here",
            Choice("local"),
            btu_s=60.0,
            flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
            max_hosts=5,
        ),
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=5.0),
)
"""Numbers are read, worked on and, beside that, looked at: three units, two of which end in a sink."""


def _units(topology: Topology, members: dict[str, tuple[str, ...]]) -> Topology:
    known = topology.unit_by_name
    fixed = Unit("", ("",), policy=Choice("fixed"), max_instances=1)
    units = [replace(known.get(name, fixed), name=name, operators=own) for name, own in members.items()]
    return replace(topology, units=tuple(units))


def _operator(topology: Topology, name: str, **changes: Any) -> Topology:
    operators = (replace(o, **changes) if o.name == name else o for o in topology.operators)
    return replace(topology, operators=tuple(operators))


def _sink(topology: Topology, name: str, operator: str) -> Topology:
    sinks = (replace(s, inputs=(operator,)) if s.name == name else s for s in topology.sinks)
    return replace(topology, sinks=tuple(sinks))


def _tail(topology: Topology, unit: str) -> Topology:
    """One operator more before the sink."""
    tail = passing("tail", "work", schema="number long, twice long")
    members = {u.name: u.operators for u in topology.units}
    members[unit] = (*members.get(unit, ()), "tail")
    return _sink(_units(replace(topology, operators=(*topology.operators, tail)), members), "out", "tail")


def _replaced(topology: Topology) -> Topology:
    """Another operator in the place of the one before the sink."""
    other = passing("labour", "read", "work:worked_better", "number long, twice long")
    operators = tuple(other if o.name == "work" else o for o in topology.operators)
    members = {u.name: u.operators for u in topology.units} | {"middle": ("labour",)}
    changed = replace(topology, operators=operators, sinks=topology.sinks[1:])
    return _units(replace(changed, sinks=(Sink("out", ("labour",), "jsonl:out"), *changed.sinks)), members)


CHANGES: dict[str, Callable[[Topology], Topology]] = {
    "policy": lambda t: replace(
        t, units=tuple(replace(u, policy=Choice("threshold")) if u.name == "side" else u for u in t.units)
    ),
    "SLO": lambda t: _operator(t, "work", slo_s=7.0),
    "price": lambda t: replace(
        t,
        sites=(
            replace(t.sites[0], flavours=(replace(t.sites[0].flavours[0], price_per_btu=Decimal("0.02")),)),
        ),
    ),
    "function": lambda t: _operator(t, "work", function="work:worked_better"),
    "operator replaced": _replaced,
    "operator added": lambda t: _tail(t, "middle"),
    "unit split": lambda t: _tail(t, "end"),
    "units merged": lambda t: _units(t, {"front": ("read", "work"), "side": ("look",)}),
    "inputs rewired": lambda t: _operator(t, "look", inputs=("work",)),
    "schema": lambda t: _operator(t, "read", schema="number double"),
    "shape": lambda t: _operator(t, "look", memory_mib=640),
    "unit renamed": lambda t: _units(t, {"door": ("read",), "middle": ("work",), "side": ("look",)}),
    "unit removed": lambda t: replace(t, operators=t.operators[:2], sinks=t.sinks[:1], units=t.units[:2]),
}
"""What is changed, by name; each is taken back before the next."""
QUICK = ("policy", "SLO", "price", "unit split", "units merged")
"""A short choice: what stops nobody, and the two that move records to other units."""


class Service:
    """A service of its own, and its API."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "runs"
        self.root.mkdir(parents=True)
        self._log = (folder / "service.log").open("ab")
        command = [sys.executable, "-m", "penstock.cli.main", "serve", str(self.root), "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)
        self._folder = folder
        self.base = ""

    def ready(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            for line in (self._folder / "service.log").read_text().splitlines():
                for word in line.split():
                    if word.startswith("http://127.0.0.1:") and "/api/v1" in word:
                        self.base = word.rstrip(".,;)")
            return bool(self.base)

        if not wait_until(answers, 60.0):
            raise ClusterError(f"the service did not come up: {(self._folder / 'service.log').read_text()}")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """A request; its status and what was answered."""
        token = (self.root / "token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def stop(self) -> None:
        """End it; its runs go on."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
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


class Changed:
    """A run that is changed over the API, and what is known of it."""

    def __init__(self, service: Service, name: str = "changing") -> None:
        self.service, self.name = service, name
        self.place = RunFolder(service.root / name)
        self.made: list[Made] = []

    def start(self, code: Path) -> None:
        """Start it, and wait until records come out of every sink."""
        body = {"name": self.name, "topology": dump_topology(FIRST), "code": str(code)}
        status, answer = self.service.ask("/runs", body)
        if status != 202:
            raise ClusterError(f"the run was not started: {answer}")
        self._wait(lambda: all(map(self._newest, ("out", "seen"))), "records came out")

    def revision(self) -> int:
        """The version that runs."""
        return self.place.plan().revision

    def attempts(self) -> dict[str, str]:
        """Which start each unit is."""
        files = sorted((self.place.root / "units").glob("*/attempt"))
        return {file.parent.name: file.read_text() for file in files}

    def apply(self, name: str, topology: Topology) -> None:
        """Apply a change and wait until what it touched runs."""
        asked_s, before = time.time(), self.attempts()
        body = {"topology": dump_topology(topology), "reason": name, "revision": self.revision()}
        status, answer = self.service.ask(f"/runs/{self.name}/apply", body)
        if status != 200:
            raise ClusterError(f"{name}: {status} {answer}")
        self._settled(name, asked_s, before)

    def undo(self, name: str) -> None:
        """Take the last change back."""
        asked_s, before, revision = time.time(), self.attempts(), self.revision()
        self.service.ask(f"/runs/{self.name}/commands", {"kind": "undo", "reason": name})
        self._wait(lambda: self.revision() > revision, f"{name} was taken back")
        self._settled(f"{name}, taken back", asked_s, before)

    def _settled(self, name: str, asked_s: float, before: dict[str, str]) -> None:
        """Wait until all units run and a record that was made after the change has come out."""
        self._wait(self._all_run, f"every unit ran after {name}")
        changed_s = time.time()
        sinks = [sink.name for sink in self.place.plan().read_topology().sinks]
        self._wait(
            lambda: all(self._newest(sink) > changed_s for sink in sinks), f"records came after {name}"
        )
        touched = tuple(unit for unit, attempt in self.attempts().items() if before.get(unit) != attempt)
        self.made.append(Made(name, asked_s, time.time(), touched))

    def _all_run(self) -> bool:
        status, plan = self.place.status(), self.place.plan()
        units = plan.read_topology().unit_by_name
        if status is None or {u.name for u in status.units} != set(units):
            return False
        return all(unit.state.value == "running" and unit.running > 0 for unit in status.units)

    def _newest(self, sink: str) -> float:
        """When the newest record of a sink was made, in seconds since 1970; 0 where there is none."""
        spans = [b.span_s for b in batches_in(self.place.root / "results" / sink) if b.span_s is not None]
        return spans[-1][1] if spans else 0.0

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not wait_until(lambda: self.place.result() is not None or condition(), PATIENCE_S, poll_s=0.2):
            raise ClusterError(f"waited in vain until {what}; {self.place.status()}")
        if self.place.result() is not None:
            raise ClusterError(f"the run ended before {what}")

    def finish(self) -> None:
        """Let the sources end, and wait until everything under way is done."""
        self.service.ask(f"/runs/{self.name}/commands", {"kind": "finish"})
        if not wait_until(lambda: self.place.result() is not None, PATIENCE_S, poll_s=0.3):
            raise ClusterError(f"the run did not end: {self.place.status()}")


def gaps_s(folder: Path, from_s: float, until_s: float) -> list[float]:
    """The times between two batches, of those that began or ended between two instants."""
    times_s = sorted(batch.path.stat().st_mtime for batch in batches_in(folder))
    return [
        later - earlier
        for earlier, later in itertools.pairwise(times_s)
        if later >= from_s and earlier <= until_s
    ]


def came_out(folder: Path, sink: str) -> tuple[int, int, int]:
    """Records of a sink, ids that are there more than once, and ids between first and last that are not."""
    ids = [int(record["record_id"].rpartition("-")[2]) for record in read_results(folder / "results" / sink)]
    once = set(ids)
    return len(ids), len(ids) - len(once), (max(once) + 1 - len(once)) if once else 0


def mistakes(run: Changed) -> list[Figure]:
    """No-op, invalid and simultaneous applications."""
    revision, attempts = run.revision(), run.attempts()
    path, text = f"/runs/{run.name}/apply", dump_topology(FIRST)
    status, answer = run.service.ask(path, {"topology": text})
    noop = (
        status == 200 and not answer["changes"] and (run.revision(), run.attempts()) == (revision, attempts)
    )
    wrong = text.replace("provider: local", "provider: pigeon").replace("policy: fixed", "policy: astrology")
    status, answer = run.service.ask(path, {"topology": wrong})
    listed = len(answer.get("errors", []))
    invalid = status == 422 and listed >= 2 and run.revision() == revision
    body = {"topology": dump_topology(_operator(FIRST, "work", function="work:broken")), "rehearse": True}
    status, answer = run.service.ask(path, body)
    told = "; ".join(answer.get("errors", [])) or str(answer)
    stopped = status == 409 and "nobody can do this" in told and run.attempts() == attempts
    answers: list[int] = []

    def one(slo_s: float) -> None:
        body = {"topology": dump_topology(_operator(FIRST, "work", slo_s=slo_s)), "revision": revision}
        answers.append(run.service.ask(path, body)[0])

    both = [threading.Thread(target=one, args=(slo_s,)) for slo_s in (3.0, 4.0)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    won = sorted(answers) == [200, 409] and run.revision() == revision + 1
    return [
        Figure("an equal version changes nothing", "nothing" if noop else str(answer), "nothing", holds=noop),
        Figure("an invalid version: mistakes listed, nothing changed", float(listed), ">= 2", holds=invalid),
        Figure(
            "a function that throws: its rehearsal fails, nobody was started again",
            "so" if stopped else told[:200],
            "so",
            holds=stopped,
        ),
        Figure("two apply at once", " and ".join(map(str, sorted(answers))), "200 and 409", holds=won),
    ]


def figures(wanted: list[str], folder: Path, say: Callable[[str], None] = print) -> list[Figure]:
    """Make the wanted changes, each taken back once, and measure."""
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "work.py").write_text(CODE)
    service = Service(folder)
    found: list[Figure] = []
    try:
        service.ready()
        run = Changed(service)
        run.start(code)
        time.sleep(CALM_S)  # what is usual is measured before anything changes
        calm_s = time.time()
        for name in wanted:
            say(f"{name} …")
            run.apply(name, CHANGES[name](FIRST))
            run.undo(name)
        found += mistakes(run)
        run.finish()
        found += measured(run, calm_s)
    finally:
        service.ask("/runs/changing/commands", {"kind": "stop"}) if service.base else None
        wait_until(lambda: RunFolder(service.root / "changing").result() is not None, 60.0)
        service.stop()
    return found


def measured(run: Changed, calm_s: float) -> list[Figure]:
    """What came of the changes that were made."""
    root, found = run.place.root, []
    results = root / "results"
    calm = {sink: gaps_s(results / sink, calm_s - CALM_S, calm_s) for sink in ("out", "seen")}
    usual = {sink: float(np.percentile(found_s, 99)) if found_s else 0.0 for sink, found_s in calm.items()}
    total = run.place.result()
    assert total is not None
    count, doubled, missing = came_out(root, "out")
    whole = doubled == missing == 0 and count == total.records_in
    found += [
        Figure("changes made, half of them taking one back", float(len(run.made))),
        Figure("records in", float(total.records_in)),
        Figure("records out", float(count), f"= {total.records_in}", holds=whole),
        Figure("records that came out twice", float(doubled), "= 0", holds=doubled == 0),
        Figure("records that did not come out", float(missing), "= 0", holds=missing == 0),
    ]
    for sink, longest_s in usual.items():
        found.append(Figure(f"usual time between batches of {sink}, p99", longest_s, unit="s"))
    ends = {"out": ("front", "middle", "end", "door"), "seen": ("front", "side", "door")}
    for made in run.made:
        for sink, units in ends.items():
            gap_s = max(gaps_s(results / sink, made.asked_s, made.done_s), default=None)
            if gap_s is None:
                continue
            if set(units) & set(made.touched):
                found.append(Figure(f"{made.name}: pause before {sink}", gap_s, unit="s"))
            else:
                most_s = usual[sink]
                found.append(
                    Figure(f"{made.name}: {sink} goes on, longest time between batches", gap_s,
                           f"<= {most_s:.2f} s", holds=gap_s <= most_s, unit="s")
                )  # fmt: skip
    return found


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, unless something went wrong in it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-sites-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Make the changes that are wanted; a figure that falls short is shown as such and fails nothing."""
    parser = argparse.ArgumentParser(prog="make sites", description=__doc__)
    parser.add_argument("--only", default="", help="kinds, separated by commas: " + ", ".join(CHANGES))
    parser.add_argument("--quick", action="store_true", help="a short choice: " + ", ".join(QUICK))
    given = parser.parse_args()
    wanted = [name.strip() for name in given.only.split(",") if name.strip()]
    wanted = wanted or list(QUICK if given.quick else CHANGES)
    unknown = sorted(set(wanted) - set(CHANGES))
    if unknown:
        print(f"unknown change {', '.join(unknown)}; known: {', '.join(CHANGES)}", file=sys.stderr)
        return 2
    exit_on_sigterm()
    console, began_s = Console(width=None if sys.stdout.isatty() else 150), time.perf_counter()
    try:
        with temporary_folder() as folder:
            found = figures(wanted, folder, console.print)
    except PenstockError as error:
        found = [Figure("could not be measured", str(error), holds=False)]
    print_figures(found, f"sites that change while they run, {time.perf_counter() - began_s:.0f} s", console)
    write_figures(found, RESULT)
    console.print(f"written to {RESULT} ({os.cpu_count()} cores)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
