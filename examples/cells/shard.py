"""A shard of the tissue in Spark's state: the windows of the regions that one partition has.

Kept apart from the other operator, and without pandas, PyArrow and NumPy: Spark starts a Python for a
shard's rows, and what that one has to import is most of what a small micro-batch takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cells.window import Window

RESULT_SCHEMA = (
    "record_id string, source_time timestamp, kind string, region int, sequence long, cells int, "
    "edge_ratio double, x int, y int, point int, through long, intensities binary"
)
"""What a shard gives: a row for every image and one for every query."""
IMAGE, QUERY = "image", "query"
_PASSED_ON = ("record_id", "source_time", "kind", "region", "sequence")
_OF_IMAGES = ("cells", "edge_ratio")
_OF_QUERIES = ("x", "y", "point")


class Shard(StatefulProcessor):
    """Takes images into their region's window, and answers queries from it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state: blocks of pictures by number, and how far the window has come."""
        self._blocks = handle.getMapState("blocks", "block long", "content binary")
        self._come = handle.getValueState("come", "through long, ahead string")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[Row], timerValues: Any
    ) -> Iterator[Row]:
        """The new rows of one region: images first, then queries."""
        come = self._come.get()
        through, ahead = (0, "") if come is None else (int(come[0]), str(come[1]))
        window = Window(_Blocks(self._blocks), through, map(int, ahead.split()))
        new = list(rows)
        taken = False
        for row in sorted((row for row in new if row["kind"] == IMAGE), key=lambda row: row["sequence"]):
            # One that was taken in before is a repetition, and is dropped.
            if window.add(row["sequence"], bytes(row["grid"])):
                taken = True
                yield _result(row, _OF_IMAGES)
        for row in new:
            if row["kind"] == QUERY:
                answer = window.answer(row["point"], row["sequence"])
                yield _result(row, _OF_QUERIES, through=answer.through, intensities=answer.intensities)
        if taken:
            window.keep()
            self._come.update((window.through, " ".join(map(str, sorted(window.ahead)))))

    def close(self) -> None:
        """Nothing is held outside the state."""


def _result(row: Row, names: tuple[str, ...], **more: Any) -> Row:
    found = {name: row[name] for name in (*_PASSED_ON, *names)} | more
    return Row(**{name: found.get(name) for name in COLUMN_NAMES})


COLUMN_NAMES = tuple(part.split()[0] for part in RESULT_SCHEMA.split(", "))
"""The columns of a result in their order."""


class _Blocks:
    """A region's blocks in Spark's state."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, block: int) -> bytes | None:
        """A block's content; None where there is none."""
        found = self._state.getValue((block,))
        return None if found is None else bytes(found[0])

    def put(self, block: int, content: bytes) -> None:
        """Keep a block's content."""
        self._state.updateValue((block,), (content,))

    def drop(self, block: int) -> None:
        """Forget a block."""
        if block >= 0:
            self._state.removeKey((block,))
