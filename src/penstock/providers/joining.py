"""How a host becomes a member of a cluster: the words between who gives hosts and who manages them.

The cluster's manager says what a host has to run (`Join`) and later which hosts it sees (`Joined`). A
provider starts a machine, lets it run that, and needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.plain import Word


@dataclass(frozen=True, slots=True)
class Join:
    """What a host runs to become a member; it is one for as long as that runs."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """All of the command's environment variables."""
    files: Mapping[Path, str] = field(default_factory=dict)
    """Files it needs on the host before it starts, with secrets in them: for their owner alone (0600)."""

    def put(self) -> None:
        """Write the files, on the machine that the command runs on."""
        for path, content in self.files.items():
            private_folder(path.parent)
            written(path, content, mode=PRIVATE)


class Membership(Word):
    """How a cluster sees one of its hosts."""

    TAKES = "takes"
    """It takes work."""
    LEAVES = "leaves"
    """It was told to go and takes nothing new."""
    UNKNOWN = "unknown"
    """It was a member before the manager was started anew and has not been heard of yet."""
    LOST = "lost"
    """It was a member and does not answer any more."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A host as its cluster sees it."""

    membership: Membership
    cores_used: int = 0
    memory_used_mib: int = 0
    web: str | None = None
    """Its own page, where it has one."""


class Joining(Protocol):
    """Says what a host has to run; `folder` is where it may write, and is removed with the host."""

    def __call__(self, host: str, address: str, cores: int, memory_mib: int, folder: Path) -> Join:
        """The command of one host; ClusterError where there cannot be one."""
        ...


Members = Callable[[], Mapping[str, Joined] | None]
"""Every host its cluster sees, by address; None where that cannot be known now."""


class JoinScript(Protocol):
    """Says what a machine that was just started somewhere else runs to join: its user data.

    The machine finds out its own address, installs what it lacks and runs the worker until it is told to
    go. No secret is in it that a member of the cluster may not know.
    """

    def __call__(self, host: str, cores: int, memory_mib: int, notices: str | None = None) -> str:
        """A shell script, `#!` line first; ClusterError where there cannot be one.

        `notices` names the cloud whose metadata tell when the machine will be taken away (`notices.CLOUDS`).
        """
        ...
