"""Policy `levels`: give a congested unit the cheapest container that helps (paper 002).

With a configuration map (`penstock benchmark`) it moves between the map's configurations by the load that is
observed, and with a daily profile by the load that is due when a host ordered now would serve. Without a map
it reacts to health. A trend over several observations keeps it from oscillating; what came last goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from penstock.choosing import Range
from penstock.fleet.actions import Action
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.levels.day import DailyLoad
from penstock.levels.platform import PlatformProfile, default_profile
from penstock.monitoring.health import CONGESTED, health_over, is_backlog
from penstock.monitoring.measurements import Signal
from penstock.policies.levels_moves import grow, paid_hosts, shrink, slots_of
from penstock.policies.planning import Plan, right
from penstock.policies.view import View
from penstock.quantities import counted
from penstock.topology.model import Topology

OVERLOADED = 0.9
"""Paper 002: a host above this share of its CPU or memory takes nothing more."""
SWING = 0.02
"""With a map: a load this share above a configuration's is still its load: counts of an interval swing so."""
IDLE = 0.6
"""Without a map, a slot goes where the others would be busy for less than this share of the time."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The cheapest level that helps: a slot, an instance, a host (paper 002), by map, profile or health."""

    name: ClassVar[str] = "levels"
    decides_on: ClassVar[tuple[str, ...]] = ("arrivals", "health", "waiting", "utilisation")
    map: str | None = None
    """File of a configuration map made by `penstock benchmark`; without one the policy reacts to health."""
    platform: str | None = None
    """File of a platform profile made by `penstock study levels`; by default what was found for Spark."""
    day: str | None = None
    """File of a daily profile (`penstock study day`): hosts are ordered ahead of what is due."""
    observations: Annotated[int, Range(least=1, most=40)] = 3
    """Observations a trend is made of: nothing shrinks before they all agree."""
    least_health: Annotated[float, Range(above=0, most=1)] = CONGESTED
    """A unit below this health is congested."""
    outside_ratio: Annotated[float, Range(least=0)] = 0.25
    """How far the load may be above the daily profile before the profile is not believed any more."""
    spare_ratio: Annotated[float, Range(least=0)] = 0.0
    """With a map: configurations are chosen for this share more than the load, to have some to spare."""
    catch_up_s: Annotated[float, Range(above=0)] = 120.0
    """With a map: the time in which a backlog is to be worked off."""
    keep_paid: bool = True
    """Keep what is on a host until its paid time ends; otherwise give it back as soon as not needed."""
    shutdown_s: float = 30.0
    """How long before its paid end a host is judged."""

    def __post_init__(self) -> None:
        self.known_map()
        self.profile()
        self.known_day()

    def known_map(self) -> ConfigurationMap | None:
        """The configuration map, where there is one."""
        return None if self.map is None else _map(self.map)

    def profile(self) -> PlatformProfile:
        """What the levels cost here."""
        return default_profile() if self.platform is None else _platform(self.platform)

    def known_day(self) -> DailyLoad | None:
        """The daily profile, where there is one."""
        return None if self.day is None else _day(self.day)

    def decide(self, view: View) -> tuple[Action, ...]:
        """Move to the configuration of the load, or react to health where there is no map."""
        plan = Plan(view)
        known = self.known_map()
        if known is None:
            self._react(plan)
        else:
            self._follow(plan, known)
        self._release(plan)
        return plan.actions

    # -- by the map ------------------------------------------------------------------------------

    def _follow(self, plan: Plan, known: ConfigurationMap) -> None:
        view = plan.view
        loads = observed_loads(view, self.observations)
        if not loads:
            for unit in view.units:
                plan.hold(unit, "load not known yet")
            return
        rising, calm = trend(loads), max(loads)
        enough = len(loads) >= self.observations
        told = f"{loads[-1]:.4g}/s now, {rising:.4g}/s by trend"
        due = self._due(view, loads[-1])
        if due is not None:
            expected, ahead, alert = due
            if alert is not None:
                plan.hold(view.units[0], alert)
            else:
                rising, calm = max(expected, ahead), max(expected, ahead)
                # What is due is known: the profile's thresholds count, not a swing around them.
                rising = max(rising, min(loads)) if enough else rising
                calm, enough = max(calm, min(loads)), True
                told = f"{expected:.4g}/s due now, {ahead:.4g}/s ahead, {loads[-1]:.4g}/s seen"
        growth, drain = self._catching_up(view)
        more = (1.0 + self.spare_ratio) / (1.0 + SWING)
        up = known.for_load(rising * more + growth)
        down = known.for_load(max(calm, rising) * more + drain)
        for unit in view.units:
            self._bring(plan, unit, up, down if enough else None, told)

    def _bring(self, plan: Plan, unit: str, up: Configuration, down: Configuration | None, told: str) -> None:
        have, want = slots_of(plan, unit), up.slots(unit)
        if have < want:
            reason = (
                f"up from {have} to {counted(want, 'slot')}: {told}, configuration up to {up.to_per_s:.4g}/s"
            )
            while slots_of(plan, unit) < want:
                if grow(plan, unit, self.profile(), reason) is None:
                    break
            return
        least = have if down is None else down.slots(unit)
        if have > least:
            reason = f"down from {have} to {counted(least, 'slot')}: {told}"
            if shrink(plan, unit, have - least, reason, self._kept(plan)):
                return
        plan.hold(unit, f"{right(have, 'slot')}: {told}")

    def _due(self, view: View, load: float) -> tuple[float, float, str | None] | None:
        """What the daily profile expects now and ahead; an alert where the load has left it."""
        day = self.known_day()
        if day is None:
            return None
        expected = day.at(view.now_s)
        lead_s = max(view.lead_time_s(unit) for unit in view.units) + view.interval_s
        # Around a step of the profile both its rates are right.
        about = max(expected, day.at(view.now_s - view.interval_s), day.at(view.now_s + view.interval_s))
        alert = None
        if load > about * (1.0 + self.outside_ratio):
            alert = (
                f"alert: {load:.4g}/s is more than the daily profile's {about:.4g}/s allows; "
                "reacting to what is seen"
            )
        return expected, day.highest(view.now_s, view.now_s + lead_s), alert

    def _catching_up(self, view: View) -> tuple[float, float]:
        """Records a second beyond what comes, to work a backlog off: for growing, and for not shrinking.

        What gathered while instances start is no reason to ask for more: they were asked for on its account.
        """
        growth = drain = 0.0
        for unit in entry_units(view.topology):
            signal = view.latest(unit)
            if signal is None:
                continue
            waiting = signal.measurement.waiting
            # What comes in while the SLO lasts is no backlog.
            if waiting <= max(1.0, signal.measurement.arrival_rate_per_s * view.slo_s(unit)):
                continue
            drain += waiting / self.catch_up_s
            if all(instance.running_s is not None for instance in view.instances(unit)):
                growth += waiting / self.catch_up_s
        return growth, drain

    # -- by health -------------------------------------------------------------------------------

    def _react(self, plan: Plan) -> None:
        """Grow the congested unit nearest to the sources; shrink what would be idle without a slot."""
        view = plan.view
        grown = False
        for unit in [u.name for u in view.topology.units_in_order if u.name in view.units]:
            if any(instance.running_s is None for instance in view.instances(unit)):
                # What gathered before it serves says nothing of what it does then.
                plan.hold(unit, "what was asked for has not come yet")
                grown = True
                continue
            if not any(s.measurement.processed for s in view.window(unit)):
                # The first micro-batch starts Python and compiles: what waits for it says nothing, either.
                plan.hold(unit, "nothing is finished yet")
                grown = True
                continue
            window = self._since_change(view, unit)
            health = health_over(s.measurement for s in window)
            if health is None or len(window) < self.observations:
                plan.hold(unit, f"{len(window)} of {self.observations} observations since the last change")
                grown = True
                continue
            told = f"health {health:.2f}"
            waiting = window[-1].measurement.waiting
            behind = is_backlog(waiting, max(s.measurement.in_service for s in window))
            have = slots_of(plan, unit)
            # Micro-batches that still grow hide a backlog; that more work comes than slots do shows at once.
            too_much = offered(window) * self.least_health > have
            if health < self.least_health and (behind or too_much) and not grown:
                grown = True
                busy = overloaded_hosts(view)
                overloaded = {host for host, used in busy.items() if used > OVERLOADED}
                reason = f"up: {told} < {self.least_health:g}"
                if not grow(plan, unit, self.profile(), reason, overloaded=overloaded, least_loaded=busy):
                    grow(plan, unit, self.profile(), reason)
                continue
            used = [share for s in window if (share := _busy(s, have)) is not None]
            idle = len(used) >= self.observations and have > 1 and max(used) * have / (have - 1) < IDLE
            if idle and health >= self.least_health and (waiting <= have or not behind):
                reason = f"down: {told}, {max(used):.0%} used at most"
                if shrink(plan, unit, 1, reason, self._kept(plan)):
                    continue
            plan.hold(unit, f"{right(have, 'slot')}: {told}")

    def _since_change(self, view: View, unit: str) -> tuple[Signal, ...]:
        """The last observations of a unit that lie wholly after its last scaling."""
        since_s = max((i.running_s or 0.0 for i in view.instances(unit)), default=0.0)
        since_s = max([since_s, *(event.at_s for event in view.history if event.unit == unit)])
        window = view.window(unit)[-self.observations :]
        return tuple(s for s in window if s.at_s - s.measurement.interval_s >= since_s - 1e-6)

    # -- giving back -----------------------------------------------------------------------------

    def _kept(self, plan: Plan) -> set[str]:
        return paid_hosts(plan, self.shutdown_s) if self.keep_paid else set()

    def _release(self, plan: Plan) -> None:
        kept = self._kept(plan)
        deployment = plan.view.deployment
        for host in [host for host in plan.room if not plan.on_host(host) and host not in kept]:
            known = deployment.hosts.get(host)
            if known is not None and known.up_s is not None and known.leased:
                plan.release(host, "no instance is on it")


def offered(window: Sequence[Signal]) -> float:
    """The work that came in, in slots that it keeps busy; 0 where it is not known how long a record takes."""
    timed = [s.measurement for s in window if s.measurement.service_s is not None]
    done = sum(m.processed for m in timed)
    if not done:
        return 0.0
    service_s = sum((m.service_s or 0.0) * m.processed for m in timed) / done
    return service_s * sum(s.measurement.arrival_rate_per_s for s in window) / len(window)


def _busy(signal: Signal, slots: int) -> float | None:
    """The share of its time that a unit's slots worked: by their CPU, or by the work on what came.

    One that waits for a service uses no CPU, and its slots are busy all the same.
    """
    if signal.cpu_ratio is None:
        return None
    worked_s = signal.measurement.arrival_rate_per_s * (signal.measurement.service_s or 0.0)
    return max(signal.cpu_ratio, worked_s / max(1, slots))


def observed_loads(view: View, observations: int) -> list[float]:
    """What came from the sources, records a second, in the last observations, the oldest first.

    Each source counts once, at the first unit that reads it; what other units send on does not count.
    """
    entries = entry_units(view.topology)
    windows = [view.window(unit)[-observations:] for unit in entries]
    if not windows or not all(windows):
        return []
    number = min(len(window) for window in windows)
    return [
        sum(window[len(window) - number + k].measurement.arrival_rate_per_s for window in windows)
        for k in range(number)
    ]


def entry_units(topology: Topology) -> tuple[str, ...]:
    """Units whose arrivals together are what the sources emit, each source counted once."""
    covered: set[str] = set()
    found: list[str] = []
    for unit in topology.units_in_order:
        read = {i for name in unit.operators for i in topology.operator_by_name[name].inputs}
        sources = {name for name in read if name in topology.source_by_name}
        if sources and not sources & covered:
            found.append(unit.name)
        covered |= sources
    return tuple(found)


def trend(values: Sequence[float]) -> float:
    """The newest value of the straight line through these, by least squares."""
    number = len(values)
    mean = sum(values) / number
    middle = (number - 1) / 2
    spread = sum((k - middle) ** 2 for k in range(number))
    if spread == 0:
        return values[-1]
    slope = sum((k - middle) * (value - mean) for k, value in enumerate(values)) / spread
    return mean + slope * (number - 1 - middle)


def overloaded_hosts(view: View) -> dict[str, float]:
    """The larger of CPU and memory used on each host, by what its instances read of themselves."""
    cpu: dict[str, float] = {}
    memory: dict[str, float] = {}
    for signals in view.windows.values():
        for reading in signals[-1].measurement.readings:
            instance = view.deployment.instances.get(reading.instance)
            if instance is None or instance.host is None:
                continue
            cpu[instance.host] = cpu.get(instance.host, 0.0) + (reading.cpu_ratio or 0.0) * instance.cores
            used_mib = (reading.memory_ratio or 0.0) * instance.memory_mib
            memory[instance.host] = memory.get(instance.host, 0.0) + used_mib
    return {
        host.id: max(
            cpu.get(host.id, 0.0) / host.flavour.cores, memory.get(host.id, 0.0) / host.flavour.memory_mib
        )
        for host in view.deployment.hosts.values()
    }


@lru_cache
def _map(file: str) -> ConfigurationMap:
    return ConfigurationMap.read(Path(file))


@lru_cache
def _platform(file: str) -> PlatformProfile:
    return PlatformProfile.read(Path(file))


@lru_cache
def _day(file: str) -> DailyLoad:
    return DailyLoad.read(Path(file))
