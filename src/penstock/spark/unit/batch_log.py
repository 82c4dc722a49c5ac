"""Micro-batches of a unit on record, for whoever wants to see where their time goes.

Off unless the setting `spark.penstock.batches` is `true`: the file grows with every micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.spark.session.progress import Batch

SETTING = "spark.penstock.batches"
"""The setting that asks for the file."""


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """What is kept of a micro-batch that had rows."""

    number: int
    started_s: float
    rows: int
    parts_s: Mapping[str, float]
    """Duration parts as Spark names them; `triggerExecution` is all of it."""
    state_rows: int
    state_bytes: int
    state_s: Mapping[str, float]
    """Time its tasks spent on state, all together."""


class BatchLog:
    """A file in the unit's folder, a line a micro-batch."""

    def __init__(self, unit: Path) -> None:
        self._file = log_of(unit)

    def add(self, batches: Iterable[Batch]) -> None:
        """Write down what had rows."""
        lines = [
            json.dumps(asdict(KeptBatch(*(getattr(batch, name) for name in KeptBatch.__slots__))))
            for batch in batches
            if batch.rows
        ]
        if lines:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as stream:
                stream.write("".join(f"{line}\n" for line in lines))


def log_of(unit: Path) -> Path:
    """The file in a unit's folder."""
    return unit / "batches.jsonl"


def read_batches(unit: Path) -> list[KeptBatch]:
    """The micro-batches on record in a unit's folder; one that a killed driver wrote in part is left out."""
    file = log_of(unit)
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(KeptBatch(**json.loads(line)))
        except ValueError:
            continue
    return found
