"""When the records of a query came: they are read in their order, so how many had come by when tells it."""

from __future__ import annotations

from bisect import bisect_left

MOST_POINTS = 2048
"""So many looks are remembered while records wait; of more, every other one."""


class Arrivals:
    """How many records had come by each look, and how many of them were taken. Use it from one thread."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._came: list[float] = []
        self._taken = 0

    def look(self, at_s: float, there: int) -> None:
        """So many records were there at an instant that had come and were not taken yet.

        Where more had come by an earlier look than by now, that was an estimate, and wrong.
        """
        came = self._taken + there
        while self._came and self._came[-1] > came:
            del self._at_s[-1], self._came[-1]
        if not self._at_s or at_s > self._at_s[-1]:
            self._at_s.append(at_s)
            self._came.append(came)
        if len(self._at_s) > MOST_POINTS:
            self._at_s, self._came = self._at_s[::2], self._came[::2]

    def take(self, rows: int, at_s: float) -> tuple[float, float] | None:
        """A batch took the oldest records: how old its youngest was then, and within what time they all came.

        None where its youngest had only just come, or nothing is known: nothing was left behind.
        """
        first, self._taken = self._taken, self._taken + rows
        if not self._at_s or self._taken > self._came[-1]:
            return None
        youngest_s, oldest_s = self._came_at_s(self._taken), self._came_at_s(first)
        # What was taken is not asked for again: one look before the next record is enough.
        done = max(0, bisect_left(self._came, self._taken) - 1)
        del self._at_s[:done], self._came[:done]
        return (at_s - youngest_s, max(0.0, youngest_s - oldest_s)) if youngest_s < at_s else None

    def _came_at_s(self, number: int) -> float:
        """When as many records had come as this, evenly between two looks."""
        after = bisect_left(self._came, number)
        if after == 0:
            return self._at_s[0]
        share = (number - self._came[after - 1]) / (self._came[after] - self._came[after - 1])
        return self._at_s[after - 1] + share * (self._at_s[after] - self._at_s[after - 1])
