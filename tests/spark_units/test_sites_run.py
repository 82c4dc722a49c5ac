"""Two sites of one run on a real local cluster: each has its own master, and a unit is at one of them."""

from __future__ import annotations

import os
from decimal import Decimal

import pytest

from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Sink, Site, Unit

from .conftest import a_topology
from .test_cluster_run import PATIENCE_S, RunInProcess, Trickle, results

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def a_site(name: str, price: str) -> Site:
    flavour = HostFlavour("small", 1.0, 1024, Decimal(price))
    return Site(name, Choice("local"), btu_s=5.0, flavours=(flavour,), max_hosts=2)


TOPOLOGY = a_topology(
    [
        Operator("doubled", ("numbers",), "functions:double", schema="number long, twice long"),
        Operator("kept", ("doubled",), "functions:double"),
    ],
    [Sink("out", ("kept",), "jsonl:out")],
    [
        Unit("open", ("doubled",), policy=Choice("fixed"), max_instances=1),
        Unit("closed", ("kept",), sites=("private",), policy=Choice("fixed"), max_instances=1),
    ],
    sites=(a_site("cloud", "0.01"), a_site("private", "0.02")),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    started = RunInProcess(TOPOLOGY, folder, f"sites-{os.getpid()}")
    started.trickle = Trickle(folder, 5.0, unit="open")
    try:
        started.wait(lambda: len(results(folder)) > 0, "the first records came out")
        yield started
    finally:
        started.trickle.stop()
        started.stop()


def places(run):
    """The addresses of every unit's executors, as the master of each site tells."""
    found = {}
    for site in ("cloud", "private"):
        master = run.folder / "clusters" / site
        cluster = LocalCluster(name=f"{run.name}.{site}", folder=master)
        cluster.manager.adopt()
        try:
            names = {application.id: application.name for application in cluster.applications()}
        except ClusterError:
            return {}  # it is asked again
        for place in cluster.manager.places():
            unit = names.get(place.application, "?").rpartition("/")[2]
            found.setdefault(unit, set()).add((site, place.address.rpartition(".")[0]))
    return found


def test_each_unit_runs_at_its_own_site_and_nowhere_else(run):
    assert RunFolder(run.folder).plan().places == {"open": "cloud", "closed": "private"}
    wanted = {"open": {("cloud", "127.0.0")}, "closed": {("private", "127.0.1")}}
    run.wait(lambda: places(run) == wanted, "each unit was at its site")
    assert {unit.name: unit.site for unit in run.status().units} == {"open": "cloud", "closed": "private"}


def test_a_unit_does_not_go_where_it_may_not_be(run):
    commands.put(run.place.commands, commands.Command("move-unit", "test", "closed", to="cloud"))
    run.wait(
        lambda: any("may be at private, not at cloud" in notice for notice in run.status().notices),
        "the move was refused",
    )


def test_a_unit_is_moved_to_another_site_by_command_and_nothing_is_lost(run):
    commands.put(run.place.commands, commands.Command("move-unit", "test", "open", to="private"))
    # The next driver is made ready, then the unit drains: on a busy machine each takes a minute.
    moved = wait_until(lambda: run.place.plan().places["open"] == "private", 2 * PATIENCE_S, poll_s=0.5)
    assert moved, run.status()
    count = len(results(run.folder))
    run.wait(lambda: len(results(run.folder)) > count + 20, "records came out at the other site")
    wanted = {"open": {("private", "127.0.1")}, "closed": {("private", "127.0.1")}}
    run.wait(lambda: places(run) == wanted, "both were at the one site, and nothing was left at the other")
    run.wait(
        lambda: {host.site for host in run.status().hosts} == {"private"}, "the cloud's host was given back"
    )
    written = run.trickle.stop()
    run.wait(lambda: len(results(run.folder)) >= written, "all records came out")
    assert sorted(results(run.folder)) == [f"r{number:06d}" for number in range(written)]
