"""Which row of a filter's memory belongs to which instance, as instances come and go.

Filters keep their memory in arrays whose rows follow the readings' keys. Most ticks have the keys of
the tick before; then nothing moves. Otherwise `Rows.align` says which old row each new row continues.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Rows:
    """Remembers the keys of the last tick."""

    def __init__(self) -> None:
        self._keys: tuple[str, ...] = ()

    def align(self, keys: tuple[str, ...]) -> NDArray[np.intp] | None:
        """For each key its row at the last tick, -1 for a new one; None where nothing has changed."""
        if keys is self._keys or keys == self._keys:
            return None
        if len(set(keys)) != len(keys):
            doubled = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"expected one row for each instance, got several for {doubled!r}")
        row_of = {key: row for row, key in enumerate(self._keys)}
        self._keys = keys
        return np.fromiter((row_of.get(key, -1) for key in keys), dtype=np.intp, count=len(keys))
