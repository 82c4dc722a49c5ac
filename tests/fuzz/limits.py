"""How long an input may take, and how many of them are tried.

`make test` tries a part of the inputs. In `make fuzz` (`PENSTOCK_FUZZ=long`) every target gets at least as
many as the review that began this suite: 2,077 topologies, 1,970 quantities, 362 traces, 124 command
lines and 21 answers of remote cost functions. Everything is seeded: the same number is the same input.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

LONG = os.environ.get("PENSTOCK_FUZZ", "") == "long"

LONGEST_S = 10.0
"""No input may take longer, on a busy machine too."""


def tried(short: int, long: int) -> int:
    """How many inputs are tried now."""
    return long if LONG else short


@contextmanager
def within(seconds: float = LONGEST_S) -> Iterator[None]:
    """Fail where what is inside does not end in time."""

    def late(number: int, frame: FrameType | None) -> NoReturn:
        raise AssertionError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    # Again and again: what is raised inside a callback of the collector is swallowed.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
