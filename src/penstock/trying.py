"""Trying again what went down: after pauses that grow, and up to a limit at which a person is asked.

It is pure: whoever tries tells it the time. Units, feeders, a run's broker and its masters all go by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plain import Word


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long is waited between tries, and how many there are."""

    shortest_s: float = 0.5
    longest_s: float = 30.0
    """A pause is twice the one before it, from the one to the other."""
    most: int = 20
    """After so many tries in a row, none of which held, a person is asked."""
    held_s: float = 60.0
    """What was well for so long has held: the tries before it count no more."""

    def after(self, tries: int) -> float | None:
        """The pause after so many tries that did not hold; None where there were enough of them."""
        return None if tries >= self.most else min(self.longest_s, self.shortest_s * 2.0 ** min(tries, 30))


PAUSES = Pauses()
ASKED = "a person is asked: it is tried again once told so (penstock tell RUN resume)"
"""How a notice ends of what is not tried any more."""


class Then(Word):
    """What is to be done about something that is down."""

    TRY = "try"
    ASK = "ask"
    """Tell a person, once: nothing is tried any more."""
    WAIT = "wait"


class Tries:
    """The tries to bring one thing back. It is told at every look whether that thing is well or down."""

    def __init__(self, pauses: Pauses = PAUSES) -> None:
        self._pauses = pauses
        self._next_s = float("-inf")
        self._well_s: float | None = None
        """Since when it is well."""
        self.count = 0
        """Tries in a row that did not hold."""
        self.asks = False
        """Whether it is left down until a person says `again`."""

    @property
    def pending(self) -> bool:
        """Whether it was tried, has not held yet, and would be tried again."""
        return self.count > 0 and not self.asks

    def well(self, now_s: float) -> None:
        """It is well at this look; where a person was asked, somebody has helped it."""
        if self.asks:
            self.again()
        if self._well_s is None:
            self._well_s = now_s
        if now_s - self._well_s >= self._pauses.held_s:
            self.again()

    def down(self, now_s: float) -> Then:
        """It is down at this look: what to do. A try that is to be made counts."""
        self._well_s = None
        if self.asks or now_s < self._next_s:
            return Then.WAIT
        pause_s = self._pauses.after(self.count)
        if pause_s is None:
            self.asks = True
            return Then.ASK
        self.count, self._next_s = self.count + 1, now_s + pause_s
        return Then.TRY

    def again(self) -> None:
        """Begin anew: it has held, or a person wants it tried again."""
        self.count, self._next_s, self.asks = 0, float("-inf"), False
