"""Where a run keeps its streams, checkpoints and results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.machine.files import PRIVATE, written
from penstock.spark.checkpoints import Checkpoint

_NAME = "run.name"
_ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Where a run keeps its streams, checkpoints and results."""

    root: Path

    @property
    def channels(self) -> Path:
        """Streams between units."""
        return self.root / "channels"

    @property
    def sources(self) -> Path:
        """Streams of generated sources."""
        return self.root / "sources"

    @property
    def results(self) -> Path:
        """What built-in sinks write to relative folders."""
        return self.root / "results"

    @property
    def lookups(self) -> Path:
        """What functions look up, and somebody may update."""
        return self.root / "lookups"

    def unit(self, name: str) -> Path:
        """Everything of one unit."""
        return self.root / "units" / name

    def checkpoint(self, unit: str) -> Path:
        """The checkpoint of a unit's query."""
        return self.unit(unit) / "checkpoint"

    def earlier(self, unit: str) -> Path:
        """What a unit had before it began anew."""
        return self.unit(unit) / "earlier"

    def writer(self, unit: str, operator: str) -> str:
        """The mark of whoever writes an operator's records, with the word of the unit's checkpoint."""
        identity = Checkpoint(self.checkpoint(unit)).identity()
        return f"operator {operator} of unit {unit} (checkpoint {identity})"

    def note_attempt(self, unit: str, attempt: int) -> None:
        """Write down which attempt at a unit runs from now on: an older one that wakes up ends itself."""
        self.unit(unit).mkdir(parents=True, exist_ok=True)
        written(self.unit(unit) / _ATTEMPT, str(attempt), mode=PRIVATE)

    def attempt(self, unit: str) -> int:
        """Which attempt at a unit runs; 0 where none was written down."""
        try:
            return int((self.unit(unit) / _ATTEMPT).read_text())
        except (OSError, ValueError):
            return 0

    def is_superseded(self, unit: str, attempt: int) -> bool:
        """Whether another attempt at a unit has taken the place of this one; never of attempt 0."""
        return attempt > 0 and self.attempt(unit) not in (0, attempt)

    def taken_before(self, unit: str) -> int:
        """Records a unit finished of which its checkpoint does not know any more."""
        return sum(self._taken(unit).values())

    def note_taken(self, unit: str, revision: int, records: int) -> None:
        """Write down how many records a unit had finished when a version ended; again changes nothing."""
        self.earlier(unit).mkdir(parents=True, exist_ok=True)
        noted = {**self._taken(unit), str(revision): records}
        written(self.earlier(unit) / "taken.json", json.dumps(noted), durable=True)

    def _taken(self, unit: str) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, int] = json.loads((self.earlier(unit) / "taken.json").read_text())
            return found
        return {}

    def note_reached(self, unit: str, reached: Mapping[str, Mapping[str, int]]) -> None:
        """Write down how far the streams go, by operator, that a unit wrote to a server and has ended."""
        written(self.unit(unit) / "reached.json", json.dumps(reached), durable=True)

    def reached(self, unit: str) -> dict[str, dict[str, int]]:
        """How far they went when the unit last drained; empty where it never did."""
        return _noted(self.unit(unit) / "reached.json")

    def note_begin(self, unit: str, begin: Mapping[str, Mapping[str, int]]) -> None:
        """Write down where a unit begins to read streams on a server, by operator; for the others nothing."""
        if begin or (self.unit(unit) / "begin.json").exists():
            self.unit(unit).mkdir(parents=True, exist_ok=True)
            written(self.unit(unit) / "begin.json", json.dumps(begin), durable=True)

    def begin(self, unit: str) -> dict[str, dict[str, int]]:
        """Where it begins to read those it has not read yet, by operator."""
        return _noted(self.unit(unit) / "begin.json")

    def dead_letters(self, unit: str) -> Path:
        """Records a unit's operators threw on, where they are to be skipped."""
        return self.unit(unit) / "dead-letters"

    def staging(self, unit: str) -> Path:
        """What a unit has finished and not yet published."""
        return self.unit(unit) / "staging"

    def share_name(self, name: str) -> None:
        """Have the name that runs of the same topology at other sites have: they meet on their brokers."""
        self.root.mkdir(parents=True, exist_ok=True)
        written(self.root / _NAME, name)

    def name(self) -> str:
        """A name that no other run has, made at the first call and kept in the folder.

        Streams on a server that runs share carry it: two runs never read each other's records, and a run
        that is taken up again (also from a folder that was moved) finds its own.
        """
        file = self.root / _NAME
        if not file.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            word = "-".join(re.findall(r"[A-Za-z0-9._-]+", self.root.name))[:80] or "run"
            part = self.root / f".{_NAME}-{uuid.uuid4().hex}"
            part.write_text(f"{word}-{uuid.uuid4().hex[:8]}")
            with contextlib.suppress(FileExistsError):
                os.link(part, file)
            part.unlink()
        return file.read_text()


def _noted(file: Path) -> dict[str, dict[str, int]]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, dict[str, int]] = json.loads(file.read_text())
        return found
    return {}
