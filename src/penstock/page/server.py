"""Serves the page on loopback: the files of this folder to everybody, what a run holds with the token alone.

The token is in the address after `#`, which no browser sends: it reaches no log and no other site. Requests
that name another host than this machine are refused, so that a foreign page cannot have a browser ask here.
"""

from __future__ import annotations

import gzip
import hmac
import json
import logging
import mimetypes
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError, PenstockError
from penstock.page.live import LiveFeed
from penstock.page.shown import Shown
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.topology.model import Topology

LOG = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MOST_BODY = 10_000
LAST_WORDS_S = 3.0
"""How long the page of a run that ended stays, so that whoever watches hears of it."""
SMALL = 2_000
"""Answers below this many bytes are not worth packing."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class PageServer:
    """The page of one run, or of two side by side. Use it as a context manager, or `start` and `stop`."""

    def __init__(self, runs: Sequence[Shown], port: int = 0) -> None:
        self.runs = tuple(runs)
        self.token = secrets.token_urlsafe(24)
        self.feed = LiveFeed(self.runs[0]) if self.runs[0].live else None
        try:
            self._http = _Http((LOOPBACK, port), _handler(self))
        except OSError as error:
            raise ConfigurationError(
                f"the page cannot be served on port {port}: {error.strerror or error}; "
                "choose another with --port, or leave it out for a free one"
            ) from error
        self._thread = threading.Thread(target=self._http.serve_forever, name="page", daemon=True)

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
        if self.feed is not None:
            self.feed.start()
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        if self.feed is not None:
            self.feed.stop()
        self._http.shutdown()
        self._http.server_close()
        for run in self.runs:
            run.close()

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """What is asked for below `/data/`; KeyError where there is no such thing."""
        run = self.runs[int(query.get("run", ["0"])[0])]
        answers: dict[str, Callable[[], Any]] = {
            "films": lambda: [run.film()[0] for run in self.runs],
            "moment": lambda: run.moment(float(query["at"][0])),
            "forecast": lambda: run.forecast(query["unit"][0], float(query["at"][0])),
            "money": run.money,
            "clairvoyant": run.clairvoyant,
        }
        return answers[path]()

    def tell(self, said: dict[str, Any]) -> dict[str, str]:
        """Give a command to the run's controller."""
        run = self.runs[0]
        if not run.live:
            raise ConfigurationError("the run is over: there is nothing to tell it")
        command = commands.Command(
            str(said.get("kind", "")), str(said.get("reason", "")), said.get("subject") or None, "the page"
        )
        commands.put(run.folder.commands, command)
        return {"told": str(command)}


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


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


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

    def do_GET(self) -> None:
        """A file of the page, or something of the run."""
        self._do(self._get)

    def do_POST(self) -> None:
        """A command for the run."""
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
        parts = urlsplit(self.path)
        if not parts.path.startswith("/data/"):
            self._file(parts.path)
        elif self._allowed():
            query = parse_qs(parts.query)
            if parts.path == "/data/live":
                self._stream(int(query.get("after", ["0"])[0]))
            else:
                self._send(self.page.answer(parts.path.removeprefix("/data/"), query))

    def _post(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        if length > MOST_BODY:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too much")
            return
        body = self.rfile.read(length)
        if self._allowed():
            if self.path != "/data/tell":
                raise KeyError(self.path)
            self._send(self.page.tell(json.loads(body)))

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self.page.token.encode()):
            return True
        self._refuse(
            HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: use the address as it was printed"
        )
        return False

    def _file(self, path: str) -> None:
        name = path.strip("/") or "index.html"
        found = files("penstock.page") / "static"
        for part in name.split("/"):
            if part in ("", ".", "..") or "\\" in part:
                raise KeyError(path)
            found = found / part
        if not found.is_file():
            raise KeyError(path)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self._answer(
            HTTPStatus.OK, found.read_bytes(), kind if kind != "application/javascript" else "text/javascript"
        )

    def _send(self, value: Any) -> None:
        data = json.dumps(value, separators=(",", ":"), default=str).encode()
        self._answer(HTTPStatus.OK, data, "application/json")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, json.dumps({"error": why}).encode(), "application/json")

    def _answer(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        packed = len(data) > SMALL and "gzip" in self.headers.get("Accept-Encoding", "")
        data = gzip.compress(data, 1) if packed else data
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, after: int) -> None:
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        feed = self.page.feed
        for event in feed.watch(after) if feed is not None else ():
            self.wfile.write(event)
            self.wfile.flush()
