"""What a rescale taught: more instances that did no more work are not asked for again.

While records wait, more instances must finish more of them. Where they did not, something else holds the
unit: the source has too few partitions, one instance gets most records, the sink or the driver is slow. The
number that was as good as the larger one becomes the unit's bound, for an hour; after that it may try again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.fleet.deployment import InstanceState
from penstock.monitoring.measurements import Measurement
from penstock.policies.view import Lesson, View

REMEMBERED_S = 3600.0
"""How long a lesson holds."""
AT_LEAST = 2
"""Measurements that must speak of each number of instances."""
CHANGES = ("StopInstance", "MigrateInstance", "ResizeInstance")
"""After one of these, what was measured before is not told by the instances that are there now."""
USEFUL = 0.5
"""More instances helped where they did at least this share of what they should have."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What a unit did with one number of instances, while records waited."""

    instances: int
    rate_per_s: float
    members: Sequence[Measurement]

    @property
    def executed(self) -> list[int]:
        """What each instance finished, the most first; empty where nobody counted."""
        sums = {reading.instance: 0 for reading in self.members[-1].readings}
        for reading in (r for m in self.members for r in m.readings if r.instance in sums):
            sums[reading.instance] += reading.executed
        return sorted(sums.values(), reverse=True) if any(sums.values()) else []

    @property
    def busy_ratio(self) -> float | None:
        """How busy the instances were lately, in the mean; None where nobody looked."""
        read = [r.cpu_ratio for r in self.members[-1].readings if r.cpu_ratio is not None]
        return sum(read) / len(read) if read else None

    @property
    def working(self) -> int:
        """Instances that finished anything at all; 0 where nobody counted."""
        return sum(1 for records in self.executed if records)


def lesson_of(view: View, unit: str) -> Lesson | None:
    """What the unit's last rescale taught, or the lesson before it where that still holds."""
    before = view.lessons.get(unit)
    if before is not None and view.now_s - before.learned_s > REMEMBERED_S:
        before = None
    groups = _groups(view, unit)
    if len(groups) < 2:
        return before
    small, large = groups[0], groups[-1]
    gain = large.rate_per_s / small.rate_per_s - 1.0
    expected = large.instances / small.instances - 1.0
    if gain >= USEFUL * expected:
        return before
    # As many as would have done the same work, had all of them worked as the few did.
    enough = max(small.instances, math.ceil(small.instances * (1.0 + max(0.0, gain)) - 0.25))
    if 0 < large.working < enough:
        # Even of the few some got nothing.
        enough = large.working
    worse = gain < -0.1
    told = (
        f"{large.instances} instances finished {large.rate_per_s:.4g}/s where {small.instances} had finished "
        f"{small.rate_per_s:.4g}/s although records waited: {_cause(large)}"
    )
    return Lesson(enough, view.now_s, f"{told}; {'taken back' if worse else 'no more'} than {enough}")


def _groups(view: View, unit: str) -> list[_Group]:
    """Measurements during which records waited, by the instances that served throughout, fewest first."""
    window = view.window(unit)
    if not window:
        return []
    stopped = [e.at_s for e in view.history if e.unit == unit and e.kind in CHANGES]
    began_s = [
        i.running_s
        for i in view.deployment.of_unit(unit)
        if i.state is InstanceState.RUNNING and i.running_s is not None
    ]
    found: dict[int, list[Measurement]] = {}
    for signal in window:
        measurement = signal.measurement
        begin_s = signal.at_s - measurement.interval_s
        if stopped and begin_s < stopped[-1]:
            continue
        enough_s = max(view.slo_s(unit), measurement.interval_s / 4)
        if measurement.waiting <= max(0.0, enough_s * measurement.processing_rate_per_s):
            continue
        serving = sum(1 for s in began_s if s <= begin_s)
        # Instances that were lost since then did some of the work, and are not among those there are now.
        if len(measurement.readings) > serving:
            continue
        if serving and serving == sum(1 for s in began_s if s <= signal.at_s):
            found.setdefault(serving, []).append(measurement)
    groups = [(count, _rate_per_s(members), members) for count, members in sorted(found.items())]
    return [_Group(count, rate, members) for count, rate, members in groups if rate is not None]


def _rate_per_s(members: Sequence[Measurement]) -> float | None:
    """Records finished a second; None where too few measurements speak of it.

    Where a micro-batch takes longer than an interval, nothing is finished in most of them and all of it in
    some: what counts is from the end of one batch to the end of another.
    """
    ended = [place for place, measurement in enumerate(members) if measurement.processed]
    if len(ended) < AT_LEAST:
        return None
    if len(ended) < len(members):
        members = members[ended[0] + 1 : ended[-1] + 1]
    return sum(m.processed for m in members) / sum(m.interval_s for m in members)


def _cause(group: _Group) -> str:
    """What most likely holds the unit, in words."""
    executed, busy_ratio = group.executed, group.busy_ratio
    if executed and group.working < group.instances:
        return f"source-bound, only {group.working} of them got any"
    if len(executed) > 1 and executed[0] > 2 * sum(executed[1:]) / (len(executed) - 1):
        return f"skew, one of them did {executed[0] / sum(executed):.0%}"
    if busy_ratio is not None and busy_ratio < 0.5:
        return f"sink-bound, they were busy {busy_ratio:.0%} of the time"
    if executed:
        return "driver-bound, all of them got records and were busy"
    if busy_ratio is not None:
        return f"driver-bound, they were busy {busy_ratio:.0%} of the time"
    return "bound by something other than instances"
