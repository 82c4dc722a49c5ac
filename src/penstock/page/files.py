"""The page's own files, and how they and what it asks for are sent: by whom does not matter."""

from __future__ import annotations

import gzip
import json
import mimetypes
import re
from importlib.resources import files
from typing import Any

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
SMALL = 2_000
"""Answers below this many bytes are not worth packing."""
NAME = re.compile(r"(vendor/)?[A-Za-z]+\.(js|css|html)")
"""Names of the page's files: nothing in them leads elsewhere."""


def own_file(name: str) -> tuple[bytes, str]:
    """One of the page's files and its kind; KeyError where there is no such file."""
    found = files("penstock.page") / "static" / name
    if NAME.fullmatch(name) is None or not found.is_file():
        raise KeyError(name)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return found.read_bytes(), "text/javascript" if kind == "application/javascript" else kind


def as_json(value: Any) -> bytes:
    """A value as it is sent."""
    return json.dumps(value, separators=(",", ":"), default=str).encode()


def packed(data: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """The data, packed where that is worth it and the browser takes it; the headers that say so."""
    if len(data) <= SMALL or "gzip" not in accepted:
        return data, {}
    return gzip.compress(data, 1), {"Content-Encoding": "gzip"}
