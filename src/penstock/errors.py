"""The errors Penstock raises on purpose.

Each one means that something outside the code is wrong: a file, a bound, a cluster, a broker.
The command line prints their message without a traceback; anything else is a defect of ours.
A message says what was expected, what came, and the likely cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PenstockError(Exception):
    """The root of every error Penstock raises on purpose."""


class QuantityError(PenstockError, ValueError):
    """A quantity such as "5 s" or "2 GiB" could not be read."""


class ConfigurationError(PenstockError):
    """A setting, an option or an input file is wrong; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a topology: where it is, what it is, and what would be right."""

    message: str
    file: str | None = None
    line: int | None = None
    code: str = "invalid"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{place}: {self.message}" if place else self.message


class TopologyError(PenstockError):
    """A topology has one or more mistakes; `mistakes` lists all of them."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class InfeasibleError(PenstockError):
    """No solution exists, for example for a latency bound below what a path needs."""


class TransitionError(PenstockError):
    """A host or an instance was told to do what its present state does not allow."""


class ClusterError(PenstockError):
    """The cluster, a host, a broker or a unit's application did not do what was asked."""


class JournalError(PenstockError):
    """The journal cannot be opened, read or written."""
