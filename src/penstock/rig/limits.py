"""CPU and memory limits of the rig's hosts: control groups of version 2 or 1, whichever the kernel gives.

A rig has one folder in each hierarchy, and in it one for its keeper and one for each host. The keeper's is
full for as long as the rig lives, so an empty one marks a rig that crashed (`sweep`).
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

KEEPER = "keeper"
"""The group of the rig's own process."""
PREFIX = "penstock-rig-"
PERIOD_US = 100_000
"""CPU time is dealt out in periods of so long."""
CONTROLLERS = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where this process may make groups with a CPU and a memory limit."""

    parents: tuple[Path, ...]
    """One folder with both controllers (version 2), or one for each (version 1)."""
    version: int

    @staticmethod
    def find() -> Hierarchies | str:
        """The hierarchies; where limits cannot be had, the reason in words."""
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        own = dict(_own_groups())
        parents = []
        for fields in mounts:
            kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
            place = Path(fields[4])
            if kind == "cgroup2":
                given = _words(place / "cgroup.controllers")
                if set(CONTROLLERS) <= given:
                    return _version_2(place)
            elif kind == "cgroup":
                for controller in CONTROLLERS:
                    if controller in options:
                        # Inside our own group, so that a limit on this process holds for the rig as well.
                        inside = place / own.get(controller, "/").lstrip("/")
                        parents.append(inside if inside.is_dir() else place)
        if len(parents) < len(CONTROLLERS):
            return "no control groups for CPU and memory are mounted"
        if not all(os.access(parent, os.W_OK) for parent in parents):
            return "control groups are mounted read-only"
        return Hierarchies(tuple(parents), 1)

    def group(self, rig: str, name: str) -> Group:
        """A group of a rig, made where it does not exist."""
        folders = tuple(parent / f"{PREFIX}{rig}" / name for parent in self.parents)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if self.version == 2:
                (folder.parent / "cgroup.subtree_control").write_text(_ENABLE)
        return Group(folders, self.version)

    def sweep(self) -> None:
        """Remove the groups of rigs that are gone; those of living ones cannot be removed and stay."""
        for parent in self.parents:
            for rig in parent.glob(f"{PREFIX}*"):
                with contextlib.suppress(OSError):
                    _removed(rig / KEEPER)
                    for group in [child for child in rig.iterdir() if child.is_dir()]:
                        group.rmdir()
                    rig.rmdir()

    def leave(self, rig: str) -> None:
        """Take this process out of a rig's groups and remove them; the rig's other processes have ended."""
        for parent in self.parents:
            (parent / "cgroup.procs").write_text("0")
        self.remove(rig)

    def remove(self, rig: str) -> None:
        """Remove what is left of a rig whose processes have just ended."""
        for parent in self.parents:
            folder = parent / f"{PREFIX}{rig}"
            if folder.is_dir():
                for group in [child for child in folder.iterdir() if child.is_dir()]:
                    _removed_soon(group)
                _removed_soon(folder)


_ENABLE = " ".join(f"+{controller}" for controller in CONTROLLERS)


@dataclass(frozen=True, slots=True)
class Group:
    """The control group of one host."""

    folders: tuple[Path, ...]
    version: int

    @property
    def members(self) -> tuple[Path, ...]:
        """Files into which a process writes 0 to become a member."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def limit(self, cores: float | None, memory_mib: int | None) -> None:
        """Give it at most so much CPU and memory; None leaves it without that limit."""
        quota_us = None if cores is None else max(1_000, round(cores * PERIOD_US))
        for folder in self.folders:
            if quota_us is not None:
                _offer(folder / "cpu.max", f"{quota_us} {PERIOD_US}")
                _offer(folder / "cpu.cfs_period_us", str(PERIOD_US))
                _offer(folder / "cpu.cfs_quota_us", str(quota_us))
            if memory_mib is not None:
                _offer(folder / "memory.max", str(memory_mib << 20))
                _offer(folder / "memory.limit_in_bytes", str(memory_mib << 20))

    def join(self) -> None:
        """Make this process a member."""
        for file in self.members:
            file.write_text("0")

    def remove(self) -> None:
        """Remove it; its processes have ended or are just ending."""
        for folder in self.folders:
            _removed_soon(folder)


def _offer(file: Path, value: str) -> None:
    """Write a limit where this group has the file for it."""
    if file.exists():
        file.write_text(value)


def _version_2(root: Path) -> Hierarchies | str:
    try:
        (root / "cgroup.subtree_control").write_text(_ENABLE)
    except OSError as error:
        return f"control groups cannot be given limits here ({error.strerror})"
    return Hierarchies((root,), 2)


def _own_groups() -> list[tuple[str, str]]:
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found += [(controller, path) for controller in controllers.split(",")]
    return found


def _words(file: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set(file.read_text().split())
    return set()


def _removed(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def _removed_soon(folder: Path, timeout_s: float = 5.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            _removed(folder)
            return
        except OSError:
            if time.monotonic() > deadline_s:
                return
        time.sleep(0.02)
