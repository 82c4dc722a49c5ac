"""A run again, as it was and as it could have been: the twin that a journal gives.

The load of every source and the work on a record are read from the journal of a run, so that the same load
can be simulated under another policy, price or SLO. The first thing to do with a twin is to run it as the run
was: how far that is from what really happened says how far the rest can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from penstock.controller.journal import END_OF_RUN, OBSERVATIONS, Journal, enacted_kinds
from penstock.controller.kept import kept_topology
from penstock.controller.result import RunResult
from penstock.controller.warm_start import JOURNAL_FILES
from penstock.errors import ConfigurationError, PenstockError
from penstock.experiments.clairvoyant import clairvoyant_cost, unit_loads
from penstock.forecasts.record import late_records
from penstock.monitoring.measurements import Measurement
from penstock.policies.clairvoyant import fewest_instances
from penstock.runs.assembly import budgeting_for
from penstock.runs.folder import RunFolder
from penstock.runs.profile import measured_profile, profiled
from penstock.simulator import SimulationSettings, simulate
from penstock.simulator.provider import SimulatedParameters
from penstock.topology.file import load_topology
from penstock.topology.model import Choice, Operator, Service, Topology

TOPOLOGY_FILE = "topology.yaml"
"""What a run's folder calls the topology it ran."""
LEAD_S = 1800.0
"""The twin of a part of a run runs for so long before it: at its beginning instances served already."""
LIKE_S = 300.0
"""The load in that time is the mean over the first so many seconds of the part."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    name: str
    cost: float
    kept: float
    """The share of records within the SLO."""
    rescales: int
    host_minutes: float
    times_s: tuple[float, ...] = ()
    instances: tuple[float, ...] = ()
    """Instances of all units together at each of the times."""
    billed_s: tuple[float, ...] = ()
    bill: tuple[float, ...] = ()
    """The bill so far at each of the times before it."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The clairvoyant plan of a load: what it costs, and the instances it has at each time."""

    cost: float
    times_s: tuple[float, ...]
    instances: tuple[float, ...]
    loads_per_s: tuple[float, ...]
    """Records a second that come to all units together."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as its journal tells it."""

    topology: Topology
    """Its topology, with the load that came and the work that was measured."""
    start_s: float
    duration_s: float
    happened: Outcome
    steady: bool = False
    """Whether it was a real run: what a record took varied with its wait for a micro-batch, not its work."""
    lead_s: float = 0.0
    """How long a twin runs before what counts, where the run was under way at its beginning."""


def journal_file(place: Path) -> Path:
    """The journal in a run's folder, or the file itself."""
    if place.is_file():
        return place
    for name in JOURNAL_FILES:
        if (place / name).is_file():
            return place / name
    raise ConfigurationError(
        f"expected a run's folder with {' or '.join(JOURNAL_FILES)}, or a journal: {place}"
    )


def topology_of_run(place: Path, given: Path | None) -> Topology:
    """The topology a run ran: that of a file given, of its folder, its plan or its journal."""
    folder = RunFolder(journal_file(place).parent)
    file = given or folder.root / TOPOLOGY_FILE
    if file.is_file():
        return load_topology(file)
    if given is not None:
        raise ConfigurationError(f"expected the run's topology in {file}, which is no file")
    if (folder.root / "plan.json").is_file():
        return folder.plan().read_topology()
    with opened(place) as journal:
        kept = kept_topology(journal)
    if kept is None:
        raise ConfigurationError(
            f"expected the run's topology in {file}; give it with --topology, for the journal has none"
        )
    return kept


def opened(place: Path) -> Journal:
    """The journal of the last run in a file."""
    file = journal_file(place)
    engine = sa.create_engine(f"sqlite:///file:{file.resolve()}?mode=ro&uri=true")
    try:
        with engine.connect() as connection:
            columns = OBSERVATIONS.c
            run = connection.execute(sa.select(columns.run).order_by(columns.id.desc()).limit(1)).scalar()
    except SQLAlchemyError as error:
        raise ConfigurationError(f"expected the journal of a run in {file}, got {error}") from error
    finally:
        engine.dispose()
    if run is None:
        raise ConfigurationError(f"nothing was observed in the run of {file}")
    return Journal(file, str(run))


def recorded(journal: Journal, topology: Topology, last_s: float | None = None) -> Recorded:
    """A run with its load and what it came to: its last seconds, or all of it that was not thinned."""
    rows = [row for row in journal.rows("observation") if row["unit"] in topology.unit_by_name]
    if not rows:
        raise ConfigurationError(
            f"the journal has none of the units {', '.join(topology.unit_by_name)}; is it of this topology?"
        )
    ticks_s = [row["at_s"] for row in journal.rows("tick", ("at_s",))]
    begun_s = [row["at_s"] - row["interval_s"] for row in rows]
    first_s = min(begun_s + ticks_s)
    end_s = max([row["at_s"] for row in rows] + ticks_s)
    thinned = bool(journal.thinned())
    # Hosts are paid from the first tick on, long before anything is observed, to the last. But where older
    # observations were thinned, the load is known from the first of the others on.
    start_s = min(begun_s) if thinned else first_s
    if last_s is not None:
        start_s = max(start_s, end_s - last_s)
    rows = [row for row, begin_s in zip(rows, begun_s, strict=True) if begin_s >= start_s - 1e-6]
    if not rows:
        raise ConfigurationError(f"nothing was observed in the last {end_s - start_s:g} s of the run")
    duration_s = end_s - start_s
    by_unit: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_unit.setdefault(row["unit"], []).append(row)
    first = {name: found[0]["instances"] or 1 for name, found in by_unit.items()}
    twin = replace(
        topology,
        sources=tuple(
            replace(
                source, share=1.0, workload=_workload(topology, source.name, by_unit, start_s, duration_s)
            )
            for source in topology.sources
        ),
        units=tuple(
            replace(unit, initial_instances=min(unit.max_instances, max(1, first.get(unit.name, 1))))
            for unit in topology.units
        ),
    )
    twin = replace(twin, operators=_measured_work(twin, by_unit, duration_s))
    real = any(site.provider.name != SimulatedParameters.name for site in topology.sites)
    if real:
        # A record of a real run waits for its micro-batch; and its hosts took as long as they took.
        profile = measured_profile(topology, journal)
        if thinned:
            host_s, instance_s = _starting_times(journal)
            profile = replace(profile, host_start_s=host_s, instance_start_s=instance_s)
        twin = profiled(twin, profile)
    happened = _came_to("as it happened", journal, topology, rows, start_s)
    lead_s = LEAD_S if start_s > first_s else 0.0
    return Recorded(twin, start_s, duration_s, happened, steady=real, lead_s=lead_s)


def replayed(run: Recorded, topology: Topology, name: str, seed: int = 1) -> Outcome:
    """A run's load under a variation of its topology."""
    topology, length_s = _led_in(topology, run.lead_s), run.lead_s + run.duration_s
    with Journal("sqlite://", "replay", buffered=True) as journal:
        settings = SimulationSettings(seed=seed, steady_service=run.steady)
        result = simulate(
            topology, settings, duration_s=length_s, journal=journal, budgeting=budgeting_for(topology)
        )
        if not run.lead_s:
            return outcome_of(name, result, journal)
        rows = [r for r in journal.rows("observation") if r["at_s"] - r["interval_s"] >= run.lead_s - 1e-6]
        return _came_to(name, journal, topology, rows, run.lead_s)


def _led_in(topology: Topology, lead_s: float) -> Topology:
    """The topology with a load before its sources' recorded ones that is as these begin."""

    def led_in(workload: Choice | None) -> Choice | None:
        if workload is None or not lead_s:
            return workload
        levels, hold_s = workload.parameters["levels_per_s"], workload.parameters["hold_s"]
        like = float(np.mean(levels[: max(1, round(LIKE_S / hold_s))]))
        # Whole steps of the recorded load have to follow, so these are made to fit.
        edges_s = np.arange(0.0, lead_s + len(levels) * hold_s + hold_s, hold_s)
        ends = np.concatenate([[0.0, like * lead_s], like * lead_s + np.cumsum(levels) * hold_s])
        at_s = np.concatenate([[0.0], lead_s + hold_s * np.arange(len(levels) + 1)])
        found = np.diff(np.interp(edges_s, at_s, ends)) / hold_s
        return Choice(workload.name, {"levels_per_s": tuple(found.tolist()), "hold_s": hold_s})

    sources = tuple(replace(source, workload=led_in(source.workload)) for source in topology.sources)
    return replace(topology, sources=sources)


def outcome_of(name: str, result: RunResult, journal: Journal) -> Outcome:
    """The figures of a simulated run, with its curve of instances."""
    times, counts = _curve(journal.rows("observation", ("at_s", "instances")), 0.0)
    return Outcome(
        name,
        float(result.resource_cost),
        result.compliance.ratio("real_time"),
        result.rescales,
        result.host_s / 60,
        times,
        counts,
        *_bills(journal, 0.0),
    )


def hindsight_of(run: Recorded) -> Hindsight:
    """The clairvoyant plan of a run's load."""
    topology, step_s = run.topology, run.topology.loop.provisioning_s
    loads = unit_loads(topology, run.duration_s, step_s)
    needed = [
        fewest_instances(rate, service_s, unit.slots, unit.min_instances, unit.max_instances)
        for unit, (rate, service_s) in ((topology.unit_by_name[name], load) for name, load in loads.items())
    ]
    total, rates = np.sum(needed, axis=0), np.sum([rate for rate, _ in loads.values()], axis=0)
    times_s = tuple((step_s * np.arange(len(total))).tolist())
    return Hindsight(bound_of(run), times_s, tuple(total.tolist()), tuple(rates.tolist()))


def bound_of(run: Recorded) -> float:
    """The clairvoyant cost of a run's load."""
    return float(clairvoyant_cost(run.topology, run.duration_s))


def best_cost_of(journal: Journal, topology: Topology) -> float | None:
    """The clairvoyant cost of the load a journal holds; None where it does not tell enough of it."""
    if journal.thinned():
        return None
    try:
        return bound_of(recorded(journal, topology))
    except (PenstockError, ValueError, ArithmeticError):
        return None


def _workload(
    topology: Topology,
    source: str,
    by_unit: Mapping[str, Sequence[Mapping[str, Any]]],
    start_s: float,
    duration_s: float,
) -> Choice:
    """The load of a source: what came from it to the first unit that takes it."""
    for name in topology.successors[source]:
        unit = topology.unit_of.get(name)
        rows = by_unit.get(unit or "")
        if unit is None or not rows:
            continue
        inputs = {
            i for o in topology.unit_by_name[unit].operators for i in topology.operator_by_name[o].inputs
        }
        sharing = max(1, len(inputs & topology.source_by_name.keys()))
        step_s = float(np.median([row["interval_s"] for row in rows]))
        ends_s = np.array([row["at_s"] - start_s for row in rows])
        total = np.concatenate([[0.0], np.cumsum([_came_from(row, source, sharing) for row in rows])])
        edges_s = np.append(np.arange(0.0, duration_s, step_s), duration_s + step_s)
        records = np.interp(edges_s, np.concatenate([[0.0], ends_s]), total)
        return Choice(
            "stepwise", {"levels_per_s": tuple((np.diff(records) / step_s).tolist()), "hold_s": step_s}
        )
    raise ConfigurationError(f"no unit that takes from {source} was observed, so its load is not known")


def _came_from(row: Mapping[str, Any], source: str, sharing: int) -> float:
    """Records of an observation that came from a source: as counted, else an even share of all."""
    if row["arrived_from"] is not None:
        return float(json.loads(row["arrived_from"]).get(source, 0))
    return (row["arrived"] or 0) / sharing


def _measured_work(
    topology: Topology, by_unit: Mapping[str, Sequence[Mapping[str, Any]]], duration_s: float
) -> tuple[Operator, ...]:
    """The operators with the work on a record as it was measured.

    A unit of several is measured as one: all its operators work longer or shorter than declared by one factor
    with which a record that comes in causes as much work in all of them as was measured.
    """
    declared = unit_loads(topology, duration_s, topology.loop.provisioning_s)
    return tuple(
        _as_measured(operator, topology, by_unit.get(unit, ()), declared[unit][1])
        for operator in topology.operators
        for unit in (topology.unit_of[operator.name],)
    )


def _as_measured(
    operator: Operator, topology: Topology, observed: Sequence[Mapping[str, Any]], declared_s: float
) -> Operator:
    """An operator of a unit in which a record causes so much work by what is declared."""
    rows = [row for row in observed if row["service_s"] and row["processed"]]
    if not rows:
        return operator
    weights = np.array([row["processed"] for row in rows], dtype=float)
    mean_s = float(np.average([row["service_s"] for row in rows], weights=weights))
    own = operator.service_time
    if len(topology.unit_by_name[topology.unit_of[operator.name]].operators) > 1:
        factor = mean_s / declared_s if declared_s > 0 else 1.0
        return replace(operator, service=replace(own, mean_s=own.mean_s * factor))
    spread = [row["service_cv"] for row in rows if row["service_cv"] is not None]
    cv = float(np.median(spread)) if spread else own.cv
    return replace(operator, service=Service(mean_s, min(cv, 3.0)))


def _came_to(
    name: str, journal: Journal, topology: Topology, rows: Sequence[Mapping[str, Any]], start_s: float
) -> Outcome:
    """What a run came to from an instant on, by its journal."""
    done = late = 0.0
    for row in rows:
        measured = Measurement(
            row["unit"], row["at_s"], row["interval_s"], processed=row["processed"] or 0,
            duration_s=row["duration_s"], duration_p95_s=row["duration_p95_s"],
            duration_p99_s=row["duration_p99_s"], on_time=row["on_time"],
        )  # fmt: skip
        done += measured.processed
        late += late_records(measured, topology.unit_slo_s(row["unit"]))
    kinds = enacted_kinds(
        row
        for row in journal.rows("action", ("at_s", "kind", "policy", "status"))
        if row["policy"] != END_OF_RUN and row["at_s"] >= start_s
    )
    end_s = max(row["at_s"] for row in rows)
    leases = [lease for lease in journal.leases() if lease.units]
    ends_s = [end_s if lease.ended_s is None else lease.ended_s for lease in leases]
    # Steps that were begun before are paid whole in the span, as the twin pays its first ones whole.
    begun = sum(
        lease.price_per_btu
        for lease, over_s in zip(leases, ends_s, strict=True)
        if lease.started_s < start_s < over_s
    )
    charges = journal.charges()
    paid = sum(charge.amount for charge in charges if charge.at_s >= start_s)
    before = sum(charge.amount for charge in charges if charge.at_s < start_s)
    times, counts = _curve(rows, start_s)
    return Outcome(
        name,
        float(paid + begun),
        1.0 - late / done if done else 1.0,
        sum(kinds.get(kind, 0) for kind in ("StartInstance", "StopInstance", "MigrateInstance")),
        sum(
            max(0.0, over_s - max(lease.started_s, start_s))
            for lease, over_s in zip(leases, ends_s, strict=True)
        )
        / 60,
        times,
        counts,
        *_bills(journal, start_s, float(before - begun)),
    )


def _bills(
    journal: Journal, start_s: float, before: float = 0.0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The bill from an instant on, without what was paid before."""
    rows = [row for row in journal.rows("tick", ("at_s", "bill")) if row["at_s"] >= start_s]
    bills = tuple(float(row["bill"] or 0) - before for row in rows)
    return tuple(row["at_s"] - start_s for row in rows), bills


def _starting_times(journal: Journal) -> tuple[float, float]:
    """How long hosts and instances took to start, in the middle, by the lives a thinned journal has left."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in journal.rows("life", ("what", "name", "payload")):
        found.setdefault(row["what"], {})[row["name"]] = json.loads(row["payload"])
    hosts = {name: told for name, told in found.get("host", {}).items() if told.get("up_s") is not None}
    up_s = [told["up_s"] - told.get("requested_s", 0.0) for told in hosts.values()]
    ran_s = [
        max(0.0, told["running_s"] - max(told.get("requested_s", 0.0), hosts[told["host"]]["up_s"]))
        for told in found.get("instance", {}).values()
        if told.get("running_s") is not None and told.get("host") in hosts
    ]
    host_s = max(0.0, float(np.median(up_s))) if up_s else 0.0
    return host_s, float(np.median(ran_s)) if ran_s else 0.0


def _curve(rows: Sequence[Mapping[str, Any]], start_s: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    totals: dict[float, float] = {}
    for row in rows:
        totals[row["at_s"] - start_s] = totals.get(row["at_s"] - start_s, 0.0) + (row["instances"] or 0)
    return tuple(totals), tuple(totals.values())
