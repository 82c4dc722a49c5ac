"""Secrets: made here, and kept out of whatever is shown, logged or written down.

A secret is known by the name of its setting, or by its value once it was made or met in this process. What
is said to people or to the journal goes through `redacted`. One that must outlive a process lies in a file
that its owner alone may read.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from penstock.machine.files import PRIVATE, written

HIDDEN = "…"
"""What stands where a secret was."""

_KEYS = r"(?:access|account|api|private|encryption|client)[._-]?key(?:[._-]?data)?"
_NAME = re.compile(
    rf"secret|passw|passphrase|token|credential|jaas|{_KEYS}|(?:^|[._-])(?:pwd|pass|sas)(?:$|[._-])", re.I
)
_SAID = rf"(?P<keep>[\w.-]*(?:secret|passw(?:or)?d|passphrase|token|\bpwd|{_KEYS})[\w.-]*[\"']?\s*[=:]\s*"
_SPOKEN = (
    # "name": "value of some words", name='…'
    re.compile(_SAID + r"(?P<quote>[\"']))(?P<value>(?:(?!(?P=quote)).)+)", re.I),
    # name=value, name: value; also the words of a login module's line
    re.compile(_SAID + r")(?!\s)(?P<value>[^\s\"',;&]+)", re.I),
    re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{8,})"),
    # user:password@host in an address
    re.compile(r"(?P<keep>\w+://[^\s/:@]+:)(?P<value>[^\s/@]+)(?=@)"),
)
_SHORTEST = 6
"""Shorter values are words that stand everywhere: they are not looked for."""
_known: set[str] = set()


def new_secret(octets: int = 32) -> str:
    """A secret that nobody can guess, known to `redacted` from now on."""
    return remember(secrets.token_urlsafe(octets))


def remember(value: str) -> str:
    """Let `redacted` know a value, wherever it turns up; the same value back."""
    if len(value) >= _SHORTEST:
        _known.add(value)
    return value


def kept_secret(file: Path) -> str:
    """The secret that a file holds; made where there is no such file, for its owner alone.

    Whoever makes it at the same time gets the same one. OSError where the file cannot be read or made.
    """
    if not file.exists():
        own = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        written(own, secrets.token_urlsafe(32), mode=PRIVATE)
        try:
            os.link(own, file)  # unlike a rename, it replaces nobody else's
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            own.replace(file)
        finally:
            own.unlink(missing_ok=True)
    return remember(file.read_text().strip())


def is_secret(name: str) -> bool:
    """Whether the value of a setting of this name is nobody else's business."""
    return _NAME.search(name) is not None


def remember_all(settings: Mapping[str, str]) -> None:
    """Let `redacted` know every secret among some settings."""
    for name, value in settings.items():
        if is_secret(name):
            remember(str(value))


def redacted(text: str) -> str:
    """A text without the secrets in it."""
    for value in _known:
        if value in text:
            text = text.replace(value, HIDDEN)
    for pattern in _SPOKEN:
        text = pattern.sub(lambda found: f"{found['keep']}{HIDDEN}", text)
    return text


class RedactingFormatter(logging.Formatter):
    """Writes log lines without secrets, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """The line as it is written."""
        return redacted(super().format(record))


def log_redacted(level: int = logging.INFO) -> None:
    """Let this process log to its output, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
