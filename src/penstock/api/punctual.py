"""Uvicorn's connections with a limit: a request comes within it, as a whole, or its connection is ended.

Uvicorn itself waits for ever for the rest of a request. Time for the answer is not limited, nor is a page
that listens for what is new.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

LONGEST_REQUEST_S = 15.0


class PunctualProtocol(H11Protocol):
    """One connection; asks itself every now and then for how long a request is on its way."""

    longest_s = LONGEST_REQUEST_S

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._since_s: float | None = None
        self._next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection begins, and with it the time for its first request."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._next is not None:
            self._next.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle, now_s = self.cycle, self.loop.time()
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._since_s = None  # the request is there, the answer is on its way
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= self.longest_s:
            self.transport.abort()
            return
        self._next = self.loop.call_later(self.longest_s / 4, self._look)
