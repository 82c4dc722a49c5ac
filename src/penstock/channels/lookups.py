"""Look-ups that all instances of a unit see, and that are updated while it runs.

A look-up is a value in JSON under a name, in the run's folder; every update is a further version of it. A
function makes a `Lookup` and asks it where records are worked on: in a task of Spark, on whichever instance.
What it gets is the newest version there is, whole, at most `LOOK_S` old. So two tasks of one micro-batch may
see two versions; whoever has to know which puts the version into the record. Where the folder cannot be seen
nobody knows whether there is a version, and no default is made up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.files import written
from penstock.machine.folders import FOLDER_NAME, private_folder

VARIABLE = "PENSTOCK_LOOKUPS"
"""The variable that says where a run's look-ups are, in the processes of its units' drivers."""
LOOK_S = 0.2
"""How often a process looks for a newer version at most."""
KEPT = 5
"""Versions that are kept."""
LARGEST_BYTES = 64 * 2**20
_CURRENT = "current"
_HISTORY = "versions.jsonl"
_LOCK = ".lock"
_SEEN: dict[str, tuple[float, int, Any]] = {}
"""In this process, by folder: when it was looked at, the version, the value."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a look-up."""

    name: str
    version: int
    at_s: float
    by: str = ""
    reason: str = ""


class LookupAwayError(ClusterError):
    """Where a run's look-ups are cannot be seen from here: units wait until it can."""


def provide(root: Path) -> None:
    """Let functions called in this process find a run's look-ups, before there is any."""
    private_folder(root)
    os.environ[VARIABLE] = str(root)


class Lookup:
    """A look-up as a function uses it: `Lookup("prices", default={})()` is the newest value.

    Make it where the function is called, once; ask it inside the code that works on records. It goes to the
    executors with that code, which need this package and must see the run's folder.
    """

    def __init__(self, name: str, default: Any = None, folder: Path | None = None) -> None:
        """`default` is its value before the first version; `folder` where look-ups are, else the run's."""
        self.name = checked(name)
        self.default = default
        root = str(folder) if folder is not None else os.environ.get(VARIABLE, "")
        self._folder = os.path.join(root, name) if root else ""

    def __call__(self) -> Any:
        """The newest value; not to be changed, for everybody in this process shares it."""
        return self.versioned()[1]

    def versioned(self) -> tuple[int, Any]:
        """The newest version's number and value; 0 and the default before the first.

        LookupAwayError where the folder cannot be seen.
        """
        if not self._folder:
            return 0, self.default
        now_s = time.monotonic()
        looked_s, version, value = _SEEN.get(self._folder, (-1.0, 0, None))
        if looked_s < 0 or now_s - looked_s >= LOOK_S:
            newest = _newest(Path(self._folder))
            if not newest and not os.path.isdir(os.path.dirname(self._folder)):
                raise LookupAwayError(
                    f"look-up {self.name}: {os.path.dirname(self._folder)} cannot be seen from "
                    f"{socket.gethostname()}; let every host of the unit see the run's folder"
                )
            if newest != version:
                # One that was cleaned away at this moment has a newer one: it is found at the next look.
                with contextlib.suppress(OSError, ValueError):
                    value = json.loads(_file(Path(self._folder), newest).read_text())
                    version = newest
            _SEEN[self._folder] = (now_s, version, value)
        return (version, value) if version else (0, self.default)


def update(root: Path, name: str, value: Any, by: str = "", reason: str = "") -> Version:
    """Give a look-up its next version; whoever asks from now on gets that one."""
    folder = root / checked(name)
    text = json.dumps(value)
    if len(text) > LARGEST_BYTES:
        raise ConfigurationError(
            f"look-up {name}: expected at most {LARGEST_BYTES} bytes of JSON, got {len(text)}"
        )
    private_folder(root)
    folder.mkdir(exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once get two numbers, and the later one stands
        number = _newest(folder) + 1
        written(_file(folder, number), text, durable=True)
        made = Version(name, number, time.time(), by, reason)
        with (folder / _HISTORY).open("a") as told:
            told.write(json.dumps(asdict(made)) + "\n")
        written(folder / _CURRENT, str(number), durable=True)
    for old in sorted(_numbers(folder))[:-KEPT]:
        _file(folder, old).unlink(missing_ok=True)
    return made


def history(root: Path, name: str) -> list[Version]:
    """Every version there was, oldest first; empty where there was none."""
    found = []
    with contextlib.suppress(OSError):
        for line in (root / checked(name) / _HISTORY).read_text().splitlines():
            with contextlib.suppress(ValueError, TypeError):
                found.append(Version(**json.loads(line)))
    return found


def names(root: Path) -> list[str]:
    """The look-ups there are."""
    try:
        return sorted(
            entry for entry in os.listdir(root) if FOLDER_NAME.fullmatch(entry) and _newest(root / entry)
        )
    except FileNotFoundError:
        return []


def current(root: Path, name: str) -> tuple[int, Any]:
    """The newest version's number and value; ConfigurationError where there is none."""
    folder = root / checked(name)
    number = _newest(folder)
    if not number:
        raise ConfigurationError(f"there is no look-up {name}")
    return number, json.loads(_file(folder, number).read_text())


def checked(name: str) -> str:
    """The name itself; ConfigurationError where it is none."""
    if not FOLDER_NAME.fullmatch(name):
        raise ConfigurationError(f"expected a look-up's name of letters, digits, - and _, got {name!r}")
    return name


def _newest(folder: Path) -> int:
    try:
        return int((folder / _CURRENT).read_text())
    except (OSError, ValueError):
        return 0


def _numbers(folder: Path) -> list[int]:
    return [int(file.stem[1:]) for file in folder.glob("v*.json") if file.stem[1:].isdigit()]


def _file(folder: Path, number: int) -> Path:
    return folder / f"v{number:09d}.json"
