"""The demo: a lambda architecture finds attacks in two minutes of traffic, on an elastic Spark cluster.

`python examples/ddos/demo.py`: a Spark batch job trains a model on days without attacks. The streaming
topology of `ddos.yaml` looks at a day with attacks, scaled by policy `levels`. Then the same capture goes
through the batch layer. Alerts of both must be equal, and are compared with the labels. At the end the same
run is simulated with what this one measured.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import typer
from detector.model import Judged, Model
from detector.operators import MODEL
from detector.packets import dotted
from detector.picture import draw
from detector.traffic import Labelled, captured, period_of, truth
from rich.table import Table

from penstock.channels.sinks import read_results
from penstock.cli.choices import read_choice
from penstock.cli.console import console as make_console
from penstock.cli.main import told_in_words
from penstock.controller.result import RunResult
from penstock.errors import ClusterError, ConfigurationError
from penstock.experiments.recordings import find_recordings
from penstock.quantities import format_duration
from penstock.report.terminal import ProgressLines, side_by_side
from penstock.runs.assembly import load as load_file
from penstock.runs.assembly import with_choices
from penstock.runs.folder import RunFolder
from penstock.runs.profile import PROFILE, deviations, profile_of, simulated_twin
from penstock.runs.service import run_topology
from penstock.topology.model import Topology

Alert = tuple[int, str, str]
"""(period, source, destination)"""
KDD = ("nsl_kdd_train20.csv", "nsl_kdd_test.csv")


def demo(
    minutes: Annotated[float, typer.Option(help="How long traffic is looked at.")] = 2.0,
    policy: Annotated[str, typer.Option(help="Policy of every unit, such as levels or rate.")] = "levels",
    data: Annotated[
        Path | None, typer.Option(help="Folder with the files of NSL-KDD, for the model on real connections.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Train in batch, detect in a stream, compare both with each other and with the labels."""
    console = make_console()
    topology = topology_of(policy)
    duration_s = minutes * 60
    folder = (out / f"ddos-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(f"Folder: {folder}", soft_wrap=True, highlight=False)
    with console.status("batch layer: training on a day without attacks …"), session() as spark:
        model = trained(spark, topology)
        on_connections = _connections(spark, data)
    console.print(
        f"batch layer: {len(model.components)} of {len(model.names)} components of {model.rows:,} normal rows"
        f", limits Q {model.q_limit:.3g} and T² {model.t2_limit:.3g}"
    )
    for text in on_connections:
        console.print(f"NSL-KDD: {text}", highlight=False)
    file = model.write(folder / "model.json")
    console.print(f"stream: {format_duration(duration_s)} of traffic with attacks, policy {policy}")
    watch = ProgressLines(console, duration_s)
    result = run_topology(
        topology, folder / "run", duration_s=duration_s, code=HERE, settings={MODEL: str(file)}, watch=watch
    )
    with console.status("batch layer: the same capture …"), session() as spark:
        compared = compare(spark, topology, model, folder / "run", duration_s)
    _print(console, compared, result)
    found, profile = profile_of(RunFolder(folder / "run"))
    profile.write(folder / "run" / PROFILE)
    twin = simulated_twin(found, profile, 1)
    console.print(side_by_side(deviations(result, twin)))
    console.print(f"picture: {folder / 'ddos.svg'}", soft_wrap=True, highlight=False)
    console.print(f"page:    penstock page {folder / 'run'}", soft_wrap=True, highlight=False)
    if not compared.equal:
        raise ClusterError("the stream's alerts are not those of the batch; see above")


def _connections(spark: Any, data: Path | None) -> list[str]:
    """What the method reaches on NSL-KDD, where its files are."""
    from detector.kdd import evaluated

    folder = find_recordings(data).folder
    files = [] if folder is None else [folder / name for name in KDD]
    if not files or not all(file.is_file() for file in files):
        return [f"left out, {' and '.join(KDD)} are absent (--data, or the variable PENSTOCK_DATA)"]
    return evaluated(spark, *files)


def topology_of(policy: str = "levels") -> Topology:
    """The topology file, under a policy."""
    topology = load_file(HERE / "ddos.yaml")
    if policy != topology.units[0].policy.name:
        topology = with_choices(topology, policy=read_choice(policy))
    return topology


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """A Spark session of the batch layer, in this process."""
    from penstock.spark.settings import end_session, start_session

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), before]))
    try:
        yield start_session("ddos-batch", "local[2]", log_level="ERROR")
    finally:
        end_session()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def trained(spark: Any, topology: Topology, days: int = 2) -> Model:
    """The model of days without attacks, by a Spark batch job."""
    from detector.batch import capture, train_on_traffic

    workload = topology.source_by_name["packets"].workload
    if workload is None:
        raise ConfigurationError("expected a workload of the source packets")
    length_s = days * float(workload.parameters.get("day_s", 120.0))
    return train_on_traffic(capture(spark, captured("a-usual-day", workload, length_s, ())))


@dataclass(frozen=True, slots=True)
class Compared:
    """The stream beside the batch, and both beside the labels."""

    stream: Mapping[Alert, tuple[float, float]]
    """By (period, source, destination), both scores."""
    batch: Mapping[Alert, tuple[float, float]]
    doubled: int
    """Alerts the stream gave more than once."""
    kinds: Mapping[Alert, str]
    """What is in the labels of the periods that are over."""
    packets: int

    @property
    def equal(self) -> bool:
        """Whether stream and batch have the same alerts with the same scores, each once."""
        return self.stream == self.batch and not self.doubled

    @property
    def judged(self) -> Judged:
        """The stream's alerts beside the labels."""
        right = len(self.stream.keys() & self.kinds.keys())
        return Judged(right, len(self.stream) - right, len(self.kinds) - right)

    def by_kind(self) -> list[tuple[str, int, int]]:
        """(kind, pairs in periods with it, alerts among them)."""
        there = Counter(self.kinds.values())
        found = Counter(kind for alert, kind in self.kinds.items() if alert in self.stream)
        return [(kind, there[kind], found[kind]) for kind in there]


def compare(spark: Any, topology: Topology, model: Model, run: Path, duration_s: float) -> Compared:
    """What the stream found beside what the batch finds in the same capture, and the labels."""
    workload = topology.source_by_name["packets"].workload
    assert workload is not None
    rows = read_results(RunFolder(run).units.results / "alerts")
    packets = list(captured("packets", workload, duration_s))
    found = compared_with(spark, model, rows, packets)
    draw(run.parent / "ddos.svg", packets, found.stream.keys(), found.kinds)
    return found


def compared_with(spark: Any, model: Model, rows: list[dict[str, Any]], packets: list[Labelled]) -> Compared:
    """Alerts of a stream beside what the batch finds in the packets, and their labels."""
    from detector.batch import alerts_in_batch, capture

    stream = {(a["period"], a["source"], a["destination"]): (a["q"], a["t2"]) for a in rows}
    found = alerts_in_batch(capture(spark, packets), model)
    batch = {
        (a["period"], a["source"], a["destination"]): (a["q"], a["t2"]) for a in found.to_dict("records")
    }
    lanes = (packets[-1], packets[-2])
    last = min(period_of(labelled.packet.time_us) for labelled in lanes)
    kinds = {
        (period, dotted(source), dotted(destination)): kind
        for (period, source, destination), kind in truth(packets).items()
        if period < last
    }
    return Compared(stream, batch, len(rows) - len(stream), kinds, len(packets))


def _print(console: Any, found: Compared, result: RunResult) -> None:
    table = Table(title="attacks by source, destination and period", title_justify="left")
    for name in ("kind", "there", "found", "recall"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for kind, there, told in found.by_kind():
        table.add_row(kind, f"{there:,}", f"{told:,}", f"{told / there:.1%}")
    console.print(table)
    console.print(f"{found.packets:,} packets; {found.judged}", highlight=False)
    same = "equal, scores too" if found.equal else "NOT equal"
    console.print(
        f"alerts: {len(found.stream):,} of the stream, {len(found.batch):,} of the batch: {same}",
        highlight=False,
    )
    for name, unit in result.units.items():
        console.print(
            f"{name}: {unit.processed:,} records, mean {format_duration(unit.durations.mean_s)}, "
            f"p95 {format_duration(unit.durations.p95_s)}, SLO {format_duration(unit.slo_s)} kept by "
            f"{unit.compliance.shown('real_time')}",
            highlight=False,
        )
    actions = ", ".join(f"{count} {kind}" for kind, count in sorted(result.actions.items()))
    console.print(f"{actions}; {result.leases} hosts, {result.host_s / 60:.1f} host-minutes", highlight=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with told_in_words():
        typer.run(demo)
