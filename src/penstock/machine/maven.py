"""Jars from a Maven repository, each pinned by its SHA-256.

A jar is fetched once into a folder of the user's cache and used from there. Its content is checked after
the download and again whenever it is taken from the folder: jars are code, and what was right once may
have been damaged or exchanged since. No network: a clear ClusterError.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import logging
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.asking import NO_ANSWER
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates and its content."""

    group: str
    artifact: str
    version: str
    sha256: str
    """The checksum of its content, in hexadecimal."""
    classifier: str = ""
    """Which of several jars of the same version it is, such as one with all it needs inside."""

    @property
    def name(self) -> str:
        """Its file name."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"

    @property
    def path(self) -> str:
        """Its path in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


class NotPublishedError(ClusterError):
    """The repository answers, but does not have the jar."""


def pinned(text: str) -> tuple[Jar, ...]:
    """Jars from lines of `artifact:version sha256`, each below a line with its group alone.

    A classifier may follow the version: `artifact:version:classifier`.
    """
    jars, group = [], ""
    for words in (line.split() for line in text.strip().splitlines()):
        if len(words) == 1:
            group = words[0]
        else:
            artifact, version, *classifier = words[0].split(":")
            jars.append(Jar(group, artifact, version, words[1], *classifier))
    return tuple(jars)


def fetch(folder: Path, jars: Sequence[Jar], repository: str) -> list[Path]:
    """The jars' files, fetched where not there yet, each with the content it is pinned to.

    `repository` is the address of one with Maven's layout. Blocks while it downloads. ClusterError where
    the repository is out of reach or gives another content.
    """
    private_folder(folder)
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda jar: _fetched(folder, jar, repository.rstrip("/")), jars))


def _fetched(folder: Path, jar: Jar, repository: str) -> Path:
    target = folder / jar.name
    if target.exists():
        if _checksum(target.read_bytes()) == jar.sha256:
            return target
        LOG.warning("%s is not what it was when it was fetched: fetching it again", target)
    address = f"{repository}/{jar.path}"
    content = _download(address)
    if (found := _checksum(content)) != jar.sha256:
        raise ClusterError(
            f"{address}: expected the SHA-256 {jar.sha256}, got {found}; the download is damaged, or the "
            "repository has another jar under this name: it is not used"
        )
    written(target, content, mode=PRIVATE)
    return target


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotPublishedError(f"{address}: not published") from None
        raise ClusterError(f"{address}: expected a jar, the repository answered {error.code}") from None
    except NO_ANSWER as error:
        raise ClusterError(
            f"{address}: the Maven repository is out of reach ({error}); jars are needed from it once"
        ) from None
