"""The errors Penstock raises on purpose.

Each one means that something outside the code is wrong: a file, a bound, a cluster, a broker.
The command line prints their message without a traceback; anything else is a defect of ours.
A message says what was expected, what came, and the likely cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_MESSAGE = 2_000
"""Characters of one mistake that are told: what was written wrongly may be very long."""


def told(text: str) -> str:
    """A message fit for a terminal: nothing in it that a terminal would obey, and not without end."""
    kept = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} …"
    if kept.isprintable():
        return kept
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in kept)


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", told(self.message))

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


class ProviderError(ClusterError):
    """A provider of hosts did not do what was asked; the kinds below say what to do about it."""


class NoCapacityError(ProviderError):
    """The provider has no such host to give now; another flavour or a later time may do."""


class QuotaError(ProviderError):
    """The account's limit at the provider is reached."""


class UnauthorisedError(ProviderError):
    """The provider does not accept the credentials, or they do not allow this."""


class NotFoundError(ProviderError):
    """The provider knows no such thing: a host that is gone, an image or a flavour that is wrong."""


class ThrottledError(ProviderError):
    """The provider was asked too often; nothing was done."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        """How long it wants to be left alone, where it says so."""
        super().__init__(message)


class UnavailableError(ProviderError):
    """The provider did not answer, or with an error of its own: what was asked may have been done or not."""


class JournalError(PenstockError):
    """The journal cannot be opened, read or written."""


class JournalUnavailableError(JournalError):
    """The journal's database is locked, full, slow or gone at present; what is unwritten stays in memory."""

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        self.in_doubt = in_doubt
        """Whether a transaction may have been written although its end was not confirmed."""
        super().__init__(message)


class FencedError(JournalError):
    """Another controller has taken the run over: this one must not write, and has to end itself."""
