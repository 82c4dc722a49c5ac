"""Policy `queueing`: hold a unit's latency budget with the fewest instances a queueing model allows.

A unit is one queue served by every slot of every instance (M/M/c, with Allen and Cunneen's factor for
arrivals and service times of any spread, which is Kingman's for one server). From the measured arrival
rate, service time and their variation follows the least number of instances that keeps the budget, or the
SLO where no bound was distributed: the control model of paper 004's units. It acts in one step, grows at
once, and shrinks only to what the highest load of late would need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.budgets.queues import SharedQueue
from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action
from penstock.fleet.deployment import InstanceState
from penstock.forecasts.forecasters import ENOUGH, NEAR
from penstock.forecasts.outlook import LEVELS, outlook_of
from penstock.monitoring.measurements import Measurement
from penstock.policies.auto_account import account_of
from penstock.policies.planning import Plan, right
from penstock.policies.view import View
from penstock.quantities import counted, format_duration


@dataclass(frozen=True, slots=True)
class Queueing:
    """Hold the budget with the fewest instances a queueing model allows (paper 004, M/M/c and Kingman)."""

    name: ClassVar[str] = "queueing"
    decides_on: ClassVar[tuple[str, ...]] = ("arrivals", "service", "waiting")
    looks_back: ClassVar[bool] = True
    quantile: float = 0.95
    """The share of records that is to stay within the budget."""
    average_s: float = 60.0
    """The span over which service times and variations are averaged."""
    calm_s: float = 180.0
    """Only shrink to what the highest load within this span would need."""
    catch_up_s: float = 120.0
    """The time in which a backlog is to be worked off."""
    overhead_s: float = 0.0
    """Time a record spends in the unit beside waiting and service, for example in a micro-batch."""

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise ConfigurationError(f"quantile lies between 0 and 1, got {self.quantile}")
        if self.catch_up_s <= 0:
            raise ConfigurationError(f"catch_up_s must be above 0, got {self.catch_up_s}")

    def decide(self, view: View) -> tuple[Action, ...]:
        """Bring every unit to the fewest instances that keep its budget."""
        plan = Plan(view)
        for unit in view.units:
            self._decide(plan, unit)
        plan.release_empty_hosts()
        return plan.actions

    def _decide(self, plan: Plan, unit: str) -> None:
        view = plan.view
        recent = [s.measurement for s in view.window(unit) if s.at_s > view.now_s - self.average_s]
        service_s = _mean([m.service_s for m in recent if m.service_s])
        if not recent or service_s is None:
            plan.hold(unit, "load or service time not known yet")
            return
        found = view.topology.unit_by_name[unit]
        count = plan.count(unit)
        running = sum(1 for i in view.instances(unit) if i.state is InstanceState.RUNNING)
        newest = recent[-1]
        served_soon = newest.interval_s * newest.processing_rate_per_s
        drain = newest.waiting / self.catch_up_s if newest.waiting > max(1.0, served_soon) else 0.0
        # What gathered while instances are still starting was asked for already: it is no reason to grow
        # again, but one not to shrink.
        extra = drain if running >= count else 0.0
        present = max(newest.arrival_rate_per_s, _rate(recent))
        ahead = self._ahead(view, unit)
        now = max(present, ahead) + extra
        calm = [s.measurement for s in view.window(unit) if s.at_s > view.now_s - self.calm_s]
        highest = max([now, max(present, ahead) + drain, *(m.arrival_rate_per_s for m in calm)])
        budget_s = view.slo_s(unit)
        arrival_cv = _mean([m.arrival_cv for m in recent if m.arrival_cv is not None])
        service_cv = _mean([m.service_cv for m in recent if m.service_cv is not None])

        def needed(rate_per_s: float) -> int:
            queue = SharedQueue(
                rate_per_s,
                service_s,
                1.0 if arrival_cv is None else arrival_cv,
                1.0 if service_cv is None else service_cv,
                slots=found.slots,
                max_instances=found.max_instances,
                min_instances=max(1, found.min_instances),
                quantile=self.quantile,
                overhead_s=self.overhead_s,
            )
            # A budget below what a record takes alone is kept as nearly as can be: hardly anyone waits.
            alone_s = queue.service_part_s + self.overhead_s
            instances = queue.parallelism(max(budget_s, alone_s + 0.05 * service_s))
            return instances if instances is not None else found.max_instances

        wanted, enough = needed(now), needed(highest)
        reason = (
            f"{now:.4g}/s of {format_duration(service_s)} each need {counted(wanted, 'instance')} to keep "
            f"{format_duration(budget_s)} for {100 * self.quantile:g}%"
        )
        if ahead > present:
            reason += f" ({present:.4g}/s now, up to {ahead:.4g}/s until a new instance serves)"
        reason += self._cannot(now, service_s, service_cv, found.slots, found.max_instances, budget_s)
        reason += self._missed(view, unit)
        if wanted > count:
            plan.grow(unit, wanted, f"up from {count} to {wanted}: {reason}")
        elif enough < count:
            # Those on the emptiest hosts go first, so that hosts become free.
            members = sorted(plan.instances(unit), key=lambda i: (len(plan.on_host(i.host or "")), i.id))
            for instance in members[: count - enough]:
                plan.stop(
                    instance, f"down from {count} to {enough}: {reason}, {highest:.4g}/s of late {enough}"
                )
        else:
            plan.hold(unit, f"{right(count)}: {reason}")

    def _ahead(self, view: View, unit: str) -> float:
        """The load to be ready for: the promised quantile of how high it gets until a new instance serves.

        A model of waiting holds for a load that stays; it is what comes within the lead time that makes the
        records late. Where more were late than promised, a higher quantile is taken.
        """
        load = view.loads.get(unit)
        if load is None or len(load) < 1:
            return 0.0
        lead_s = view.lead_time_s(unit)
        bins = math.ceil(lead_s / load.bin_s) + 1
        outlook = outlook_of(load, bins, view.seasons.get(unit))
        debt = min(0.0, account_of(load, self.quantile).balance_s / max(lead_s, 1.0))
        level = 1.0 - (1.0 - self.quantile) * math.exp(max(debt, -5.0))
        return float(np.interp(level, LEVELS, outlook.peaks_per_s[:, min(bins, NEAR) - 1]))

    def _missed(self, view: View, unit: str) -> str:
        """That the promise was not kept so far although the model says it would be, and why; else empty."""
        load = view.loads.get(unit)
        done = 0.0 if load is None or len(load) < ENOUGH else float(load.done.sum())
        if load is None or done <= 0:
            return ""
        kept = 1.0 - float(load.late.sum()) / done
        if kept >= self.quantile:
            return ""
        start = format_duration(round(view.lead_time_s(unit)))
        return (
            f"; does not hold it: kept {kept:.1%} so far, as loads came faster than the {start} a start takes"
        )

    def _cannot(
        self,
        rate_per_s: float,
        service_s: float,
        service_cv: float | None,
        slots: int,
        most: int,
        budget_s: float,
    ) -> str:
        """Why the promise cannot be kept, in words; empty where it can."""
        alone_s = service_s + self.overhead_s
        if alone_s > budget_s:
            return f"; cannot hold it: a record alone takes {format_duration(alone_s)}"
        if service_cv is not None and service_s * (1.0 + 3.0 * service_cv) + self.overhead_s > budget_s:
            return f"; may not hold it: works of one record vary by {service_cv:.0%} around their mean"
        if rate_per_s * service_s / slots > most:
            return f"; cannot hold it: the load needs more than its {counted(most, 'instance')}"
        return ""


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _rate(window: Sequence[Measurement]) -> float:
    span_s = math.fsum(m.interval_s for m in window)
    return sum(m.arrived for m in window) / span_s if span_s > 0 else 0.0
