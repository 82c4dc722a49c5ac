"""What waits for each query of a session, by what its sources tell.

Offsets that count records, files not yet taken, or a number the source reports itself. Where a source tells
nothing (a socket, the `rate` source), a batch that takes longer than its trigger allows is behind by what
came in the time it took too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.spark.session.progress import Batch
from penstock.spark.session.waiting import WaitingFiles, file_sources, offsets_behind, reported_outstanding


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for one query."""

    records: int
    in_service: int = 0
    told_by: str = ""
    """`offsets`, `files`, `source` or `batch time`."""
    came: int | None = None
    """Records that came since the last count, where all sources tell it; else what waits has to."""


class Backlogs:
    """Counts what waits, query by query. Use it from one thread."""

    def __init__(self) -> None:
        self._last: dict[str, Batch] = {}
        """The newest batch with rows, or idle report, of each query."""
        self._rate_per_s: dict[str, float] = {}
        self._files: dict[tuple[str, int], WaitingFiles] = {}
        self._sourced: set[str] = set()

    def learn(self, query: Any, name: str) -> None:
        """Look at a query's sources, once it has any: before its first batch ends."""
        if name in self._sourced:
            return
        found = file_sources(query)
        if found is not None:
            self._files.update({(name, index): files for index, files in found.items()})
            self._sourced.add(name)

    def finish(self, batch: Batch) -> None:
        """A batch ended."""
        for index, source in enumerate(batch.sources):
            if (batch.query, index) in self._files:
                self._files[batch.query, index].finish(source.rows, source.end_offset)
        before = self._last.get(batch.query)
        if batch.rows and before is not None and batch.started_s > before.started_s:
            self._rate_per_s[batch.query] = batch.rows / (batch.started_s - before.started_s)
        self._last[batch.query] = batch

    def keep(self, alive: Iterable[str]) -> None:
        """What waits for a query that ended waits for nobody."""
        kept = set(alive)
        self._last = {name: batch for name, batch in self._last.items() if name in kept}
        self._rate_per_s = {name: rate for name, rate in self._rate_per_s.items() if name in kept}
        self._files = {key: files for key, files in self._files.items() if key[0] in kept}
        self._sourced &= kept

    def counted(self, allowed_s: Mapping[str, float], interval_s: float | None = None) -> dict[str, Waiting]:
        """What waits for each query; `allowed_s` says how long a batch of each may take.

        `interval_s` is the time since this was last asked for.
        """
        return {name: self._count(name, allowed_s[name], interval_s) for name in allowed_s}

    def _count(self, name: str, allowed_s: float, interval_s: float | None) -> Waiting:
        records = in_service = came = 0
        told_by: list[str] = []
        for (query, _), files in self._files.items():
            found = files.count(interval_s) if query == name else None
            if found is not None:
                records, in_service, came = records + found[0], in_service + found[1], came + files.came
                told_by.append("files")
        batch = self._last.get(name)
        sources = batch.sources if batch is not None else ()
        for source in sources:
            behind, outstanding = offsets_behind(source), reported_outstanding(source)
            if behind is not None:
                records += behind
                told_by.append("offsets")
            elif outstanding is not None:
                records += outstanding
                told_by.append("source")
        if told_by or batch is None:
            by_files = bool(told_by) and told_by == ["files"] * (len(sources) or len(told_by))
            words = ", ".join(dict.fromkeys(told_by))
            return Waiting(records, in_service, words, came if by_files else None)
        late_s = batch.duration_s - allowed_s if batch.rows else 0.0
        return Waiting(round(max(0.0, late_s) * self._rate_per_s.get(name, 0.0)), 0, "batch time")
