"""What came out of a run, beside what must have: every count, every answer, every promise.

Answers are computed again in batch, by the same functions over the same pictures, and must be over all images
whose results could be seen when the query was due. The two promises are
counted separately: 5 s for an image, 1 s for a query, from the instant it was due to the instant its result
could be seen.
"""

from __future__ import annotations

import base64
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from cells.feed import Image, Load, truth
from cells.seeing import Seen, look
from cells.shard import IMAGE, QUERY
from cells.tissue import Album, accuracy
from cells.window import in_batch, point_at, region_at
from penstock.channels.batches import batches_in, data_files
from penstock.monitoring.sla import Compliance, DurationStatistics

PROMISES_S = {IMAGE: 5.0, QUERY: 1.0}
"""How long each may take (paper 001, section 3.2)."""


@dataclass(frozen=True, slots=True)
class Result:
    """One row that came out, and when it could be seen."""

    seen_s: float
    row: dict[str, Any]

    @property
    def source_s(self) -> float:
        """When its record was due."""
        return datetime.fromisoformat(self.row["source_time"]).timestamp()

    @property
    def latency_s(self) -> float:
        """From due to seen."""
        return self.seen_s - self.source_s


def read(folder: Path) -> list[Result]:
    """Everything that came out of a run, in order."""
    found = []
    for batch in batches_in(folder):
        # The rename that made the batch visible set the folder's time of change.
        seen_s = batch.path.stat().st_ctime
        for file in data_files(batch.path):
            found += [Result(seen_s, json.loads(line)) for line in file.read_text().splitlines()]
    return found


def count_results(folder: Path) -> int:
    """How many rows came out, by the names of their batches."""
    return sum(batch.records for batch in batches_in(folder))


@dataclass(frozen=True, slots=True)
class Check:
    """What should have come out and what did."""

    rows: tuple[tuple[str, int, int], ...]
    """(what, expected, found)."""
    accuracy: float
    """Of the counts against the number of cells that were drawn."""
    behind: int
    """Queries that were answered while images before them were still on their way."""
    compliance: dict[str, Compliance]
    """Of images and of queries, each against its own promise."""
    durations: dict[str, DurationStatistics]
    lost: dict[str, int] = field(default_factory=dict)
    """Images and queries of which nothing came out: they keep no promise either."""

    def broken(self, kind: str) -> int:
        """Images or queries that took longer than promised, or never came out."""
        return self.compliance[kind].delayed("real_time") + self.lost.get(kind, 0)

    @property
    def right(self) -> bool:
        """Whether everything expected was found, and nothing else."""
        return all(expected == found for _, expected, found in self.rows)

    @property
    def violations(self) -> int:
        """Images and queries that broke their promise."""
        return sum(self.broken(kind) for kind in self.compliance)


def known_from(taken: Sequence[Image], found: Sequence[Result]) -> dict[int, list[float]]:
    """By region, from when on the results of its first n images could be seen, n = 1, 2, 3, …

    A query that is due later must be answered over these images at least: they were in the state before.
    """
    seen_s: dict[str, float] = {}
    for result in found:
        name = result.row["record_id"]
        seen_s[name] = min(result.seen_s, seen_s.get(name, math.inf))
    by_region: dict[int, list[float]] = {}
    for image in taken:
        by_region.setdefault(image.region, []).append(seen_s.get(f"image-{image.number:08d}", math.inf))
    return {region: list(accumulate(times, max)) for region, times in by_region.items()}


def check(load: Load, album: Album, images: int, results: Sequence[Result]) -> Check:
    """Compare what came out with the truth and with the batch computation, record by record."""
    taken, asked = truth(load, images)

    @cache
    def batch_look(picture: int) -> Seen:
        return look(album.file(picture).read_bytes())

    grids: dict[int, list[bytes]] = {}
    for image in taken:
        grids.setdefault(image.region, []).append(batch_look(image.picture).grid)
    by_kind = {kind: [r for r in results if r.row["kind"] == kind] for kind in (IMAGE, QUERY)}
    ids = {kind: Counter(r.row["record_id"] for r in found) for kind, found in by_kind.items()}
    counted = {r.row["record_id"]: r.row.get("cells", 0) for r in by_kind[IMAGE]}
    answers = {r.row["record_id"]: r.row for r in by_kind[QUERY]}
    known = known_from(taken, by_kind[IMAGE])
    same, equal, behind, early, forgotten = 0, 0, 0, 0, 0
    for image in taken:
        same += counted.get(f"image-{image.number:08d}") == batch_look(image.picture).cells
    for query in asked:
        row = answers.get(f"query-{query.number:08d}")
        if row is None:
            continue
        region, through = region_at(query.x, query.y), int(row["through"])
        expected = in_batch(grids.get(region, []), point_at(query.x, query.y), through)
        equal += base64.b64decode(row.get("intensities", "")) == expected
        behind += through < query.sequence
        early += through > query.sequence
        due_s = datetime.fromisoformat(row["source_time"]).timestamp()
        forgotten += through < bisect_right(known.get(region, []), due_s)
    marked = [album.pictures[image.picture].marked for image in taken]
    found_cells = [counted.get(f"image-{image.number:08d}", 0) for image in taken]
    rows = (
        ("images → counts", len(taken), len(by_kind[IMAGE])),
        ("each image once", len(taken), sum(number == 1 for number in ids[IMAGE].values())),
        ("counts as in the batch computation", len(taken), same),
        ("queries → answers", len(asked), len(by_kind[QUERY])),
        ("each query once", len(asked), sum(number == 1 for number in ids[QUERY].values())),
        ("answers as in the batch computation", len(asked), equal),
        ("answers with images that came later", 0, early),
        ("answers without images that could be seen before", 0, forgotten),
    )
    import numpy as np

    due = {
        IMAGE: {f"image-{image.number:08d}" for image in taken if image.at_s >= load.lead_in_s},
        QUERY: {f"query-{query.number:08d}" for query in asked if query.at_s >= load.lead_in_s},
    }
    latencies = {
        kind: np.array([r.latency_s for r in found if r.row["record_id"] in due[kind]])
        for kind, found in by_kind.items()
    }
    return Check(
        rows,
        accuracy(found_cells, marked),
        behind,
        {kind: Compliance.of(found, PROMISES_S[kind]) for kind, found in latencies.items()},
        {kind: DurationStatistics.of(found) for kind, found in latencies.items()},
        {kind: len(due[kind] - ids[kind].keys()) for kind in due},
    )
