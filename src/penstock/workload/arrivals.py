"""From a rate to instants: when each single record arrives.

`regular` puts record k where k + ½ records are due, so a constant rate gives equal spacing and a span
that is due a whole number of records gets exactly that many. `poisson` draws the gaps at random.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.workload.model import Workload

Process: TypeAlias = Literal["regular", "poisson"]
PROCESSES: tuple[str, ...] = get_args(Process)

_BLOCK = 4096
"""Random gaps drawn at a time: fixed, so that results do not depend on the size of the chunks."""

_REGULAR_BLOCK = 65_536
"""Most regular arrivals computed at a time: what fits a core's cache; results do not depend on it."""


class ArrivalStream:
    """The arrivals of one workload, read on in chunks of any size; together they equal one single chunk."""

    def __init__(
        self,
        workload: Workload,
        rng: np.random.Generator | None = None,
        process: Process = "regular",
        start_s: float = 0.0,
    ) -> None:
        """Begin at `start_s`; `rng` is needed by the poisson process only, which draws from it as it goes."""
        if process not in PROCESSES:
            raise ConfigurationError(f"expected a process out of {', '.join(PROCESSES)}, got {process!r}")
        if process == "poisson" and rng is None:
            raise ConfigurationError("the poisson process needs a random generator, got none")
        self._curve = workload.curve
        self._rng = rng if process == "poisson" else None
        self._position_s = start_s
        self._waiting: NDArray[np.float64] = np.empty(0)
        due = float(self._curve.records(start_s))
        self._due = due
        """Poisson: the records due at the last drawn arrival."""
        self._next = max(0, math.floor(due - 0.5) - 1)
        """Regular: the number of the next record; one or two too low at first, filtered by time."""

    def until(self, end_s: float) -> NDArray[np.float64]:
        """The sorted instants from where the last call ended (included) up to `end_s` (excluded)."""
        parts = [self._waiting]
        while parts[-1].size == 0 or parts[-1][-1] < end_s:
            instants = self._regular(end_s) if self._rng is None else self._poisson(self._rng)
            if instants.size == 0:
                break
            parts.append(instants)
        instants = np.concatenate(parts) if len(parts) > 1 else parts[0]
        begin, cut = np.searchsorted(instants, (self._position_s, end_s), side="left")
        self._waiting = instants[cut:]
        self._position_s = max(self._position_s, end_s)
        return instants[begin:cut]

    def _regular(self, end_s: float) -> NDArray[np.float64]:
        """The next records in order, a little beyond what is due at `end_s`; never more than needed."""
        last = min(math.floor(float(self._curve.records(end_s)) + 0.5) + 1, self._next + _REGULAR_BLOCK)
        if last <= self._next:
            return np.empty(0)
        instants = self._curve.instants_s(np.arange(self._next, last, dtype=np.float64) + 0.5)
        self._next = last
        return instants

    def _poisson(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """The next block; a Poisson process of rate 1 in records becomes one of the wanted rate in time."""
        if math.isinf(self._due):
            return np.empty(0)
        due = self._due + np.cumsum(rng.standard_exponential(_BLOCK))
        instants = self._curve.instants_s(due)
        self._due = float(due[-1]) if math.isfinite(instants[-1]) else math.inf
        return instants


def arrivals(
    workload: Workload,
    start_s: float,
    end_s: float,
    rng: np.random.Generator | None = None,
    process: Process = "regular",
) -> NDArray[np.float64]:
    """The sorted instants at which records arrive in [start_s, end_s).

    `regular` needs no random generator, and calls for adjoining spans give together exactly what one
    call for the whole span gives. `poisson` draws anew in every call: adjoining spans are right in law
    and determined by the seed; read an `ArrivalStream` where they must equal one whole span.
    """
    return ArrivalStream(workload, rng, process, start_s).until(end_s)
