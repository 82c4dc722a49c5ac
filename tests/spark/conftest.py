"""One local cluster and one session for this package; all processes must be gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from penstock.machine.processes import TOKEN_VARIABLE
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.settings import end_session, start_session
from penstock.spark.training import ensure_archive


def bearers(tokens: set[str]) -> list[str]:
    """Command lines of living processes that carry one of the tokens."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN_VARIABLE) in tokens and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture(scope="package")
def local_cluster() -> Iterator[LocalCluster]:
    """A cluster of one host with four slots; tests may add hosts, and remove those they added."""
    ensure_archive()
    cluster = LocalCluster({"host-1": (4, 6144)})
    try:
        cluster.start()
        yield cluster
        tokens = {record.token for record in cluster.processes.values()}
    finally:
        cluster.stop()
    assert bearers(tokens) == [], "everything a cluster started is gone when it stops"


@pytest.fixture(scope="package")
def spark(local_cluster: LocalCluster) -> Iterator[Any]:
    """A session on the shared cluster that began with exactly one executor."""
    end_session()
    session = start_session("spark-tests", local_cluster.master_url, log_level="ERROR")
    yield session
    end_session()
