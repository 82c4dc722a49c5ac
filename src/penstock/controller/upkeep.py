"""Upkeep of a run that lasts: what grows with time is cut back, a little at a time, between two turns."""

from __future__ import annotations

import logging
import math

from penstock.clock import Clock
from penstock.controller.journal import Journal
from penstock.controller.journal.retention import span_s
from penstock.errors import JournalUnavailableError
from penstock.machine.processes import bound_logs

LOG = logging.getLogger(__name__)

EVERY_S = 60.0


class Upkeep:
    """Thins the journal behind its retention, and bounds the logs of all recorded processes."""

    def __init__(self, journal: Journal, clock: Clock, raw_s: float, every_s: float = EVERY_S) -> None:
        """`raw_s` is how long the journal's rows stay as they were written."""
        self._journal = journal
        self._clock = clock
        self._raw_s = raw_s
        self._every_s = every_s
        self._due_s = -math.inf

    def tick(self) -> None:
        """Do what is due; a journal that cannot be written now is trimmed another time."""
        now_s = self._clock.now_s()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        bound_logs()
        try:
            self._journal.trim(now_s - self._raw_s, span_s=span_s(self._raw_s))
        except JournalUnavailableError as error:
            LOG.warning("the journal could not be trimmed, it is tried again: %s", error)
