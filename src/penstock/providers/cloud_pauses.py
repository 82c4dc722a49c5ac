"""When an API may be asked again: growing pauses for one thing, and for everything where nothing works."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.errors import ProviderError, ThrottledError


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a provider over an API."""

    list_every_s: float = 5.0
    """How often the cloud is listed; sooner where something is being waited for."""
    settle_s: float = 10.0
    """How far a listing may lag behind: a create of doubtful end is repeated only after so long unseen."""
    grace_s: float = 30.0
    """What bears our tag and is in no book for so long is given back."""
    join_within_s: float = 600.0
    """A machine that has not joined its cluster so long after it was made is given up and deleted."""
    lost_after_s: float = 30.0
    """A host that had joined and that its cluster does not list for so long has failed."""
    shortest_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """A failed call is repeated after a pause that doubles from the one to the other."""
    scarce_s: float = 30.0
    """A flavour that could not be had is not asked for again for so long, and twice as long each time."""
    workers: int = 32
    """Calls under way at once."""
    beat_s: float = 0.25
    """How often it is looked what is due."""

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row; a little by chance, so that not all come at once."""
        pause_s = min(self.longest_pause_s, self.shortest_pause_s * 2.0 ** min(failures - 1, 30))
        return pause_s * random.uniform(0.75, 1.0)

    def scarce_pause_s(self, times: int) -> float:
        """How long a flavour is left alone that could not be had so many times in a row."""
        return self.scarce_s * 2.0 ** min(times - 1, 4)


class Gate:
    """Whether the API may be asked at all. Times are of a clock that is never set."""

    FEW = 3
    """So many failures in a row are bad luck; from then on the API counts as away."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._failures = 0
        self._throttled = 0
        self.until = 0.0
        self.away_since: float | None = None
        self.problem: str | None = None

    def worked(self, at: float) -> str | None:
        """A call came back; what is news, where the API had been away."""
        self._failures = self._throttled = 0
        self.problem = None
        if self.away_since is None:
            return None
        away_s, self.away_since, self.until = at - self.away_since, None, at
        return f"the provider answers again after {away_s:.0f} s"

    def failed(self, error: ProviderError, at: float) -> str | None:
        """A call did not come back well; what is news, where that is."""
        self._failures += 1
        self.problem = str(error)
        if isinstance(error, ThrottledError):
            if at < self.until:
                return None  # of the same burst: it was answered with a pause already
            self._throttled += 1
            pause_s = max(error.retry_after_s or 0.0, self._pace.pause_s(self._throttled))
        elif self._failures >= self.FEW:
            pause_s = self._pace.pause_s(self._failures - self.FEW + 1)
        else:
            return None
        self.until = max(self.until, at + pause_s)
        if self.away_since is not None:
            return None
        self.away_since = at
        return f"the provider does not do what it is asked, which is waited out with growing pauses: {error}"
