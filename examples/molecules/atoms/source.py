"""What a source sends: blocks of atoms, iteration by iteration, its own share of every iteration.

Sources are named by their place, as `atoms_2_of_4`: the second of four sends every fourth block, from the
second on. A block's number says whose atoms they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atoms.dynamics import Recorded, recorded

_NAME = re.compile(r"^.*_(\d+)_of_(\d+)$")


def place_of(source: str) -> tuple[int, int]:
    """(which, of how many) sources by a source's name, from 0; one that has no such name is the only one."""
    match = _NAME.match(source)
    return (int(match[1]) - 1, int(match[2])) if match else (0, 1)


def blocks(source: str) -> Callable[[int, Sequence[float]], list[Mapping[str, Any]]]:
    """What a source sends, for the topology file."""
    which, number = place_of(source)
    return Sending(recorded(), which, number).columns


class Sending:
    """The records of one source out of several."""

    def __init__(self, frames: Recorded, which: int, number: int) -> None:
        self._frames = frames
        self._own = range(which, frames.blocks, number)
        if not self._own:
            raise ValueError(
                f"expected at most {frames.blocks} sources of {frames.blocks} blocks, got {number}"
            )

    def columns(self, first: int, instants_s: Sequence[float]) -> list[Mapping[str, Any]]:
        """The records from a number on."""
        made = []
        for number in range(first, first + len(instants_s)):
            iteration, block = number // len(self._own), self._own[number % len(self._own)]
            made.append(
                {
                    "iteration": iteration,
                    "block": block,
                    "blocks": self._frames.blocks,
                    "box": self._frames.box,
                    "positions": self._frames.block(iteration, block).tobytes(),
                }
            )
        return made
