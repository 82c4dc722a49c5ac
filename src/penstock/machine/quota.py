"""How much CPU a process may use: what control groups around it leave of the machine.

A container and a rented slice of a machine are such groups. A share of the CPU means little without it: a
process at 50 % of a core that was given half a core has no more to get.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path


def cores_allowed(pid: int) -> tuple[str, float] | None:
    """The tightest group around a process and the cores it may use there; None where none is set."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    found: list[tuple[float, str]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounted = _mounts().get("cpu" if "cpu" in controllers.split(",") else controllers)
        if mounted is None:
            continue
        root, place = mounted
        inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else path
        group = place / inside.lstrip("/")
        while group.is_relative_to(place):
            cores = _cores(group)
            if cores is not None:
                found.append((cores, str(group)))
            if group == place:
                break
            group = group.parent
    if not found:
        return None
    cores, name = min(found)
    return name, cores


def _cores(group: Path) -> float | None:
    """The cores of one group by its own files, of version 2 or 1; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        return None if quota_us <= 0 else quota_us / int((group / "cpu.cfs_period_us").read_text())
    return None


@functools.cache
def _mounts() -> dict[str, tuple[str, Path]]:
    """Where groups with a CPU limit are mounted: `cpu` for version 1, an empty word for version 2."""
    found: dict[str, tuple[str, Path]] = {}
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return found
    for fields in (line.split() for line in lines):
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind == "cgroup2":
            found.setdefault("", (fields[3], Path(fields[4])))
        elif kind == "cgroup" and "cpu" in options:
            found.setdefault("cpu", (fields[3], Path(fields[4])))
    return found
