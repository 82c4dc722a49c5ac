"""With how many instances a unit starts: cold or warm, paper 001, Section 2.4.

Cold, nothing is known and the unit starts with its default. Warm, it starts with the mean number of
instances of its last run, which is the best guess at the load to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def starting_instances(
    last_run: Sequence[tuple[float, int]], until_s: float | None = None, default: int = 1
) -> int:
    """The instances to start with, given the last run's (instant, instances) changes, oldest first.

    Each number holds until the next change, the last one until `until_s`. An empty last run, or one that
    took no time, is a cold start.
    """
    if not last_run:
        return default
    end_s = last_run[-1][0] if until_s is None else until_s
    instants = [at_s for at_s, _ in last_run] + [end_s]
    spans = [max(later - earlier, 0.0) for earlier, later in pairwise(instants)]
    total_s = sum(spans)
    if total_s <= 0:
        return default
    mean = sum(span * count for span, (_, count) in zip(spans, last_run, strict=True)) / total_s
    return max(1, round(mean))
