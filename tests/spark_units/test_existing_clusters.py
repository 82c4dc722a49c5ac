"""Clusters of somebody else's, in short: the quickstart on a standalone master, a job attached to on YARN.

`make clusters` does all of it at length, with a node lost, and Kubernetes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.clusters import campaign
from benchmarks.clusters.hadoop import daemon_jars
from benchmarks.clusters.kubernetes import build
from benchmarks.clusters.kubernetes.cluster import KubernetesCluster
from benchmarks.clusters.shop import final, sell
from benchmarks.clusters.standalone import StandaloneCluster
from benchmarks.clusters.yarn import YarnCluster

from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.spark.training import ensure_archive

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "PENSTOCK_CLUSTERS" not in os.environ,
        reason="starts whole clusters for minutes: set PENSTOCK_CLUSTERS=1, or use `make clusters`",
    ),
]


def test_the_quickstart_on_an_existing_standalone_master_gives_the_usual_results(tmp_path: Path) -> None:
    ensure_archive()
    with StandaloneCluster(tmp_path / "theirs", workers=1) as cluster:
        sold = sell(tmp_path / "shop", cluster.site(tmp_path), hold_s=3.0)
        assert cluster.remains() == []
    assert sold.records_in > 0
    assert sold.spent == expected(sold.records_in)


def test_the_quickstart_on_yarn_gives_the_usual_results(tmp_path: Path) -> None:
    need_hadoop()
    with YarnCluster(tmp_path / "yarn", nodes=1) as cluster:
        sold = sell(tmp_path / "shop", cluster.site(tmp_path), hold_s=3.0)
        assert wait_until(lambda: cluster.remains() == [], 30)
    assert sold.records_in > 0
    assert sold.spent == expected(sold.records_in)


def need_hadoop() -> None:
    """Skip where Hadoop's jars cannot be fetched."""
    try:
        daemon_jars()
    except ClusterError as error:
        pytest.skip(f"Hadoop's jars cannot be had: {error}")


def expected(orders: int) -> dict[str, tuple[int, float]]:
    """What the shop sells for, by arithmetic: `shop.price` over the numbers the feeder counts."""
    records, spent = [], dict[str, tuple[int, float]]()
    for number in range(orders):
        customer = f"customer-{number % 100}"
        count, money = spent.get(customer, (0, 0.0))
        spent[customer] = (count + 1, money + 1.0 + (number % 97) * 0.5)
        records.append({"customer": customer, "orders": count + 1, "spent": spent[customer][1]})
    return final(records)


SHORT = {"phases": ((1.0, 4.0), (4.0, 20.0), (1.0, 6.0)), "interval_s": 2.0, "most": 4}
"""The load of `make clusters`, in a fifth of its time."""


def followed(outcome: campaign.Outcome) -> None:
    """What must have come of a job that was attached to."""
    assert outcome.first == 1
    assert 2 <= outcome.most(4.0) <= 4
    assert outcome.last < outcome.most(4.0)
    assert outcome.killed is not None
    assert (outcome.missing, outcome.doubled) == (0, 0)
    assert outcome.written == outcome.out > 0
    assert outcome.remains == []


def test_an_attached_job_on_yarn_scales_through_a_killed_executor_and_loses_nothing(tmp_path: Path) -> None:
    need_hadoop()
    with YarnCluster(tmp_path / "yarn", nodes=1) as cluster:
        followed(campaign.run(cluster, "stream", tmp_path / "job", **SHORT))


def test_an_attached_job_on_kubernetes_scales_through_a_killed_pod_and_loses_nothing(tmp_path: Path) -> None:
    reason = build.unavailable()
    if reason is not None:
        pytest.skip(reason)
    with KubernetesCluster(tmp_path / "kube", nodes=1) as cluster:
        followed(campaign.run(cluster, "stream", tmp_path / "job", **SHORT))
