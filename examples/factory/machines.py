"""Machines that do not exist, and the exact truth about them.

A machine lives minute by minute. In each it reports its availability five times (S1), its production
once (S2) and its temperature ten times (S3), as in Table 1 of paper 000. What it does follows from the
seed and its own name alone, never from the time of day: the same factory can be made again afterwards,
and every result of a run be compared with the truth.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from factory.display import Cycle

MINUTE_S = 60
AVAILABILITY_PER_MINUTE = 5
TEMPERATURE_PER_MINUTE = 10
RECORDS_PER_MINUTE = AVAILABILITY_PER_MINUTE + 1 + TEMPERATURE_PER_MINUTE
STATUS_S = MINUTE_S // AVAILABILITY_PER_MINUTE
"""How long one availability report stands for."""

AVAILABLE = "available"
PLANNED = "planned downtime"
DEFECT = "defect"

# A machine that runs becomes defect so often that one report in fifty is a new defect, and one
# temperature in a hundred a new violation: the outgoing ratios 50:1 and 100:1 of Table 2 of 000.
_DEFECT_CHANCE = 0.023
_PLANNED_CHANCE = 0.008
_REPAIR_CHANCE = 0.25
_RESUME_CHANCE = 0.2
_HEAT_CHANCE = 0.0103
_COOL_CHANCE = 0.2

TEMPERATURE_LIMIT = 80.0
"""Degrees Celsius above which a temperature is a violation."""


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of one machine's life: everything its sensors say about it, and so the truth."""

    machine: str
    number: int
    """Counted from 1 over the machine's whole life."""
    statuses: tuple[str, ...]
    temperatures: tuple[float, ...]
    cycle: Cycle

    @property
    def end_s(self) -> int:
        """The end of the minute on the machine's own clock, which starts with its life."""
        return self.number * MINUTE_S

    def availability_sequence(self, place: int) -> int:
        """Number of the place-th availability report, counted from 1 over the machine's life."""
        return (self.number - 1) * AVAILABILITY_PER_MINUTE + place + 1

    def temperature_sequence(self, place: int) -> int:
        """Number of the place-th temperature, counted from 1 over the machine's life."""
        return (self.number - 1) * TEMPERATURE_PER_MINUTE + place + 1


def machine_name(number: int) -> str:
    """The name of the n-th machine, counted from 1."""
    return f"M{number:02d}"


def live(machine: str, seed: int = 1) -> Iterator[Minute]:
    """The minutes of a machine's life, without end; the same for the same machine and seed."""
    random = np.random.default_rng([seed, zlib.crc32(machine.encode())])
    ideal_ms = int(random.integers(380, 720))
    skill = random.uniform(0.8, 0.98)
    scrap = random.uniform(0.01, 0.06)
    status, hot, number = AVAILABLE, False, 0
    while True:
        number += 1
        statuses = []
        for chance in random.random(AVAILABILITY_PER_MINUTE):
            status = _next_status(status, float(chance))
            statuses.append(status)
        temperatures = []
        chances = random.random(TEMPERATURE_PER_MINUTE)
        noise = random.normal(0.0, 1.5, TEMPERATURE_PER_MINUTE)
        for chance, deviation in zip(chances, noise, strict=True):
            hot = chance >= _COOL_CHANCE if hot else chance < _HEAT_CHANCE
            # Six deviations separate the two levels from the limit, so noise alone never crosses it.
            temperatures.append(round(float((91.0 if hot else 64.0) + np.clip(deviation, -6, 6)), 1))
        running_s = STATUS_S * statuses.count(AVAILABLE)
        produced = int(running_s * 1000 / ideal_ms * min(random.normal(skill, 0.03), 1.0))
        cycle = Cycle(
            produced=max(produced, 0),
            defective=int(random.binomial(max(produced, 0), scrap)),
            ideal_ms=ideal_ms,
            planned_stop_s=STATUS_S * statuses.count(PLANNED),
            defect_stop_s=STATUS_S * statuses.count(DEFECT),
        )
        yield Minute(machine, number, tuple(statuses), tuple(temperatures), cycle)


def _next_status(status: str, chance: float) -> str:
    """The availability after the next interval, for a chance drawn evenly from 0 to 1."""
    if status == DEFECT:
        return AVAILABLE if chance < _REPAIR_CHANCE else DEFECT
    if status == PLANNED:
        return AVAILABLE if chance < _RESUME_CHANCE else PLANNED
    if chance < _DEFECT_CHANCE:
        return DEFECT
    return PLANNED if chance < _DEFECT_CHANCE + _PLANNED_CHANCE else AVAILABLE
