"""The local cluster: hosts join, leave, die and are found again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from penstock.errors import ClusterError
from penstock.fleet.deployment import HostState
from penstock.machine.locks import Lock, LockHeldError
from penstock.machine.processes import wait_until
from penstock.spark.managers.local_cluster import LocalCluster
from tests.spark.conftest import bearers


@pytest.mark.spark
def test_a_host_joins_once_with_its_own_address_and_leaves_again(local_cluster: LocalCluster) -> None:
    first = local_cluster.add_host("extra", 1, 600)
    again = local_cluster.add_host("extra", 1, 600)
    assert first.state == HostState.STARTING
    assert again.requested_s == first.requested_s, "asking again changes nothing"
    local_cluster.wait_for_hosts(["extra"], timeout_s=120)

    hosts = local_cluster.hosts()
    assert (hosts["extra"].state, hosts["extra"].cores, hosts["extra"].memory_mib) == (HostState.UP, 1, 600)
    assert len({host.address for host in hosts.values()}) == len(hosts)
    assert local_cluster.host_at(hosts["extra"].address) == "extra"
    workers = [w for w in local_cluster.master_state()["workers"] if w["host"] == hosts["extra"].address]
    assert [(w["cores"], w["memory"]) for w in workers] == [(1, 600)]

    local_cluster.remove_host("extra")
    local_cluster.remove_host("extra")
    assert "extra" not in local_cluster.hosts()
    assert "extra" not in local_cluster.processes
    assert not (local_cluster.folder / "work" / "extra").exists(), "a host's disk goes with it"


@pytest.mark.spark
def test_a_host_waits_for_its_start_delay_and_may_be_given_back_meanwhile(
    local_cluster: LocalCluster,
) -> None:
    local_cluster.start_delay_s = 600.0
    try:
        assert local_cluster.add_host("slow").state == HostState.STARTING
        assert "slow" not in local_cluster.processes, "its worker has not begun to start"
        local_cluster.remove_host("slow")
        assert "slow" not in local_cluster.hosts()
    finally:
        local_cluster.start_delay_s = 0.0


@pytest.mark.spark
def test_a_host_that_dies_has_failed_and_can_be_started_anew(local_cluster: LocalCluster) -> None:
    local_cluster.add_host("fragile", 1, 600)
    os.kill(local_cluster.processes["fragile"].pid, signal.SIGKILL)
    assert wait_until(lambda: local_cluster.hosts()["fragile"].state == HostState.FAILED, 10)
    with pytest.raises(ClusterError, match="host fragile died"):
        local_cluster.wait_for_hosts(["fragile"])
    assert local_cluster.add_host("fragile", 1, 600).state == HostState.STARTING
    local_cluster.remove_host("fragile")


@pytest.mark.spark
def test_a_worker_that_hangs_has_failed_once_its_master_calls_it_dead(local_cluster: LocalCluster) -> None:
    host = local_cluster.add_host("hung", 1, 600)
    local_cluster.wait_for_hosts(["hung"], timeout_s=120)
    pid = local_cluster.processes["hung"].pid
    os.kill(pid, signal.SIGSTOP)
    # The master waits 20 s for a heartbeat and looks as often.
    assert wait_until(lambda: local_cluster.hosts()["hung"].state == HostState.FAILED, 90)
    failed = local_cluster.hosts()["hung"]
    assert failed.address == host.address
    assert failed.problem is not None
    assert "was lost" in failed.problem
    assert psutil.pid_exists(pid), "its process lives"
    local_cluster.remove_host("hung")
    assert not psutil.pid_exists(pid)


@pytest.mark.spark
def test_a_worker_that_cannot_start_is_an_error_with_the_reason(local_cluster: LocalCluster) -> None:
    in_the_way = local_cluster.folder / "work" / "homeless"
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("a worker cannot have its folder here")
    local_cluster.add_host("homeless", 1, 600)
    with pytest.raises(ClusterError, match=r"host homeless could not be started: .*File exists"):
        local_cluster.wait_for_hosts(["homeless"], timeout_s=60)
    local_cluster.remove_host("homeless")


@pytest.mark.parametrize(
    ("host", "cores", "memory_mib", "message"),
    [("../host", 1, 600, "host id"), ("host", 0, 600, "at least one core"), ("host", 1, 0, "MiB of memory")],
)
def test_a_host_that_makes_no_sense_is_refused(
    tmp_path: Path, host: str, cores: int, memory_mib: int, message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        LocalCluster(folder=tmp_path).add_host(host, cores, memory_mib)


def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is taken"):
            LocalCluster(port=port, folder=tmp_path).start()


@pytest.mark.parametrize("name", ["../away", ".."])
def test_a_name_that_leaves_the_folder_of_clusters_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="without `/`"):
        LocalCluster(name=name, persistent=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "lots"], "lots"),
        (["--start-delay", "soon"], "soon"),
        (["--port", "TAKEN"], "is taken"),
        (["--name", "a/b"], "without `/`"),
    ],
)
def test_the_command_line_looks_at_its_options_before_it_makes_the_class_archive(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from penstock.cli.cluster import app
    from penstock.spark import training

    def too_early() -> bool:
        raise AssertionError("the archive is made although an option is wrong")

    monkeypatch.setattr(training, "ensure_archive", too_early)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        found = CliRunner().invoke(app, ["up", *[port if a == "TAKEN" else a for a in arguments]])
    assert found.exit_code == 1, found.output
    assert message in found.output


def test_a_cluster_in_use_by_another_owner_is_neither_taken_over_nor_stopped(tmp_path: Path) -> None:
    with Lock(tmp_path / "cluster.lock", "the cluster busy"):
        second = LocalCluster(name="busy", folder=tmp_path)
        (tmp_path / "master.json").write_text("{}")
        with (
            pytest.raises(LockHeldError, match=f"the cluster busy is in use by process {os.getpid()}"),
            second,
        ):
            pass
        second.stop()
        assert (tmp_path / "master.json").exists(), "what belongs to the owner stays"


OWNER = """
import sys
from penstock.spark.managers.local_cluster import LocalCluster
cluster = LocalCluster(name=sys.argv[1], folder=__import__("pathlib").Path(sys.argv[2])).start()
print(*[record.token for record in cluster.processes.values()], flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_cluster_whose_owner_was_killed_is_adopted_by_the_next_one(tmp_path: Path) -> None:
    name = f"crash-{tmp_path.name}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, name, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    tokens = set(owner.stdout.readline().split())
    owner.kill()
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    assert len(bearers(tokens)) == 1, "the master goes on without its owner"

    heir = LocalCluster(name=name, folder=tmp_path).start()
    assert heir.alive()
    assert heir.master_state()["status"] == "ALIVE"
    assert {record.token for record in heir.processes.values()} == tokens

    heir.stop()
    assert bearers(tokens) == []


@pytest.mark.spark
def test_the_command_line_brings_a_cluster_up_shows_it_and_takes_it_down(tmp_path: Path) -> None:
    from penstock.cli.cluster import app

    name = f"cli-{tmp_path.name}"
    runner = CliRunner()
    up = runner.invoke(app, ["up", "--name", name, "--hosts", "1", "--cores", "1", "--memory", "600 MiB"])
    try:
        assert up.exit_code == 0, up.output
        assert re.search(r"spark://127\.0\.0\.1:\d+", up.output)
        tokens = {record.token for record in LocalCluster.open(name).processes.values()}
        assert len(bearers(tokens)) == 2
        status = runner.invoke(app, ["status", "--name", name])
        assert "host-1" in status.output
        assert "up" in status.output
    finally:
        down = runner.invoke(app, ["down", "--name", name])
    assert down.exit_code == 0, down.output
    assert bearers(tokens) == []
    gone = runner.invoke(app, ["status", "--name", name])
    assert gone.exit_code == 1
    assert "no cluster" in gone.output
