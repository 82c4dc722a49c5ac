"""Policy `rate`: as many instances as the load needs, in one step.

After DS2 (Kalavri et al., OSDI 2018): an instance's true processing rate is what it would do if it never
waited, and the load of every unit follows from the sources through the topology, so the right number of
instances of all units comes out at once instead of step by step. After Flink's autoscaler: instances are
planned for a target utilisation, a backlog is worked off within a given time, and small deviations are
left alone. Paid hosts are kept, with what runs on them, until their lease ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import InstanceState
from penstock.monitoring.measurements import Measurement, Signal
from penstock.policies.leasing import give_back
from penstock.policies.planning import Plan, right
from penstock.policies.view import View
from penstock.quantities import counted
from penstock.topology.model import Topology


def true_rate_per_s(signal: Signal, running: int, slots: int) -> float | None:
    """Records a second one instance finishes when it never waits for input; None where it is not known.

    From the service time where it is measured; else from what was finished, divided by the share of time
    the instances were busy; else, where more waits than was finished, they must have been busy all along.
    That some records wait says nothing: between two micro-batches some always do.
    """
    measurement = signal.measurement
    if measurement.service_s is not None and measurement.service_s > 0:
        # DS2, definition of the true processing rate: records over the useful time spent on them.
        return slots / measurement.service_s
    if running < 1 or measurement.processed < 1 or measurement.beginning:
        return None
    each = measurement.processing_rate_per_s / running
    if signal.cpu_ratio is not None:
        return each / min(1.0, signal.cpu_ratio) if signal.cpu_ratio > 0.01 else None
    return each if measurement.waiting > measurement.processed else None


def forwarded_ratios(topology: Topology) -> Mapping[tuple[str, str], float]:
    """For each edge between units, the records that cross it for every record the first one takes in."""
    ratios: dict[tuple[str, str], float] = {}
    for unit in topology.units:
        entering = {
            name: sum(
                1 for i in topology.operator_by_name[name].inputs if topology.unit_of.get(i) != unit.name
            )
            for name in unit.operators
        }
        entries = sum(entering.values()) or 1
        flow: dict[str, float] = {}
        for operator in topology.operators_in_order:
            if topology.unit_of[operator.name] != unit.name:
                continue
            # Records entering a unit of several operators are spread evenly over its incoming edges.
            flow[operator.name] = entering[operator.name] / entries + sum(
                flow[i] * topology.operator_by_name[i].ratio
                for i in operator.inputs
                if topology.unit_of.get(i) == unit.name
            )
            for successor in topology.successors[operator.name]:
                other = topology.unit_of.get(successor)
                if other is not None and other != unit.name:
                    edge = (unit.name, other)
                    ratios[edge] = ratios.get(edge, 0.0) + flow[operator.name] * operator.ratio
    return ratios


@dataclass(frozen=True, slots=True)
class Demand:
    """What a unit has to do: records a second coming in, and the ones that wait to be worked off."""

    incoming_per_s: float
    waiting: int


def demands(
    topology: Topology, measurements: Mapping[str, Measurement], catch_up_s: float
) -> Mapping[str, Demand]:
    """The load of every measured unit if no unit before it held anything back.

    What a unit takes from sources is what arrived less what its predecessors sent; from there on loads
    follow the topology's ratios. A predecessor that works off a backlog sends that much more.
    """
    ratios = forwarded_ratios(topology)
    found: dict[str, Demand] = {}
    for unit in topology.units_in_order:
        measurement = measurements.get(unit.name)
        if measurement is None:
            continue
        before = [name for name in topology.unit_inputs[unit.name] if name in found]
        sent = sum(
            measurements[name].processing_rate_per_s * ratios.get((name, unit.name), 0.0) for name in before
        )
        fed_by_source = any(
            i in topology.source_by_name
            for name in unit.operators
            for i in topology.operator_by_name[name].inputs
        )
        arriving = measurement.arrival_rate_per_s
        own = max(0.0, arriving - sent) if fed_by_source or not before else 0.0
        will_send = sum(
            (found[name].incoming_per_s + found[name].waiting / catch_up_s)
            * ratios.get((name, unit.name), 0.0)
            for name in before
        )
        found[unit.name] = Demand(own + will_send, measurement.waiting)
    return found


@dataclass(frozen=True, slots=True)
class Rate:
    """As many instances as the load needs, in one step; paid hosts are kept until their lease ends."""

    name: ClassVar[str] = "rate"
    decides_on: ClassVar[tuple[str, ...]] = ("arrivals", "service", "waiting", "utilisation")
    target_ratio: float = 0.8
    """The utilisation instances are planned for."""
    tolerance_ratio: float = 0.1
    """How far utilisation may be off the target before anything is done."""
    catch_up_s: float = 120.0
    """The time in which a backlog is to be worked off."""
    average_s: float = 60.0
    """The span over which loads and rates are averaged; the load for growing is never below the newest."""
    keep_paid: bool = True
    """Keep instances and hosts until the lease ends; otherwise stop and release as soon as not needed."""
    calm_s: float = 180.0
    """Only shrink to what the highest load within this span would need."""
    shutdown_s: float = 30.0
    """How long a host takes to shut down; it is judged at least this long before its lease ends."""

    def __post_init__(self) -> None:
        if not 0 < self.target_ratio <= 1:
            raise ConfigurationError(f"target_ratio lies above 0 and at most at 1, got {self.target_ratio}")
        if self.catch_up_s <= 0:
            raise ConfigurationError(f"catch_up_s must be above 0, got {self.catch_up_s}")

    def decide(self, view: View) -> tuple[Action, ...]:
        """Bring every unit to the number of instances its load needs."""
        plan = Plan(view)
        surplus: dict[str, int] = {}
        reasons: dict[str, str] = {}
        loads = self._loads(view)
        for unit in view.units:
            least = max(1, view.topology.unit_by_name[unit].min_instances)
            count = plan.count(unit)
            if count < least:
                _start(plan, unit, least, f"up: {counted(count, 'instance')} of at least {least}")
                continue
            found = loads.get(unit)
            if found is None:
                plan.hold(unit, "load or processing rate not known yet")
                continue
            if found.wanted > count and found.high:
                _start(plan, unit, found.wanted, f"up from {count} to {found.wanted}: {found.reason}")
            elif found.enough < count and found.low:
                surplus[unit] = count - max(found.enough, least)
                reasons[unit] = f"down to {found.enough}: {found.reason}"
            else:
                plan.hold(unit, f"{right(count)}: {found.reason}")
        self._shrink(plan, surplus, reasons)
        return plan.actions

    # -- how many --------------------------------------------------------------------------------

    def _loads(self, view: View) -> dict[str, _Load]:
        """For each unit whose load and rate are known, the instances it needs."""
        measured = view.topology.units
        newest = {u.name: s[-1].measurement for u in measured if (s := view.window(u.name))}
        averaged = {u.name: _mean(view.window(u.name), view.now_s - self.average_s) for u in measured}
        averages = {name: measurement for name, measurement in averaged.items() if measurement is not None}
        latest = demands(view.topology, newest, self.catch_up_s)
        usual = demands(view.topology, averages, self.catch_up_s)
        found: dict[str, _Load] = {}
        for unit in view.units:
            signal = view.latest(unit)
            if signal is None or unit not in usual:
                continue
            slots = view.topology.unit_by_name[unit].slots
            running = sum(1 for i in view.instances(unit) if i.state is InstanceState.RUNNING)
            each = self._rate_each(view, unit, running, slots)
            if each is None or each <= 0:
                continue
            waiting = latest[unit].waiting
            incoming = max(latest[unit].incoming_per_s, usual[unit].incoming_per_s)
            calmest = max(
                [
                    s.measurement.arrival_rate_per_s
                    for s in view.window(unit)
                    if s.at_s > view.now_s - self.calm_s
                ]
                + [incoming]
            )
            found[unit] = self._load(incoming, calmest, waiting, each, len(view.instances(unit)), running)
        return found

    def _rate_each(self, view: View, unit: str, running: int, slots: int) -> float | None:
        """The true rate of one instance, averaged over the signals of the last `average_s`."""
        rates = [
            rate
            for s in view.window(unit)
            if s.at_s > view.now_s - self.average_s
            and (rate := true_rate_per_s(s, running, slots)) is not None
        ]
        return sum(rates) / len(rates) if rates else None

    def _load(
        self, incoming: float, highest: float, waiting: int, each: float, count: int, running: int
    ) -> _Load:
        # What the unit does in a second is no backlog.
        backlog = waiting if waiting > max(1.0, each * count) else 0
        # What gathered while instances are still starting is no reason to grow: they were asked for on
        # its account, and asking again would overshoot. It is a reason not to shrink.
        growth = backlog / self.catch_up_s if running >= count else 0.0
        drain = backlog / self.catch_up_s
        # Flink: parallelism = (rate / target utilisation + catch-up rate) / true rate of one instance
        wanted = max(1, math.ceil((incoming / self.target_ratio + growth) / each - 1e-9))
        enough = max(1, math.ceil((highest / self.target_ratio + drain) / each - 1e-9))
        able = each * max(1, count)
        used = incoming / able
        return _Load(
            wanted,
            enough,
            used + growth / able > self.target_ratio + self.tolerance_ratio,
            used + drain / able < self.target_ratio - self.tolerance_ratio,
            f"{incoming:.4g}/s and {waiting} waiting, {each:.4g}/s an instance, {used:.0%} used "
            f"(target {self.target_ratio:.0%} ± {self.tolerance_ratio:.0%})",
        )

    # -- giving back -----------------------------------------------------------------------------

    def _shrink(self, plan: Plan, surplus: Mapping[str, int], reasons: Mapping[str, str]) -> None:
        if not self.keep_paid:
            for unit, count in surplus.items():
                # Those that do not serve yet first, then those on the emptiest hosts, so that hosts become
                # free; among equals the newest.
                members = list(plan.instances(unit))
                members.reverse()
                members.sort(
                    key=lambda i: (i.state is InstanceState.RUNNING, len(plan.on_host(i.host or "")))
                )
                for instance in members[:count]:
                    plan.stop(instance, reasons[unit])
            plan.release_empty_hosts()
            return
        give_back(plan, surplus, reasons, self.shutdown_s)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a unit needs and why."""

    wanted: int
    """Instances for the present load."""
    enough: int
    """Instances for the highest load of late."""
    high: bool
    low: bool
    reason: str


def _start(plan: Plan, unit: str, wanted: int, reason: str) -> None:
    most = plan.view.topology.unit_by_name[unit].max_instances
    if plan.count(unit) >= most:
        plan.hold(unit, f"{reason}; but it has its {counted(most, 'instance')} already")
    plan.grow(unit, min(wanted, most), reason)


def _mean(window: tuple[Signal, ...], since_s: float) -> Measurement | None:
    """One measurement over the signals since an instant: counts summed, the backlog as it is now."""
    recent = [s.measurement for s in window if s.at_s > since_s]
    if not recent:
        return None
    return Measurement(
        recent[-1].unit,
        recent[-1].at_s,
        sum(m.interval_s for m in recent),
        arrived=sum(m.arrived for m in recent),
        processed=sum(m.processed for m in recent),
        emitted=sum(m.emitted for m in recent),
        waiting=recent[-1].waiting,
    )
