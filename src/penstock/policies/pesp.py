"""Policy `pesp`: the optimisation problem of paper 003, in closed form.

For each unit on its own: one instance more when its queue or its CPU is high, one less when both are
low, and the one to go is the one whose lease has the least paid time left. As printed, the problem's
u and d are not tied to the nodes p, so a single node would always be optimal; here they are:
Σp = clip(|P_U| + u − d, least, most), and a running node is never swapped for a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import HostState, Instance
from penstock.policies.planning import Plan
from penstock.policies.view import View
from penstock.quantities import counted


@dataclass(frozen=True, slots=True)
class PespProblem:
    """One unit's problem (1)-(10) of 003: thresholds, the queue, and the running nodes."""

    waiting: int
    cpu_ratio: float | None
    """Mean CPU load of the running nodes; None where it is not known."""
    used_ratios: tuple[float, ...]
    """For each running node, the used share of its billing time unit: Eq. (6)."""
    q_min: int = 5
    q_max: int = 150
    cpu_min_ratio: float = 0.1
    cpu_max_ratio: float = 0.9
    least: int = 1
    most: int = 50


@dataclass(frozen=True, slots=True)
class PespSolution:
    """What is optimal: u, d, how many nodes there are to be, and the running node that goes, if any."""

    up: bool
    down: bool
    nodes: int
    removed: int | None = None
    """The index of the running node to remove."""


def used_ratio(leased_for_s: float, btu_s: float) -> float:
    """Eq. (6) of 003: (ld % BTU) / BTU, the used share of the running billing time unit."""
    return (leased_for_s % btu_s) / btu_s


def solve(problem: PespProblem) -> PespSolution:
    """The optimum of the linked problem, without a solver.

    u and d cost N each, so each is 1 only where a constraint forces it:
    (2), (3): u = 1 iff cpu ≥ CPU_max or q ≥ Q_max;
    (4), (5): d = 1 iff cpu ≤ CPU_min and q ≤ Q_min (both, as the text means it; printed as either).
    Among the running nodes the sum of used shares (6) is least when the one used most is left out.
    """
    cpu = problem.cpu_ratio
    up = problem.waiting >= problem.q_max or (cpu is not None and cpu >= problem.cpu_max_ratio)
    down = problem.waiting <= problem.q_min and cpu is not None and cpu <= problem.cpu_min_ratio
    running = len(problem.used_ratios)
    nodes = min(max(running + int(up) - int(down), problem.least), problem.most)
    removed = None
    if nodes < running:
        removed = max(range(running), key=lambda i: problem.used_ratios[i])
    return PespSolution(up, down, nodes, removed)


@dataclass(frozen=True, slots=True)
class Pesp:
    """Scale each unit on its own by its queue and CPU; remove the node with the least paid time left."""

    name: ClassVar[str] = "pesp"
    decides_on: ClassVar[tuple[str, ...]] = ("waiting", "utilisation")
    q_min: int = 5
    """At most this many waiting, and CPU low: one instance less."""
    q_max: int = 150
    """At least this many waiting: one instance more."""
    cpu_min_ratio: float = 0.1
    """CPU load at or below which an instance may go."""
    cpu_max_ratio: float = 0.9
    """CPU load from which on an instance is added."""
    average_s: float = 60.0
    """The span over which the CPU load is averaged (the paper's usage monitor: load a minute)."""
    grace_s: float = 30.0
    """How long after the last removal an empty host is kept, so that records in work are finished."""

    def __post_init__(self) -> None:
        if not self.q_min < self.q_max or not self.cpu_min_ratio < self.cpu_max_ratio:
            raise ConfigurationError(
                f"the lower thresholds must lie below the upper ones, got queue {self.q_min} and "
                f"{self.q_max}, CPU {self.cpu_min_ratio} and {self.cpu_max_ratio}"
            )

    def decide(self, view: View) -> tuple[Action, ...]:
        """One instance more, one less or nothing, for each unit on its own."""
        plan = Plan(view)
        for unit in view.units:
            self._decide_for(plan, unit)
        self._release_empty(plan)
        return plan.actions

    def _decide_for(self, plan: Plan, unit: str) -> None:
        view = plan.view
        bounds = view.topology.unit_by_name[unit]
        least = max(1, bounds.min_instances)
        members = plan.instances(unit)
        if len(members) < least:
            plan.start(unit, f"up: {counted(len(members), 'instance')} of at least {least}")
            return
        signal = view.latest(unit)
        if signal is None:
            plan.hold(unit, "no measurement yet")
            return
        waiting = signal.measurement.waiting
        cpu_ratio = _mean_cpu_ratio(view, unit, self.average_s)
        problem = PespProblem(
            waiting,
            cpu_ratio,
            _used_ratios(view, members),
            self.q_min,
            self.q_max,
            self.cpu_min_ratio,
            self.cpu_max_ratio,
            least,
            bounds.max_instances,
        )
        solution = solve(problem)
        cpu = "unknown" if cpu_ratio is None else f"{cpu_ratio:.0%}"
        seen = f"{waiting} waiting ({self.q_min} to {self.q_max}), CPU {cpu} " + (
            f"({self.cpu_min_ratio:.0%} to {self.cpu_max_ratio:.0%})"
        )
        if solution.nodes > len(members):
            plan.start(unit, f"up: {seen}")
        elif solution.removed is not None:
            used = problem.used_ratios[solution.removed]
            plan.stop(members[solution.removed], f"down: {seen}; {used:.0%} of its billing time unit used")
        elif solution.up or solution.down:
            plan.hold(
                unit, f"{seen}; but it has {counted(len(members), 'instance')} of {least} to {problem.most}"
            )
        else:
            plan.hold(unit, seen)

    def _release_empty(self, plan: Plan) -> None:
        """Release hosts that are empty, once the grace period since the last removal is over."""
        view = plan.view
        stopped_s = max((e.at_s for e in view.history if e.kind == "StopInstance"), default=None)
        since_s = None if stopped_s is None else view.now_s - stopped_s
        for host in tuple(plan.room):
            known = view.deployment.hosts.get(host)
            if known is None or known.state is not HostState.UP or plan.on_host(host):
                continue
            if view.deployment.on_host(host):
                continue  # something on it still finishes its records, or has just been told to go
            if since_s is None or since_s >= self.grace_s:
                plan.release(host, f"no instance is on it and the grace of {self.grace_s:g} s is over")


def _mean_cpu_ratio(view: View, unit: str, span_s: float) -> float | None:
    """The unit's mean CPU load over the last signals; None where none of them knows it."""
    loads = [
        signal.cpu_ratio
        for signal in view.window(unit)
        if signal.at_s > view.now_s - span_s and signal.cpu_ratio is not None
    ]
    return sum(loads) / len(loads) if loads else None


def _used_ratios(view: View, members: Sequence[Instance]) -> tuple[float, ...]:
    """Eq. (6) for each instance, by the lease of its host; 0 where there is no lease to see."""
    ratios = []
    for instance in members:
        lease = view.leases.get(instance.host) if instance.host is not None else None
        ratios.append(0.0 if lease is None else used_ratio(view.now_s - lease.started_s, lease.btu_s))
    return tuple(ratios)
