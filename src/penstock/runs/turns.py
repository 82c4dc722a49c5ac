"""Whose turn it is to serve: two services on one journal, of which one serves and the other stands by.

The one that serves writes to the journal once a second that it does. The other looks, and takes over once
that stayed the same for a few seconds: it claims the turn, as a controller claims a run. From then on the
older one is refused by the journal, however late it wakes up. No clock is compared between machines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.controller.journal import Journal
from penstock.errors import FencedError, JournalUnavailableError

LOG = logging.getLogger(__name__)

BEAT_S = 1.0
SILENT_S = 4.0
"""A service that did not write for so long has lost its turn."""


class Turn:
    """One service's place in a pair. Use it as a context manager, which lets the journal go."""

    def __init__(self, journal: str | Path, name: str) -> None:
        """`name` is what both services of the pair call what they serve."""
        self._url, self._name = journal, f"service of {name}"
        self._journal = Journal(journal, self._name)
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None
        self.epoch = 0
        """Counts up with every service that took its turn; 0 while this one stands by."""

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._beating is not None:
            self._beating.join(2 * SILENT_S)
        self._journal.close()

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Stand by until nobody serves, and take the turn; False where `stopped` said so before."""
        seen, since_s = self._seen(), time.monotonic()
        while seen is not None and time.monotonic() - since_s < SILENT_S:
            if stopped() or self._ended.wait(BEAT_S / 4):
                return False
            now = self._seen()
            if now != seen:
                seen, since_s = now, time.monotonic()
        self.epoch = self._journal.claim()
        self.beat()
        return True

    def beat(self) -> None:
        """Say that this service serves; FencedError where another has taken over."""
        self._journal.beat()

    def keep(self, lost: Callable[[str], None]) -> None:
        """Say it once a second from now on; `lost` is told once where another has taken over."""
        self._beating = threading.Thread(target=self._keep, args=(lost,), daemon=True, name="penstock-turn")
        self._beating.start()

    def _keep(self, lost: Callable[[str], None]) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self.beat()
            except FencedError as error:
                lost(str(error))
                return
            except JournalUnavailableError as error:
                # Whoever cannot write decides nothing either: the controllers' journal is this one.
                LOG.warning("%s", error)

    def _seen(self) -> tuple[int, int] | None:
        """How far the one that serves has come; None where nobody ever did."""
        try:
            return self._journal.claimed()
        except JournalUnavailableError as error:
            LOG.warning("%s", error)
            return (-1, time.monotonic_ns())  # nothing is known: never a reason to take over
