"""The only place that reads the time of day or sleeps.

Everything else is handed a clock, so that a simulated run and a real one execute the same code.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in seconds and waits. `now_s` never blocks; `wait_until` may."""

    def now_s(self) -> float:
        """The present instant, in seconds since an epoch of the clock's own."""
        ...

    def wait_until(self, instant_s: float) -> None:
        """Return once `now_s() >= instant_s`; at once if that is already so."""
        ...


def counted_s() -> float:
    """Seconds that were counted since the machine booted: nobody can set them, and they only ever pass.

    Those in which the machine was suspended count where the platform can tell them, as on Linux: a host is
    leased meanwhile, too.
    """
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class WallClock:
    """Seconds since 1970 that only ever pass: anchored to the time of day once, counted since.

    Somebody who sets the machine's clock changes neither a decision nor a bill. Processes of one run share
    one anchor: a controller that comes back after such a step goes on as if there had been none.
    """

    def __init__(self, anchor_s: float | None = None) -> None:
        """`anchor_s` is that of an earlier clock of this machine since it booted, to go on with it."""
        self.anchor_s = time.time() - counted_s() if anchor_s is None else anchor_s
        """The time of day when `counted_s` was 0, as it seemed when this clock was made."""

    def now_s(self) -> float:
        """Seconds since 1970, by the anchor."""
        return self.anchor_s + counted_s()

    def wait_until(self, instant_s: float) -> None:
        """Sleep until the instant is reached."""
        while (remaining_s := instant_s - self.now_s()) > 0:
            time.sleep(min(remaining_s, 0.5))


class TimesOfDay:
    """Makes times of a clock that is never set of the times of day that Spark, files and others bear here.

    Those before a step of the machine's clock are told from those after it: it is remembered until when each
    difference was true. An instant that was twice, as an hour that was set back, is taken for the later one
    once that has come; so ask soon. Use it from one thread.
    """

    LEAST_S = 0.1
    """A smaller difference is none: two clocks cannot be read at the same instant."""
    MOST = 100
    """So many steps are remembered."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        """How far the time of day is ahead of the clock; nothing, when the clock was anchored."""
        self._before: list[tuple[float, float]] = []
        """How far it was ahead until each step, and when that step was noticed."""

    def look(self) -> float:
        """Notice whether the machine's clock was set since the last look; the clock's present instant."""
        now_s = self._clock.now_s()
        ahead_s = time.time() - now_s
        if abs(ahead_s - self._ahead_s) >= self.LEAST_S:
            self._before = [*self._before, (self._ahead_s, now_s)][-self.MOST :]
            self._ahead_s = ahead_s
        return now_s

    def at_s(self, told_s: float) -> float:
        """When a time of day was, by the clock."""
        now_s = self.look()
        was_s = [told_s - ahead_s for ahead_s, until_s in self._before if told_s - ahead_s <= until_s]
        if told_s - self._ahead_s <= now_s or not was_s:
            was_s.append(told_s - self._ahead_s)
        return max(was_s)


class StepsBack:
    """Notices that the machine's clock was set back: who waits for a time of day then waits for longer."""

    LEAST_S = 2.0
    """Less than this nobody has to be told: it passes."""

    def __init__(self) -> None:
        self._ahead_s = time.time() - counted_s()

    def since_last_s(self) -> float:
        """By how much it was set back since this was last asked; 0 where it was not."""
        before_s, self._ahead_s = self._ahead_s, time.time() - counted_s()
        back_s = before_s - self._ahead_s
        return back_s if back_s >= self.LEAST_S else 0.0


class VirtualClock:
    """A clock that jumps: waiting for an instant makes it that instant at once."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The virtual instant."""
        return self._now_s

    def wait_until(self, instant_s: float) -> None:
        """Jump forward to the instant; never back."""
        self._now_s = max(self._now_s, instant_s)
