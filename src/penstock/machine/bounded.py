"""An HTTP server that slow callers cannot keep busy: so many at once, and so long for a request to come."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

from penstock.machine.peers import is_stranger

LOG = logging.getLogger(__name__)


class BoundedServer(ThreadingHTTPServer):
    """Works on so many connections at once, and ends one whose request takes too long to come.

    As a whole: also where byte after byte comes in time. A handler that has read a request and takes its time
    for the answer says so by `is_read`, and by `reads` when it waits for the next one.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    most_at_once = 512
    longest_request_s = 15.0
    for_its_owner_alone = False
    """Whether connections of other users of this machine are not even looked at."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = threading.BoundedSemaphore(self.most_at_once)
        self._begun_s: dict[Any, float] = {}

    def reads(self, request: Any) -> None:
        """From now on a request is waited for."""
        self._begun_s[request] = time.monotonic()

    def is_read(self, request: Any) -> None:
        """The request is there: what follows may take as long as it takes."""
        self._begun_s.pop(request, None)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not (self.for_its_owner_alone and is_stranger(client_address, request.getsockname()))

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.reads(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be had: its place is free again
            self.is_read(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.is_read(request)
            self._free.release()

    def service_actions(self) -> None:
        for request, begun_s in list(self._begun_s.items()):
            if time.monotonic() - begun_s > self.longest_request_s:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("a request of %s ended early", client_address, exc_info=True)
