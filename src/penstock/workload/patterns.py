"""The synthetic arrival patterns, the papers' own among them with their settings as defaults.

Levels are records a second. Where a pattern comes from a paper, its docstring says which; paper 000's
machine emits 16 records every 480 ms, a hundred records in three seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from penstock.choosing import Range
from penstock.errors import ConfigurationError
from penstock.workload.curve import RateCurve
from penstock.workload.model import Pattern, positive

MACHINE_PER_S = 16 / 0.48
"""Records a second of one machine of paper 000: 5 + 1 + 10 from its sensors, a tick every 480 ms."""

DAY_S = 86_400.0
MOST_LEVELS = 1_000_000
"""Levels a pattern may have: two years of minutes."""
_SINE_SEGMENTS = 720


def _ordered(low_per_s: float, high_per_s: float) -> None:
    if low_per_s > high_per_s:
        raise ConfigurationError(
            f"expected low_per_s not above high_per_s, got {low_per_s:g} and {high_per_s:g}"
        )


@dataclass(frozen=True)
class Constant(Pattern):
    """The same rate for ever."""

    name: ClassVar[str] = "constant"
    level_per_s: float = 100.0
    """Records a second."""

    def shape(self) -> RateCurve:
        """One endless level."""
        return RateCurve([0.0, np.inf], [self.level_per_s], [self.level_per_s])


@dataclass(frozen=True)
class Linear(Pattern):
    """A straight climb (or fall) from one rate to another, which then holds."""

    name: ClassVar[str] = "linear"
    from_per_s: float = 0.0
    """Records a second at the start."""
    to_per_s: float = 200.0
    """Records a second at the end of the climb and from then on."""
    over_s: float = 3600.0
    """How long the climb takes."""

    def shape(self) -> RateCurve:
        """One ramp and one endless level."""
        over_s = positive(self.over_s, "over_s")
        return RateCurve([0.0, over_s, np.inf], [self.from_per_s, self.to_per_s], [self.to_per_s] * 2)


@dataclass(frozen=True)
class Sine(Pattern):
    """A smooth wave around a mean, drawn with 720 straight lines a period (error below 1e-5 of it)."""

    name: ClassVar[str] = "sine"
    mean_per_s: float = 100.0
    """Records a second in the middle of the wave."""
    amplitude_per_s: float | None = None
    """How far the wave goes above and below its middle; at most the mean, by default 80 % of it."""
    period_s: float = 3600.0
    """Time from one crest to the next."""
    phase_ratio: float = 0.0
    """Where in the period it starts: 0 in the middle going up, 0.25 on the crest, 0.75 in the trough."""

    def shape(self) -> RateCurve:
        """Lines between points of rate(t) = mean + amplitude · sin(2π (t/period + phase))."""
        amplitude_per_s = 0.8 * self.mean_per_s if self.amplitude_per_s is None else self.amplitude_per_s
        if not 0 <= amplitude_per_s <= self.mean_per_s:
            raise ConfigurationError(
                f"expected amplitude_per_s between 0 and mean_per_s ({self.mean_per_s:g}), "
                f"got {amplitude_per_s:g}: the rate would become negative"
            )
        period_s = positive(self.period_s, "period_s")
        at = np.arange(_SINE_SEGMENTS + 1) / _SINE_SEGMENTS
        wave = self.mean_per_s + amplitude_per_s * np.sin(2 * np.pi * (at + self.phase_ratio))
        wave[-1] = wave[0]
        wave = np.maximum(wave, 0.0)
        return RateCurve(at * period_s, wave[:-1], wave[1:], repeats=True)


@dataclass(frozen=True)
class Stepwise(Pattern):
    """Levels one after the other, over and over; by default paper 000's first pattern (2/4/6/4 machines)."""

    name: ClassVar[str] = "stepwise"
    levels_per_s: tuple[float, ...] = tuple(machines * MACHINE_PER_S for machines in (2, 4, 6, 4))
    """Records a second of each level, in order."""
    hold_s: float = 240.0
    """How long each level is held."""

    def shape(self) -> RateCurve:
        """Steps of equal length."""
        return RateCurve.steps(self.levels_per_s, self.hold_s)


@dataclass(frozen=True)
class TwoLevel(Pattern):
    """Low and high in turn; by default paper 000's second pattern (2 and 6 machines, 8 min each)."""

    name: ClassVar[str] = "two_level"
    low_per_s: float = 2 * MACHINE_PER_S
    """Records a second of the first level."""
    high_per_s: float = 6 * MACHINE_PER_S
    """Records a second of the second level."""
    hold_s: float = 480.0
    """How long each level is held."""

    def shape(self) -> RateCurve:
        """Two steps of equal length."""
        _ordered(self.low_per_s, self.high_per_s)
        return RateCurve.steps((self.low_per_s, self.high_per_s), self.hold_s)


@dataclass(frozen=True)
class Square(Pattern):
    """Sudden changes between nearly nothing and much; by default paper 001's Square."""

    name: ClassVar[str] = "square"
    low_per_s: float = 1.0
    """Records a second of the first level."""
    high_per_s: float = 65.0
    """Records a second of the second level."""
    hold_s: float = 370.0
    """How long each level is held."""

    def shape(self) -> RateCurve:
        """Two steps of equal length."""
        _ordered(self.low_per_s, self.high_per_s)
        return RateCurve.steps((self.low_per_s, self.high_per_s), self.hold_s)


@dataclass(frozen=True)
class Pyramid(Pattern):
    """Up in equal steps and down again, over and over; by default paper 001's Pyramid."""

    name: ClassVar[str] = "pyramid"
    low_per_s: float = 0.0
    """Records a second at the foot."""
    high_per_s: float = 60.0
    """Records a second at the top."""
    step_per_s: float = 15.0
    """Height of one step; the last one before the top may be lower."""
    hold_s: float = 130.0
    """How long each level is held."""

    def shape(self) -> RateCurve:
        """Steps up to the top and down to the one above the foot."""
        _ordered(self.low_per_s, self.high_per_s)
        step_per_s = positive(self.step_per_s, "step_per_s")
        height = (self.high_per_s - self.low_per_s) / step_per_s
        if height > MOST_LEVELS:
            raise ConfigurationError(
                f"expected at most {MOST_LEVELS:,} steps, got {height:.3g}: step_per_s is too small"
            )
        steps = int(np.ceil(height - 1e-9))
        up = [min(self.low_per_s + i * step_per_s, self.high_per_s) for i in range(steps + 1)]
        return RateCurve.steps(up + up[-2:0:-1], self.hold_s)


@dataclass(frozen=True)
class RandomWalk(Pattern):
    """Levels that go one down, stay or go one up at random (paper 000, Eq. 6), seeded.

    At its bounds the walk is reflected: a step that would leave them goes the other way.
    """

    name: ClassVar[str] = "random_walk"
    seed: Annotated[int, Range(least=0)] = 1
    """Which walk: the same seed gives the same levels."""
    start: int = 4
    """The first level."""
    lowest: int = 1
    """The lowest level."""
    highest: int = 8
    """The highest level."""
    level_per_s: float = MACHINE_PER_S
    """Records a second of one level."""
    hold_s: float = 60.0
    """How long each level is held."""
    down_ratio: float = 0.4
    """Chance of a step down."""
    up_ratio: float = 0.4
    """Chance of a step up; with the remaining chance the level stays."""
    steps: Annotated[int, Range(least=1, most=MOST_LEVELS)] = 10_080
    """Length of the walk, after which it starts again; by default a week of minutes."""

    def shape(self) -> RateCurve:
        """One step for each level of the walk."""
        return RateCurve.steps([level * self.level_per_s for level in self.levels()], self.hold_s)

    def levels(self) -> tuple[int, ...]:
        """The levels in order, the start first."""
        if not 0 <= self.lowest <= self.start <= self.highest:
            raise ConfigurationError(
                "expected 0 ≤ lowest ≤ start ≤ highest, "
                f"got lowest {self.lowest}, start {self.start}, highest {self.highest}"
            )
        if not (self.down_ratio >= 0 and self.up_ratio >= 0 and self.down_ratio + self.up_ratio <= 1):
            raise ConfigurationError(
                "expected down_ratio and up_ratio not negative and together at most 1, "
                f"got {self.down_ratio:g} and {self.up_ratio:g}"
            )
        positive(self.steps, "steps")
        levels = [self.start]
        # Paper 000, Eq. (6): R < 0.4 one down, 0.4 ≤ R ≤ 0.6 the same (printed "≥ 0.6"), R > 0.6 one up.
        for r in np.random.default_rng(self.seed).random(self.steps - 1):
            change = -1 if r < self.down_ratio else (1 if r > 1 - self.up_ratio else 0)
            level = levels[-1] + change
            if not self.lowest <= level <= self.highest:
                level = levels[-1] - change
            levels.append(min(max(level, self.lowest), self.highest))
        return tuple(levels)


@dataclass(frozen=True)
class DayProfile(Pattern):
    """One day, over and over: rates at equal distances, joined by straight lines.

    The default is a day of people at work: quiet at night, a peak before noon, a higher one in the evening.
    """

    name: ClassVar[str] = "day_profile"
    rates_per_s: tuple[float, ...] = (
        30, 20, 15, 12, 12, 18, 35, 70, 110, 140, 155, 150,
        130, 125, 130, 135, 145, 160, 180, 200, 190, 150, 95, 55,
    )  # fmt: skip
    """Records a second, the first at midnight, spread evenly over the day; 24 make one an hour."""
    day_s: float = DAY_S
    """Length of the day."""

    def shape(self) -> RateCurve:
        """Lines between the rates; the last one leads back to the first."""
        if len(self.rates_per_s) < 2:
            raise ConfigurationError(f"expected at least two rates_per_s, got {len(self.rates_per_s)}")
        day_s = positive(self.day_s, "day_s")
        rates = np.asarray(self.rates_per_s, dtype=np.float64)
        edges = np.arange(rates.size + 1) * (day_s / rates.size)
        return RateCurve(edges, rates, np.roll(rates, -1), repeats=True)
