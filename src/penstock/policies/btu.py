"""Policy `btu`: grow on need, shrink only where a lease ends (paper 000).

A unit grows when its processing duration exceeds, or is about to exceed, its SLO while records wait
(Algorithm 1): on the most suitable host (Algorithm 2), else in room another unit can give up
(Algorithm 3), else on a new host. Nothing else shrinks: what is paid stays in use. Shortly before the
end of a lease the host is emptied and released, or, where that fails, leased for one more unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import Instance
from penstock.infrastructure.placement import Room
from penstock.policies.leasing import carry_out, emptied, hosts_at_lease_end, must_prolong, soon
from penstock.policies.planning import Plan
from penstock.policies.view import View
from penstock.quantities import counted, format_duration

INFEASIBLE = -1.0
"""What Algorithms 2 and 3 return for "not this one"."""


# -- Algorithm 1 ---------------------------------------------------------------------------------


def predicted_duration_s(durations_s: Sequence[float]) -> float:
    """The next duration by linear regression over the last ones, oldest first; needs at least one.

    The paper numbers durations newest first; regressed in that order, N + 1 would predict the past. Its
    line 7 also prints a product where the least-squares slope has a difference.
    """
    n = len(durations_s)
    mean_d = sum(durations_s) / n
    if n < 2:
        return mean_d
    mean_i = (n + 1) / 2
    # Algorithm 1 of 000: β = Σ(i − ī)(d_i − d̄) / Σ(i − ī)², α = d̄ − β·ī, predicted = α + β(N + 1)
    beta = sum((i - mean_i) * (d - mean_d) for i, d in enumerate(durations_s, 1)) / sum(
        (i - mean_i) ** 2 for i in range(1, n + 1)
    )
    return mean_d + beta * (n + 1 - mean_i)


@dataclass(frozen=True, slots=True)
class UpTrigger:
    """What Algorithm 1 found: whether to grow, and the numbers it went by."""

    fires: bool
    duration_s: float
    predicted_s: float
    reason: str


def up_trigger(durations_s: Sequence[float], slo_s: float, waiting: int, threshold: int) -> UpTrigger:
    """Algorithm 1 of 000: grow if d or its prediction exceeds the SLO and more than `threshold` wait."""
    duration_s = durations_s[-1]
    predicted_s = predicted_duration_s(durations_s)
    slo = format_duration(slo_s)
    if duration_s > slo_s:
        late = f"{format_duration(duration_s)} > {slo}"
    elif predicted_s > slo_s:
        late = f"predicted {format_duration(predicted_s)} > {slo}"
    else:
        shown = f"{format_duration(duration_s)}, predicted {format_duration(predicted_s)}"
        return UpTrigger(False, duration_s, predicted_s, f"{shown}, within {slo}; {waiting} waiting")
    if waiting > threshold:
        return UpTrigger(True, duration_s, predicted_s, f"up: {late}, {waiting} waiting")
    return UpTrigger(False, duration_s, predicted_s, f"{late}, but only {waiting} waiting of {threshold}")


# -- Algorithm 2 ---------------------------------------------------------------------------------


def suitability(
    free: Room, whole: Room, needs: Room, *, cached: bool = False, cached_factor: float = 0.01
) -> float:
    """Algorithm 2 of 000: how well a host suits one more instance; the least is best, below 0 is no host.

    An exact fit gives 0 and is feasible. The factor for a cached image orders hosts of like fit; as in
    the paper, it does not strictly put every host with the image before every host without.
    """
    if not free.holds(needs.cores, needs.memory_mib):
        return INFEASIBLE
    # feasibility = min(h_cpu* / o_cpu, h_memory* / o_memory)
    feasibility = min(
        free.cores / needs.cores if needs.cores > 0 else float("inf"),
        free.memory_mib / needs.memory_mib if needs.memory_mib > 0 else float("inf"),
    )
    left = free.less(needs.cores, needs.memory_mib)
    # difference = |remainingCPU / h_cpu − remainingMemory / h_memory|; suitability = difference / feasibility
    difference = abs(left.cores / whole.cores - left.memory_mib / whole.memory_mib)
    return difference / feasibility * (cached_factor if cached else 1.0)


# -- Algorithm 3 ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights and constants of Algorithm 3, with the paper's values."""

    instances: float = 1.0
    queue: float = 1.0
    delay: float = 1.0
    scalings: float = 1.0
    queue_load: float = 100.0


def shrink_utility(
    instances: int,
    fewest: int,
    most: int,
    duration_s: float,
    slo_s: float,
    waiting: int,
    own_scalings: int,
    all_scalings: int,
    penalty: float,
    weights: Weights,
) -> float:
    """Algorithm 3 of 000: how well a unit can do with one instance less; only above 0 may it shrink."""
    if instances < 2:
        return INFEASIBLE
    # instances = (o# − min o#) / (max o# − min o#)
    share = (instances - fewest) / (most - fewest) if most > fewest else 0.0
    # delay = d / slo · (1 + P)
    delay = duration_s / slo_s * (1.0 + penalty)
    # scalings = o_s / Σ o_s
    scalings = own_scalings / all_scalings if all_scalings else 0.0
    queue_load = weights.queue_load if waiting < 1 else 0.0
    # 1 + W1·instances + W2·queueLoad − W3·delay − W4·scalings
    return (
        1.0
        + weights.instances * share
        + weights.queue * queue_load
        - weights.delay * delay
        - weights.scalings * scalings
    )


def releasable(instances: int, share: float) -> int:
    """How many instances of a unit may stop at once: at most `share` of them, but one of two or more.

    The paper says "up to 20 %". Rounded down, a unit of fewer than five instances could never shrink and
    its hosts would never empty, so one instance is always allowed where another one stays.
    """
    return max(int(instances * share + 1e-9), 1) if instances > 1 else 0


@dataclass(frozen=True, slots=True)
class _Among:
    """What Algorithm 3 needs to know of all units together."""

    fewest: int
    most: int
    scalings: int

    @staticmethod
    def of(plan: Plan) -> _Among:
        counts = [plan.count(unit) for unit in plan.view.units]
        scalings = plan.view.scalings
        return _Among(
            min(counts, default=0),
            max(counts, default=0),
            sum(scalings.get(unit, 0) for unit in plan.view.units),
        )


# -- the policy ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Btu:
    """Grow on need, shrink only at the end of a lease (paper 000)."""

    name: ClassVar[str] = "btu"
    decides_on: ClassVar[tuple[str, ...]] = ("waiting", "durations", "utilisation")
    observations: int = 5
    """How many of the last durations the prediction uses (N in Algorithm 1)."""
    scaling_threshold: int = 50
    """Grow only while more records than this wait."""
    window_ratio: float = 0.05
    """The last part of a lease in which its host is judged."""
    shutdown_s: float = 30.0
    """How long a host takes to shut down; it is judged at least this long before its lease ends."""
    release_ratio: float = 0.2
    """Most of a unit's instances that stop in one decision to empty a host."""
    cached_factor: float = 0.01
    """Factor on the suitability of a host that has the unit's image."""
    queue_load: float = 100.0
    """What an empty queue adds to the utility of shrinking (QL in Algorithm 3)."""
    most_used_ratio: float = 0.9
    """A unit shrinks only where the instances it keeps would not be used more than this."""
    weight_instances: float = 1.0
    """W1 in Algorithm 3."""
    weight_queue: float = 1.0
    """W2 in Algorithm 3."""
    weight_delay: float = 1.0
    """W3 in Algorithm 3."""
    weight_scalings: float = 1.0
    """W4 in Algorithm 3."""

    def __post_init__(self) -> None:
        if self.observations < 1:
            raise ConfigurationError(f"observations must be at least 1, got {self.observations}")
        if not 0 <= self.release_ratio <= 1 or not 0 <= self.window_ratio <= 1:
            raise ConfigurationError(
                f"release_ratio and window_ratio lie between 0 and 1, got {self.release_ratio} "
                f"and {self.window_ratio}"
            )

    @property
    def weights(self) -> Weights:
        """The weights of Algorithm 3 in one value."""
        return Weights(
            self.weight_instances,
            self.weight_queue,
            self.weight_delay,
            self.weight_scalings,
            self.queue_load,
        )

    def decide(self, view: View) -> tuple[Action, ...]:
        """Judge hosts at the end of their leases, then grow the units that need it."""
        plan = Plan(view)
        growing: dict[str, str] = {}
        holding: dict[str, str] = {}
        for unit in view.units:
            least = max(1, view.topology.unit_by_name[unit].min_instances)
            if plan.count(unit) < least:
                growing[unit] = f"up: {counted(plan.count(unit), 'instance')} of at least {least}"
                continue
            trigger = self._trigger(view, unit)
            if isinstance(trigger, str):
                holding[unit] = trigger
            elif trigger.fires:
                growing[unit] = trigger.reason
            else:
                holding[unit] = trigger.reason
        self._judge_leases(plan, tuple(growing))
        for unit, reason in growing.items():
            self._grow(plan, unit, reason, frozenset(growing))
        for unit, reason in holding.items():
            plan.hold(unit, reason)
        return plan.actions

    # -- growing: Algorithm 1 decides, Figure 4 finds the room ------------------------------------

    def _trigger(self, view: View, unit: str) -> UpTrigger | str:
        signal = view.latest(unit)
        if signal is None:
            return "no measurement yet"
        durations = [
            s.measurement.duration_s
            for s in view.window(unit)[-self.observations :]
            if s.measurement.duration_s is not None
        ]
        waiting = signal.measurement.waiting
        if not durations:
            return f"no record was finished lately, {waiting} waiting"
        return up_trigger(durations, view.slo_s(unit), waiting, self.scaling_threshold)

    def _grow(self, plan: Plan, unit: str, reason: str, growing: frozenset[str]) -> None:
        """Figure 4: the most suitable host, else room another unit gives up, else a new host."""
        topology = plan.view.topology
        bound = topology.unit_by_name[unit].max_instances
        if plan.count(unit) >= bound:
            plan.hold(unit, f"{reason}; but it has its {counted(bound, 'instance')} already")
            return
        candidates = plan.candidates(unit)
        if candidates:
            host = self._best(plan, unit, {name: plan.room[name] for name in candidates})
            plan.start_on(unit, host, f"{reason}; {self._described(plan, unit, host)}")
            return
        needs = Room(topology.unit_cores(unit), topology.unit_memory_mib(unit))
        allowed = {site.name for site in topology.sites_of(unit)}
        for utility, victim in self._shrinkable(plan, growing):
            host_id = victim.host
            if host_id is None or host_id not in plan.room or plan.site_of[host_id] not in allowed:
                continue
            if plan.room[host_id].more(victim.cores, victim.memory_mib).holds(needs.cores, needs.memory_mib):
                stopped = plan.stop(
                    victim, f"shrink: utility {utility:.2f} > 0, makes room on host {host_id} for {unit}"
                )
                if stopped:
                    plan.start_on(unit, host_id, f"{reason}; host {host_id}, in the room of {victim.id}")
                    return
        host_new = plan.lease(unit, f"{reason}; no host has room and no unit can shrink")
        if host_new is not None:
            plan.start_on(unit, host_new, f"{reason}; new host {host_new}")

    def _score(self, plan: Plan, unit: str, host: str, free: Room) -> tuple[float, bool]:
        """Algorithm 2 for a host, and whether it has the unit's image."""
        topology = plan.view.topology
        known = plan.view.deployment.hosts.get(host)
        cached = known is not None and unit in known.images
        needs = Room(topology.unit_cores(unit), topology.unit_memory_mib(unit))
        # A host leased in this very decision is as large as the room it had before anything was placed.
        flavour = known.flavour if known is not None else None
        whole = Room(flavour.cores, flavour.memory_mib) if flavour is not None else free
        return suitability(free, whole, needs, cached=cached, cached_factor=self.cached_factor), cached

    def _best(self, plan: Plan, unit: str, rooms: Mapping[str, Room]) -> str:
        """The host Algorithm 2 likes best; the earlier name where two are alike."""
        return min(rooms, key=lambda host: (self._score(plan, unit, host, rooms[host])[0], host))

    def _described(self, plan: Plan, unit: str, host: str) -> str:
        score, cached = self._score(plan, unit, host, plan.room[host])
        return f"host {host} (suitability {score:.3f}, image {'cached' if cached else 'not cached'})"

    # -- shrinking: Algorithm 3 decides, Figure 5 empties the host --------------------------------

    def _utility(self, plan: Plan, unit: str, among: _Among) -> float:
        """Algorithm 3 for a unit, after what was planned so far."""
        view = plan.view
        signal = view.latest(unit)
        if signal is None:
            return INFEASIBLE
        measurement = signal.measurement
        waiting = measurement.waiting
        if measurement.duration_s is None and waiting > 0:
            return INFEASIBLE  # records wait and none is finished: nothing speaks for shrinking
        count = plan.count(unit)
        if signal.cpu_ratio is not None and count > 1:
            # A queue may be empty while every instance is busy. One less would then make it grow, the
            # unit would take the room back from another one, and instances would go round in a circle.
            used = signal.cpu_ratio * count / (count - 1)
            if used > self.most_used_ratio:
                return INFEASIBLE
        return shrink_utility(
            count,
            among.fewest,
            among.most,
            measurement.duration_s or 0.0,
            view.slo_s(unit),
            waiting,
            view.scalings.get(unit, 0),
            among.scalings,
            float(view.topology.loop.penalty),
            self.weights,
        )

    def _shrinkable(self, plan: Plan, growing: frozenset[str]) -> list[tuple[float, Instance]]:
        """Instances that may stop to make room, from the unit of highest utility on, newest first."""
        found: list[tuple[float, Instance]] = []
        among = _Among.of(plan)
        for unit in plan.view.units:
            least = max(1, plan.view.topology.unit_by_name[unit].min_instances)
            if unit in growing or plan.count(unit) <= least:
                continue
            utility = self._utility(plan, unit, among)
            if utility > 0:
                found.extend((utility, instance) for instance in reversed(plan.instances(unit)))
        found.sort(key=lambda item: -item[0])
        return found

    def _judge_leases(self, plan: Plan, growing: tuple[str, ...]) -> None:
        """Figure 5 for every host whose lease is about to end: simulate, release, migrate; else prolong."""
        view = plan.view
        judged = hosts_at_lease_end(view, self.window_ratio, self.shutdown_s)
        undecided = set(judged)
        # The cap counts for the whole decision, however many hosts end in it.
        allowance: dict[str, int] = {}
        among = _Among.of(plan)
        for unit in view.units if judged else ():
            least = max(1, view.topology.unit_by_name[unit].min_instances)
            spare = plan.count(unit) - least
            if unit not in growing and spare > 0 and self._utility(plan, unit, among) > 0:
                allowance[unit] = min(spare, releasable(plan.count(unit), self.release_ratio))
        for host in judged:
            undecided.discard(host)
            lease = view.leases[host]
            left = soon(lease.remaining_s(view.now_s))
            found = emptied(
                plan,
                host,
                may_stop=allowance,
                choose=lambda unit, rooms: self._best(plan, unit, rooms),
                shutdown_s=self.shutdown_s,
                exclude=undecided,
                shrinkable=[instance for _, instance in self._shrinkable(plan, frozenset(growing))],
                pending=growing,
            )
            if isinstance(found, str):
                if must_prolong(lease, view, self.window_ratio, self.shutdown_s):
                    plan.prolong(host, f"needed: {found}; its lease would end {left}")
                continue
            for instance in (*found.stops, *found.makes_room):
                allowance[instance.unit] -= 1
            carry_out(plan, host, found, left)
