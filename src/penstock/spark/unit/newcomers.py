"""Executors that come while others serve: each is warm before it counts as one that serves.

An instance that is replaced goes once its replacement serves. One that has only registered does not serve
yet: its first task takes seconds, and a unit with one instance has nobody else meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.gateway.executors import Executor

LOG = logging.getLogger(__name__)

LONGEST_S = 20.0
"""An executor that is not warm by then counts all the same."""


class Newcomers:
    """Which executors of a unit serve. `warm` gives one its first task and waits for it."""

    def __init__(self, warm: Callable[[Executor], None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._warm, self._now_s = warm, now_s
        self._serving: frozenset[str] = frozenset()
        self._begun_s: dict[str, float] = {}
        self._warmed: set[str] = set()

    def starting(self, present: Collection[Executor], retiring: Collection[str]) -> frozenset[str]:
        """Those that do not serve yet. Where nobody else does, whoever is there serves."""
        ids = frozenset(executor.id for executor in present)
        self._serving &= ids
        self._warmed.intersection_update(ids)  # executors come and go for months
        self._begun_s = {executor: at_s for executor, at_s in self._begun_s.items() if executor in ids}
        now_s = self._now_s()
        for executor in present:
            if executor.id in self._serving:
                continue
            alone = not self._serving.difference(retiring)
            begun_s = self._begun_s.get(executor.id)
            late = begun_s is not None and now_s - begun_s > LONGEST_S
            if alone or late or executor.id in self._warmed:
                self._serving |= {executor.id}
            elif begun_s is None:
                self._begun_s[executor.id] = now_s
                threading.Thread(target=self._warmed_up, args=(executor,), daemon=True).start()
        return ids - self._serving

    def _warmed_up(self, executor: Executor) -> None:
        try:
            self._warm(executor)
        except Exception as error:
            LOG.warning("executor %s could not be warmed: %s", executor.id, error)
        self._warmed.add(executor.id)
