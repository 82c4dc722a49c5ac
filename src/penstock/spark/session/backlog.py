"""What waits for each query of a session, by what its sources tell.

Offsets that count records, files not yet taken, or a number the source reports itself. But for files, Spark
asks a source when it plans a batch: of one that is read to its end each time, nothing is left then, however
long the batch takes. So whatever a source tells, and where it tells nothing (a socket, the `rate` source), a
batch that takes longer than its trigger allows is behind by what came in the time it took too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.spark.session.progress import Batch, SourceProgress
from penstock.spark.session.waiting import WaitingFiles, file_sources, offsets_behind, reported_outstanding


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for one query."""

    records: int
    in_service: int = 0
    told_by: str = ""
    """`offsets`, `files`, `source`, `batch time`, or several of them."""
    came: int | None = None
    """Records that came since the last count, where all sources tell it; else what waits has to."""


class Backlogs:
    """Counts what waits, query by query. Use it from one thread."""

    def __init__(self) -> None:
        self._last: dict[str, Batch] = {}
        """The newest batch with rows, or idle report, of each query."""
        self._rates_per_s: dict[str, tuple[float, ...]] = {}
        """How fast records came last, by query: of each source, or of all where its events name none."""
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
            span_s = batch.started_s - before.started_s
            self._rates_per_s[batch.query] = tuple(came / span_s for came in _came(batch, before))
        self._last[batch.query] = batch

    def keep(self, alive: Iterable[str]) -> None:
        """What waits for a query that ended waits for nobody."""
        kept = set(alive)
        self._last = {name: batch for name, batch in self._last.items() if name in kept}
        self._rates_per_s = {name: rates for name, rates in self._rates_per_s.items() if name in kept}
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
        looked_at: set[int] = set()
        for (query, index), files in self._files.items():
            found = files.count(interval_s) if query == name else None
            if found is not None:
                records, in_service, came = records + found[0], in_service + found[1], came + files.came
                told_by.append("files")
                looked_at.add(index)
        batch = self._last.get(name)
        if batch is not None:
            late_s = max(0.0, batch.duration_s - allowed_s) if batch.rows else 0.0
            rates = self._rates_per_s.get(name, ())
            for index, source in enumerate(batch.sources or (None,)):
                if index not in looked_at:
                    late = round(late_s * rates[index]) if index < len(rates) else 0
                    told, by = _left(source)
                    records += max(told, late)
                    told_by.append(by if by and told >= late else "batch time")
        words = ", ".join(dict.fromkeys(told_by))
        return Waiting(records, in_service, words, came if words == "files" else None)


def _left(source: SourceProgress | None) -> tuple[int, str]:
    """What a source had left when its batch was planned, and how it told that; nothing where it does not."""
    if source is not None:
        for found, by in ((offsets_behind(source), "offsets"), (reported_outstanding(source), "source")):
            if found is not None:
                return found, by
    return 0, ""


def _came(batch: Batch, before: Batch) -> tuple[int, ...]:
    """Records that came between the planning of two batches, by source."""
    if not batch.sources:
        return (batch.rows,)
    earlier = before.sources if len(before.sources) == len(batch.sources) else (None,) * len(batch.sources)
    return tuple(
        max(0, source.rows + _left(source)[0] - _left(last)[0])
        for source, last in zip(batch.sources, earlier, strict=True)
    )
