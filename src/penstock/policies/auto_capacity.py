"""What a number of instances can do: how many records would be late, in every way the load may go.

Two reasons make a record late. The load exceeds what the instances can do, so that a backlog grows until it
takes longer than the SLO to get through it; that is counted as a fluid. Or records that happen to come
together wait for each other although the instances could do it all; that is a queue with many servers
(Sakasegawa's probability of waiting, an exponential tail as wide as the measured variations make it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RECOVERY_LEADS = 2.0
"""A backlog is worked off within so many times the time from a decision until it works."""
COLD_RECOVERY_LEADS = 6.0
"""The same for what gathered before the first instances served: half of those it takes would go at once."""
LEAST_RECOVERY_LEADS = 1.0
"""It takes at least so many, however few records may be late."""
MOST_EXTRA = 0.4
"""A backlog is worked off with at most this share of the load more: what works it off goes again.

The more, the sooner it is to be worked off.
"""
SPARE = 0.05
"""A backlog is taken to be worked off with at least this share of the load, however few the instances."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What one instance of a unit can do, as measured."""

    rate_per_s: float
    """Records a second one instance finishes when it never waits."""
    slots: int
    service_s: float
    slack_s: float
    """How long a record may wait and still keep the SLO."""
    variation: float
    """(ca² + cs²) / 2 of arrivals and service times: 1 for a Poisson stream of exponential work."""

    def waits_too_long(self, loads_per_s: Floats, able_per_s: Floats) -> Floats:
        """The share of records that waits longer than it may although the instances keep up."""
        servers = np.maximum(1.0, able_per_s / self.rate_per_s * self.slots)
        used = np.minimum(loads_per_s / able_per_s, 0.9999)
        # Sakasegawa: P(wait) ≈ ρ^(√(2(c+1)) − 1); the tail falls with c (1 − ρ) / (service · variation)
        waits = used ** (np.sqrt(2.0 * (servers + 1.0)) - 1.0)
        decay_per_s = servers * (1.0 - used) / (self.service_s * max(self.variation, 1e-3))
        return np.asarray(waits * np.exp(-self.slack_s * decay_per_s))


@dataclass(frozen=True, slots=True)
class Future:
    """What is fixed about the next bins whatever is decided now."""

    ways_per_s: Floats
    """The load in each way (rows) and bin (columns)."""
    weights: Floats
    """How likely each way is; they sum up to 1."""
    bin_s: float
    backlog: float
    """Records that wait now."""
    coming: Floats
    """Instances that serve in each bin if nothing is decided."""
    lead_bins: float
    """Bins until what is decided now serves."""
    recovery_leads: float = RECOVERY_LEADS

    @property
    def usual_per_s(self) -> Floats:
        """The load in each bin as it most likely goes."""
        return np.asarray(self.ways_per_s[int(self.weights.cumsum().searchsorted(0.5))])

    @property
    def recovery_s(self) -> float:
        """The time in which a backlog is worked off."""
        return self.recovery_leads * max(1.0, self.lead_bins) * self.bin_s

    def extra_per_s(self, backlog: Floats | float, load_per_s: Floats | float) -> Floats:
        """What is to be done beside a load so that a backlog is worked off."""
        most = MOST_EXTRA * max(1.0, RECOVERY_LEADS / self.recovery_leads)
        return np.minimum(np.asarray(backlog) / self.recovery_s, most * np.asarray(load_per_s))


def late_records(future: Future, ability: Ability, counts: Floats, *, from_bin: float) -> Floats:
    """For each number of instances, the mean of the late records over all ways.

    The number holds from a bin on (a fraction of a bin counts for that part of it). Once the next decision
    could serve, it is taken to follow what was seen by then, and to foresee as much of what is likely as is
    foreseen now: only what this decision can prevent counts.
    """
    ways, bin_s = future.ways_per_s, future.bin_s
    shares = np.minimum(np.maximum(np.arange(1, ways.shape[1] + 1)[:, None] - from_bin, 0.0), 1.0)
    ables = ability.rate_per_s * (future.coming[:, None] * (1.0 - shares) + counts * shares)
    ables = np.maximum(ables, 1e-9)
    waits = ability.waits_too_long(ways[:, :, None], ables)
    if (
        future.backlog <= ability.slack_s * float(ables.min())
        and (ways.max(axis=0) <= ables.min(axis=1)).all()
    ):
        # Nothing ever gathers: no record is late but for the others that come with it.
        return np.asarray(future.weights @ np.einsum("wb,wbc->wc", ways, waits)) * bin_s
    bins, lag = ways.shape[1], max(1, round(future.lead_bins))
    # By bin, way and number of instances: what waits at the beginning of a bin, and what can be done in it.
    backlogs = np.empty((bins + 1, len(ways), len(counts)))
    backlogs[0] = future.backlog
    able = np.repeat(ables[:, None, :], len(ways), axis=1)
    loads, likely = ways.T[:, :, None], future.usual_per_s
    for column in range(bins):
        if column >= lag + 1:
            foreseen = max(1.0, float(likely[column] / likely[column - lag - 1]))
            seen = loads[column - lag - 1] * (1.02 * foreseen)
            extra = future.extra_per_s(backlogs[column - lag], seen)
            np.maximum(able[column], seen + extra, out=able[column])
        after = backlogs[column] + (loads[column] - able[column]) * bin_s
        np.maximum(after, 0.0, out=backlogs[column + 1])
    # Who would give something back counts on nobody: it would have to come again.
    waits = ability.waits_too_long(loads, able) if from_bin > 0.0 else waits.swapaxes(0, 1)
    begins_s, ends_s = backlogs[:-1] / able, backlogs[1:] / able
    most_s, change_s = np.maximum(begins_s, ends_s), np.abs(ends_s - begins_s)
    # The part of the bin in which the backlog takes longer to get through than a record may wait.
    over = np.minimum((most_s - ability.slack_s) / np.maximum(change_s, 1e-9), 1.0)
    late = (np.maximum(over, waits) * loads).sum(axis=0) * bin_s
    backlog, load = backlogs[-1], loads[-1]
    # What is left makes records late until it is worked off. Later decisions are not counted on here, or
    # every one of them would leave a large backlog to the next.
    spare = np.maximum(counts * ability.rate_per_s - load, SPARE * load)
    late += load * np.maximum(0.0, backlog - ability.slack_s * able[-1]) / np.maximum(spare, 1e-9)
    return np.asarray(future.weights @ late)
