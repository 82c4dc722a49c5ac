"""`penstock demo`: paper 000's factory on a real, elastic Spark cluster, for about three minutes.

This is what a newcomer sees first (`make run`): machines come and go by steps, executors and hosts follow by
policy, leases are paid, and at the end every result is compared with the generator's own truth. The
factory is in the source tree (`examples/factory`), so the demo needs a checkout, not only the package.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

import penstock
from penstock.channels.feeder import FINISHED
from penstock.channels.sinks import read_results
from penstock.cli.assembly import load as load_file
from penstock.cli.assembly import with_choices
from penstock.cli.choices import read_choice
from penstock.cli.console import console as make_console
from penstock.cli.demo_view import DemoView
from penstock.cli.profile import PROFILE, deviations, measured_profile, simulated_twin
from penstock.controller.loop import Tick
from penstock.controller.result import RunResult
from penstock.errors import ClusterError, ConfigurationError
from penstock.monitoring.sla import LEVELS
from penstock.quantities import format_duration
from penstock.report.run_report import write_run_report
from penstock.spark.run import FEED, Run, RunPlan
from penstock.spark.training import ensure_archive
from penstock.spark.unit_plan import generated_sources
from penstock.topology.model import Channel, Choice, Topology, Unit

NEEDED = {"PIL": "pillow", "rapidocr_onnxruntime": "rapidocr-onnxruntime", "fpdf": "fpdf2"}
"""Modules the factory uses, and the packages that have them."""
REPORT_EVERY = 60
"""OEE values that make a report; the paper's 300, for a run of three minutes instead of two hours."""
DRAIN_S = 240.0
"""Longest time records in flight are waited for after the machines have stopped."""


def demo(
    policy: Annotated[str, typer.Option(help="Policy of every unit, such as btu or threshold.")] = "btu",
    minutes: Annotated[float, typer.Option(help="How long machines run.")] = 3.0,
    channel: Annotated[str, typer.Option(help="Channel between units: files or kafka.")] = "files",
    machines: Annotated[str, typer.Option(help="Machines switched on, step by step.")] = "2,4,6,4,2",
    factor: Annotated[float, typer.Option(help="The paper's rates times this.")] = 0.4,
    single: Annotated[bool, typer.Option("--single", help="One operator a unit: nine applications.")] = False,
    smudged: Annotated[float, typer.Option(help="Share of pictures nobody can read.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Which machines: the same seed lives the same lives.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Run paper 000's factory on a local elastic cluster, live, and check every result."""
    console = make_console()
    factory = find_factory()
    load = factory.load(_levels(machines), minutes * 60, factor, seed, smudged)
    topology = factory.topology(load, policy=policy, channel=channel, single=single)
    folder = (out / f"factory-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(
        f"The factory under policy [bold]{policy}[/bold] for {format_duration(load.duration_s)}: "
        f"{machines} machines, {len(topology.units)} units. Ctrl-C ends it in order. Folder: {folder}"
    )
    with console.status("preparing Java (the first time takes a minute) …"):
        ensure_archive()
    with _broker(topology) as bootstrap:
        outcome = run_factory(factory, topology, load, folder, bootstrap=bootstrap, console=console)
    _print_summary(console, outcome)
    if not outcome.right and not outcome.interrupted:
        raise ClusterError("the counts or values do not agree with the truth; see the table above")


# --- the factory's own code ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Factory:
    """The example's modules and where they lie."""

    examples: Path
    feed: Any
    effectiveness: Any
    machines: Any
    inbox: Any

    def load(
        self, levels: Sequence[int], duration_s: float, factor: float, seed: int, smudged_ratio: float = 0.0
    ) -> Any:
        """The load that goes through these numbers of machines in a duration."""
        return self.feed.Load(
            machines=tuple(levels),
            hold_s=duration_s / len(levels),
            rate_factor=factor,
            seed=seed,
            smudged_ratio=smudged_ratio,
        )

    def topology(
        self, load: Any, *, policy: str | None = None, channel: str = "files", single: bool = False
    ) -> Topology:
        """The topology file with a load, and with other choices where they are given."""
        topology = load_file(self.examples / "factory" / "factory.yaml")
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


def find_factory() -> Factory:
    """The example in the source tree; ConfigurationError where it or a package it needs is missing."""
    examples = Path(penstock.__file__).resolve().parents[2] / "examples"
    if not (examples / "factory" / "factory.yaml").exists():
        raise ConfigurationError(
            f"expected the factory in {examples / 'factory'}, but it is not there: the demo runs from a "
            "checkout of the repository (`make run`), not from the installed package"
        )
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"the factory needs {', '.join(missing)}; install them with `pip install -e '.[examples]'`"
        )
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    names = ("feed", "effectiveness", "machines", "inbox")
    return Factory(examples, *(importlib.import_module(f"factory.{name}") for name in names))


def _levels(text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(part) for part in text.split(","))
    except ValueError:
        levels = ()
    if not levels or min(levels) < 1:
        raise ConfigurationError(f'expected numbers of machines such as "2,4,6,4,2", got {text!r}')
    return levels


# --- the run ---------------------------------------------------------------------------------------------


class FactoryRun(Run):
    """A run whose sources are the factory's sensors; it ends when all of their records have arrived."""

    def __init__(self, factory: Factory, load: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, code=factory.examples, **named)
        self.factory = factory
        self.load = load
        self.inbox = self.folders.root / "inbox"
        # Read by the sink in the driver of the unit that has it.
        os.environ[factory.inbox.FOLDER_VARIABLE] = str(self.inbox)

    def _start_feeders(self) -> None:
        started_s = time.time() + 0.2
        streams = {
            source: [str(self.folders.sources / source / unit) for unit in units]
            for source, units in generated_sources(self.topology).items()
        }
        specification = {
            "load": asdict(self.load),
            "streams": streams,
            "started_s": started_s,
            "duration_s": self.plan.duration_s,
        }
        file = self.folders.root / "feeder.json"
        file.write_text(json.dumps(specification))
        (self.folders.root / FEED).write_text(json.dumps({"started_s": started_s}))
        # One process makes the records of all three sensors: it carries the name of the first.
        self._feeders.start(
            self.sources[0],
            [sys.executable, "-m", "factory.feed", str(file)],
            log=self.folders.root / "feeder.log",
            environment={**os.environ, "PYTHONPATH": str(self.factory.examples)},
        )

    def drained(self) -> bool:
        """Whether every value, warning and report the sensors gave rise to is there."""
        if self.emissions() is None:
            return False
        return reconcile(self).complete

    def emissions(self) -> int | None:
        """Minutes of machines that were emitted, once the feeder has ended."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            file = self.folders.sources / "production" / FINISHED
            return int(json.loads(file.read_text())["emissions"])
        return None


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


def reconcile(run: FactoryRun) -> Reconciliation:
    """Compare a run's results with the truth, record by record."""
    factory, emitted = run.factory, run.emissions() or 0
    minutes = factory.feed.truth(run.load, emitted)
    values = read_results(run.folders.results / "values")
    unreadable = {(v["machine"], v["sequence"]) for v in values if v.get("oee") is None}
    truth = factory.effectiveness.effectiveness_in_batch(minutes, unreadable)
    ids = {(value["machine"], value["sequence"]) for value in values}
    wrong = sum(
        abs(value["oee"] - truth[key].oee) > 1e-9
        for value in values
        if (key := (value["machine"], value["sequence"])) in truth
    )
    messages = factory.inbox.messages_in(run.inbox)
    found = {
        kind: {(message.machine, message.sequence) for message in messages if message.kind == kind}
        for kind in ("defect", "temperature", "report")
    }
    expected = {
        "defect": factory.effectiveness.new_defects(minutes),
        "temperature": factory.effectiveness.new_violations(minutes, factory.machines.TEMPERATURE_LIMIT),
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
    per_minute = factory.feed.PER_MINUTE
    records = {source: emitted * per_minute[source] for source in run.sources}
    return Reconciliation(records, rows, len(unreadable), wrong)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All there is to say about a demo that ended."""

    result: RunResult
    twin: RunResult
    """The same run simulated, with the durations it measured."""
    reconciliation: Reconciliation
    page: Path
    pdfs: tuple[Path, ...]
    first_record_s: float | None
    """From the start of the run until the first record was processed."""
    interrupted: bool

    @property
    def right(self) -> bool:
        """Whether every count and every value agrees with the truth."""
        return self.reconciliation.complete and not self.reconciliation.wrong


def run_factory(
    factory: Factory,
    topology: Topology,
    load: Any,
    folder: Path,
    *,
    bootstrap: str | None = None,
    console: Console | None = None,
    watch: Callable[[FactoryRun, Tick], None] | None = None,
    drain_s: float = DRAIN_S,
) -> Outcome:
    """Run the factory to its end and compare what came out with the truth; `watch` gets (run, tick)."""
    console = console or make_console()
    begun_s = time.time()
    first_s: list[float] = []
    interrupted = False
    plan = RunPlan(f"factory-{os.getpid()}", load.duration_s, drain_s)
    settings = {"spark.factory.reportEvery": str(REPORT_EVERY)}
    run = FactoryRun(factory, load, topology, folder, plan, bootstrap=bootstrap, settings=settings)
    view = DemoView(
        topology,
        lambda: run.controller.state.ledger.open_leases() if hasattr(run, "controller") else {},
        lambda: run.controller.state.ledger.total,
        lambda: _headline(run, begun_s),
        lambda: _inbox_line(run),
    )

    def each(tick: Tick) -> None:
        told = view.see(tick)
        if not first_s and any(signal.measurement.processed for signal in tick.signals):
            first_s.append(time.time() - begun_s)
        if not console.is_terminal:
            for text in told:
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
            result = run.result()
            reconciliation = reconcile(run)
            _deafen()
            profile = measured_profile(topology, run.journal, run._feed_started_s() if run.feeding else None)
            profile.write(folder / PROFILE)
            twin = simulated_twin(topology, profile, load.seed)
            page = write_run_report(folder, topology, result, run.journal, {"simulated": twin})
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pdfs = tuple(message.document for message in factory.inbox.messages_in(run.inbox) if message.document)
    return Outcome(result, twin, reconciliation, page, pdfs, first_s[0] if first_s else None, interrupted)


def _deafen() -> None:
    """A second Ctrl-C must not break off the stopping that the first one began."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _broker(topology: Topology) -> Iterator[str | None]:
    """The address of a Kafka broker where the topology needs one: the one that runs, or one for this run."""
    if not any(channel.kind == "kafka" for channel in topology.channels):
        yield None
        return
    from penstock.cli.broker import default_folder, running_bootstrap
    from penstock.cli.broker import up as start_broker

    running = running_bootstrap()
    if running is not None:
        yield running
        return
    start_broker(None)
    try:
        yield running_bootstrap()
    finally:
        from penstock.channels.broker import Broker

        Broker(default_folder(), Path("java"), []).stop()


# --- words -----------------------------------------------------------------------------------------------


def _headline(run: FactoryRun, begun_s: float) -> str:
    if not run.feeding:
        return f"factory · starting for {format_duration(time.time() - begun_s)}"
    since_s = max(0.0, time.time() - run._feed_started_s())
    if since_s >= run.load.duration_s:
        return f"factory · machines off, {format_duration(since_s - run.load.duration_s)} of draining"
    duration = format_duration(run.load.duration_s)
    machines = run.load.machines_at(since_s)
    return f"factory · {format_duration(since_s)} of {duration} · {machines} machines on"


def _inbox_line(run: FactoryRun) -> str:
    try:
        names = [name for name in os.listdir(run.inbox) if name.endswith(".json")]
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
    actions = ", ".join(f"{count} {kind}" for kind, count in sorted(result.actions.items()))
    console.print(
        f"bill: [bold]{result.resource_cost} {result.currency}[/bold] for {result.paid_units} billing units "
        f"on {result.leases} hosts ({result.host_s / 60:.1f} host-minutes); {actions}"
    )
    console.print(
        "compliance: "
        + ", ".join(f"{level.replace('_', ' ')} {result.compliance.shown(level)}" for level in LEVELS)
        + f"; end to end p95 {format_duration(result.end_to_end.p95_s)}"
    )
    console.print(_side_by_side(outcome))
    if outcome.first_record_s is not None:
        console.print(f"first record processed {outcome.first_record_s:.0f} s after the start")
    console.print(f"report: {outcome.page}", soft_wrap=True)
    if outcome.pdfs:
        console.print(f"PDF:    {outcome.pdfs[-1]}", soft_wrap=True)


def _side_by_side(outcome: Outcome) -> Table:
    table = Table(title="real and simulated, side by side", title_justify="left")
    for name in ("figure", "real", "simulated", "deviation"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, real, simulated, deviation in deviations(outcome.result, outcome.twin):
        shown = "–" if deviation is None else f"{deviation:+.1%}"
        table.add_row(name, f"{real:.3g}", f"{simulated:.3g}", shown)
    return table


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
