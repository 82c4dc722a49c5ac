"""How long things really take on this fleet: measured on its own hosts and instances, never configured."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

KEPT = 20
"""Samples kept of each kind: old enough to be many, young enough to follow a change."""
CAREFUL = 0.9
"""The share of the samples that an estimate covers."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Times to reckon with, each None until it was measured: nine of ten were shorter."""

    host_start_s: float | None = None
    """From lease to a host that takes instances."""
    instance_start_s: float | None = None
    """From request to serving, on a host that is up."""
    retire_s: float | None = None
    """From being told to go until an instance is gone."""
    move_s: float | None = None
    """From a migration's decision until the replaced instance is gone."""

    @property
    def lead_s(self) -> float | None:
        """From the decision to grow until the growth serves, a new host included."""
        if self.host_start_s is None and self.instance_start_s is None:
            return None
        return (self.host_start_s or 0.0) + (self.instance_start_s or 0.0)

    def emptying_s(self, *, moves: bool, guess_s: float) -> float:
        """How long a host takes to become empty; `guess_s` is for a retirement that was not measured yet."""
        retire_s = guess_s if self.retire_s is None else self.retire_s
        if not moves:
            return retire_s
        return (self.instance_start_s or 0.0) + retire_s if self.move_s is None else self.move_s


@dataclass
class Stopwatch:
    """Collects what was measured, and gives the times to reckon with."""

    samples: dict[str, deque[float]] = field(default_factory=dict)
    _found: MeasuredTimes | None = None

    def add(self, kind: str, length_s: float) -> None:
        """Note how long something of a kind (a field of `MeasuredTimes`) took."""
        self.samples.setdefault(kind, deque(maxlen=KEPT)).append(max(0.0, length_s))
        self._found = None

    @property
    def times(self) -> MeasuredTimes:
        """The times to reckon with, from all samples."""
        if self._found is None:
            self._found = MeasuredTimes(**{kind: covering(found) for kind, found in self.samples.items()})
        return self._found


def covering(samples: Collection[float]) -> float:
    """The time that nine in ten of some samples took at most."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, math.ceil(CAREFUL * len(ordered)) - 1)]
