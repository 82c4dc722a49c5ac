"""A fake cloud's HTTP server on loopback: one route a call, faults in the cloud's own words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.providers.fakes.cloud import FakeCloud, FaultError


class Lost(Exception):  # noqa: N818
    """The connection ends without an answer."""


class Answer:
    """What a route answers."""

    def __init__(self, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, dict(headers or {})
        plain = isinstance(body, bytes)
        self.bytes: bytes = body if plain else b"" if body is None else json.dumps(body).encode()


class Request:
    """What a route is asked."""

    def __init__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        split = urlsplit(target)
        self.method, self.path = method, split.path
        self.query = {key: values[0] for key, values in parse_qs(split.query).items()}
        self.headers, self.raw = headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.raw) if self.raw else {}


class WireFake:
    """A cloud's HTTP API over a FakeCloud; a subclass knows its routes and its words for faults."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self.strange: list[str] = []
        """Requests no route knows: a fake must not guess."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(self.command, self.path, self.headers, self.rfile.read(length))
                try:
                    answer = fake.answered(request)
                except Lost:
                    self.close_connection = True
                    return
                body = answer.bytes
                self.send_response(answer.status)
                if "content-type" not in {name.lower() for name in answer.headers}:
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _any  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answered(self, request: Request) -> Answer:
        """The answer to a request; Lost where there is none."""
        try:
            return self.routed(request)
        except FaultError as fault:
            if fault.kind in ("lost", "before"):
                if fault.kind == "lost" or self.cloud.random.random() < 0.5:
                    raise Lost from fault
                return Answer(503, {"error": "the service is away"})
            return self.refusal(fault.kind)

    def routed(self, request: Request) -> Answer:
        """The answer of the cloud; a subclass knows."""
        raise NotImplementedError

    def refusal(self, kind: str) -> Answer:
        """A fault in the cloud's own words; a subclass knows."""
        raise NotImplementedError

    def unknown(self, request: Request) -> Answer:
        """No route: told in the end."""
        self.strange.append(f"{request.method} {request.path} {request.query}")
        return Answer(404, {"error": {"message": "no such route in this fake"}})

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(fake: WireFake) -> Iterator[WireFake]:
    """A fake that serves and is stopped in the end, having understood everything."""
    try:
        yield fake
    finally:
        fake.close()
        assert fake.strange == [], "the fake was asked what it does not know"
