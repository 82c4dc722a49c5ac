"""The runs of two sites with a real broker between them: a unit goes from one to the other, nothing lost.

Each site has a watcher, a controller, a journal, a master and drivers of its own.
"""

from __future__ import annotations

import json
import os
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient

from penstock.api.app import create_app
from penstock.api.peers import Peers
from penstock.api.runs import Runs
from penstock.machine.processes import wait_until
from penstock.runs import commands
from penstock.spark.checkpoints import Checkpoint
from penstock.topology.model import Channel, Choice, HostFlavour, LoopSettings, Operator, Sink, Site, Unit

from ..channels.test_kafka import broker  # noqa: F401  (a real one, for these tests)
from ..runs.test_between_sites import Asked
from .conftest import a_topology
from .test_cluster_run import PATIENCE_S, RunInProcess, Trickle, results

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FIXED = Choice("fixed")


def a_site(name):
    flavour = HostFlavour("small", 2.0, 2048, Decimal("0.01"))
    return Site(name, Choice("local"), btu_s=5.0, flavours=(flavour,), max_hosts=1)


def a_chain(bootstrap):
    """A unit at each site, and one between them without state that may be at either."""
    columns = "number long, twice long"
    return a_topology(
        [
            Operator("doubled", ("numbers",), "functions:double", schema=columns),
            Operator("passed", ("doubled",), "sql:SELECT number, twice FROM {doubled}", schema=columns),
            Operator("kept", ("passed",), "sql:SELECT number FROM {passed}"),
        ],
        [Sink("out", ("kept",), "jsonl:out")],
        [
            Unit("open", ("doubled",), sites=("x",), policy=FIXED),
            Unit("roams", ("passed",), sites=("x", "y"), policy=FIXED),
            Unit("closed", ("kept",), sites=("y",), policy=FIXED),
        ],
        channels=(Channel("wan", "kafka", {"partitions": 2, "bootstrap": bootstrap}),),
        sites=(a_site("x"), a_site("y")),
        loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0),
    )


def test_a_unit_goes_from_one_sites_run_to_the_others_and_every_record_comes_out(broker, tmp_path):  # noqa: F811
    topology, name = a_chain(broker.record().bootstrap), f"apart-{os.getpid()}"
    runs, sites = {}, {}
    for site in ("x", "y"):
        runs[site] = Runs(tmp_path / site)
        headers = {"Authorization": f"Bearer {runs[site].token}"}
        Asked.clients[site] = TestClient(create_app(runs[site]), headers=headers)
        folder = tmp_path / site / "apart"
        folder.mkdir()
        sites[site] = RunInProcess(topology, folder, name, site=site)
    here, there = sites["x"], sites["y"]
    trickle = Trickle(here.folder, 10.0, unit="open")
    try:
        there.wait(lambda: len(results(there.folder)) > 0, "the first records came out")
        commands.put(here.place.commands, commands.Command("move-unit", "test", "roams", to="y"))
        left = wait_until(lambda: here.place.plan().places["roams"] == "y", 2 * PATIENCE_S, poll_s=0.5)
        assert left, here.status()
        count = len(results(there.folder))
        told = Peers(runs["y"], [Asked("x", "")]).ask()
        assert told == ["apart: unit roams is at site y, says revision 2 of site x"]
        there.wait(lambda: len(results(there.folder)) > count + 20, "records came out by the other run")
        written = trickle.stop()
        there.wait(lambda: len(set(results(there.folder))) >= written, "all records came out")
        # Kafka may bring a record twice: draining cuts a micro-batch off, which is then sent again.
        assert set(results(there.folder)) == {f"r{number:06d}" for number in range(written)}
        (note,) = here.place.plan().handed.values()
        began = there.place.units.checkpoint("roams") / "sources" / "0" / "0"
        assert json.loads(began.read_bytes().partition(b"\n")[2]).popitem()[1] == note.begin["doubled"]
        left = Checkpoint(here.place.units.earlier("roams") / "1" / "checkpoint")
        assert left.offsets(left.finished())[0].popitem()[1] == note.begin["doubled"]
        assert {unit.name for unit in here.status().units} == {"open"}
        assert {unit.name for unit in there.status().units} == {"roams", "closed"}
    finally:
        trickle.stop()
        for run in sites.values():
            run.stop()
