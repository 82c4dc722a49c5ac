"""What is new in a run that goes on, read once for all who watch.

One thread looks at the journal; every new piece is made into one event that all watching pages share, so a
hundred of them cost hardly more than one.
"""

from __future__ import annotations

import itertools
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


ALIVE = b": still here\n\n"
AGAIN = b"event: again\ndata: {}\n\n"
"""What a page hears that must ask for the film anew."""


class LiveFeed:
    """The events of one run. Start it, then any number of threads may `watch`."""

    def __init__(self, shown: Shown, look_s: float = LOOK_S) -> None:
        self._shown = shown
        self._look_s = look_s
        self._film, self._place = shown.film(whole=False)
        self._revision = shown.revision
        self._first = self._film["delta"]["tick"]
        """A page whose film ends before this has missed something."""
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._count = 0
        """Events there ever were."""
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
            yield AGAIN
            return
        told = 0
        while True:
            with self._news:
                if told == self._count and not self._stopped:
                    self._news.wait(ALIVE_S)
                told, fresh, over = self._after(told, after)
            yield from fresh
            if over:
                return
            if not fresh:
                yield ALIVE

    def news(self, told: int, after: int) -> tuple[int, list[bytes], bool]:
        """The same for one who must not wait: what came past a place among all events, after a tick.

        With the place it goes to, and whether nothing more will come. The first place is 0.
        """
        with self._news:
            oldest = self._events[0][0] if len(self._events) == KEPT else self._first
            if told == 0 and after < oldest:
                return self._count, [AGAIN], True
            return self._after(told, after)

    def _after(self, told: int, after: int) -> tuple[int, list[bytes], bool]:
        first = self._count - len(self._events)
        fresh = itertools.islice(self._events, max(0, told - first), None)
        # At the same tick its status may be newer.
        return self._count, [event for tick, event in fresh if tick >= after], self._stopped

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
        if self._shown.refresh() != self._revision:
            self._revision = self._shown.revision
            # Units may have come and gone: a page needs the film anew, unless it has this version already.
            again = f'event: again\ndata: {{"revision":{self._revision}}}\n\n'.encode()
            self._put(self._place.ids.get("tick", 0), again)
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
        self._put(delta["tick"], event)

    def _put(self, tick: int, event: bytes) -> None:
        with self._news:
            self._events.append((tick, event))
            self._count += 1
            self._news.notify_all()
