"""What a run is doing, in the words of Prometheus and OpenMetrics: of a running one, and of one that is over.

Names and units are those that Prometheus prescribes: `penstock_` in front, base units (seconds, ratios),
`_total` behind what only grows. A running one is told as it is now; of a journal every instant is told,
with its time, so that it can be loaded into a Prometheus afterwards. Both by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.controller.status import Status
from penstock.machine.endpoint import Page

if TYPE_CHECKING:
    from penstock.controller.journal import Journal
    from penstock.controller.loop import Tick

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """One metric: whether it only grows, and what it is."""

    kind: str
    help: str


FAMILIES = {
    "penstock_acting": Family("gauge", "1 where decisions are carried out, 0 where they are only advice."),
    "penstock_paused": Family("gauge", "1 where nothing is decided."),
    "penstock_last_tick_timestamp_seconds": Family("gauge", "When the control loop last looked."),
    "penstock_instances": Family("gauge", "Instances that serve or were asked for."),
    "penstock_running_instances": Family("gauge", "Instances that serve."),
    "penstock_least_instances": Family("gauge", "The lower bound of instances."),
    "penstock_most_instances": Family("gauge", "The upper bound of instances."),
    "penstock_arrived_records_total": Family("counter", "Records that came in."),
    "penstock_processed_records_total": Family("counter", "Records that were finished."),
    "penstock_waiting_records": Family("gauge", "Records that wait."),
    "penstock_duration_seconds": Family("gauge", "Mean time from a record's arrival to its end."),
    "penstock_duration_p95_seconds": Family("gauge", "The same, which 95 of 100 records keep."),
    "penstock_slo_seconds": Family("gauge", "The longest acceptable duration."),
    "penstock_cpu_ratio": Family("gauge", "Mean CPU utilisation of the instances."),
    "penstock_hosts": Family("gauge", "Hosts that are leased."),
    "penstock_cost_total": Family("counter", "What was paid for hosts, in the site's currency."),
    "penstock_decisions_total": Family("counter", "Changes that were decided, by what became of them."),
    "penstock_query_active": Family("gauge", "1 while the streaming query runs."),
    "penstock_query_processed_records_total": Family("counter", "Records that the query has read."),
    "penstock_query_waiting_records": Family("gauge", "Records that wait for the query."),
    "penstock_query_duration_seconds": Family(
        "gauge", "Mean time from a record's arrival to its batch's end."
    ),
    "penstock_query_batch_seconds": Family("gauge", "How long a batch of the query takes."),
    "penstock_query_slo_seconds": Family("gauge", "The longest acceptable duration of the query."),
    "penstock_query_restarts_total": Family("counter", "How often the query was started again."),
}
"""Every metric there is, in the order they are told in."""


class Sample(NamedTuple):
    """One value of one metric."""

    name: str
    labels: Mapping[str, str]
    value: float
    at_s: float | None = None
    """When it was so; None means now."""


@dataclass(slots=True)
class Tally:
    """Counts what only grows, tick by tick."""

    arrived: dict[str, int] = field(default_factory=dict)
    processed: dict[str, int] = field(default_factory=dict)
    decisions: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """By unit, kind and what became of it: `done`, `refused`."""

    def see(self, tick: Tick) -> None:
        """Take in one turn of the loop."""
        for signal in tick.signals:
            measured = signal.taken  # what was counted, not what a filter made of it
            self.arrived[signal.unit] = self.arrived.get(signal.unit, 0) + measured.arrived
            self.processed[signal.unit] = self.processed.get(signal.unit, 0) + measured.processed
        for verdict in tick.verdicts:
            if verdict.action.changes:
                became = "done" if verdict.refused is None else "refused"
                key = (verdict.action.unit or "", type(verdict.action).__name__, became)
                self.decisions[key] = self.decisions.get(key, 0) + 1


def samples_of(status: Status, tally: Tally) -> Iterator[Sample]:
    """A running attachment or run, as it is now."""
    run = {"run": status.run}
    yield Sample("penstock_acting", run, float(status.acting))
    yield Sample("penstock_paused", run, float(status.paused))
    yield Sample("penstock_last_tick_timestamp_seconds", run, status.at_s)
    yield Sample("penstock_hosts", run, len(status.hosts))
    yield Sample("penstock_cost_total", run | {"currency": status.currency}, float(status.bill))
    for unit in status.units:
        own = run | {"unit": unit.name}
        yield Sample("penstock_instances", own, unit.instances)
        yield Sample("penstock_running_instances", own, unit.running)
        yield Sample("penstock_least_instances", own, unit.least)
        yield Sample("penstock_most_instances", own, unit.most)
        yield Sample("penstock_slo_seconds", own, unit.slo_s)
        yield Sample("penstock_arrived_records_total", own, tally.arrived.get(unit.name, 0))
        yield Sample("penstock_processed_records_total", own, tally.processed.get(unit.name, 0))
        measured = unit.measurement
        if measured is not None:
            yield Sample("penstock_waiting_records", own, measured.waiting)
            yield from _known("penstock_duration_seconds", own, measured.duration_s)
            yield from _known("penstock_duration_p95_seconds", own, measured.duration_p95_s)
        yield from _known("penstock_cpu_ratio", own, unit.cpu_ratio)
    for query in status.queries:
        own = run | {"query": query.name}
        yield Sample("penstock_query_active", own, float(query.active))
        yield Sample("penstock_query_processed_records_total", own, query.processed)
        yield from _known("penstock_query_waiting_records", own, query.waiting)
        yield from _known("penstock_query_duration_seconds", own, query.duration_s)
        yield from _known("penstock_query_batch_seconds", own, query.batch_s)
        yield Sample("penstock_query_slo_seconds", own, query.slo_s)
        yield Sample("penstock_query_restarts_total", own, query.restarts)
    for (unit_name, kind, became), number in tally.decisions.items():
        labels = run | {"unit": unit_name, "kind": kind, "status": became}
        yield Sample("penstock_decisions_total", labels, number)


def samples_in(journal: Journal) -> Iterator[Sample]:
    """Everything a journal has of a run, each with its time, oldest first."""
    run = {"run": journal.run}
    currency = next((row["currency"] for row in journal.rows("lease", ("currency",))), "")
    for row in journal.rows("tick", ("at_s", "hosts", "bill")):
        at_s = row["at_s"]
        yield Sample("penstock_last_tick_timestamp_seconds", run, at_s, at_s)
        yield Sample("penstock_hosts", run, row["hosts"], at_s)
        yield Sample("penstock_cost_total", run | {"currency": currency}, float(row["bill"]), at_s)
    totals: dict[tuple[str, str], float] = {}
    # Of what is old, an hour is one row.
    for row in (*journal.rows("observation_hour"), *journal.rows("observation")):
        own, at_s = run | {"unit": row["unit"]}, row["at_s"]
        for name in ("arrived", "processed"):
            totals[name, row["unit"]] = totals.get((name, row["unit"]), 0) + (row[name] or 0)
            yield Sample(f"penstock_{name}_records_total", own, totals[name, row["unit"]], at_s)
        for name, column in (
            ("penstock_waiting_records", "waiting"),
            ("penstock_instances", "instances"),
            ("penstock_running_instances", "running"),
            ("penstock_duration_seconds", "duration_s"),
            ("penstock_duration_p95_seconds", "duration_p95_s"),
            ("penstock_cpu_ratio", "cpu_ratio"),
        ):
            yield from _known(name, own, row.get(column), at_s)
    decided: dict[tuple[str, str, str], int] = {}
    for row in journal.rows("action", ("at_s", "unit", "kind", "status")):
        if row["kind"] == "Hold":
            continue
        key = (row["unit"] or "", row["kind"], "refused" if row["status"] == "refused" else "done")
        decided[key] = decided.get(key, 0) + 1
        labels = run | dict(zip(("unit", "kind", "status"), key, strict=True))
        yield Sample("penstock_decisions_total", labels, decided[key], row["at_s"])


def newest(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The last sample of each series, as of now."""
    last = {(sample.name, tuple(sample.labels.items())): sample for sample in samples}
    return (sample._replace(at_s=None) for sample in last.values())


def page_of(samples: Callable[[], Iterable[Sample]]) -> Page:
    """What an endpoint serves of samples: in the format that the caller prefers."""

    def page(accepted: str) -> tuple[str, str]:
        openmetrics = "application/openmetrics-text" in accepted
        return (OPENMETRICS if openmetrics else PROMETHEUS), exposition(samples(), openmetrics=openmetrics)

    return page


def _known(
    name: str, labels: Mapping[str, str], value: float | None, at_s: float | None = None
) -> Iterator[Sample]:
    if value is not None:
        yield Sample(name, labels, value, at_s)


def exposition(samples: Iterable[Sample], *, openmetrics: bool = True) -> str:
    """Samples as text: OpenMetrics' format, or Prometheus' older one."""
    # All of one metric stand together, all of one series within it, the oldest first.
    by_name: dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, {}).setdefault(tuple(sample.labels.items()), []).append(sample)
    lines: list[str] = []
    for name, family in FAMILIES.items():
        if name not in by_name:
            continue
        told = name.removesuffix("_total") if openmetrics else name
        lines += [f"# TYPE {told} {family.kind}", f"# HELP {told} {family.help}"]
        for series in by_name[name].values():
            newest: dict[float | None, Sample] = {sample.at_s: sample for sample in series}
            lines += [_line(sample, openmetrics) for sample in newest.values()]
    return "\n".join([*lines, *(["# EOF"] if openmetrics else []), ""])


def _line(sample: Sample, openmetrics: bool) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    if sample.at_s is None:
        at = ""
    else:
        at = f" {sample.at_s:.3f}" if openmetrics else f" {round(sample.at_s * 1000)}"
    return f"{sample.name}{{{labels}}} {_number(sample.value)}{at}"


def _escaped(value: Any) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
