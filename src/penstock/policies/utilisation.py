"""Policy `utilisation`: keep the estimated utilisation between two thresholds, as in paper 001.

Up if any metric is above the upper threshold, down if all are below the lower one, each the mean over the
unit's instances after its filter. `single` moves by one instance a decision. `multi` moves to where the
estimate would be in the middle: an estimate above 1 says how many instances are missing.
Beyond the paper, the estimate's own variance can widen the thresholds, so that noise does not scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.fleet.actions import Action, Hold
from penstock.fleet.deployment import HostState
from penstock.monitoring.measurements import Signal
from penstock.policies.planning import Plan
from penstock.policies.view import View
from penstock.quantities import counted

STEPS = ("single", "multi")


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Keep the estimated CPU and memory utilisation between two thresholds (paper 001, section 3.3)."""

    name: ClassVar[str] = "utilisation"
    decides_on: ClassVar[tuple[str, ...]] = ("utilisation",)
    down_ratio: float = 0.45
    """Below this in every metric: fewer instances (Θ⁻)."""
    up_ratio: float = 0.80
    """Above this in any metric: more instances (Θ⁺)."""
    step: str = "multi"
    """`single`: one instance a decision. `multi`: as many as the estimate says are missing or idle."""
    target_ratio: float | None = None
    """Where `multi` aims at, up and down alike; none means by `inset_ratio`."""
    inset_ratio: float = 0.5
    """How far into the band `multi` goes from the threshold that was crossed, as a share of the band: 0.5
    is its middle; less moves fewer instances and stays nearer to the threshold."""
    certainty_sigma: float = 0.0
    """A threshold is crossed only where the estimate is this many of its standard deviations beyond it."""
    settle_s: float = 0.0
    """After a scaling of the unit, `multi` waits this long before it goes the other way."""
    anticipate: bool = True
    """`multi` holds the thresholds against what utilisation will be once starting instances serve."""

    def __post_init__(self) -> None:
        if not 0 < self.down_ratio < self.up_ratio:
            raise ConfigurationError(
                "policy utilisation: expected 0 < down_ratio < up_ratio, "
                f"got {self.down_ratio:g} and {self.up_ratio:g}"
            )
        if self.step not in STEPS:
            raise ConfigurationError(
                f"policy utilisation: expected step out of {', '.join(STEPS)}, got {self.step!r}"
            )
        if self.target_ratio is not None and not self.down_ratio <= self.target_ratio <= self.up_ratio:
            raise ConfigurationError(
                f"policy utilisation: expected target_ratio between {self.down_ratio:g} and "
                f"{self.up_ratio:g}, got {self.target_ratio:g}"
            )
        if not 0 <= self.inset_ratio <= 1:
            raise ConfigurationError(
                f"policy utilisation: expected inset_ratio from 0 to 1, got {self.inset_ratio:g}"
            )
        if self.certainty_sigma < 0 or self.settle_s < 0:
            raise ConfigurationError(
                "policy utilisation: expected certainty_sigma and settle_s of at least 0, "
                f"got {self.certainty_sigma:g} and {self.settle_s:g}"
            )

    def decide(self, view: View) -> tuple[Action, ...]:
        """Up, down or hold for each unit; then hosts that have become empty are given back."""
        wishes = [(unit, *self._change(view, unit)) for unit in view.units]
        if not any(change for _, change, _ in wishes) and not _has_empty_host(view):
            # Most ticks change nothing: spare them the what-if deployment.
            return tuple(Hold(unit, reason) for unit, _, reason in wishes)
        plan = Plan(view)
        for unit, change, reason in wishes:
            if change == 0:
                plan.hold(unit, reason)
            if change > 0:
                plan.grow(unit, plan.count(unit) + change, reason)
            for _ in range(-change):
                if not plan.stop(plan.instances(unit)[-1], reason):
                    break
        plan.release_empty_hosts()
        return plan.actions

    def _change(self, view: View, unit: str) -> tuple[int, str]:
        """By how many instances the unit should grow (or shrink, below 0), and why."""
        signal = view.latest(unit)
        if signal is None:
            return 0, "no measurement yet"
        if not signal.trusted:
            return 0, "the filter is not trusted yet"
        metrics = _metrics(signal)
        if not metrics:
            return 0, "no utilisation was read"
        bounds = view.topology.unit_by_name[unit]
        count = len(view.instances(unit))
        running = len(signal.measurement.readings)
        if self.step == "multi" and self.anticipate:
            # What the same work will be once the instances now starting or stopping have done so.
            metrics = [(n, v * running / max(count, 1), s * running / max(count, 1)) for n, v, s in metrics]
        # The instances the estimate is about: those it was projected on, or those that were read.
        base = count if self.anticipate else running
        for name, value, std in metrics:
            margin = self.certainty_sigma * std
            if value - margin > self.up_ratio:
                reason = f"{name} {value:.2f} > {self.up_ratio:g}" + (f" by {margin:.2f}" if margin else "")
                return self._up(view, unit, (value - margin) * base, count, bounds.max_instances, reason)
        text = ", ".join(f"{name} {value:.2f}" for name, value, _ in metrics)
        if all(value + self.certainty_sigma * std < self.down_ratio for _, value, std in metrics):
            value = max(value for _, value, _ in metrics)
            reason = f"{text} < {self.down_ratio:g}"
            return self._down(view, unit, value * base, count, max(1, bounds.min_instances), reason)
        return 0, f"{text}, within {self.down_ratio:g} and {self.up_ratio:g}"

    def _up(self, view: View, unit: str, work: float, count: int, most: int, reason: str) -> tuple[int, str]:
        if count >= most:
            return 0, f"{reason}; but it has its {counted(most, 'instance')} already"
        if self.step == "single":
            return 1, f"up: {reason}"
        if self._just_went(view, unit, "StopInstance"):
            return 0, f"{reason}; it shrank less than {self.settle_s:g} s ago"
        wanted = min(self._wanted(work, self.up_ratio - self.inset_ratio * self._band), most)
        if wanted <= count:
            return 0, f"{reason}; the {counted(count, 'instance')} there or starting will do"
        return wanted - count, f"up from {count} to {wanted}: {reason}"

    def _down(
        self, view: View, unit: str, work: float, count: int, least: int, reason: str
    ) -> tuple[int, str]:
        if count <= least:
            return 0, f"{reason}; but it has its least of {counted(least, 'instance')}"
        if self.step == "single":
            return -1, f"down: {reason}"
        if self._just_went(view, unit, "StartInstance"):
            return 0, f"{reason}; it grew less than {self.settle_s:g} s ago"
        wanted = max(self._wanted(work, self.down_ratio + self.inset_ratio * self._band), least)
        if wanted >= count:
            return 0, f"{reason}; the {counted(count, 'instance')} are few enough"
        return wanted - count, f"down from {count} to {wanted}: {reason}"

    @property
    def _band(self) -> float:
        return self.up_ratio - self.down_ratio

    def _wanted(self, work: float, aim: float) -> int:
        """Instances with which the work, in fully used instances, would meet the target."""
        target = aim if self.target_ratio is None else self.target_ratio
        return max(1, math.ceil(work / target - 1e-9))

    def _just_went(self, view: View, unit: str, kind: str) -> bool:
        if self.settle_s <= 0:
            return False
        for event in reversed(view.history):
            if view.now_s - event.at_s >= self.settle_s:
                return False
            if event.unit == unit and event.kind == kind:
                return True
        return False


def _metrics(signal: Signal) -> list[tuple[str, float, float]]:
    """Name, estimate and standard deviation (0 where unknown) of each metric there is."""
    found = []
    if signal.cpu_ratio is not None:
        found.append(("cpu", signal.cpu_ratio, signal.cpu_std or 0.0))
    if signal.memory_ratio is not None:
        found.append(("memory", signal.memory_ratio, signal.memory_std or 0.0))
    return found


def _has_empty_host(view: View) -> bool:
    return any(
        host.state is HostState.UP and not view.deployment.on_host(host.id)
        for host in view.deployment.hosts.values()
    )
