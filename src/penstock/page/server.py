"""Serves the page on loopback: the files of this folder to everybody, what a run holds with the token alone.

The token is in the address after `#`, which no browser sends: it reaches no log and no other site. Requests
that name another host than this machine are refused, so that a foreign page cannot have a browser ask here.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError, PenstockError
from penstock.machine.bounded import BoundedServer
from penstock.page.answers import Answers
from penstock.page.files import HEADERS, as_json, own_file, packed
from penstock.page.live import LiveFeed
from penstock.page.shown import Shown
from penstock.runs.folder import RunFolder
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MOST_BODY = 1 << 20
LAST_WORDS_S = 3.0
"""How long the page of a run that ended stays, so that whoever watches hears of it."""


class PageServer:
    """The page of one run, or of two side by side. Use it as a context manager, or `start` and `stop`."""

    def __init__(self, runs: Sequence[Shown], port: int = 0) -> None:
        self.answers = Answers(runs)
        self.token = secrets.token_urlsafe(24)
        try:
            self._http = BoundedServer((LOOPBACK, port), _handler(self))
        except OSError as error:
            raise ConfigurationError(
                f"the page cannot be served on port {port}: {error.strerror or error}; "
                "choose another with --port, or leave it out for a free one"
            ) from error
        self._thread = threading.Thread(target=self._http.serve_forever, name="page", daemon=True)

    @property
    def feed(self) -> LiveFeed | None:
        """What is new in a run that goes on; None where it is over."""
        return self.answers.feed

    @property
    def address(self) -> str:
        """Where to look, with the token."""
        return f"http://{LOOPBACK}:{self.port}/#token={self.token}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._http.server_address[1])

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve from now on, in threads of its own."""
        self.answers.start()
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        self._http.shutdown()
        self._http.server_close()
        self.answers.stop()


@contextmanager
def live_page(folder: Path, topology: Topology, port: int = 0) -> Iterator[PageServer]:
    """The page of a run that is about to start in this folder; it is up before anything else is.

    On leaving, a page that watches still hears the run's end.
    """
    place = RunFolder.at(folder)
    Journal(place.journal).close()  # its tables, so that there is something to look at from the start
    with PageServer([Shown(folder, topology, begins=True)], port) as server:
        yield server
        if server.feed is not None:
            server.feed.ended(LAST_WORDS_S)


def _handler(page: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.page = page
    return Handler


class _Handler(BaseHTTPRequestHandler):
    page: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "Penstock"
    sys_version = ""
    server: BoundedServer
    timeout = BoundedServer.longest_request_s

    def handle_one_request(self) -> None:
        """One request of a connection, which is kept for the next one."""
        self.server.reads(self.request)
        super().handle_one_request()

    def do_GET(self) -> None:
        """A file of the page, or something of the run."""
        self._do(self._get)

    def do_POST(self) -> None:
        """A command or a change for the run."""
        self._do(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests go to the log's finest level: addresses of the page are nobody's business."""
        LOG.debug(format, *args)

    # -- inside ----------------------------------------------------------------------------------

    def _do(self, what: Callable[[], None]) -> None:
        try:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in (LOOPBACK, "localhost"):
                self._refuse(HTTPStatus.FORBIDDEN, "this page is for the machine it runs on")
                return
            what()
        except (KeyError, IndexError, ValueError) as error:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no such thing: {error}")
        except PenstockError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (BrokenPipeError, ConnectionError):
            self.close_connection = True

    def _get(self) -> None:
        self.server.is_read(self.request)
        parts = urlsplit(self.path)
        if not parts.path.startswith("/data/"):
            self._file(parts.path)
        elif self._allowed():
            query = parse_qs(parts.query)
            if parts.path == "/data/live":
                self._stream(int(query.get("after", ["0"])[0]))
            else:
                self._send(self.page.answers.get(parts.path.removeprefix("/data/"), query))

    def _post(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= MOST_BODY:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too much")
            return
        body = self.rfile.read(length)
        self.server.is_read(self.request)
        if self._allowed():
            if not self.path.startswith("/data/"):
                raise KeyError(self.path)
            self._send(self.page.answers.post(self.path.removeprefix("/data/"), json.loads(body)))

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self.page.token.encode()):
            return True
        self._refuse(
            HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: use the address as it was printed"
        )
        return False

    def _file(self, path: str) -> None:
        self._answer(HTTPStatus.OK, *own_file(path.strip("/") or "index.html"))

    def _send(self, data: bytes) -> None:
        self._answer(HTTPStatus.OK, data, "application/json")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, as_json({"error": why}), "application/json")

    def _answer(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        data, how = packed(data, self.headers.get("Accept-Encoding", ""))
        self.send_response(status)
        for name, value in {**HEADERS, **how}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, after: int) -> None:
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        feed = self.page.feed
        for event in feed.watch(after) if feed is not None else ():
            self.wfile.write(event)
            self.wfile.flush()
