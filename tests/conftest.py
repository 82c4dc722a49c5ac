"""Which tests share a process where they run in several (`make test` runs two).

What starts a cluster, a session or a broker is shared inside a group, so a group stays together. The long
ones begin first: the short ones fill what is left of the two processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

# Every Java that tests start lives for a minute or two: the second, optimising compiler would take a third of
# the processor time and be done when nobody needs it any more. `benchmarks/` measures without this.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

LONG = (
    "spark_units/test_cluster_run.py",
    "spark/",
    "factory/",
    "spark_units/test_kafka_run.py",
    "security/",
    "channels/",
    "spark_units/",
)
"""Groups that start Java, by the beginning of their path, the longest first."""


REAL = ("api/", "faults/", "machine/", "providers/", "rig/", "runs/", "security/", "web/")
"""Folders whose tests start real processes besides those marked `spark` or `kafka`."""


def group_of(path: str) -> str:
    """The group of a test file, by its path below this folder."""
    return next((group for group in LONG if path.startswith(group)), path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted: that needs the superuser's rights")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes, put the long groups first. What starts real processes gets a second try.

    Such a test can fail for what else the machine does; the summary lists every second try (`R`), and one
    that comes again is a defect. A test that only computes has one try.
    """
    for item in items:
        path = item.path.relative_to(HERE).as_posix()
        if path.startswith(REAL) or any(item.get_closest_marker(name) for name in ("spark", "kafka")):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if getattr(config, "workerinput", None) is not None:
        rank = {group: number for number, group in enumerate(LONG)}
        items.sort(key=lambda item: rank.get(group_of(item.path.relative_to(HERE).as_posix()), len(LONG)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why each second try was needed: a failure that is not told cannot be mended."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first try of {report.nodeid}", sep="-")
        terminalreporter.write_line(report.longreprtext[-4000:])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand tests to processes group by group, in the order above."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0].removeprefix(f"{HERE.name}/"))

    return Groups(config, log)
