"""Heartbeats between a unit's driver and the controller: a report goes, the wanted state comes back.

Plain HTTP and JSON on the loopback address, from the standard library. The controller writes its address
into the run's folder; a driver that cannot reach it looks there again, so a controller that died and came
back elsewhere is found. While it is away a unit goes on with what it was last told.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.monitoring import InstanceReading, Measurement

LOG = logging.getLogger(__name__)

ADDRESS_FILE = "controller.json"
HEARTBEAT_S = 1.0
"""How often a driver reports; an order is obeyed at the latest after this."""
TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class ReportedExecutor:
    """One executor as its driver sees it."""

    id: str
    address: str
    """The address of the host it runs on."""
    retiring: bool = False


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What a driver says at every heartbeat."""

    unit: str
    pid: int
    application: str
    """Spark's id of the application; another one means that the driver started anew."""
    state: str
    """`starting`, `running`, `failed` or `stopped`."""
    executors: tuple[ReportedExecutor, ...] = ()
    measurement: Measurement | None = None
    """What happened since the last heartbeat that carried one."""
    notices: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> UnitReport:
        """The report of a text."""
        given = json.loads(text)
        measured = given.pop("measurement")
        if measured is not None:
            readings = tuple(InstanceReading(*reading) for reading in measured.pop("readings"))
            measured = Measurement(**measured, readings=readings)
        executors = tuple(ReportedExecutor(**executor) for executor in given.pop("executors"))
        notices = tuple(given.pop("notices"))
        return UnitReport(**given, measurement=measured, executors=executors, notices=notices)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the controller wants of a unit; said again at every heartbeat until it is so."""

    target: int = 1
    """Executors in all, without the retiring ones."""
    retire: tuple[str, ...] = ()
    """Executors that shall finish their tasks and go."""
    stop: bool = False
    """End the unit's query and its application."""

    def to_json(self) -> str:
        """The wanted state as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Wanted:
        """The wanted state of a text."""
        given = json.loads(text)
        return Wanted(int(given["target"]), tuple(given["retire"]), bool(given["stop"]))


class HeartbeatServer:
    """The controller's side: hands each report to `answer` and sends back what it wants."""

    def __init__(self, folder: Path, answer: Callable[[UnitReport], Wanted]) -> None:
        """`folder` is the run's, where drivers look for the address."""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                    reply = answer(UnitReport.from_json(body)).to_json().encode()
                    code = 200
                except (ValueError, KeyError, TypeError) as error:
                    reply, code = f"not a unit's report: {error}".encode(), 400
                self.send_response(code)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, format: str, *args: Any) -> None:
                LOG.debug(format, *args)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._file = folder / ADDRESS_FILE
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def start(self) -> None:
        """Listen, and write the address down."""
        self._thread.start()
        temporary = self._file.with_suffix(".part")
        temporary.write_text(json.dumps({"url": self.url}))
        temporary.replace(self._file)

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()


class HeartbeatClient:
    """A driver's side: sends reports; None while the controller is away."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / ADDRESS_FILE
        self._url: str | None = None
        self._away = False

    def send(self, report: UnitReport) -> Wanted | None:
        """The controller's answer to a report; None where it cannot be reached."""
        if self._url is None:
            self._url = self._address()
        if self._url is None:
            return None
        request = urllib.request.Request(self._url, data=report.to_json().encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                wanted = Wanted.from_json(answer.read())
        except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
            if not self._away:
                LOG.warning("the controller is away (%s); going on as last told", error)
            self._away = True
            # It may have come back at another address.
            self._url = None
            return None
        if self._away:
            LOG.warning("the controller is back")
        self._away = False
        return wanted

    def _address(self) -> str | None:
        try:
            return str(json.loads(self._file.read_text())["url"])
        except (OSError, ValueError, KeyError):
            return None
