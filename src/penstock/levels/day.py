"""A daily profile of a load: given in a file, or learned from what a journal has on record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.levels.files import read_yaml, write_yaml

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class DailyLoad:
    """Records a second over a day, in equal steps from its beginning; each step holds its rate."""

    rates_per_s: tuple[float, ...]
    day_s: float = DAY_S

    def __post_init__(self) -> None:
        if not self.rates_per_s or any(not rate >= 0 for rate in self.rates_per_s):
            raise ConfigurationError("a daily profile needs at least one rate, and none below 0")
        if not self.day_s > 0:
            raise ConfigurationError(f"expected a day_s above 0, got {self.day_s:g}")

    @property
    def step_s(self) -> float:
        """How long each rate holds."""
        return self.day_s / len(self.rates_per_s)

    def at(self, now_s: float) -> float:
        """The rate at an instant."""
        place = math.floor((now_s % self.day_s) / self.step_s)
        return self.rates_per_s[min(place, len(self.rates_per_s) - 1)]

    def highest(self, from_s: float, to_s: float) -> float:
        """The highest rate from one instant to another."""
        first, last = math.floor(from_s / self.step_s), math.floor(to_s / self.step_s)
        number = len(self.rates_per_s)
        return max(self.rates_per_s[place % number] for place in range(first, min(last, first + number) + 1))

    def write(self, file: Path) -> Path:
        """Write the profile to a file."""
        return write_yaml(self, file)

    @staticmethod
    def read(file: Path) -> DailyLoad:
        """The profile in a file; ConfigurationError where there is none."""
        return read_yaml(DailyLoad, file, "a daily profile (rates_per_s, day_s)")


def learned(loads: Sequence[tuple[float, float]], *, day_s: float = DAY_S, steps: int = 24) -> DailyLoad:
    """The highest usual rate in each step of the day, out of (instant, records a second).

    Of several days the mean of each one's mean counts; ConfigurationError where a step was never seen.
    """
    found: dict[int, dict[int, list[float]]] = {}
    for at_s, rate in loads:
        place = min(math.floor((at_s % day_s) / day_s * steps), steps - 1)
        found.setdefault(place, {}).setdefault(math.floor(at_s / day_s), []).append(rate)
    missing = [place for place in range(steps) if place not in found]
    if missing:
        raise ConfigurationError(
            f"expected a record of a whole day of {day_s:g} s, but {len(missing)} of its {steps} steps are "
            "missing; let the run go on for longer, or ask for fewer steps"
        )
    rates = []
    for place in range(steps):
        means = [sum(rates) / len(rates) for rates in found[place].values()]
        rates.append(sum(means) / len(means))
    return DailyLoad(tuple(rates), day_s)
