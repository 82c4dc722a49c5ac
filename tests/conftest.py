"""Which tests share a process where they run in several (`make test` runs two).

What starts a cluster, a session or a broker is shared inside a group, so a group stays together. The long
ones begin first: the short ones fill what is left of the two processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent

LONG = (
    "spark_units/test_cluster_run.py",
    "spark/",
    "factory/",
    "spark_units/test_kafka_run.py",
    "channels/",
    "spark_units/",
)
"""Groups that start Java, by the beginning of their path, the longest first."""


def group_of(path: str) -> str:
    """The group of a test file, by its path below this folder."""
    return next((group for group in LONG if path.startswith(group)), path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name each test's group; in several processes also put the long groups first."""
    groups = {item: group_of(item.path.relative_to(HERE).as_posix()) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    if getattr(config, "workerinput", None) is not None:
        rank = {group: number for number, group in enumerate(LONG)}
        items.sort(key=lambda item: rank.get(groups[item], len(LONG)))
