"""What cannot be done now and is tried again: the disk is full, or a process cannot be started."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from penstock.errors import ClusterError

LOG = logging.getLogger(__name__)


class Patience:
    """Lets a loop go on where something fails for want of room; each failure is told once."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    @contextlib.contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Around what is tried at every turn."""
        try:
            yield
            self._failing.discard(what)
        except (OSError, ClusterError) as error:
            if what not in self._failing:
                LOG.warning("%s: %s; it is tried at every tick", what, error)
            self._failing.add(what)
