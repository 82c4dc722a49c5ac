"""Who may speak with a cluster of ours: one secret for Spark's own connections, one key for its pages.

Both are made with the cluster and lie in files of its folder that only its owner may read. They never stand
on a command line. A session of the same user finds them by the master's address.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import cache_folder, private_folder
from penstock.machine.secrets import new_secret, remember
from penstock.spark.installation import spark_jars

ACCESS_FILE = "access.json"
DEFAULTS = "spark-defaults.conf"
FILTER = "org.apache.spark.ui.JWSFilter"
"""Spark's own filter: a page is shown to who signs his request with the key. Since Spark 4.0."""

CLOSED = {
    "spark.authenticate": "true",
    # Everything between driver, executors, master and workers is encrypted and cannot be changed on the way.
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    # Nothing falls back to the older, weaker way.
    "spark.network.crypto.saslFallback": "false",
    # Nobody ends a job or a host by a click.
    "spark.ui.killEnabled": "false",
}
"""What master, workers and sessions of a closed cluster have in common, besides the secret."""


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one cluster."""

    secret: str
    page_key: str

    @staticmethod
    def new() -> Access:
        """Secrets that nobody had before."""
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        return Access(new_secret(), remember(key))

    @staticmethod
    def read(folder: Path) -> Access | None:
        """The secrets of the cluster in a folder; None where there are none."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            found = Access(**json.loads((folder / ACCESS_FILE).read_text()))
            remember(found.secret)
            remember(found.page_key)
            return found
        return None

    def keep(self, folder: Path, port: int, session: Mapping[str, str]) -> None:
        """Write them down in a cluster's folder, and for sessions of this user at the master's port."""
        private_folder(folder)
        written(folder / ACCESS_FILE, json.dumps(asdict(self)), mode=PRIVATE)
        conf = private_folder(folder / "conf")
        written(conf / DEFAULTS, properties({**session, **self.session_settings()}), mode=PRIVATE)
        written(_known(port), str(folder.resolve()), mode=PRIVATE)

    def session_settings(self) -> dict[str, str]:
        """What a session needs to be let in."""
        return {**CLOSED, "spark.authenticate.secret": self.secret}

    def daemon_settings(self) -> dict[str, str]:
        """What master and workers need to let nobody else in, by their settings' file."""
        settings = {
            **self.session_settings(),
            # Nor does the master take away a host because somebody on this machine asks its page to.
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.master.rest.enabled": "false",
        }
        if _has_filter():
            settings |= {"spark.ui.filters": FILTER, f"spark.{FILTER}.param.secretKey": self.page_key}
        return settings

    def page_header(self) -> dict[str, str]:
        """The header that opens the pages of master and workers."""
        head, body = (_encoded(part) for part in (b'{"alg":"HS256"}', b'{"sub":"penstock"}'))
        key = base64.urlsafe_b64decode(self.page_key + "=" * (-len(self.page_key) % 4))
        signature = _encoded(hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest())
        return {"Authorization": f"Bearer {head}.{body}.{signature}"}


def forget(folder: Path, port: int | None) -> None:
    """Clear away the secrets of a cluster that is gone."""
    (folder / ACCESS_FILE).unlink(missing_ok=True)
    (folder / "conf" / DEFAULTS).unlink(missing_ok=True)
    if port is not None and _folder_at(port) == folder.resolve():
        _known(port).unlink(missing_ok=True)


def settings_at(master: str) -> dict[str, str]:
    """The settings of a session at a cluster of this user on this machine; empty for anybody else's."""
    found = re.fullmatch(r"spark://(?:127\.0\.0\.1|localhost):(\d{1,5})", master)
    folder = None if found is None else _folder_at(int(found[1]))
    access = None if folder is None else Access.read(folder)
    return {} if access is None else access.session_settings()


def properties(settings: Mapping[str, str]) -> str:
    """Settings as the text of a Java properties file."""
    return "".join(f"{name} {_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _known(port: int) -> Path:
    return cache_folder("masters") / str(port)


def _folder_at(port: int) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(_known(port).read_text())
    return None


def _has_filter() -> bool:
    """Whether the installed Spark has the filter and what it needs."""
    return any(jar.name.startswith("jjwt-impl") for jar in spark_jars())
