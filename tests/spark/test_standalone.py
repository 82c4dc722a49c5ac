"""The standalone master: one that died or hangs is started again, and applications go on with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.fleet.deployment import HostState
from penstock.machine.processes import ProcessIdentity, wait_until
from penstock.providers.joining import Membership
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.managers.manager import Manager
from penstock.spark.settings import end_session, start_session

HUNG_AFTER_S = 4.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of its own: its master is killed, which the one that tests share must not be."""
    end_session()
    cluster = LocalCluster({"host-1": (4, 4096)}, folder=tmp_path)
    cluster.manager._hung_after_s = HUNG_AFTER_S
    try:
        yield cluster.start()
    finally:
        end_session()
        cluster.stop()


def has(control: ExecutorControl, number: int, timeout_s: float = 90.0) -> bool:
    """Whether there are so many executors in time; the target is said again meanwhile, as drivers do."""

    def look() -> bool:
        try:
            control.tick()
        except Exception:  # the application has not found its master again yet
            return False
        return len(control.executors()) == number

    return wait_until(look, timeout_s, poll_s=0.3)


def killed(pid: int) -> None:
    """Kill a process and wait for its end: a large one takes its time on a busy machine."""
    doomed = ProcessIdentity.of(pid)
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not doomed.alive, 30)


def hung(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.spark
def test_executors_survive_their_master_and_a_new_one_can_be_had_once_it_is_revived(
    cluster: LocalCluster,
) -> None:
    manager: Manager = cluster.manager
    spark = start_session("survivor", manager.master_url, log_level="OFF", settings=manager.settings())
    control, url = ExecutorControl(spark), manager.master_url
    control.set_target(1)
    assert has(control, 1)
    harms: list[Callable[[int], None]] = [killed, hung]
    for number, harm in enumerate(harms, 2):
        before = {executor.id for executor in control.executors()}
        assert not manager.revive(), "one that is well is left alone"
        harm(cluster.processes["master"].pid)
        assert wait_until(lambda: not manager.alive(), 60), harm
        assert manager.joined() is None
        assert cluster.hosts()["host-1"].state is HostState.UP, "nothing is known of it, so nothing changed"
        assert spark.range(1000).count() == 1000, "work goes on without a master"

        assert manager.revive()
        assert manager.master_url == url
        control.target = number
        assert has(control, number), harm
        assert before < {executor.id for executor in control.executors()}, "the old ones are there still"
        assert {place.host for place in cluster.executors()} == {"host-1"}
        assert cluster.hosts()["host-1"].state is HostState.UP
        assert [application.name for application in cluster.applications()] == ["survivor"]
        assert spark.range(1000).count() == 1000


@pytest.mark.spark
def test_a_host_that_died_together_with_its_master_is_lost_to_the_new_one_and_others_go_on(
    cluster: LocalCluster,
) -> None:
    cluster.add_host("host-2", 1, 600, wait=True)
    address = cluster.hosts()["host-2"].address
    killed(cluster.processes["master"].pid)
    cluster.kill_host("host-2")
    assert cluster.manager.revive()
    assert wait_until(lambda: cluster.hosts()["host-2"].state is HostState.FAILED, 10)
    # It is waited for as long as a recovery may take; then work is given out again.
    cluster.add_host("host-3", 1, 600)
    cluster.wait_for_hosts(["host-1", "host-3"], timeout_s=90)
    assert wait_until(lambda: cluster.master_state()["status"] == "ALIVE", 60)
    seen = (cluster.manager.joined() or {}).get(address)
    assert seen is None or seen.membership is Membership.LOST


@pytest.mark.spark
def test_a_cluster_whose_owner_and_master_died_is_adopted_with_a_new_master(tmp_path: Path) -> None:
    first = LocalCluster({"host-1": (1, 600)}, name=f"both-{tmp_path.name}", folder=tmp_path)
    second = LocalCluster(name=first.name, folder=tmp_path)
    try:
        first.start()
        worker, url = first.processes["host-1"].pid, first.master_url
        killed(first.processes["master"].pid)
        first._lock.release()  # as the end of its process does
        second.start()
        assert second.adopted
        assert second.master_url == url
        assert second.processes["host-1"].pid == worker
        assert wait_until(lambda: "127.0.0.11" in (second.manager.joined() or {}), 60)
        assert second.hosts()["host-1"].state is HostState.UP
    finally:
        second.stop()
        first.stop()


@pytest.mark.spark
def test_two_that_start_one_persistent_cluster_at_once_have_one_master(tmp_path: Path) -> None:
    options: dict[str, Any] = {"name": f"twice-{tmp_path.name}", "folder": tmp_path, "persistent": True}
    both = [LocalCluster(**options), LocalCluster(**options)]
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda cluster: cluster.start(), both))
        assert sorted(cluster.adopted for cluster in both) == [False, True]
        assert len({cluster.master_url for cluster in both}) == 1
        assert len({cluster.processes["master"].pid for cluster in both}) == 1
    finally:
        for cluster in both:
            cluster.stop()
    assert not (tmp_path / "master.json").exists()


@pytest.mark.spark
def test_what_a_master_writes_does_not_grow_while_it_works(cluster: LocalCluster) -> None:
    log = cluster.manager.log
    before = log.stat().st_size
    for number in range(3):
        cluster.add_host(f"more-{number}", 1, 600, wait=True)
        cluster.remove_host(f"more-{number}")
    grown = log.read_text(errors="replace")[before:]
    assert "INFO" not in grown
    assert len(grown) < 3000, grown
    assert sorted(path.name for path in (cluster.folder / "work").iterdir()) == ["host-1"]


@pytest.mark.spark
def test_what_an_executor_writes_is_kept_up_to_a_bound(cluster: LocalCluster) -> None:
    spark = start_session("writer", cluster.master_url, log_level="OFF", settings=cluster.manager.settings())
    control = ExecutorControl(spark)
    control.set_target(1)
    assert has(control, 1)

    def write(lines: Any) -> Any:
        import sys

        for _ in lines:
            sys.stderr.write(f"{'written ' * 127}\n" * 1024)
            yield 1

    assert spark.sparkContext.parallelize(range(4), 1).mapPartitions(write).count() == 4
    kept = list((cluster.folder / "work" / "host-1").glob("app-*/*/stderr*"))
    assert wait_until(lambda: len(list(kept[0].parent.glob("stderr*"))) == 4, 30), kept
    sizes = [file.stat().st_size for file in kept[0].parent.glob("stderr*")]
    assert sum(sizes) < 4 * 600 * 1024, "of four megabytes the newest are there"
