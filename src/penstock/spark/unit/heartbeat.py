"""Heartbeats between a unit's driver and the controller: a report goes, what is wanted comes back.

HTTP and JSON from the standard library, on the loopback address. Every request carries the run's token, and
is heard once; one that is too large, too slow, another user's or not what it should be changes nothing. The
controller writes its address and the token into a file of the run's folder that only its owner may read; a
driver that cannot reach it looks there again. While it is away a unit goes on with what it was last told.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import ClusterError, ConfigurationError, PenstockError
from penstock.fleet.ports import UnitReport, Wanted
from penstock.machine.asking import DIRECT, NO_ANSWER
from penstock.machine.bounded import BoundedServer
from penstock.machine.files import PRIVATE, written
from penstock.machine.secrets import new_secret, remember
from penstock.plain import from_json, to_json
from penstock.spark.unit.specification import UnitSpecification

LOG = logging.getLogger(__name__)

Made = TypeVar("Made")
ADDRESS_FILE = "controller.json"
HEARTBEAT_S = 1.0
"""How often a driver reports; an order is obeyed at the latest after this."""
TIMEOUT_S = 3.0
LARGEST_BYTES = 4 * 2**20
"""A report of ten thousand instances has a megabyte."""
MOST_AT_ONCE = 64
"""Requests that are worked on at the same time; more are turned away."""
LONGEST_REQUEST_S = 10.0
"""A request that is not done by then is ended; one takes milliseconds."""
MOST_ATTEMPTS = 10_000
"""Attempts at units whose newest beat is remembered."""
MOST_RECORDS = 10**12
"""No unit handles more records between two heartbeats."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a driver says at every heartbeat."""

    attempt: int
    """Which start of its unit it is."""
    report: UnitReport
    number: int = 1
    """Its place among the beats of its attempt: what was heard once is not heard again."""


class SupersededError(ClusterError):
    """The controller has started this unit again elsewhere: whoever hears this has to end itself."""


class HeartbeatServer:
    """The controller's side: gives drivers their specification, and what is wanted for each report."""

    def __init__(
        self,
        folder: Path,
        answer: Callable[[Beat], Wanted],
        specification: Callable[[str, int], UnitSpecification],
    ) -> None:
        """`folder` is the run's, where drivers look for the address.

        `answer` and `specification` raise SupersededError for an attempt that is not the newest, and
        ConfigurationError for a unit that is unknown.
        """
        self._token = new_secret()
        token, heard = self._token, _Heard()

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S
            server_version = "penstock"
            sys_version = ""

            def do_POST(self) -> None:
                self._reply(lambda: to_json(answer(heard.new(_checked(from_json(Beat, self._body()))))))

            def do_GET(self) -> None:
                unit, _, attempt = self.path.removeprefix("/units/").partition("/")
                self._reply(lambda: to_json(specification(unit, _number(attempt))))

            def _reply(self, work: Callable[[], str]) -> None:
                given = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if not hmac.compare_digest(given.encode(), token.encode()):
                    self.close_connection = True
                    return self._send(401, "this needs the run's token")
                try:
                    return self._send(200, work())
                except SupersededError as error:
                    return self._send(409, str(error))
                except (ConfigurationError, ValueError) as error:
                    return self._send(400, f"not a unit's report: {error}")

            def _body(self) -> bytes:
                length = _number(self.headers.get("Content-Length", ""))
                if length > LARGEST_BYTES:
                    self.close_connection = True
                    raise ConfigurationError(f"expected at most {LARGEST_BYTES} bytes, got {length}")
                return self.rfile.read(length)

            def _send(self, code: int, text: str) -> None:
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json" if code == 200 else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                LOG.debug(format, *args)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._file = folder / ADDRESS_FILE
        self._thread = self._listener()

    def _listener(self) -> threading.Thread:
        return threading.Thread(
            target=self._server.serve_forever, args=(0.1,), daemon=True, name="penstock-heartbeat"
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def alive(self) -> bool:
        """Whether its thread listens."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Listen, and write the address down for this run's drivers."""
        self._thread.start()
        written(self._file, json.dumps({"url": self.url, "token": self._token}), mode=PRIVATE)

    def revive(self) -> bool:
        """Listen again, at the same address, where the thread has died; whether that was needed."""
        if self._thread.is_alive():
            return False
        self._thread = self._listener()
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()


class _Heard:
    """The newest beat of every attempt: an older one, or the same again, is a replay or came late."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def new(self, beat: Beat) -> Beat:
        """The beat; ConfigurationError where it was heard before."""
        who = (beat.report.unit, beat.attempt)
        with self._lock:
            if beat.number <= self._newest.get(who, 0):
                raise ConfigurationError(f"beat {beat.number} of unit {who[0][:60]!r} was heard before")
            self._newest[who] = beat.number
            if len(self._newest) > MOST_ATTEMPTS:
                del self._newest[next(iter(self._newest))]
        return beat


class _Server(BoundedServer):
    """Slow callers cannot take all threads, and strangers on this machine not even one."""

    most_at_once = MOST_AT_ONCE
    longest_request_s = LONGEST_REQUEST_S
    for_its_owner_alone = True


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise ConfigurationError(f"expected a number, got {text[:20]!r}")
    return int(text)


def _checked(beat: Beat) -> Beat:
    """A beat whose numbers can be true; ConfigurationError else."""
    measured = beat.report.measurement
    if measured is None:
        return beat
    for name in _AMOUNTS:
        value = getattr(measured, name) or 0
        if not 0 <= value <= MOST_RECORDS:
            raise ConfigurationError(f"measurement.{name}: expected 0 to {MOST_RECORDS:.0e}, got {value!r}")
    for name, records in (*measured.arrived_from, *measured.emitted_by):
        if not 0 <= records <= MOST_RECORDS:
            raise ConfigurationError(
                f"{records!r} records of {name[:40]!r}: expected 0 to {MOST_RECORDS:.0e}"
            )
    for reading in measured.readings:
        for ratio in (reading.cpu_ratio, reading.memory_ratio):
            if ratio is not None and not 0.0 <= ratio <= MOST_USED:
                raise ConfigurationError(f"a utilisation of {ratio!r} of {reading.instance[:40]!r}")
    return beat


_AMOUNTS = (
    "arrived", "processed", "emitted", "waiting", "in_service", "interval_s", "duration_s", "duration_p95_s",
    "duration_p99_s", "service_s", "latency_s", "latency_p95_s",
)  # fmt: skip
"""What of a measurement is a number of records or seconds."""
MOST_USED = 64.0
"""No instance uses more than this many times what it has."""


class HeartbeatClient:
    """A driver's side: sends reports; None while the controller is away."""

    def __init__(self, folder: Path, unit: str, attempt: int) -> None:
        self._file = folder / ADDRESS_FILE
        self._unit = unit
        self._attempt = attempt
        self._number = 0
        self._address: tuple[str, str] | None = None
        self._away = False

    def specification(self, wait: Callable[[float], bool]) -> UnitSpecification:
        """What this driver shall run; asks until the controller answers or `wait` says to give up."""
        while True:
            found = self._ask(f"/units/{self._unit}/{self._attempt}", None, UnitSpecification)
            if found is not None:
                return found
            if wait(0.5):
                raise ClusterError(f"no controller told unit {self._unit} what to run; see {self._file}")

    def turn(self) -> UnitSpecification | None:
        """What a prepared driver shall run, once it is its turn; None while it waits or nobody answers."""
        found = self._ask(f"/units/{self._unit}/{self._attempt}", None, UnitSpecification)
        if found is None or found.prepare:
            return None
        self._attempt = found.attempt
        return found

    @property
    def away(self) -> bool:
        """Whether the controller did not answer the last time."""
        return self._away or self._address is None

    def send(self, report: UnitReport) -> Wanted | None:
        """The controller's answer to a report; None where it cannot be reached."""
        self._number += 1
        return self._ask("/report", to_json(Beat(self._attempt, report, self._number)).encode(), Wanted)

    def _ask(self, path: str, body: bytes | None, kind: type[Made]) -> Made | None:
        if self._address is None:
            self._address = self._known_address()
        if self._address is None:
            return None
        url, token = self._address
        request = urllib.request.Request(url + path, data=body, headers={"Authorization": f"Bearer {token}"})
        try:
            with DIRECT.open(request, timeout=TIMEOUT_S) as answer:
                found = from_json(kind, answer.read(LARGEST_BYTES))  # one that was cut off is none
        except urllib.error.HTTPError as error:
            told = error.read(2000).decode(errors="replace")
            if error.code == 409:
                raise SupersededError(told) from None
            self._note_away(f"it answered {error.code}: {told}")
            return None
        except (*NO_ANSWER, ValueError, PenstockError) as error:
            self._note_away(str(error))
            return None
        if self._away:
            LOG.warning("the controller is back")
        self._away = False
        return found

    def _note_away(self, problem: str) -> None:
        if not self._away:
            LOG.warning("the controller is away (%s); going on as last told", problem)
        self._away = True
        # It may have come back at another address.
        self._address = None

    def _known_address(self) -> tuple[str, str] | None:
        try:
            known = json.loads(self._file.read_text())
            return str(known["url"]), remember(str(known["token"]))
        except (OSError, ValueError, KeyError):
            return None
