"""What is new in a run that goes on, read once for all who watch.

One thread looks at the journal; every new piece is made into one event that all watching pages share, so a
hundred of them cost hardly more than one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterator

from penstock.errors import PenstockError
from penstock.page.shown import Shown

LOG = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often the journal is looked at. The loop of a run ticks about once a second at its fastest."""
KEPT = 120
"""Events that are kept for a page that comes a little later; one that comes too late starts anew."""
ALIVE_S = 10.0
"""After so long without news a watching page hears a sign of life."""


class LiveFeed:
    """The events of one run. Start it, then any number of threads may `watch`."""

    def __init__(self, shown: Shown, look_s: float = LOOK_S) -> None:
        self._shown = shown
        self._look_s = look_s
        self._film, self._place = shown.film()
        self._first = self._film["delta"]["tick"]
        """A page whose film ends before this has missed something."""
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._news = threading.Condition()
        self._stopped = False
        self._last_status: str = ""
        self._thread = threading.Thread(target=self._look, name="page-feed", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._film = {}
        self._thread.start()

    def stop(self) -> None:
        """End the thread and every watcher."""
        with self._news:
            self._stopped = True
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def ended(self, longest_s: float) -> bool:
        """Wait until the run's end was told; False where that does not happen in time."""
        self._thread.join(longest_s)
        return not self._thread.is_alive()

    def watch(self, after: int) -> Iterator[bytes]:
        """Events after a tick, as they come; ends when the run or the page does."""
        with self._news:
            oldest = self._events[0][0] if len(self._events) == KEPT else self._first
        if after < oldest:
            yield b"event: again\ndata: {}\n\n"
            return
        number = -1
        while True:
            with self._news:
                fresh = [(place, event) for place, event in self._numbered() if place > number]
                if not fresh and not self._stopped:
                    self._news.wait(ALIVE_S)
                    fresh = [(place, event) for place, event in self._numbered() if place > number]
                stopped = self._stopped
            for place, (tick, event) in fresh:
                number = place
                if tick >= after:  # at the same tick its status may be newer
                    yield event
            if stopped:
                return
            if not fresh:
                yield b": still here\n\n"

    def _numbered(self) -> list[tuple[int, tuple[int, bytes]]]:
        """The kept events, each with its place among all there ever were."""
        first = self._count - len(self._events)
        return [(first + i, event) for i, event in enumerate(self._events)]

    _count = 0

    def _look(self) -> None:
        while not self._stopped:
            ended = not self._shown.live
            try:
                self._tell(ended)
            except PenstockError as error:
                # The journal may be away for a moment; the page says how old its news are.
                LOG.warning("%s", error)
            if ended:
                with self._news:
                    self._stopped = True
                    self._news.notify_all()
                return
            with self._news:
                self._news.wait_for(lambda: self._stopped, self._look_s)

    def _tell(self, ended: bool) -> None:
        delta = self._shown.reader.since(self._place)
        status = self._shown.status()
        said = json.dumps(status)
        if not (delta["ticks"]["at"] or delta["actions"] or ended) and said == self._last_status:
            return
        self._last_status = said
        result = self._shown.outcome() if ended else None
        told = {"delta": delta, "status": status, "live": not ended, "result": result}
        data = json.dumps(told, separators=(",", ":"))
        event = f"event: news\ndata: {data}\n\n".encode()
        with self._news:
            self._events.append((delta["tick"], event))
            self._count += 1
            self._news.notify_all()
