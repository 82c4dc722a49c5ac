"""What a region of the tissue remembers: the intensities its last 1000 pictures showed.

Pictures of a region are numbered 1, 2, 3, …. A window is kept as blocks of pictures, each one value of
Spark's state: a picture changes one block of some 24 kB, and not the 750 kB of the whole window. Nothing here
knows Spark: `Blocks` is whatever keeps values by number. Nothing here needs NumPy either, on purpose: Spark
starts a Python for a shard's rows, and that one is up in a fraction of the time.

A query carries the number of pictures its region had taken when it was asked. It is answered over the
pictures up to that one, or up to the last one that has arrived without a gap where some are still on their
way. The answer says which (`through`), so it can be computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

GRID = 16
"""Points a side at which a picture's intensities are remembered."""
POINTS = GRID * GRID
CHANNELS = 3
PICTURE_BYTES = POINTS * CHANNELS
LENGTH = 1000
"""Pictures a window reaches back."""
BLOCK = 32
"""Pictures a block."""
KEPT_BLOCKS = -(-LENGTH // BLOCK) + 3
"""Blocks kept: the window wherever it begins, and room for a query that comes behind later pictures."""

COLUMNS = 4
"""Regions beside each other; a tissue has as many below each other."""
REGIONS = COLUMNS * COLUMNS
SIDE = COLUMNS * GRID
"""Points a side of the tissue: x and y of a query go from 0 to this."""


def region_at(x: int, y: int) -> int:
    """The region that holds a point of the tissue."""
    return (y // GRID) * COLUMNS + x // GRID


def point_at(x: int, y: int) -> int:
    """The number of a point of the tissue within its region."""
    return (y % GRID) * GRID + x % GRID


class Blocks(Protocol):
    """Values of one region's state by number."""

    def get(self, block: int) -> bytes | None:
        """A block's content; None where there is none."""
        ...

    def put(self, block: int, content: bytes) -> None:
        """Keep a block's content."""
        ...

    def drop(self, block: int) -> None:
        """Forget a block."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query."""

    through: int
    """The last picture it is over; 0 where there was none."""
    intensities: bytes
    """R, G and B of up to `LENGTH` pictures, the oldest first."""


class Window:
    """The window of one region for the length of a micro-batch; `keep` writes what has changed."""

    def __init__(self, blocks: Blocks, through: int, ahead: Iterable[int] = ()) -> None:
        """`through` is the last picture there without a gap, `ahead` are those there behind a gap."""
        self.through = through
        self.ahead = set(ahead)
        self._blocks = blocks
        self._open: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._begun: set[int] = set()

    def add(self, number: int, grid: bytes) -> bool:
        """Take in a picture; False where it is there already, for a channel may deliver again."""
        if len(grid) != PICTURE_BYTES:
            raise ValueError(f"expected the {PICTURE_BYTES} bytes of a picture's grid, got {len(grid)}")
        if number <= self.through or number in self.ahead:
            return False
        block, place = divmod(number - 1, BLOCK)
        begin = place * PICTURE_BYTES
        self._block(block)[begin : begin + PICTURE_BYTES] = grid
        self._changed.add(block)
        self.ahead.add(number)
        while self.through + 1 in self.ahead:
            self.through += 1
            self.ahead.remove(self.through)
        return True

    def answer(self, point: int, asked_after: int) -> Answer:
        """The last intensities at a point, over the pictures that came before the query and are there."""
        through = min(self.through, asked_after)
        oldest_kept = max(0, (self.through - 1) // BLOCK - KEPT_BLOCKS + 1) * BLOCK
        if through > LENGTH and through - LENGTH < oldest_kept:
            # It was overtaken by more pictures than there is room for: the state as it is now.
            through = self.through
        found = bytearray()
        for number in range(max(0, through - LENGTH), through):
            block, place = divmod(number, BLOCK)
            begin = place * PICTURE_BYTES + point * CHANNELS
            found += self._block(block)[begin : begin + CHANNELS]
        return Answer(through, bytes(found))

    def keep(self) -> None:
        """Write the blocks that have changed and forget those no window reaches any more."""
        for block in sorted(self._changed):
            self._blocks.put(block, bytes(self._open[block]))
            if block in self._begun:
                # Blocks begin one after the other: each takes the place of the one that is too old now.
                self._blocks.drop(block - KEPT_BLOCKS)
        self._changed.clear()
        self._begun.clear()

    def _block(self, number: int) -> bytearray:
        found = self._open.get(number)
        if found is None:
            content = self._blocks.get(number)
            if content is None:
                self._begun.add(number)
            found = bytearray(BLOCK * PICTURE_BYTES) if content is None else bytearray(content)
            self._open[number] = found
        return found


def in_batch(grids: Sequence[bytes], point: int, through: int) -> bytes:
    """What an answer must be: the batch computation over all pictures of a region, the first one first."""
    begin = point * CHANNELS
    return b"".join(grid[begin : begin + CHANNELS] for grid in grids[max(0, through - LENGTH) : through])
