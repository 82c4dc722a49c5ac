"""How many instances: where one more costs more than the late records it prevents, and one less saves less
than the late records it causes.

Prices are those of the site's billing rule. A new host is paid for its minimum; the part of that in which it
would be needed anyway costs nothing extra. A host given back saves its price until it would be needed again.
Every start and stop is charged with some intervals of an instance, or the numbers would follow every noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from penstock.policies.auto_capacity import Ability, Future, late_records
from penstock.policies.auto_moves import RESCALE_BINS

Floats = NDArray[np.float64]

MOST_COUNTS = 25
"""Larger numbers of instances that are compared at most."""
GOING = 2.0
"""What goes and comes again is charged with so many times as much as two moves that the load asks for."""
SPENT_BINS = 6.0
"""Lateness that is left is spent where it buys at least so many intervals with a host less."""
MOST_BEYOND = 3.0
"""What is not needed again within the time looked at is taken to be so for at most so many times it more."""
HARDLY = 1.01
"""Instances that do less than so many times the load hardly carry it: their rate is not known any better."""
SURE = 0.7
"""What the load needs in this share of the ways and of the time looked at comes anyway."""
MOST_STEPS = 12
"""Steps down that are compared at most."""
NOT_YET = "but nothing expected until the next decision serves needs it"
AGAIN = "but would be asked for again at once"
SPENT = "what was kept beyond what was asked pays for them"


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
    prompt: float = 1.0
    """The share of that charge which is spared where what comes would come anyway."""
    late_by_leaving: float = 0.0
    """What a late record is worth at least where giving something back would make it late."""

    @property
    def instance_per_s(self) -> float:
        """An instance's part of its host."""
        return self.host_per_s / self.per_host

    @property
    def leaving(self) -> float:
        """What a late record is worth where giving something back would make it late."""
        return max(self.late, self.late_by_leaving)


@dataclass(frozen=True, slots=True, order=True)
class Tried:
    """A number of instances that was compared with the chosen one."""

    count: int
    costs: float
    """What the change to it would cost, below 0 where it would save."""
    late: float | None
    """Late records to be expected with it; None where that was not looked at, as it did not pay anyway."""
    but: str = ""
    """Why it was not taken although its costs and its late records do not tell, in words."""


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
    tried: tuple[Tried, ...] = ()
    """The numbers next to it, the fewest first."""
    worth: float = 0.0
    """What avoiding a late record was worth."""
    besides: str = ""
    """What spoke for it beside its costs and its late records, in words."""


def more_instances(
    future: Future, ability: Ability, prices: Prices, count: int, most: int, times_s: Floats,
    far_per_s: Floats, interval_s: float,
) -> Choice:  # fmt: skip
    """The best number of instances from the present one up."""
    rescale_s = prices.rescale_bins * future.bin_s
    # No more than works a backlog off in some lead times: what is late already is not saved by haste.
    # A lead time may be longer than what is looked ahead, where decisions follow each other fast.
    served_first = min(math.ceil(future.lead_bins) + 1, future.ways_per_s.shape[1])
    backlog = _left_waiting(future, ability, served_first)
    usual = float(future.usual_per_s[served_first - 1])
    highest = float(future.ways_per_s[:, :served_first].max())
    # What works a backlog off stands ready for a higher load as well.
    highest = max(highest, usual + float(future.extra_per_s(backlog, usual)))
    top = min(most, max(count, math.ceil(highest / ability.rate_per_s)))
    step = max(1, math.ceil((top - count) / MOST_COUNTS))
    counts = np.arange(count, max(count, top) + step, step, dtype=np.float64)
    next_to = np.arange(count, min(most, count + 1) + 1, dtype=np.float64)
    late = late_records(future, ability, next_to, from_bin=future.lead_bins)
    one_s = rescale_s
    if prices.late * late[0] > prices.instance_per_s * interval_s:
        sure = prices.prompt * _coming_anyway(future.weights, ability, next_to, times_s, far_per_s)
        one_s *= float(1.0 - sure[-1])
    if len(counts) == 1 or prices.late * late[0] <= prices.instance_per_s * one_s:
        # Not even one that prevented all of it would pay.
        one_s += 0.0 if prices.room else prices.per_host * prices.minimum_s
        costs = [0.0, prices.instance_per_s * one_s][: len(next_to)]
        buts = {1: NOT_YET} if len(next_to) > len(counts) else {}
        return _chosen(next_to.astype(int).tolist(), costs, late.tolist(), 0, prices.late, buts)
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
    charged = np.maximum(added, hosts * prices.per_host) * prices.instance_per_s * rescale_s
    sure = prices.prompt * _coming_anyway(future.weights, ability, counts, times_s, far_per_s)
    cost += charged * (1.0 - sure)
    best = int(np.argmin(prices.late * late + cost))
    return _chosen(counts.astype(int).tolist(), cost.tolist(), late.tolist(), best, prices.late)


def fewer_instances(
    future: Future, ability: Ability, prices: Prices, count: int, least: int, step: int, times_s: Floats,
    peaks_per_s: Floats, now_per_s: float, headroom: float = 1.0, spendable_s: float = 0.0,
    known_s: float = math.inf,
) -> Choice:  # fmt: skip
    """The best number of instances from the present one down, in steps that empty a host.

    A forecast only ever adds to what the present needs: no way is taken to be below the present load.
    Nor is anything given back that the present load needs, however little a late record is worth; unless
    the account has so much left that it buys some time with a host less (`spendable_s`).
    """
    rescale_s = prices.rescale_bins * future.bin_s
    future = replace(future, ways_per_s=np.maximum(future.ways_per_s, now_per_s))
    peaks_per_s = np.maximum(peaks_per_s, now_per_s)
    counts, saved = [count], [0.0]
    lower = count - step if step == 1 or count % step == 0 else count - count % step
    if lower >= least and _spends(future, ability, count, lower, now_per_s, spendable_s):
        late = late_records(future, ability, np.array([count, lower], dtype=np.float64), from_bin=0.0)
        saves = prices.instance_per_s * step * spendable_s
        return Choice(lower, float(late[0]), float(late[1]), -saves, worth=prices.leaving, besides=SPENT)
    while lower >= least and len(counts) < MOST_STEPS and lower * ability.rate_per_s >= now_per_s:
        # It is asked for again before the load is there: as soon as the load may get there in time.
        needed = future.weights @ (peaks_per_s * headroom > ability.rate_per_s * lower)
        # Every step empties a host, even one that was not full; what goes is to come again one day.
        # A record tells of no longer a time than its own.
        without_s = min(known_s, _first_time(times_s, needed))
        # What surely does not come again is no noise that would be followed.
        again_s = GOING * 2 * rescale_s * math.sqrt(float(needed[-1]))
        gain = prices.instance_per_s * step * (without_s - again_s)
        counts.append(lower)
        saved.append(saved[-1] + gain)
        if gain <= 0:
            break
        lower -= step
    if len(counts) == 1:
        return Choice(count, 0.0, 0.0, 0.0)
    pays = len(counts) if saved[-1] > saved[-2] else len(counts) - 1
    if pays == 1:
        # What it would save is less than what coming and going is charged, however few were late.
        return Choice(count, 0.0, 0.0, 0.0, (Tried(counts[1], -saved[1], None),), prices.leaving)
    numbers = np.array(counts, dtype=np.float64)
    late, one_more = np.split(
        late_records(future, ability, np.concatenate([numbers, numbers + 1.0]), from_bin=0.0), 2
    )
    # So few would be too few again at once where a start would pay for the late records it prevents.
    worth = prices.leaving
    asked_back = worth * (late - one_more) > prices.instance_per_s * rescale_s
    best = int(np.argmin((worth * late - np.array(saved))[:pays]))
    while best and asked_back[best]:
        best -= 1
    buts = {place: AGAIN for place in range(1, len(counts)) if asked_back[place]}
    return _chosen(counts, [-amount for amount in saved], late.tolist(), best, worth, buts)


def asked_again(
    future: Future, ability: Ability, prices: Prices, count: int, lower: int, times_s: Floats,
    far_per_s: Floats, interval_s: float, now_per_s: float,
) -> bool:  # fmt: skip
    """Whether the next decisions would ask again for what is given back, so that it would only come and go.

    How much an instance does is not known exactly, and next to full every hundredth counts: what hardly
    carries the load is taken not to. A backlog gathers then, of at least what may wait.
    """
    ability = replace(ability, rate_per_s=ability.rate_per_s / HARDLY)
    gathers = ability.slack_s * now_per_s if lower * ability.rate_per_s < now_per_s else 0.0
    coming = np.maximum(0.0, future.coming - (count - lower))
    left = replace(future, coming=coming, backlog=max(future.backlog, gathers))
    return more_instances(left, ability, prices, lower, count, times_s, far_per_s, interval_s).count > lower


def _chosen(
    counts: Sequence[int], costs: Sequence[float], late: Sequence[float], best: int, worth: float,
    buts: Mapping[int, str] | None = None,
) -> Choice:  # fmt: skip
    """The choice of one of some numbers, the present one first, with those next to it.

    `buts` says for some places why they are not taken although they may look better.
    """
    chosen = costs[best] + worth * late[best]
    near = {place for place in (0, best - 1, best + 1) if 0 <= place < len(counts) and place != best}
    tried = sorted(
        Tried(
            counts[place],
            costs[place],
            late[place],
            (buts or {}).get(place, "") if costs[place] + worth * late[place] < chosen else "",
        )
        for place in near
    )
    return Choice(counts[best], late[0], late[best], costs[best], tuple(tried), worth)


def _left_waiting(future: Future, ability: Ability, bins: int) -> float:
    """What still waits after some bins if nothing is decided, as the load most likely goes.

    Instances that are still starting were asked for on account of some of it, and work that off.
    """
    left = future.backlog
    for load, coming in zip(future.usual_per_s[:bins], future.coming[:bins], strict=True):
        left = max(0.0, left + float(load - coming * ability.rate_per_s) * future.bin_s)
    return left


def _coming_anyway(
    weights: Floats, ability: Ability, counts: Floats, times_s: Floats, far_per_s: Floats
) -> Floats:
    """For each number, how sure it is that the load needs it over the time looked at: 0 below even odds.

    What comes anyway is not saved a move by coming later.
    """
    needed = np.array(
        [
            _mean_over(times_s, weights @ (far_per_s > (number - 1) * ability.rate_per_s), float(times_s[-1]))
            for number in counts
        ]
    )
    return np.clip((needed - 0.5) / (SURE - 0.5), 0.0, 1.0)


def _spends(
    future: Future, ability: Ability, count: int, lower: int, now_per_s: float, spendable_s: float
) -> bool:
    """Whether what may still be late buys enough time with fewer instances than the present load needs."""
    short_per_s = now_per_s - lower * ability.rate_per_s
    spare_per_s = count * ability.rate_per_s - now_per_s
    if short_per_s <= 0.0 or spare_per_s <= 0.0 or future.backlog > ability.slack_s * now_per_s:
        return False
    # While it is short, and then until what gathered is worked off, all records are late.
    return spendable_s / (1.0 + short_per_s / spare_per_s) >= SPENT_BINS * future.bin_s


def _first_time(times_s: Floats, reached: Floats) -> float:
    """The mean time until something happens, from how likely it has happened by some instants."""
    widths = _widths(times_s)
    before = np.concatenate([[0.0], reached[:-1]])
    within_s = float(widths @ (1.0 - (before + reached) / 2.0))
    # What has not happened by then goes on to be as likely as over the later half of what is looked at.
    end_s, never = float(times_s[-1]), 1.0 - float(reached[-1])
    halfway = 1.0 - float(np.interp(end_s / 2.0, times_s, reached))
    if never <= 0.0:
        return within_s
    rate_per_s = math.log(max(halfway, never) / never) / (end_s / 2.0)
    return within_s + never * min(1.0 / max(rate_per_s, 1e-12), MOST_BEYOND * end_s)


def _mean_over(times_s: Floats, shares: Floats, until_s: float) -> float:
    """The mean of shares known at some distances, over the time up to an end."""
    inside = times_s <= max(until_s, times_s[0])
    times, values = times_s[inside], shares[inside]
    if until_s > times[-1]:
        times, values = np.append(times, until_s), np.append(values, values[-1])
    widths = _widths(times)
    return float((widths * values).sum() / widths.sum())


def _widths(times_s: Floats) -> Floats:
    """From each instant back to the one before it, the first from now."""
    found = times_s.copy()
    found[1:] -= times_s[:-1]
    return found
