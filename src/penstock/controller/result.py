"""The result of a run, simulated or real: what was processed, how well, at what cost.

It is computed from the journal and from what the cluster counted, so that a report of a simulated run
and one of a real run put the same figures side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from penstock.controller.journal import END_OF_RUN, Journal, enacted_kinds
from penstock.monitoring.sla import LEVELS, Compliance, DurationStatistics
from penstock.topology.model import Topology

ADAPT_TOLERANCE = 1.1
"""A unit counts as delayed while its mean duration is above the SLO by more than a tenth.

SLOs are often the mean duration itself; without a tolerance noise alone would start and end a delay at
every measurement.
"""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What one unit did over the whole run."""

    unit: str
    slo_s: float
    arrived: int
    processed: int
    left: int
    """Records still waiting or in service at the end."""
    compliance: Compliance
    durations: DurationStatistics
    largest_queue: int
    time_to_adapt_s: float | None
    """Mean time from the first delayed measurement until processing is back within its SLO."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did, how well and at what cost."""

    name: str
    kind: str
    """`simulated` or `spark`."""
    seed: int | None
    duration_s: float
    units: Mapping[str, UnitResult]
    end_to_end: DurationStatistics
    records_in: int
    records_out: int
    resource_cost: Decimal
    currency: str
    penalty: Mapping[str, Decimal]
    """Penalty cost by compliance level, if that level were the agreement."""
    actions: Mapping[str, int]
    """Enacted actions by kind."""
    leases: int
    paid_units: int
    prolonged_units: int
    early_releases: int
    """Hosts given back before the end of what was paid."""
    host_s: float
    """Time hosts were leased, summed over hosts."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    paid_after_release: int = 0
    """Billing time units paid, not on purpose, for hosts that had been told to go before."""
    late: int | None = None
    """Records older than a bound when they left, where one was asked for."""

    @property
    def compliance(self) -> Compliance:
        """Compliance over every record of every unit."""
        return sum((unit.compliance for unit in self.units.values()), Compliance())

    @property
    def time_to_adapt_s(self) -> float | None:
        """Mean time to adapt over the units that were ever delayed."""
        times = [u.time_to_adapt_s for u in self.units.values() if u.time_to_adapt_s is not None]
        return sum(times) / len(times) if times else None

    @property
    def rescales(self) -> int:
        """Instances started, stopped and migrated."""
        return sum(self.actions.get(kind, 0) for kind in ("StartInstance", "StopInstance", "MigrateInstance"))

    def total_cost(self, level: str = "real_time") -> Decimal:
        """Resources plus penalty for a compliance level."""
        return self.resource_cost + self.penalty[level]

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers and strings, for a JSON file."""
        compliance = self.compliance
        return {
            "name": self.name,
            "kind": self.kind,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "settings": dict(self.settings),
            "records_in": self.records_in,
            "records_out": self.records_out,
            "compliance": {level: compliance.ratio(level) for level in LEVELS},
            "end_to_end": asdict(self.end_to_end),
            "units": {
                name: {
                    "slo_s": unit.slo_s, "arrived": unit.arrived, "processed": unit.processed,
                    "left": unit.left, "largest_queue": unit.largest_queue,
                    "compliance": {level: unit.compliance.ratio(level) for level in LEVELS},
                    "durations": asdict(unit.durations), "time_to_adapt_s": unit.time_to_adapt_s,
                }
                for name, unit in self.units.items()
            },
            "actions": dict(self.actions),
            "time_to_adapt_s": self.time_to_adapt_s,
            "leases": self.leases,
            "paid_units": self.paid_units,
            "prolonged_units": self.prolonged_units,
            "early_releases": self.early_releases,
            "paid_after_release": self.paid_after_release,
            "host_minutes": self.host_s / 60,
            "resource_cost": str(self.resource_cost),
            "penalty": {level: str(amount) for level, amount in self.penalty.items()},
            "total_cost": {level: str(self.total_cost(level)) for level in LEVELS},
            "currency": self.currency,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnitCount:
    """What the cluster counted for a unit, over the whole run."""

    arrived: int
    processed: int
    left: int
    compliance: Compliance
    durations: DurationStatistics


def result_of(
    topology: Topology,
    journal: Journal,
    counts: Mapping[str, UnitCount],
    *,
    kind: str,
    duration_s: float,
    end_s: float,
    end_to_end: DurationStatistics,
    records_in: int,
    records_out: int,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    late: int | None = None,
) -> RunResult:
    """The result of a run out of its journal and what its cluster counted.

    What was trimmed counts by its hours: sums and the most are exact, times to adapt are by the hour.
    """
    observations: dict[str, list[dict[str, Any]]] = {}
    for row in journal.thinned():
        observations.setdefault(row["unit"], []).append({**row, "waiting": row["waiting_most"]})
    for row in journal.rows("observation", ("unit", "at_s", "waiting", "duration_s")):
        observations.setdefault(row["unit"], []).append(row)
    leases = [lease for lease in journal.leases() if lease.units]  # the others were refused
    units = {}
    for name, count in counts.items():
        rows = observations.get(name, [])
        slo_s = topology.unit_slo_s(name)
        units[name] = UnitResult(
            name, slo_s, count.arrived, count.processed, count.left, count.compliance, count.durations,
            max((row["waiting"] or 0 for row in rows), default=0), _time_to_adapt_s(rows, slo_s),
        )  # fmt: skip
    total = sum((unit.compliance for unit in units.values()), Compliance())
    penalty = {level: topology.loop.penalty * total.delayed(level) for level in LEVELS}
    return RunResult(
        name=topology.name,
        kind=kind,
        seed=seed,
        duration_s=duration_s,
        units=units,
        end_to_end=end_to_end,
        records_in=records_in,
        records_out=records_out,
        resource_cost=sum((charge.amount for charge in journal.charges()), Decimal(0)),
        currency=topology.sites[0].currency,
        penalty=penalty,
        actions=_actions(journal),
        leases=len(leases),
        paid_units=sum(lease.units for lease in leases),
        prolonged_units=sum(lease.units - 1 for lease in leases),
        early_releases=sum(
            1
            for lease in leases
            if lease.ended_s is not None and lease.ended_s < min(lease.paid_until_s, end_s) - 1e-6
        ),
        host_s=sum((end_s if lease.ended_s is None else lease.ended_s) - lease.started_s for lease in leases),
        settings=settings or {},
        paid_after_release=_paid_after_release(journal),
        late=late,
    )


def _actions(journal: Journal) -> dict[str, int]:
    """Enacted actions by kind, those trimmed away included; not those that end a run."""
    rows = journal.rows("action", ("kind", "policy", "status"))
    counts = enacted_kinds(row for row in rows if row["policy"] != END_OF_RUN)
    for kind, number in journal.trimmed_actions().items():
        if kind in counts:
            counts[kind] += number
    return counts


def _paid_after_release(journal: Journal) -> int:
    """Units that began and were paid after their host was told to go; those of a kept host do not count."""
    told_s: dict[str, float] = {}
    for row in journal.rows("action", ("kind", "policy", "status", "subject", "at_s")):
        if row["kind"] == "ReleaseHost" and row["status"] == "enacted" and row["policy"] != END_OF_RUN:
            told_s[row["subject"]] = row["at_s"]
        elif row["kind"] == "ProlongLease" and row["status"] == "enacted":
            # Kept after all: what follows is paid for a host in use.
            told_s.pop(row["subject"], None)
    return sum(
        charge.units for charge in journal.charges() if charge.at_s > told_s.get(charge.host, charge.at_s)
    )


def _time_to_adapt_s(rows: Sequence[Mapping[str, Any]], slo_s: float) -> float | None:
    """Mean length of the spans in which the unit was delayed; None where it never was."""
    spans: list[float] = []
    since_s: float | None = None
    for row in rows:
        duration_s = row["duration_s"]
        if duration_s is None:
            continue
        if duration_s > slo_s * ADAPT_TOLERANCE:
            since_s = row["at_s"] if since_s is None else since_s
        elif since_s is not None:
            spans.append(row["at_s"] - since_s)
            since_s = None
    if since_s is not None and rows:
        spans.append(rows[-1]["at_s"] - since_s)
    return sum(spans) / len(spans) if spans else None
