"""Rides: positions of taxis in the order in which they are sent, recorded or drawn with a seed.

Some rides are under way at any time; each sends a position in turn, and where one ends the next one begins.
The n-th position is always the same, so a feeder that is started again makes the same ones.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.experiments.recordings import TAXIS, find_recordings

UNDER_WAY = 12
"""Rides under way at the same time."""
LONGEST = 24
"""Positions of a ride at most: a recorded one that is longer becomes several."""
SHORTEST = 3
STEP_S = 60.0
PAUSE_S = 3600.0
SEED = 3


class Position(NamedTuple):
    """Where a taxi was."""

    ride: str
    sequence: int
    """1, 2, 3, … within its ride."""
    at_s: float
    latitude: float
    longitude: float
    last: bool
    """Whether the ride ends here."""


Track = Sequence[tuple[float, float, float]]
"""(instant in seconds, latitude, longitude) of one ride."""


def drawn(number: int) -> Track:
    """A ride of some minutes through Beijing, drawn with a seed of its own."""
    rng = np.random.default_rng([SEED, number])
    latitude, longitude = 39.9 + rng.uniform(-0.2, 0.2), 116.4 + rng.uniform(-0.2, 0.2)
    heading, found = rng.uniform(0, 2 * math.pi), []
    for step in range(int(rng.integers(SHORTEST, LONGEST + 1))):
        found.append((step * STEP_S, round(float(latitude), 5), round(float(longitude), 5)))
        heading += rng.normal(0, 0.4)
        reach = abs(rng.normal(0.5, 0.25)) / 111.0
        latitude, longitude = latitude + reach * math.cos(heading), longitude + reach * math.sin(heading)
    return found


def recorded(path: Path) -> list[Track]:
    """The rides of a recorded day: a taxi's moving positions, cut at long pauses and into handy pieces."""
    moving: dict[str, list[tuple[float, float, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.reader(file):
            if float(row[5]) > 0:
                at_s = datetime.fromisoformat(row[2]).timestamp()
                moving.setdefault(row[1], []).append((at_s, float(row[3]), float(row[4])))
    found: list[Track] = []
    for positions in moving.values():
        piece: list[tuple[float, float, float]] = []
        for position in sorted(set(positions)):
            if piece and (position[0] - piece[-1][0] > PAUSE_S or len(piece) == LONGEST):
                found.append(piece)
                piece = []
            piece.append(position)
        found.append(piece)
    return [piece for piece in found if len(piece) >= SHORTEST]


def tracks() -> tuple[Callable[[int], Track], str]:
    """The n-th ride, and where rides come from, in words."""
    folder = find_recordings().folder
    file = folder / TAXIS.file if folder is not None else None
    if file is None or not file.is_file():
        return drawn, f"rides drawn with seed {SEED}"
    known = recorded(file)
    return (lambda number: known[number % len(known)]), f"{len(known)} rides of {file.name}, over and over"


def sent(track: Callable[[int], Track]) -> Iterator[Position]:
    """Positions in the order in which they are sent, without an end."""
    under_way = [(number, track(number), 0) for number in range(UNDER_WAY)]
    following = UNDER_WAY
    while True:
        for place, (number, ride, done) in enumerate(under_way):
            at_s, latitude, longitude = ride[done]
            last = done + 1 == len(ride)
            yield Position(f"ride-{number:05d}", done + 1, at_s, latitude, longitude, last)
            if last:
                under_way[place] = (following, track(following), 0)
                following += 1
            else:
                under_way[place] = (number, ride, done + 1)


def positions(source: str) -> Callable[[int, NDArray[np.float64]], list[dict[str, Any]]]:
    """What the feeder of the source calls: the columns of the next records."""
    stream = sent(tracks()[0])
    return lambda first, instants_s: [next(stream)._asdict() for _ in instants_s]
