"""One page of text over HTTP, for whoever has the token: on loopback unless another address is given."""

from __future__ import annotations

import functools
import hmac
import logging
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError
from penstock.machine.bounded import BoundedServer
from penstock.machine.folders import cache_folder
from penstock.machine.secrets import kept_secret

LOG = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LONGEST_REQUEST_S = 5.0
TOKEN_FILE = "PENSTOCK_METRICS_TOKEN"
"""The environment variable that names the file with the token; else it lies in the user's own folder."""

Page = Callable[[str], tuple[str, str]]
"""Given what the caller accepts: the type of the content, and the content."""


def listening_address(place: int | str) -> tuple[str, int]:
    """Where to listen, by a port of the loopback address, or by `address:port`."""
    host, _, port = str(place).rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"expected a port, or address:port, got {place!r}")
    return host or LOOPBACK, int(port)


def token_file() -> Path:
    """The file with the token that requests must carry; a person's, so that Prometheus needs only one."""
    chosen = os.environ.get(TOKEN_FILE)
    return Path(chosen).expanduser() if chosen else cache_folder() / "metrics.token"


class Endpoint:
    """Serves one page below one path until it is closed.

    Requests carry the token (`Authorization: Bearer …`), read only, and are bounded in time.
    """

    def __init__(self, place: int | str, path: str, page: Page) -> None:
        """Listen; port 0 takes a free one. ConfigurationError where it cannot listen, or has no token."""
        address = listening_address(place)
        wanted = f"Bearer {_token()}".encode()

        class Handler(BaseHTTPRequestHandler):
            timeout = LONGEST_REQUEST_S

            def do_GET(self) -> None:
                given = self.headers.get("Authorization", "").encode(errors="replace")
                if not hmac.compare_digest(given, wanted):
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", "Bearer")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if self.path.partition("?")[0] != path:
                    self.send_error(404, "there is nothing but " + path)
                    return
                kind, text = page(self.headers.get("Accept", ""))
                content = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                LOG.debug(format, *arguments)

        try:
            self._server = _Server(address, Handler)
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"cannot listen at {address[0]}:{address[1]}: {error}") from None
        self.url = f"http://{address[0]}:{self._server.server_address[1]}{path}"
        """Where it is."""
        serve = functools.partial(self._server.serve_forever, poll_interval=0.2)
        self._thread = threading.Thread(target=serve, name="penstock-endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; calling it again does nothing."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _token() -> str:
    file = token_file()
    try:
        found = kept_secret(file)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"no token for the metrics in {file}: {error}") from None
    if not found:
        raise ConfigurationError(f"no token for the metrics: {file} is empty")
    return found


class _Server(BoundedServer):
    longest_request_s = LONGEST_REQUEST_S
