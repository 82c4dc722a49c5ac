"""What a run of the cell laboratory came to, as a row, and the rows of Tables 3 to 5.

A run that has finished leaves its row in its folder, beside what it was made with. So an experiment that was
cut off goes on where it was, and figures are never made of runs that are no repetitions of each other.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError
from penstock.machine.files import written

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
    memory_ratio: float = math.nan
    """Mean reading of the unit that scales."""

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
    "memory reading": ("", lambda row: row.memory_ratio),
}
"""The rows of Tables 3 to 5, with the two promises apart, and beside them what memory read."""
PREDICTED = ("scaling events", "VM time", "image violations")
"""What the simulator is held against. It cannot tell queries from images: they are left out on both sides."""


ROW = "row.json"
"""What a run's row is called in its folder."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has finished, as it is kept in its folder."""

    settings: Mapping[str, Any]
    """What it was made with; runs of other settings are no repetitions of it."""
    row: Row
    twin: Row | None
    """What the simulator says of it, where it was given the profile of another run."""
    gave_profile: bool
    """Whether it is the run whose profile the simulator was given."""

    def write(self, folder: Path) -> None:
        """Keep it in the run's folder: all of it, or nothing."""
        written(folder / ROW, json.dumps(asdict(self), indent=2) + "\n", durable=True)

    @staticmethod
    def read(file: Path) -> Finished:
        """What was kept; ConfigurationError where the file is no row."""
        try:
            given = json.loads(file.read_text())
            twin = given["twin"]
            return Finished(
                given["settings"],
                Row(**given["row"]),
                None if twin is None else Row(**twin),
                bool(given["gave_profile"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"expected the row of a finished run in {file}: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that failed, or whose twin did."""

    name: str
    message: str


def require_same(settings: Mapping[str, Any], kept: Mapping[str, Any], folder: Path) -> None:
    """ConfigurationError where a run that has finished was made with other settings than are asked for."""
    wanted = json.loads(json.dumps(settings))
    for name in dict.fromkeys((*wanted, *kept)):
        if wanted.get(name) != kept.get(name):
            raise ConfigurationError(
                f"{folder} has a run with {name} {_short(kept.get(name))}, and {_short(wanted.get(name))} is "
                "asked for: they are no repetitions of each other; give another folder with --out, or delete "
                "this one"
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV."""
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
