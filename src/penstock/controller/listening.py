"""What happens in a run, told to functions of a user's own: for alerts, logs, dashboards.

They run in a thread of their own, so that none of them delays the control loop, and what they raise is
logged and goes no further.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable

from penstock.controller.status import QueryStatus, Status

LOG = logging.getLogger(__name__)

MOST_UNTOLD = 1000
"""So many pieces of news wait for a slow listener; the oldest are dropped then."""


class Listener:
    """Told of what happens; override what you want to hear of. Every method does nothing by itself."""

    def on_tick(self, status: Status) -> None:
        """The control loop has looked: after every turn."""

    def on_decision(self, text: str, status: Status) -> None:
        """Something was changed, or refused, with its reason."""

    def on_notice(self, text: str, status: Status) -> None:
        """Something happened that nobody decided: a query failed, an executor was lost."""

    def on_slo(self, query: QueryStatus, kept: bool, status: Status) -> None:
        """A query began to miss its SLO (`kept` is False), or keeps it again."""

    def on_end(self, status: Status) -> None:
        """It is over; `status.problem` says why, where that was not on purpose."""


class Telling:
    """Tells listeners, in a thread that lives as long as there is something to tell."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._news: queue.Queue[Callable[[Listener], None] | None] = queue.Queue(MOST_UNTOLD)
        self._missing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="penstock-listeners", daemon=True)
        if self._listeners:
            self._thread.start()

    def tick(self, status: Status, decisions: Iterable[str], notices: Iterable[str]) -> None:
        """One turn of the loop: what was decided, what is new, and how it stands now."""
        for text in decisions:
            self._say(lambda listener, text=text: listener.on_decision(text, status))  # type: ignore[misc]
        for text in notices:
            self._say(lambda listener, text=text: listener.on_notice(text, status))  # type: ignore[misc]
        for query in status.queries:
            kept = query.keeps
            if kept is None or kept == (query.name not in self._missing):
                continue
            (self._missing.discard if kept else self._missing.add)(query.name)
            self._say(lambda listener, q=query, k=kept: listener.on_slo(q, k, status))  # type: ignore[misc]
        self._say(lambda listener: listener.on_tick(status))

    def end(self, status: Status, wait_s: float = 2.0) -> None:
        """The last word; what is still untold is told within `wait_s`, or not at all."""
        self._say(lambda listener: listener.on_end(status))
        self._say(None)
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def _say(self, news: Callable[[Listener], None] | None) -> None:
        if not self._listeners:
            return
        while True:
            try:
                self._news.put_nowait(news)
                return
            except queue.Full:
                try:
                    self._news.get_nowait()
                except queue.Empty:
                    continue

    def _run(self) -> None:
        while (news := self._news.get()) is not None:
            for listener in self._listeners:
                try:
                    news(listener)
                except Exception:
                    LOG.exception("a listener failed; it is told of the next thing all the same")
