"""A run that is changed over the API of a service, and what is measured of that: the ground of `make sites`.

Records are numbered, so that those that come out are held against those that went in. Pauses are read from
the instants at which batches came out: the longest time without one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from penstock.channels.batches import batches_in
from penstock.channels.sinks import read_results
from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
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

RATE_PER_S = 50.0
WARM_S = 20.0
"""The first batches of a Java that has just started are later than usual: they are no measure."""
CALM_S = 60.0
"""How long nothing is changed at the beginning, to see what is usual: a batch a second."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A change starts Javas beside those that run: without this, on two cores, compiling takes most of them."""
LONGEST_S = 600.0
"""After so long no further kind of change is begun in a part."""
PATIENCE_S = 330.0
"""Far beyond what a change takes, for machines that do much else."""
CODE = '''
import penstock
from pyspark.sql import functions as sql


def worked(records):
    """A column more."""
    return records.withColumn("twice", sql.col("number") * 2)


def limited(records):
    """The same, up to a number that is looked up: beyond it, it throws on every record."""
    limit = penstock.Lookup("limit", default=10**12)

    @sql.udf("long")
    def twice(number):
        if number > limit():
            raise ValueError("beyond the limit")
        return 2 * number

    return records.withColumn("twice", twice("number"))


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
        Unit(unit, (operator,), policy=Choice("fixed"), max_instances=1, trigger_s=1.0)
        for unit, operator in (("front", "read"), ("middle", "work"), ("side", "look"))
    ),
    (
        Site(
            "here",
            Choice("local"),
            btu_s=60.0,
            flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
            max_hosts=6,
        ),
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=5.0),
)
"""Numbers are read, worked on and, beside that, looked at: three units, two of which end in a sink."""


def _units(topology: Topology, members: dict[str, tuple[str, ...]]) -> Topology:
    known = topology.unit_by_name
    fixed = Unit("", ("",), policy=Choice("fixed"), max_instances=1, trigger_s=1.0)
    units = [replace(known.get(name, fixed), name=name, operators=own) for name, own in members.items()]
    return replace(topology, units=tuple(units))


def operator(topology: Topology, name: str, **changes: Any) -> Topology:
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


def _site(topology: Topology, **changes: Any) -> Topology:
    return replace(topology, sites=(replace(topology.sites[0], **changes),))


def _unit(topology: Topology, name: str, **changes: Any) -> Topology:
    units = (replace(u, **changes) if u.name == name else u for u in topology.units)
    return replace(topology, units=tuple(units))


LIGHT: dict[str, Callable[[Topology], Topology]] = {
    "policy": lambda t: _unit(t, "side", policy=Choice("threshold")),
    "filter": lambda t: _unit(t, "side", filter=Choice("gaussian")),
    "most instances": lambda t: _unit(t, "side", max_instances=2),
    "SLO": lambda t: operator(t, "work", slo_s=7.0),
    "price": lambda t: _site(t, flavours=(replace(t.sites[0].flavours[0], price_per_btu=Decimal("0.02")),)),
    "billing": lambda t: _site(t, btu_s=30.0),
    "most hosts": lambda t: _site(t, max_hosts=7),
    "interval": lambda t: replace(t, loop=replace(t.loop, provisioning_s=10.0)),
    "advice only": lambda t: replace(t, loop=replace(t.loop, advisory=True)),
    "flavour added": lambda t: _site(
        t, flavours=(*t.sites[0].flavours, HostFlavour("large", 2.0, 2048, Decimal("0.02")))
    ),
}
"""Kinds of change that start nobody again."""
UNITS: dict[str, Callable[[Topology], Topology]] = {
    "function": lambda t: operator(t, "work", function="work:worked_better"),
    "operator replaced": _replaced,
    "operator added": lambda t: _tail(t, "middle"),
    "unit split": lambda t: _tail(t, "end"),
    "units merged": lambda t: _units(t, {"front": ("read", "work"), "side": ("look",)}),
}
WIRING: dict[str, Callable[[Topology], Topology]] = {
    "inputs rewired": lambda t: operator(t, "look", inputs=("work",)),
    "schema": lambda t: operator(t, "read", schema="number double"),
    "shape": lambda t: operator(t, "look", memory_mib=640),
    "unit renamed": lambda t: _units(t, {"door": ("read",), "middle": ("work",), "side": ("look",)}),
    "unit removed": lambda t: replace(t, operators=t.operators[:2], sinks=t.sinks[:1], units=t.units[:2]),
}
CHANGES = LIGHT | UNITS | WIRING
"""What is changed, by name; each is taken back before the next."""


class Service:
    """A service of its own, and its API."""

    def __init__(self, folder: Path, *, journal: str | None = None, log: str = "service.log") -> None:
        """`journal` is the URL of the journal that a pair of services shares."""
        self.root = folder / "runs"
        self.root.mkdir(parents=True, exist_ok=True)
        self._told = folder / log
        self._log = self._told.open("ab")
        command = [sys.executable, "-m", "penstock.cli.main", "serve", str(self.root), "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "JDK_JAVA_OPTIONS": LIGHT_JAVA}
        if journal is not None:
            environment["PENSTOCK_JOURNAL"] = journal
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)
        self.base = ""

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

    def ask(
        self, path: str, body: dict[str, Any] | None = None, method: str | None = None
    ) -> tuple[int, Any]:
        """A request; its status and what was answered."""
        token = (self.root / "token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

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
        self.wait(lambda: all(map(self.newest, ("out", "seen"))), "records came out")

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
        self.settled(name, asked_s, before)

    def drain_a_host(self) -> None:
        """Have the host that was leased first emptied and given back."""
        status = self.place.status()
        names = [host.name for host in status.hosts] if status is not None else []
        hosts = sorted(names, key=lambda name: int(name.rpartition("-h")[2]))
        if hosts:
            body = {"kind": "drain", "subject": hosts[0], "reason": "hosts come and go"}
            self.service.ask(f"/runs/{self.name}/commands", body)

    def undo(self, name: str) -> None:
        """Take the last change back."""
        asked_s, before, revision = time.time(), self.attempts(), self.revision()
        self.service.ask(f"/runs/{self.name}/commands", {"kind": "undo", "reason": name})
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
        status, plan = self.place.status(), self.place.plan()
        units = plan.read_topology().unit_by_name
        if status is None or {u.name for u in status.units} != set(units):
            return False
        return all(unit.state.value == "running" and unit.running > 0 for unit in status.units)

    def newest(self, sink: str) -> float:
        """When the newest record of a sink was made, in seconds since 1970; 0 where there is none."""
        spans = [b.span_s for b in batches_in(self.place.root / "results" / sink) if b.span_s is not None]
        return spans[-1][1] if spans else 0.0

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        if not wait_until(lambda: self.place.result() is not None or condition(), PATIENCE_S, poll_s=0.2):
            raise ClusterError(f"waited in vain until {what}; {self.place.status()}")
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
        self.service.ask(f"/runs/{self.name}/commands", {"kind": "finish"})
        if not wait_until(lambda: self.place.result() is not None, PATIENCE_S, poll_s=0.3):
            raise ClusterError(f"the run did not end: {self.place.status()}")


Also = Callable[[Changed], list[Figure]]
"""What else is done with a run before it ends."""


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
        place = RunFolder(service.root / "changing")
        if service.base and place.root.exists() and place.result() is None:
            with contextlib.suppress(OSError):
                service.ask("/runs/changing/commands", {"kind": "stop"})
            wait_until(lambda: place.result() is not None, 60.0)
        service.stop()


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
    body = {"topology": dump_topology(operator(FIRST, "work", function="work:broken"))}
    status, answer = run.service.ask(path, body)
    told = "; ".join(answer.get("errors", [])) or str(answer)
    stopped = status == 409 and "nobody can do this" in told and run.attempts() == attempts
    answers: list[int] = []

    def one(slo_s: float) -> None:
        body = {"topology": dump_topology(operator(FIRST, "work", slo_s=slo_s)), "revision": revision}
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
            "a function that throws: found out beside the one that runs, nobody was started again",
            "so" if stopped else told[:200],
            "so",
            holds=stopped,
        ),
        Figure("two apply at once", " and ".join(map(str, sorted(answers))), "200 and 409", holds=won),
    ]


def changed(
    wanted: Sequence[str], folder: Path, say: Callable[[str], None], also: Also | None = None
) -> list[Figure]:
    """Make the wanted changes, each taken back once, while hosts come and go, and measure.

    `also` does more with the run before it ends.
    """
    found: list[Figure] = []
    with a_service(folder) as service:
        run = Changed(service)
        run.start(folder / "code")
        time.sleep(WARM_S + CALM_S)  # what is usual is measured before anything changes
        calm_s = time.time()
        for name in wanted:
            if time.time() - calm_s > LONGEST_S:
                say(f"{name} is left out: {LONGEST_S:.0f} s are over")
                found.append(Figure(f"{name}: left out", "no time was left", "made", holds=False))
                continue
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


def measured(run: Changed, calm_s: float) -> list[Figure]:
    """What came of the changes that were made."""
    results = run.place.root / "results"
    calm = {sink: gaps_s(results / sink, calm_s - CALM_S, calm_s) for sink in ENDS}
    usual = {sink: float(np.percentile(found_s, 99)) if found_s else 0.0 for sink, found_s in calm.items()}
    found = [Figure("changes made, half of them taking one back", float(len(run.made))), *whole(run)]
    with run.place.opened() as journal:
        leases = journal.leases()
    found.append(Figure("hosts leased", float(len(leases))))
    found.append(Figure("hosts given back before the end", float(sum(x.ended_s is not None for x in leases))))
    for sink, longest_s in usual.items():
        found.append(Figure(f"usual time between batches of {sink}, p99", longest_s, unit="s"))
    untouched: list[tuple[float, str, str]] = []
    later = seen = 0
    for made in run.made:
        for sink, units in ENDS.items():
            found_s = gaps_s(results / sink, made.asked_s, made.done_s)
            gap_s = max(found_s, default=None)
            if gap_s is None:
                continue
            if set(units) & set(made.touched):
                found.append(Figure(f"{made.name}: pause before {sink}", gap_s, unit="s"))
            else:
                untouched.append((gap_s / usual[sink], sink, made.name))
                later, seen = later + sum(each > usual[sink] for each in found_s), seen + len(found_s)
                most_s = usual[sink]
                found.append(
                    Figure(f"{made.name}: {sink} goes on, longest time between batches", gap_s,
                           f"<= {most_s:.2f} s", holds=gap_s <= most_s, unit="s")
                )  # fmt: skip
    pauses = [f.here for f in found if "pause before" in f.name and isinstance(f.here, float)]
    if pauses:
        found.append(Figure("longest pause", max(pauses), unit="s"))
        found.append(Figure("pause, median", float(np.median(pauses)), unit="s"))
    if untouched:
        held = sum(ratio <= 1.0 for ratio, _, _ in untouched)
        told = f"{held} of {len(untouched)}"
        found.append(
            Figure("untouched units no later than their usual p99", told, "all", holds=held == len(untouched))
        )
        # Of a hundred usual batches one is later than that, whether something changes or not.
        found.append(Figure("batches of untouched units later than that", f"{later} of {seen}"))
    return found


ENDS = {"out": ("front", "middle", "end", "door"), "seen": ("front", "side", "door")}
"""The units whose pause is seen at a sink."""


def outsiders(run: Changed) -> list[Figure]:
    """Somebody subscribes by the API and listens by command; a look-up gets versions both ways."""
    place, ask, base = run.place, run.service.ask, f"/runs/{run.name}"
    office = f"{base}/streams/read/subscribers/office"
    before = run.attempts()
    status, _ = ask(office, {"most_records": 5000}, "PUT")
    run.wait(lambda: ask(office)[1]["number"] >= 0, "records came to the subscriber")
    first = ask(office)[1]
    again = ask(office)[1]["records"][: len(first["records"])] == first["records"]
    ask(f"{office}/done", {"number": first["number"]})
    heard = _penstock("listen", str(place.root), "read", "office").splitlines()
    ids = [r["record_id"] for r in first["records"]] + [json.loads(line)["record_id"] for line in heard]
    numbers = sorted(int(name.rpartition("-")[2]) for name in ids)
    in_a_row = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    left, _ = ask(office, None, "DELETE")
    gone = ask(office)[0]
    right = (status, left, gone, again, in_a_row) == (200, 200, 409, True, True)
    told = f"{len(first['records'])} by the API, {len(heard)} by command, each once, in a row"
    ask(f"{base}/lookups/limit", {"value": 10**11, "reason": "the API"}, "PUT")
    file = place.root / "limit.json"
    file.write_text("1000000000000")
    _penstock("lookup", str(place.root), "limit", str(file))
    version = ask(f"{base}/lookups/limit")[1]
    looked = (version["version"], version["value"]) == (2, 10**12)
    shown = _penstock("lookup", str(place.root), "limit").strip()
    return [
        Figure("a subscriber from outside", told if right else f"{status} {left} {gone} {numbers[:3]}", "so",
               holds=right),
        Figure("versions of a look-up by the API and by command", f"{version['version']}, {shown}",
               "2, 1000000000000", holds=looked and shown == "1000000000000"),
        Figure("started again for it", float(run.attempts() != before), "= 0",
               holds=run.attempts() == before),
    ]  # fmt: skip


def _penstock(*arguments: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def whole(run: Changed) -> list[Figure]:
    """Records in, held against those that came out, once each."""
    total = run.place.result()
    assert total is not None
    count, doubled, missing = came_out(run.place.root, "out")
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
    count, doubled, _ = came_out(run.place.root, "seen")
    away = any(made.name.startswith("unit removed") for made in run.made)
    bar = f"< {records_in}, the unit was away" if away else f"= {records_in}"
    right = count < records_in if away else count == records_in
    return [
        Figure("records out of seen", float(count), bar, holds=right),
        Figure("records that came out of seen twice", float(doubled), "= 0", holds=doubled == 0),
    ]
