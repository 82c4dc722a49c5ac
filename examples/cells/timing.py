"""Where the time of a run goes: parts of micro-batches, what the state costs, queries around a rescale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cells.checking import Result
from cells.shard import QUERY
from penstock.spark.unit.batch_log import KeptBatch, read_batches
from penstock.spark.unit.folders import RunFolders

WHOLE = "triggerExecution"
"""What Spark calls a micro-batch from its beginning to its end."""
BEFORE_S, AFTER_S = 2.0, 15.0
"""Queries due so long before and after a rescale are looked at."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The micro-batches of a unit: medians of what they took, and the state they left."""

    unit: str
    batches: int
    rows: float
    """Of a micro-batch."""
    whole_s: float
    parts_s: Mapping[str, float]
    """What it is made of, the longest first."""
    state_s: Mapping[str, float]
    """What its tasks spent on state."""
    state_rows: int
    """At the end."""
    state_mib: float
    """The most memory it took."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How many instances of a unit there were at an instant."""

    at_s: float
    unit: str
    instances: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A change of a unit's instances, and the queries around it."""

    at_s: float
    """Since the feed began."""
    unit: str
    before: int
    after: int
    queries: int
    longest_s: float | None
    """The longest time a query around it took; None where there was none."""


def parts_of(folders: RunFolders, units: Sequence[str]) -> list[Parts]:
    """What the micro-batches of units took, by the files in their folders."""
    found = []
    for name in units:
        batches = read_batches(folders.unit(name))
        if batches:
            found.append(_parts(name, batches))
    return found


def _parts(unit: str, batches: Sequence[KeptBatch]) -> Parts:
    def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = {name for row in rows for name in row if name != WHOLE}
        found = {name: median(row.get(name, 0.0) for row in rows) for name in names}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    return Parts(
        unit,
        len(batches),
        median(batch.rows for batch in batches),
        median(batch.parts_s.get(WHOLE, 0.0) for batch in batches),
        medians([batch.parts_s for batch in batches]),
        medians([batch.state_s for batch in batches]),
        batches[-1].state_rows,
        max(batch.state_bytes for batch in batches) / 2**20,
    )


def waits_around(seen: Sequence[Seen], results: Sequence[Result], started_s: float) -> list[Wait]:
    """Every change of a unit's instances once it has had some, and how long queries took around it."""
    asked = [(r.source_s - started_s, r.latency_s) for r in results if r.row["kind"] == QUERY]
    found = []
    for unit in dict.fromkeys(each.unit for each in seen):
        own = [each for each in seen if each.unit == unit]
        first = next((place for place, each in enumerate(own) if each.instances), len(own))
        for before, after in pairwise(own[first:]):
            if before.instances == after.instances:
                continue
            near = [s for due_s, s in asked if -BEFORE_S <= due_s - after.at_s <= AFTER_S]
            found.append(
                Wait(after.at_s, unit, before.instances, after.instances, len(near), max(near, default=None))
            )
    return sorted(found, key=lambda wait: wait.at_s)
