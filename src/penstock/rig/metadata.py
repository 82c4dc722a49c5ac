"""What the rig's cloud tells an instance about itself: that it will be taken away, as EC2 tells it.

Served at 169.254.169.254 in the network of the cloud's own site, to each instance its own. It stands in for
EC2's instance metadata in this one thing; every other page is missing.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

TOKEN_PATH = "/latest/api/token"
NOTICE_PATH = "/latest/meta-data/spot/instance-action"


def instant(at_s: float) -> str:
    """A time as EC2 writes it."""
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Notices:
    """Which instances will be taken away, and when; a WSGI application that tells each of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken_s: dict[str, float] = {}
        self._address: dict[str, str] = {}
        self._tokens: set[str] = set()

    def give(self, instance: str, in_s: float) -> None:
        """Say that an instance will be taken away."""
        with self._lock:
            self._taken_s[instance] = time.time() + in_s

    def seen(self, instance: str, address: str) -> None:
        """Remember who asks from an address."""
        with self._lock:
            self._address[address] = instance

    def marked(self) -> dict[str, float]:
        """Instances that were given notice, and when they are taken away."""
        with self._lock:
            return dict(self._taken_s)

    def due(self) -> list[str]:
        """Instances whose time has come, each once."""
        with self._lock:
            found = [name for name, at_s in self._taken_s.items() if time.time() >= at_s]
            for name in found:
                del self._taken_s[name]
            return found

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request of an instance."""
        asked = (environ["REQUEST_METHOD"], environ["PATH_INFO"])
        status, text = "404 Not Found", ""
        if asked == ("PUT", TOKEN_PATH):
            status, text = "200 OK", secrets.token_urlsafe(16)
            self._tokens.add(text)
        elif environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN") not in self._tokens:
            status = "401 Unauthorized"
        elif asked == ("GET", NOTICE_PATH):
            with self._lock:
                taken_s = self._taken_s.get(self._address.get(environ["REMOTE_ADDR"], ""))
            if taken_s is not None:
                status, text = "200 OK", json.dumps({"action": "terminate", "time": instant(taken_s)})
        body = text.encode()
        start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]
