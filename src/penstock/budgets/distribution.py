"""From a topology and what was measured of it to a budget for every unit, as the control loop needs it.

Units are modelled as shared queues at their sites' prices; whoever knows better gives a cost function. Where
a unit may be at several sites, it counts at the first of them: `at_places` says at which one it is.
Everything is pure: the same topology and loads give the same budgets. When the loads have not moved by
more than a stated threshold, the present budgets stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.budgets.costs import CostFunction
from penstock.budgets.problem import BudgetProblem, BudgetUnit, InfeasibleBoundError, PathBound, Solution
from penstock.budgets.queues import SharedQueue
from penstock.budgets.solve import solve
from penstock.errors import ConfigurationError
from penstock.infrastructure.placement import Room, share
from penstock.infrastructure.siting import placed, price_per_hour
from penstock.monitoring.measurements import Measurement
from penstock.topology.model import Topology

QUANTILE = 0.95
"""The share of a unit's records that is to stay within its budget."""

LOAD_THRESHOLD = 0.2
"""Budgets are distributed anew when a unit's work (arrivals × service time) moved by more than this …"""

LEAST_MOVE = 0.2
""" … and by more than this many busy servers: a unit with hardly any work may double it unnoticed."""

STEPS = 200
"""Steps the smallest bound is divided into where no step is given."""

FULL = 0.95
"""The utilisation of all its instances at which a unit beyond its capacity is budgeted."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a unit has to do."""

    arrival_rate_per_s: float
    service_s: float
    """Mean work of one slot on one record."""
    arrival_cv: float = 1.0
    service_cv: float = 1.0

    @property
    def work(self) -> float:
        """Servers it keeps busy: λ/μ."""
        return self.arrival_rate_per_s * self.service_s


def loads_from_sources(topology: Topology, rates_per_s: Mapping[str, float]) -> dict[str, Load]:
    """The load of every unit when its sources emit so many records a second, by the topology's ratios.

    Sources that are not named emit nothing. A unit's record is one that enters it from outside.
    """
    flow: dict[str, float] = {source.name: rates_per_s.get(source.name, 0.0) for source in topology.sources}
    entering: dict[str, float] = {unit.name: 0.0 for unit in topology.units}
    work: dict[str, float] = {unit.name: 0.0 for unit in topology.units}
    spread: dict[str, float] = {unit.name: 0.0 for unit in topology.units}
    once: dict[str, list[float]] = {unit.name: [] for unit in topology.units}
    for operator in topology.operators_in_order:
        unit = topology.unit_of[operator.name]
        taken = sum(flow.get(name, 0.0) for name in operator.inputs)
        entering[unit] += sum(
            flow.get(name, 0.0) for name in operator.inputs if topology.unit_of.get(name) != unit
        )
        service = operator.service_time
        work[unit] += taken * service.mean_s
        spread[unit] += taken * (service.mean_s * service.cv) ** 2
        once[unit].append(service.mean_s)
        flow[operator.name] = taken * operator.ratio
    found = {}
    for unit, rate in entering.items():
        # Without records the service time of one that runs through every operator stands in.
        service_s = work[unit] / rate if rate > 0 else sum(once[unit])
        cv = math.sqrt(spread[unit] / rate) / service_s if rate > 0 and service_s > 0 else 0.25
        found[unit] = Load(rate, max(service_s, 1e-9), 1.0, cv)
    return found


def loads_from_measurements(
    topology: Topology, windows: Mapping[str, Sequence[Measurement]]
) -> dict[str, Load]:
    """The load of every unit that was measured, averaged over its measurements; others are left out.

    What was not measured of a unit comes from the topology.
    """
    expected = loads_from_sources(topology, {})
    found = {}
    for unit, window in windows.items():
        span_s = sum(measurement.interval_s for measurement in window)
        if span_s <= 0:
            continue
        rate = sum(measurement.arrived for measurement in window) / span_s
        service_s = _mean([m.service_s for m in window if m.service_s])
        arrival_cv = _mean([m.arrival_cv for m in window if m.arrival_cv is not None])
        service_cv = _mean([m.service_cv for m in window if m.service_cv is not None])
        usual = expected[unit]
        found[unit] = Load(
            rate,
            service_s if service_s is not None else usual.service_s,
            arrival_cv if arrival_cv is not None else usual.arrival_cv,
            service_cv if service_cv is not None else usual.service_cv,
        )
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def at_places(topology: Topology, places: Mapping[str, str] | None = None) -> Topology:
    """The topology with every unit at the one site it is at: by `places`, else where it would be placed."""
    if len(topology.sites) < 2:
        return topology
    at = placed(topology, places)
    return replace(topology, units=tuple(replace(unit, sites=(at[unit.name],)) for unit in topology.units))


def instance_price_per_h(topology: Topology, unit: str) -> float:
    """What an instance costs an hour at the unit's first site: its share of the cheapest fitting host.

    Where hosts are a cluster manager's, it is what its cores and memory cost; where there is nothing to be
    leased, nothing.
    """
    cores, memory_mib = topology.unit_cores(unit), topology.unit_memory_mib(unit)
    for site in topology.sites_of(unit):
        if site.master is not None:
            return price_per_hour(topology, unit, site)
        if not site.flavours:
            return 0.0
        fitting = [f for f in site.flavours if Room(f.cores, f.memory_mib).holds(cores, memory_mib)]
        if fitting:
            flavour = min(fitting, key=lambda f: float(f.price_per_btu) / f.cores)
            return float(flavour.price_per_btu) * 3600.0 / site.btu_s * share(flavour, cores, memory_mib)
    raise ConfigurationError(
        f"no flavour at the sites of unit {unit!r} holds an instance of {cores:g} cores and {memory_mib} MiB"
    )


def default_step_s(bounds_s: Sequence[float]) -> float:
    """A step that divides the smallest bound into STEPS, rounded down to 1, 2 or 5 times a power of ten."""
    wanted = min(bounds_s) / STEPS
    power = 10.0 ** math.floor(math.log10(wanted))
    return max(factor for factor in (1.0, 2.0, 5.0) if factor <= wanted / power * (1 + 1e-9)) * power


def problem_of(
    topology: Topology,
    *,
    loads: Mapping[str, Load],
    bound_s: float | None = None,
    step_s: float | None = None,
    quantile: float | None = QUANTILE,
    overhead_s: float = 0.0,
    costs: Mapping[str, CostFunction] | None = None,
    fixed_s: Mapping[str, float] | None = None,
) -> BudgetProblem:
    """The topology as a budget problem; costs are money an hour.

    `bound_s` stands for every path instead of the topology's own bounds; `costs` are the functions of units
    that know their own, `fixed_s` the SLAs of units that are not optimised, `overhead_s` the time a record
    spends in every unit beside waiting and service.
    """
    bounds = _path_bounds(topology, bound_s)
    units = []
    for unit in topology.units:
        name = unit.name
        given = (costs or {}).get(name)
        if given is None:
            load = loads.get(name)
            if load is None:
                raise ConfigurationError(
                    f"the load of unit {name!r} is not known; nothing was measured of it"
                )
            given = SharedQueue(
                load.arrival_rate_per_s,
                load.service_s,
                load.arrival_cv,
                load.service_cv,
                instance_price_per_h(topology, name),
                unit.max_instances,
                unit.slots,
                max(1, unit.min_instances),
                quantile,
                overhead_s,
            )
        units.append(BudgetUnit(name, given, fixed_s=(fixed_s or {}).get(name)))
    edges = [(before, name) for name, inputs in topology.unit_inputs.items() for before in inputs]
    delays_s = {}
    for before, after in edges:
        here, there = topology.sites_of(before)[0], topology.sites_of(after)[0]
        delay_s = here.distance_s.get(there.name, there.distance_s.get(here.name, 0.0))
        if here.name != there.name and delay_s > 0:
            delays_s[before, after] = delay_s
    step = step_s if step_s is not None else default_step_s([bound.bound_s for bound in bounds])
    return BudgetProblem(tuple(units), tuple(edges), bounds, step, delays_s)


def _path_bounds(topology: Topology, bound_s: float | None) -> tuple[PathBound, ...]:
    if bound_s is not None:
        return (PathBound(bound_s),)
    if not topology.latency_bounds:
        raise ConfigurationError(
            f"topology {topology.name!r} has no latency bound; add one under latency_bounds, or give one"
        )
    found = []
    for bound in topology.latency_bounds:
        first: tuple[str, ...] = ()
        last: tuple[str, ...] = ()
        if bound.source is not None:
            takers = topology.successors.get(bound.source, ())
            first = tuple(dict.fromkeys(topology.unit_of[n] for n in takers if n in topology.unit_of))
        if bound.sink is not None:
            inputs = next((sink.inputs for sink in topology.sinks if sink.name == bound.sink), ())
            last = tuple(dict.fromkeys(topology.unit_of[n] for n in inputs if n in topology.unit_of))
        if (bound.source is not None and not first) or (bound.sink is not None and not last):
            raise ConfigurationError(
                f"the latency bound of {bound.bound_s:g} s from {bound.source or 'every source'} to "
                f"{bound.sink or 'every sink'} runs through no unit"
            )
        found.append(PathBound(bound.bound_s, first, last))
    return tuple(found)


@dataclass(frozen=True)
class Distribution:
    """Budgets for the units, what they rest on, and the reason they were made."""

    budgets_s: Mapping[str, float]
    """The solution's budgets, with what is left of the bounds handed out as well."""
    loads: Mapping[str, Load]
    solution: Solution
    reason: str
    notes: tuple[str, ...] = field(default=())
    """What the journal should know: units beyond their capacity, bounds out of reach, silent functions."""


def distribute(
    topology: Topology,
    loads: Mapping[str, Load],
    *,
    reason: str = "first distribution",
    solver: str = "hull",
    step_s: float | None = None,
    last: Distribution | None = None,
    costs: Mapping[str, CostFunction] | None = None,
    fixed_s: Mapping[str, float] | None = None,
    overhead_s: float = 0.0,
    kept_s: Mapping[str, float] | None = None,
) -> Distribution:
    """Budgets by unit for the topology's bounds; unlike `solve` it always has an answer for a running system.

    A unit beyond its capacity is budgeted as if nearly full. Where a bound is out of reach, the smallest
    that works is distributed instead. A unit whose cost function does not answer keeps its last budget, or
    its SLO where it has had none. The notes say all of it. `kept_s` are last budgets of which no distribution
    is remembered.
    """
    notes: list[str] = []
    able: dict[str, Load] = {}
    for name, load in loads.items():
        unit = topology.unit_by_name.get(name)
        most = unit.max_instances * unit.slots * FULL if unit is not None else math.inf
        if load.work > most and name not in (costs or {}):
            notes.append(
                f"unit {name} has work for {load.work:.3g} servers, more than its {most / FULL:g}: "
                f"budgeted as if {FULL:.0%} full"
            )
            load = replace(load, arrival_rate_per_s=most / load.service_s)
        able[name] = load
    problem = problem_of(
        topology, loads=able, step_s=step_s, overhead_s=overhead_s, costs=costs, fixed_s=fixed_s
    )
    slos_s = {unit.name: topology.unit_slo_s(unit.name) for unit in topology.units} | dict(kept_s or {})
    while True:
        try:
            solution = solve(
                problem,
                solver,
                last_budgets_s=slos_s | (dict(last.budgets_s) if last is not None else {}),
                last_costs=None if last is None else last.solution.costs,
            )
            break
        except InfeasibleBoundError as error:
            notes.append(f"{error}; distributed that instead")
            problem = replace(
                problem,
                bounds=tuple(
                    replace(b, bound_s=error.smallest_bound_s * (1 + 1e-9)) if b == error.bound else b
                    for b in problem.bounds
                ),
            )
    budgets_s = granted(solution)
    notes += [
        f"unit {name} keeps its last budget, {solution.budgets_s[name]:g} s: {why}"
        for name, why in solution.kept.items()
    ]
    text = (
        f"{reason}: {solution.solver} gives {solution.cost:.4g} an hour"
        + (f"; {'; '.join(notes)}" if notes else "")
    )  # fmt: skip
    return Distribution(budgets_s, dict(loads), solution, text, tuple(notes))


def granted(solution: Solution) -> dict[str, float]:
    """The budgets with what is left of the bounds handed out too: the same instances keep them all the more.

    A unit grows by its slack over the longest path through it. On any path slack is no larger and the sum no
    smaller than for the units on it, so the growths add up to no more than what the path has left.
    """
    bounds_s = [bound.bound_s for bound in solution.problem.bounds]
    fixed = {unit.name for unit in solution.problem.units if unit.fixed_s is not None} | set(solution.kept)
    found = {}
    for name, budget_s in solution.budgets_s.items():
        slack_s = solution.slack_s[name]
        longest_s = bounds_s[0] - slack_s if len(bounds_s) == 1 else max(bounds_s)
        grows = name not in fixed and longest_s > 0
        found[name] = budget_s * (1.0 + slack_s / longest_s) if grows else budget_s
    return found


def needs_redistribution(
    last: Distribution | None, loads: Mapping[str, Load], *, threshold: float = LOAD_THRESHOLD
) -> str | None:
    """Why budgets should be distributed anew, or None where the present ones stand.

    A unit's work must have moved by more than the threshold, and by more than LEAST_MOVE busy servers.
    """
    if last is None:
        return "first distribution"
    if set(loads) != set(last.loads):
        changed = ", ".join(sorted(set(loads) ^ set(last.loads)))
        return f"the topology changed ({changed})"
    moves = []
    for name, load in loads.items():
        before, now = last.loads[name].work, load.work
        moved = abs(now - before)
        if moved > LEAST_MOVE and moved > threshold * max(before, 1e-9):
            moves.append((moved / max(before, 1e-9), name, before, now))
    if not moves:
        return None
    _, name, before, now = max(moves)
    return f"the work of unit {name} went from {before:.3g} to {now:.3g} servers (threshold {threshold:.0%})"
