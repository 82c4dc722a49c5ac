"""What a micro-batch costs whatever is in it, and what each record adds.

Tasks take time before their first record: eight of them with Python easily a second and a half of slots, for
ten records or for a thousand. Small batches therefore make records look expensive, and more executors make
batches smaller still. What counts for a load is what a record costs in batches as long as they may be.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.spark.gateway.executors import Executor
from penstock.spark.session.progress import Batch

REMEMBERED = 60
"""Measurements that are learnt from."""
LEAST = 6
"""So many measurements tell something at least."""
DOUBT = 2.0
"""The cost of a record is taken to be so many standard errors above what fits best."""
FAR_OFF = 4.0
"""What is so many times as far off the line as usual is left out."""
BEGINNING = 3
"""So many batches of a query may still be those that start Python workers and compile."""
LOOKS = 15
"""Looks at the running tasks of queries in real time that are remembered."""
RATES = 10
"""Measurements over which the load is averaged."""


Seen = tuple[int, int, float]
"""Batches, records and slot time of a measurement."""


class Work:
    """Learns, from the slot time of one query's batches, the part that is fixed and the part by record.

    Sizes that hardly differ, or costs that do not follow them, leave a wide error: then all of a batch's
    time is ascribed to its records, as if nothing were fixed.
    """

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque(maxlen=REMEMBERED)
        self._came: deque[tuple[float, int]] = deque(maxlen=RATES)

    def forget(self) -> None:
        """Begin anew with what batches cost: it is another query's."""
        self._seen.clear()

    def arrive(self, interval_s: float, records: int) -> None:
        """Note what came in over an interval."""
        self._came.append((interval_s, records))

    def rows_within(self, seconds: float) -> float:
        """Records that come within some time, as of late."""
        over_s = sum(interval_s for interval_s, _ in self._came)
        return sum(records for _, records in self._came) / over_s * seconds if over_s > 0 else 0.0

    def record_s(self, batches: int, rows: int, busy_s: float, longest_s: float) -> float:
        """The slot time a record takes in batches as long as they may be, from what some batches took.

        No batch is taken to be larger than one that was seen. The level is that of these batches, how much of
        it is fixed is what all of late say.
        """
        self._seen.append((batches, rows, busy_s))
        fixed_s, each_s = self._parts()
        largest = max(some / number for number, some, _ in self._seen)
        filled = max(1.0, min(largest, self.rows_within(longest_s)))
        level = busy_s / (fixed_s * batches + each_s * rows)
        return level * (each_s + fixed_s / filled)

    def _parts(self) -> tuple[float, float]:
        """The fixed slot time of a batch and that of a record: a line through what was seen.

        What is far off the line is left out of a second one: an executor that has just come compiles.
        """
        line = _line(self._seen)
        off = [abs(busy_s - line.busy_s(batches, rows)) / batches for batches, rows, busy_s in self._seen]
        usual = FAR_OFF * statistics.median(off)
        near = [some for some, far in zip(self._seen, off, strict=True) if far <= usual]
        if len(near) >= LEAST:
            line = _line(near)
        # Where small batches took as long as large ones, or longer by chance, all of it is fixed.
        each_s = max(0.0, line.each_s + DOUBT * line.error_s)
        if len(near) < LEAST or each_s >= line.mean_s / line.mean_rows:
            return 0.0, line.mean_s / line.mean_rows
        return line.mean_s - each_s * line.mean_rows, each_s


class Beginnings:
    """Knows which batches say nothing of a record's work, because their query has only just begun.

    A query's first batch starts Python workers and compiles. So may the next ones, which is most of what they
    cost where they are small.
    """

    def __init__(self) -> None:
        self._finished: dict[str, int] = {}
        """Batches with records of each query."""

    def finish(self, batches: Iterable[Batch], there: int) -> bool:
        """Whether these say nothing, or some of them; `there` is how many records wait or are in work."""
        found = False
        for batch in batches:
            before = self._finished.get(batch.query, 0)
            found |= before == 0 or (before < BEGINNING and batch.rows < there / 4)
            self._finished[batch.query] = before + 1
        return found


class KeptSlots:
    """Learns how many slots queries in real time keep: their tasks run all the time, and all at once.

    Spark ends such a query where a batch finds fewer. Between its batches no task runs, and other jobs have
    tasks now and then: what is there most of the time counts.
    """

    def __init__(self) -> None:
        self._queries: frozenset[str] = frozenset()
        self._active: deque[int] = deque(maxlen=LOOKS)

    def look(self, queries: Collection[str], executors: Collection[Executor], *, tells_tasks: bool) -> int:
        """The slots that these queries in real time keep now; all there are until that is known."""
        if self._queries != queries:
            self._queries = frozenset(queries)
            self._active.clear()
        if not queries:
            return 0
        self._active.append(sum(executor.tasks_active for executor in executors))
        if not tells_tasks or len(self._active) < LEAST:
            return sum(executor.cores for executor in executors)
        return statistics.median_high(self._active)


class _Line(NamedTuple):
    """What fits best: the slot time of a batch of so many records."""

    mean_rows: float
    mean_s: float
    each_s: float = 0.0
    error_s: float = math.inf
    """The standard error of what each record adds."""

    def busy_s(self, batches: int, rows: int) -> float:
        """What some batches would have taken."""
        return batches * (self.mean_s - self.each_s * self.mean_rows) + rows * self.each_s


def _line(seen: Collection[Seen]) -> _Line:
    """The line through some measurements, each of which counts for as many batches as it is of."""
    count = sum(batches for batches, _, _ in seen)
    rows = sum(rows for _, rows, _ in seen) / count
    busy_s = sum(busy_s for _, _, busy_s in seen) / count
    spread = sum(n * (r / n - rows) ** 2 for n, r, _ in seen)
    if len(seen) < LEAST or spread <= 0:
        return _Line(rows, busy_s)
    each_s = sum(n * (r / n - rows) * (s / n - busy_s) for n, r, s in seen) / spread
    left = sum(n * (s / n - busy_s - each_s * (r / n - rows)) ** 2 for n, r, s in seen)
    return _Line(rows, busy_s, each_s, math.sqrt(left / (len(seen) - 2) / spread))
