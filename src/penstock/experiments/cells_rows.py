"""What a run of the cell laboratory came to, as a row, and the rows of Tables 3 to 5."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

WORKLOADS = ("Pyramid", "Square", "Lab")
MEGAPIXELS = 1.7
"""The paper's pictures."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one run came to; `simulated` rows have no correctness of their own."""

    workload: str
    filter: str
    seed: int
    kind: str
    vm_h: float
    events: float
    image_s: float
    query_s: float
    image_violations: float
    query_violations: float
    right: bool

    @property
    def violations(self) -> float:
        """Images and queries beyond their promises."""
        return self.image_violations + self.query_violations


METRICS: Mapping[str, tuple[str, Callable[[Row], float]]] = {
    "VM time": ("h", lambda row: row.vm_h),
    "scaling events": ("", lambda row: row.events),
    "image processing time": ("s", lambda row: row.image_s),
    "query processing time": ("s", lambda row: row.query_s),
    "image violations": ("", lambda row: row.image_violations),
    "query violations": ("", lambda row: row.query_violations),
    "SLA violations": ("", lambda row: row.violations),
}
"""The rows of Tables 3 to 5, with the two promises apart."""
PREDICTED = ("scaling events", "VM time", "image violations")
"""What the simulator is held against. It cannot tell queries from images: they are left out on both sides."""


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
