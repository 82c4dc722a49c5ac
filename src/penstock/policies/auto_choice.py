"""How many instances: where one more costs more than the late records it prevents, and one less saves less
than the late records it causes.

Prices are those of the site's billing rule. A new host is paid for its minimum; the part of that in which it
would be needed anyway costs nothing extra. A host given back saves its price until it would be needed again.
Every start and stop is charged with some intervals of an instance, or the numbers would follow every noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from penstock.policies.auto_capacity import Ability, Future, late_records
from penstock.policies.auto_moves import RESCALE_BINS

Floats = NDArray[np.float64]

MOST_COUNTS = 25
"""Larger numbers of instances that are compared at most."""
MOST_STEPS = 12
"""Steps down that are compared at most."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What instances of a unit cost."""

    host_per_s: float
    per_host: int
    """Instances that a new host takes."""
    minimum_s: float
    """What a new lease is paid for at least."""
    late: float
    """What avoiding one late record is worth."""
    priced: bool = True
    """False where hosts cost us nothing: then an instance counts as 1 a second, and may stop at any time."""
    room: int = 0
    """Instances for which hosts that are there have room."""
    rescale_bins: float = RESCALE_BINS
    """What comes or goes, an instance or a host, is charged with its price for so many intervals."""

    @property
    def instance_per_s(self) -> float:
        """An instance's part of its host."""
        return self.host_per_s / self.per_host


@dataclass(frozen=True, slots=True)
class Choice:
    """A number of instances, and what speaks for it."""

    count: int
    late_if_unchanged: float
    """Late records to be expected within the next bins, with the present number."""
    late: float
    """The same with the chosen number."""
    costs: float
    """What the change costs, below 0 where it saves."""


def more_instances(
    future: Future, ability: Ability, prices: Prices, count: int, most: int, times_s: Floats,
    far_per_s: Floats, interval_s: float,
) -> Choice:  # fmt: skip
    """The best number of instances from the present one up."""
    rescale_s = prices.rescale_bins * future.bin_s
    # No more than works a backlog off in some lead times: what is late already is not saved by haste.
    # What gathered while instances are still starting was asked for already.
    backlog = future.backlog if future.coming[0] >= count - 1e-9 else 0.0
    served_first = math.ceil(future.lead_bins) + 1
    highest = float(future.ways_per_s[:, :served_first].max()) + backlog / future.recovery_s
    top = min(most, max(count, math.ceil(highest / ability.rate_per_s)))
    step = max(1, math.ceil((top - count) / MOST_COUNTS))
    counts = np.arange(count, max(count, top) + step, step, dtype=np.float64)
    unchanged = float(late_records(future, ability, counts[:1], from_bin=future.lead_bins)[0])
    if len(counts) == 1 or prices.late * unchanged <= prices.instance_per_s * rescale_s:
        # Not even one that prevented all of it would pay.
        return Choice(count, unchanged, unchanged, 0.0)
    counts[-1] = max(count, top)
    late = late_records(future, ability, counts, from_bin=future.lead_bins)
    added = counts - count
    hosts = np.ceil(np.maximum(0.0, added - prices.room) / prices.per_host - 1e-9)
    cost = np.zeros_like(counts)
    for number in range(1, int(hosts.max()) + 1):
        # The share of the minimum in which the load needs this host too.
        below = count + prices.room + (number - 1) * prices.per_host
        used = _mean_over(
            times_s, future.weights @ (far_per_s > below * ability.rate_per_s), prices.minimum_s
        )
        each = prices.host_per_s * (prices.minimum_s * (1.0 - used) + interval_s * used)
        cost += np.where(hosts >= number, each, 0.0)
    cost += np.maximum(added, hosts * prices.per_host) * prices.instance_per_s * rescale_s
    best = int(np.argmin(prices.late * late + cost))
    return Choice(int(counts[best]), float(late[0]), float(late[best]), float(cost[best]))


def fewer_instances(
    future: Future, ability: Ability, prices: Prices, count: int, least: int, step: int, times_s: Floats,
    peaks_per_s: Floats, now_per_s: float, headroom: float = 1.0,
) -> Choice:  # fmt: skip
    """The best number of instances from the present one down, in steps that empty a host.

    A forecast only ever adds to what the present needs: no way is taken to be below the present load.
    Nor is anything given back that the present load needs, however little a late record is worth.
    """
    rescale_s = prices.rescale_bins * future.bin_s
    future = replace(future, ways_per_s=np.maximum(future.ways_per_s, now_per_s))
    peaks_per_s = np.maximum(peaks_per_s, now_per_s)
    counts, saved = [count], [0.0]
    lower = count - step if step == 1 or count % step == 0 else count - count % step
    while lower >= least and len(counts) < MOST_STEPS and lower * ability.rate_per_s >= now_per_s:
        # It is asked for again before the load is there: as soon as the load may get there in time.
        needed = future.weights @ (peaks_per_s * headroom > ability.rate_per_s * lower)
        # Every step empties a host, even one that was not full; what goes is to come again one day.
        gain = prices.instance_per_s * step * (_first_time(times_s, needed) - 2 * rescale_s)
        if gain <= 0:
            break
        counts.append(lower)
        saved.append(saved[-1] + gain)
        lower -= step
    if len(counts) == 1:
        return Choice(count, 0.0, 0.0, 0.0)
    numbers = np.array(counts, dtype=np.float64)
    late, one_more = np.split(
        late_records(future, ability, np.concatenate([numbers, numbers + 1.0]), from_bin=0.0), 2
    )
    # So few would be too few again at once where a start would pay for the late records it prevents.
    asked_back = prices.late * (late - one_more) > prices.instance_per_s * rescale_s
    best = int(np.argmin(prices.late * late - np.array(saved)))
    while best and asked_back[best]:
        best -= 1
    return Choice(counts[best], float(late[0]), float(late[best]), -saved[best])


def _first_time(times_s: Floats, reached: Floats) -> float:
    """The mean time until something happens, from how likely it has happened by some instants."""
    widths = np.diff(times_s, prepend=0.0)
    before = np.concatenate([[0.0], reached[:-1]])
    return float(widths @ (1.0 - (before + reached) / 2.0))


def _mean_over(times_s: Floats, shares: Floats, until_s: float) -> float:
    """The mean of shares known at some distances, over the time up to an end."""
    inside = times_s <= max(until_s, times_s[0])
    times, values = times_s[inside], shares[inside]
    if until_s > times[-1]:
        times, values = np.append(times, until_s), np.append(values, values[-1])
    widths = np.diff(times, prepend=0.0)
    return float((widths * values).sum() / widths.sum())
