"""What stands in front of moto's EC2: client tokens that are honoured, notice that is listed, and calls that
go wrong on purpose.

A WSGI application around another one. `POST /rig/front` with a JSON says what goes wrong: `faults`, a list of
what becomes of the next instances that are asked for, `away` for all calls, and `interrupt`, by instance the
seconds after which it is taken away: it is given notice at once.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from penstock.rig.metadata import Notices, instant

Start = Callable[..., Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]

NOTICE_S = 120.0
"""EC2 marks an instance so long before it takes it away."""
FAULTS = {
    "quota": (400, "VcpuLimitExceeded", "You have requested more vCPU capacity than your current limit"),
    "capacity": (500, "InsufficientInstanceCapacity", "There is no capacity for the requested type"),
    "throttled": (503, "RequestLimitExceeded", "Request limit exceeded."),
    "unauthorised": (403, "UnauthorizedOperation", "You are not authorized to perform this operation."),
    "before": (500, "InternalError", "An internal error has occurred"),
    "lost": (500, "InternalError", "An internal error has occurred"),
}
"""EC2's words for each; `lost` is said after the instance was made, all others instead of making it."""


class Front:
    """Tokens and faults in front of an EC2 API."""

    def __init__(self, behind: Application, notices: Notices | None = None) -> None:
        self._behind = behind
        self._notices = notices or Notices()
        self._lock = threading.RLock()
        self._answers: dict[str, tuple[str, bytes]] = {}
        """What was asked with each token, and the answer."""
        self.faults: list[str] = []
        self.away = False

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer one request."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        if environ["PATH_INFO"] == "/rig/front":
            return self._told(json.loads(body), start)
        if self.away:
            return _error(start, 503, "Unavailable", "The service is unavailable.")
        asked = dict(parse_qsl(body.decode("latin-1")))
        if asked.get("Action") == "DescribeSpotInstanceRequests":
            return self._marked(start)
        if asked.get("Action") != "RunInstances":
            return self._behind(environ, start)
        with self._lock:
            return self._run_instances(environ, start, asked)

    def _told(self, wanted: dict[str, Any], start: Start) -> Iterable[bytes]:
        for name in ("faults", "away"):
            if name in wanted:
                setattr(self, name, wanted[name])
        for instance, in_s in wanted.get("interrupt", {}).items():
            self._notices.give(instance, float(in_s))
        start("204 No Content", [])
        return []

    def _marked(self, start: Start) -> Iterable[bytes]:
        """Requests of instances that were given notice: all that is ever asked for of them."""
        items = "".join(
            f"<item><spotInstanceRequestId>sir-{escape(name)}</spotInstanceRequestId><instanceId>"
            f"{escape(name)}</instanceId><status><code>marked-for-termination</code>"
            f"<updateTime>{instant(taken_s - NOTICE_S)}</updateTime></status></item>"
            for name, taken_s in self._notices.marked().items()
        )
        name = "DescribeSpotInstanceRequestsResponse"
        answer = f"<{name}><spotInstanceRequestSet>{items}</spotInstanceRequestSet></{name}>".encode()
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _run_instances(self, environ: dict[str, Any], start: Start, asked: dict[str, str]) -> Iterable[bytes]:
        token = asked.get("ClientToken", "")
        what = json.dumps(sorted(asked.items()))
        if token in self._answers:
            before, answer = self._answers[token]
            if before != what:
                return _error(
                    start, 400, "IdempotentParameterMismatch", "The token was used with other parameters."
                )
            start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
            return [answer]
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and fault != "lost":
            return _error(start, *FAULTS[fault])
        said: list[str] = []
        answer = b"".join(self._behind(environ, lambda status, *more: said.append(status)))
        if said and said[0].startswith("200"):
            self._answers[token] = (what, answer)
        if fault == "lost":
            return _error(start, *FAULTS[fault])
        start(said[0], [("Content-Type", "text/xml"), ("Content-Length", str(len(answer)))])
        return [answer]


def _error(start: Start, status: int, code: str, message: str) -> Iterable[bytes]:
    text = (
        f"<Response><Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
        "</Errors><RequestID>rig</RequestID></Response>"
    ).encode()
    start(f"{status} {code}", [("Content-Type", "text/xml"), ("Content-Length", str(len(text)))])
    return [text]
