"""The demo: paper 000's factory on a real, elastic Spark cluster, for about three minutes.

This is what a newcomer sees first (`make run`, or `python examples/factory/demo.py`): machines come and go by
steps, executors and hosts follow by policy, leases are paid, and at the end every result is compared with the
generator's own truth. It uses what any program can use: a run, its feed and its status.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

EXAMPLES = Path(__file__).resolve().parents[1]
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))

import psutil
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from factory import effectiveness, feed, inbox, machines
from factory.feed import Load
from penstock.channels.feeder import FINISHED
from penstock.channels.registry import service_of
from penstock.channels.sinks import read_results
from penstock.cli.choices import read_choice
from penstock.cli.console import console as make_console
from penstock.cli.main import told_in_words
from penstock.controller.loop import Tick
from penstock.controller.result import RunResult
from penstock.errors import ClusterError, ConfigurationError
from penstock.experiments.twin import best_cost_of
from penstock.fleet.actions import verb_of
from penstock.machine.files import written
from penstock.monitoring.sla import LEVELS
from penstock.page.server import live_page
from penstock.quantities import format_duration
from penstock.report.hints import hints
from penstock.report.run_report import write_run_report
from penstock.report.terminal import LiveView, flow_of, side_by_side
from penstock.runs.assembly import load as load_file
from penstock.runs.assembly import with_choices
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.runs.profile import PROFILE, deviations, measured_profile, simulated_twin
from penstock.runs.run import Run
from penstock.runs.sources import Feed
from penstock.spark.training import ensure_archive
from penstock.spark.unit.plan import generated_sources
from penstock.topology.model import Channel, Choice, Topology, Unit

NEEDED = {"PIL": "pillow", "rapidocr_onnxruntime": "rapidocr-onnxruntime", "fpdf": "fpdf2"}
"""Modules the factory uses, and the packages that have them."""
REPORT_EVERY = 15
"""OEE values that make a report; the paper's 300, for a run of three minutes instead of two hours."""
DRAIN_S = 240.0
"""Longest time records in flight are waited for after the machines have stopped."""

# In three minutes, Java's second compiler takes processor time that it never gives back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def demo(
    policy: Annotated[str, typer.Option(help="Policy of every unit, such as btu or threshold.")] = "rate",
    minutes: Annotated[float, typer.Option(help="How long machines run.")] = 3.0,
    channel: Annotated[str, typer.Option(help="Channel between units: files or kafka.")] = "files",
    on: Annotated[str, typer.Option("--machines", help="Machines on, step by step.")] = "2,4,8,8,4,2,2",
    factor: Annotated[float, typer.Option(help="The paper's rates times this.")] = 0.06,
    single: Annotated[bool, typer.Option("--single", help="One operator a unit: nine applications.")] = False,
    smudged: Annotated[float, typer.Option(help="Share of pictures nobody can read.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Which machines: the same seed lives the same lives.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Run paper 000's factory on a local elastic cluster, live, and check every result."""
    console = make_console()
    require_packages()
    load = load_of(_levels(on), minutes * 60, factor, seed, smudged)
    topology = topology_of(load, policy=policy, channel=channel, single=single)
    folder = (out / f"factory-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(
        f"The factory under policy [bold]{policy}[/bold] for {format_duration(load.duration_s)}: "
        f"{on} machines, {len(topology.units)} units. Ctrl-C ends it in order. Folder: {folder}"
    )
    console.print(flow_of(topology), style="dim", markup=False)
    with live_page(folder, topology) as served:
        console.print(f"page: {served.address}", soft_wrap=True, highlight=False, markup=False)
        with console.status("preparing Java (the first time takes a minute) …"):
            ensure_archive()
        with _broker(topology, folder) as bootstrap:
            outcome = run_factory(topology, load, folder, bootstrap=bootstrap, console=console)
    _print_summary(console, outcome)
    if not outcome.right and not outcome.interrupted:
        raise ClusterError("the counts or values do not agree with the truth; see the table above")


# --- the factory as a topology ---------------------------------------------------------------------------


def load_of(
    levels: Collection[int], duration_s: float, factor: float, seed: int, smudged_ratio: float = 0.0
) -> Load:
    """The load that goes through these numbers of machines in a duration."""
    return Load(
        machines=tuple(levels),
        hold_s=duration_s / len(levels),
        rate_factor=factor,
        seed=seed,
        smudged_ratio=smudged_ratio,
    )


def topology_of(
    load: Load, *, policy: str | None = None, channel: str = "files", single: bool = False
) -> Topology:
    """The topology file with a load, and with other choices where they are given."""
    topology = load_file(EXAMPLES / "factory" / "factory.yaml")
    if policy is not None and policy != topology.units[0].policy.name:
        topology = with_choices(topology, policy=read_choice(policy))
    if channel != "files":
        topology = replace(topology, channels=(Channel(channel, channel),))
    if single:
        first = topology.units[0]
        topology = replace(
            topology,
            units=tuple(
                Unit(operator.name, (operator.name,), policy=first.policy, max_instances=2)
                for operator in topology.operators
            ),
        )
    minutes_per_s = tuple(count / load.minute_s for count in load.machines)
    workload = Choice("stepwise", {"levels_per_s": minutes_per_s, "hold_s": load.hold_s})
    return with_choices(topology, workload=workload)


def require_packages() -> None:
    """ConfigurationError where a package the factory needs is missing."""
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"the factory needs {', '.join(missing)}; install them with `pip install -e '.[examples]'`"
        )


def _levels(text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(part) for part in text.split(","))
    except ValueError:
        levels = ()
    if not levels or min(levels) < 1:
        raise ConfigurationError(f'expected numbers of machines such as "2,4,8,4,2", got {text!r}')
    return levels


# --- the run ---------------------------------------------------------------------------------------------


class SensorFeed(Feed):
    """The factory's sensors as the sources of a run; it knows when all they gave rise to has arrived."""

    def __init__(self, run: str, topology: Topology, folder: RunFolder, load: Load) -> None:
        super().__init__(run, topology, folder.units, load.duration_s)
        self.load = load
        self.inbox = folder.root / "inbox"
        # Read by the sink in the driver of the unit that has it.
        os.environ[inbox.FOLDER_VARIABLE] = str(self.inbox)

    def launch(self, sources: Collection[str]) -> None:
        """One process makes the records of all three sensors: it carries the name of the first."""
        streams = {
            source: [str(self.folders.sources / source / unit) for unit in units]
            for source, units in generated_sources(self.topology).items()
        }
        specification = {
            "load": asdict(self.load),
            "streams": streams,
            "started_s": self.started_s,
            "duration_s": self.duration_s,
        }
        file = self.folders.root / "feeder.json"
        written(file, json.dumps(specification))
        self.children.start(
            self.sources[0],
            [sys.executable, "-m", "factory.feed", str(file)],
            log=self.folders.root / "feeder.log",
            environment={**os.environ, "PYTHONPATH": str(EXAMPLES)},
        )

    def unfinished(self) -> tuple[str, ...]:
        """The one process, until it has said how much it emitted."""
        return () if self.emissions() is not None else self.sources[:1]

    def all_arrived(self) -> bool:
        """Whether every value, warning and report the sensors gave rise to is there."""
        return self.emissions() is not None and self.reconcile().complete

    def emissions(self) -> int | None:
        """Minutes of machines that were emitted, once the feeder has ended."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            file = self.folders.sources / "production" / FINISHED
            return int(json.loads(file.read_text())["emissions"])
        return None

    def reconcile(self) -> Reconciliation:
        """Compare the results with the truth, record by record."""
        return reconcile(self)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What the sensors sent and what came of it, beside what should have."""

    records: dict[str, int]
    """Records by source."""
    rows: tuple[tuple[str, int, int], ...]
    """(what, expected, found)."""
    unreadable: int
    """Pictures OCR could not read, and said so."""
    wrong: int
    """OEE values that differ from the truth: readings that were wrong and not noticed, or worse."""

    @property
    def complete(self) -> bool:
        """Whether everything expected was found, and nothing more."""
        return all(expected == found for _, expected, found in self.rows)


def reconcile(sensors: SensorFeed) -> Reconciliation:
    """Compare a run's results with the truth, record by record."""
    emitted = sensors.emissions() or 0
    minutes = feed.truth(sensors.load, emitted)
    values = read_results(sensors.folders.results / "values")
    unreadable = {(v["machine"], v["sequence"]) for v in values if v.get("oee") is None}
    truth = effectiveness.effectiveness_in_batch(minutes, unreadable)
    ids = {(value["machine"], value["sequence"]) for value in values}
    wrong = sum(
        abs(value["oee"] - truth[key].oee) > 1e-9
        for value in values
        if (key := (value["machine"], value["sequence"])) in truth
    )
    messages = inbox.messages_in(sensors.inbox)
    found = {
        kind: {(message.machine, message.sequence) for message in messages if message.kind == kind}
        for kind in ("defect", "temperature", "report")
    }
    expected = {
        "defect": effectiveness.new_defects(minutes),
        "temperature": effectiveness.new_violations(minutes, machines.TEMPERATURE_LIMIT),
    }
    pictures = {(minute.machine, minute.number) for minute in minutes}
    rows = (
        ("pictures → OEE values", len(minutes), len(values)),
        ("each machine and timestamp once", len(pictures), len(ids & pictures)),
        ("new defects → warnings", len(expected["defect"]), len(found["defect"])),
        (
            "the same defects",
            len(expected["defect"]),
            len(found["defect"] & expected["defect"]),
        ),
        ("new violations → warnings", len(expected["temperature"]), len(found["temperature"])),
        (
            "the same violations",
            len(expected["temperature"]),
            len(found["temperature"] & expected["temperature"]),
        ),
        (f"values / {REPORT_EVERY} → reports", len(minutes) // REPORT_EVERY, len(found["report"])),
    )
    records = {source: emitted * feed.PER_MINUTE[source] for source in sensors.sources}
    return Reconciliation(records, rows, len(unreadable), wrong)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All there is to say about a demo that ended."""

    result: RunResult
    twin: RunResult
    """The same run simulated, with the durations it measured."""
    unscaled: RunResult
    """The same once more, with one instance a unit all the time."""
    reconciliation: Reconciliation
    page: Path
    pdfs: tuple[Path, ...]
    hints: tuple[str, ...]
    """What would have been kept, where something was missed."""
    first_record_s: float | None
    """From the start of the run until the first record was processed."""
    interrupted: bool

    @property
    def right(self) -> bool:
        """Whether every count and every value agrees with the truth."""
        return self.reconciliation.complete and not self.reconciliation.wrong


def run_factory(
    topology: Topology,
    load: Load,
    folder: Path,
    *,
    bootstrap: str | None = None,
    console: Console | None = None,
    watch: Callable[[Run, Tick], None] | None = None,
    drain_s: float = DRAIN_S,
) -> Outcome:
    """Run the factory to its end and compare what came out with the truth; `watch` gets (run, tick)."""
    console = console or make_console()
    begun_s = time.time()
    first_s: list[float] = []
    interrupted = False
    place = RunFolder.at(folder)
    name = f"factory-{os.getpid()}"
    plan = RunPlan.of(
        topology,
        name,
        duration_s=load.duration_s,
        drain_s=drain_s,
        code=str(EXAMPLES),
        bootstrap=bootstrap,
        settings={
            "spark.factory.reportEvery": str(REPORT_EVERY),
            "spark.factory.bothLooks": "true",
            # Steps with state have one place to run in: more partitions are more rounds of the same work.
            "spark.sql.shuffle.partitions": "1",
        },
    )
    sensors = SensorFeed(name, topology, place, load)
    run = Run(plan, place, feed=sensors)
    busy: list[float] = []
    psutil.cpu_percent()  # the first call begins to measure
    view = LiveView(time.time, lambda: _headline(sensors, begun_s), lambda: _inbox_line(sensors))

    def each(tick: Tick) -> None:
        status = run.status()
        view.show(status)
        busy.append(psutil.cpu_percent() / 100)
        if not first_s and any(signal.measurement.processed for signal in tick.signals):
            first_s.append(time.time() - begun_s)
        if not console.is_terminal:
            for text in run.news():
                console.print(f"{time.time() - begun_s:5.0f} s  {text}", markup=False)
        if watch is not None:
            watch(run, tick)

    live = Live(view, console=console, refresh_per_second=2, transient=True)
    try:
        with live if console.is_terminal else contextlib.nullcontext(), run:
            try:
                run.run(each)
            except KeyboardInterrupt:
                interrupted = True
            result, last = run.result(), run.status()
            reconciliation = sensors.reconcile()
            _deafen()
            profile = measured_profile(topology, run.journal, sensors.started_s)
            profile.write(folder / PROFILE)
            twin = simulated_twin(topology, profile, load.seed)
            still = with_choices(topology, policy=Choice("fixed", {"instances": 1}))
            unscaled = simulated_twin(still, profile, load.seed)
            best_cost, busy_ratio = best_cost_of(run.journal, topology), fmean(busy) if busy else None
            page = write_run_report(
                folder, topology, result, run.journal, {"simulated": twin}, best_cost, busy_ratio
            )
    finally:
        _listen()
    place.write_end(last, result)
    pdfs = tuple(message.document for message in inbox.messages_in(sensors.inbox) if message.document)
    began_s = first_s[0] if first_s else None
    told = tuple(hints(result, busy_ratio))
    return Outcome(result, twin, unscaled, reconciliation, page, pdfs, told, began_s, interrupted)


def _listen() -> None:
    """Ctrl-C and SIGTERM both end it in order, also where a shell's background ignores the first."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _deafen() -> None:
    """A second Ctrl-C must not break off the stopping that the first one began."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def _broker(topology: Topology, folder: Path) -> Iterator[str | None]:
    """The address of the server the topology's channels need: the one that runs, or one for this run."""
    service = service_of(topology)
    address = None if service is None else service.address()
    if service is None or address is not None:
        yield address
        return
    own = service.own(f"demo-{os.getpid()}", folder / service.name)
    try:
        yield own.start()
    finally:
        own.stop()


# --- words -----------------------------------------------------------------------------------------------


def _headline(sensors: SensorFeed, begun_s: float) -> str:
    started_s, load = sensors.started_s, sensors.load
    if started_s is None:
        return f"factory · starting for {format_duration(time.time() - begun_s)}"
    since_s = max(0.0, time.time() - started_s)
    if since_s >= load.duration_s:
        return f"factory · machines off, {format_duration(since_s - load.duration_s)} of draining"
    duration = format_duration(load.duration_s)
    return f"factory · {format_duration(since_s)} of {duration} · {load.machines_at(since_s)} machines on"


def _inbox_line(sensors: SensorFeed) -> str:
    try:
        names = [name for name in os.listdir(sensors.inbox) if name.endswith(".json")]
    except FileNotFoundError:
        names = []
    reports = sum(name.startswith("report") for name in names)
    return f"inbox: {len(names) - reports} warnings, {reports} reports"


def _print_summary(console: Console, outcome: Outcome) -> None:
    result, reconciled = outcome.result, outcome.reconciliation
    units = Table(title="units", title_justify="left")
    for name in (
        "unit",
        "records",
        "left",
        "mean",
        "p95",
        "SLO",
        *(level.replace("_", " ") for level in LEVELS),
    ):
        units.add_column(name, justify="left" if name == "unit" else "right")
    for name, unit in result.units.items():
        units.add_row(
            name,
            f"{unit.processed:,}",
            str(unit.left),
            format_duration(unit.durations.mean_s),
            format_duration(unit.durations.p95_s),
            format_duration(unit.slo_s),
            *(unit.compliance.shown(level) for level in LEVELS),
        )
    console.print(units)
    if outcome.interrupted:
        console.print("interrupted: what was on its way stays in the run's folder; nothing is compared")
    else:
        _print_reconciliation(console, reconciled)
    actions = ", ".join(f"{verb_of(kind)} {count}" for kind, count in sorted(result.actions.items()) if count)
    console.print(
        f"bill: [bold]{result.resource_cost:.4g} {result.currency}[/bold] for {result.paid_units} billing "
        f"units on {result.leases} hosts ({result.host_s / 60:.1f} host-minutes); {actions}; "
        f"{result.paid_after_release} units paid for hosts that had been told to go"
    )
    console.print(
        "compliance: "
        + ", ".join(f"{level.replace('_', ' ')} {result.compliance.shown(level)}" for level in LEVELS)
        + f"; end to end p95 {format_duration(result.end_to_end.p95_s)}"
    )
    kept, without = (
        ", ".join(f"{name} {unit.compliance.shown('real_time')}" for name, unit in found.units.items())
        for found in (result, outcome.unscaled)
    )
    console.print(
        f"kept with scaling: [bold]{kept}[/bold]; without it, one instance a unit: [bold]{without}[/bold] "
        "(simulated with the durations of this run)"
    )
    for hint in outcome.hints:
        console.print(hint, style="yellow", highlight=False)
    console.print(side_by_side(deviations(outcome.result, outcome.twin)))
    if outcome.first_record_s is not None:
        console.print(f"first record processed {outcome.first_record_s:.0f} s after the start")
    console.print(f"report: {outcome.page}", soft_wrap=True)
    console.print(f"page:   penstock page {outcome.page.parent}", soft_wrap=True, highlight=False)
    if outcome.pdfs:
        console.print(f"PDF:    {outcome.pdfs[-1]}", soft_wrap=True)


def _print_reconciliation(console: Console, reconciled: Reconciliation) -> None:
    counts = Table(title="against the truth", title_justify="left")
    for name in ("what", "expected", "found", ""):
        counts.add_column(name, justify="right" if name in ("expected", "found") else "left")
    for what, expected, found in reconciled.rows:
        counts.add_row(what, f"{expected:,}", f"{found:,}", "✓" if expected == found else "✗")
    counts.add_row(
        "OEE values that differ from the truth", "0", str(reconciled.wrong), "✗" if reconciled.wrong else "✓"
    )
    console.print(counts)
    sent = ", ".join(f"{count:,} {source}" for source, count in reconciled.records.items())
    console.print(f"records in: {sent}; pictures OCR could not read: {reconciled.unreadable}")


if __name__ == "__main__":
    _listen()
    with told_in_words():
        typer.run(demo)
