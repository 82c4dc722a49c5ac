"""The service of a site in the background: started, found, asked, ended; and back after it was killed."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from penstock.api import client
from penstock.cli.main import app
from penstock.controller.status import HostStatus, Status
from penstock.errors import ClusterError, ConfigurationError
from penstock.fleet.deployment import HostState
from penstock.machine.processes import wait_until
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.file import dump_topology, parse_topology
from tests.runs.test_changes import a_pair, with_operator


class Controller(Thread):
    """Obeys as a run does at its ticks: notes what it is told, and goes on with the next version."""

    def __init__(self, place: RunFolder) -> None:
        super().__init__(daemon=True)
        self.place, self.ended = place, Event()
        self.told: list[commands.Command] = []

    def run(self) -> None:
        while not self.ended.wait(0.05):
            for command in commands.taken(self.place.commands, pytest.fail):
                self.told.append(command)
                if command.kind == commands.APPLY:
                    plan = self.place.plan()
                    self.place.write_plan(plan.changed(parse_topology(str(command.topology)), ()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """The folder of a site with one run that somebody runs."""
    place = RunFolder.at(tmp_path / "edge" / "shop")
    place.write_plan(RunPlan.of(a_pair(), "shop"))
    asks = ("unit second does not stay up",)
    host = HostStatus("h1", "c", "m", HostState.UP)
    place.write_status(Status("shop", 1.0, (), (host,), "0.068333333347", "EUR", phase="running", asks=asks))
    place.log.write_text("it began\nit ended\n")
    with place.lock():
        yield tmp_path / "edge"
        client.stop(tmp_path / "edge")  # before somebody has to run it


def penstock(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_site_is_brought_up_looked_at_and_taken_down(site: Path) -> None:
    code, told = penstock("up", str(site))
    assert (code, "is up: http://127.0.0.1:" in told) == (0, True), told
    assert "was up already" in penstock("up", str(site))[1]
    code, told = penstock("status", str(site))
    assert (code, "shop" in told, "running" in told) == (0, True, True), told
    assert "0.06833 " in told, "a bill as people write it"
    assert "shop: a person is asked: unit second does not stay up" in told
    assert "it ended" in penstock("logs", str(site), "shop", "--lines", "1")[1]
    assert "it began" not in penstock("logs", str(site), "shop", "--lines", "1")[1]
    service = client.service_at(site)
    with pytest.raises(ConfigurationError, match="no unit elsewhere"):
        service.get("/runs/shop/log", unit="elsewhere")
    with pytest.raises(ConfigurationError, match="there is no run none"):
        service.post("/runs/none/commands", {"kind": "stop"})
    with pytest.raises(ConfigurationError, match="this needs the service's token"):
        client.Service(service.url, "wrong").get("/runs")
    code, told = penstock("down", str(site), "--keep-runs")
    assert (code, "is down" in told) == (0, True), told
    assert not (site / client.SERVICE_FILE).exists()
    assert penstock("status", str(site))[0] == 1


def test_a_folder_has_one_service(site: Path) -> None:
    client.start(site, "127.0.0.1", 0)
    with pytest.raises(ClusterError), client.made_known(site, "http://127.0.0.1:1"):
        pass


def test_a_service_that_was_killed_is_found_dead_and_started_anew(site: Path) -> None:
    first, _ = client.start(site, "127.0.0.1", 0)
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(first.process.pid, 0)
    assert wait_until(lambda: first.process is None or not first.process.alive, 10.0)
    with pytest.raises(ClusterError, match="does not answer"):
        first.get("/runs")

    second, started = client.start(site, "127.0.0.1", 0)
    assert started
    assert second.answers()
    assert dump_topology(a_pair()) in second.get("/runs/shop/topology")["text"]


def test_a_run_of_a_site_elsewhere_is_changed_and_told_by_command(site: Path, tmp_path: Path) -> None:
    service, _ = client.start(site, "127.0.0.1", 0)
    there = tmp_path / "sites" / "edge"
    there.mkdir(parents=True)
    (there / client.SERVICE_FILE).write_text(json.dumps({"url": service.url}))
    (there / "token").write_text(service.token)
    controller, run, file = Controller(RunFolder(site / "shop")), str(there / "shop"), tmp_path / "new.yaml"
    file.write_text(dump_topology(with_operator(a_pair(), "read", function="f:new")))

    code, told = penstock("apply", run, str(file), "--plan")
    assert (code, "started again, keeping their state: first" in told) == (0, True), told
    controller.start()
    code, told = penstock("apply", run, str(file), "--reason", "better")
    assert (code, "done: revision 2 runs" in told) == (0, True), told
    code, told = penstock("apply", run, str(file), "--revision", "1")
    assert (code, "nothing changes" in told) == (0, True), told
    file.write_text(dump_topology(with_operator(a_pair(), "count", stateful=False)))
    code, told = penstock("apply", run, str(file))
    assert (code, "given up: state of operator count" in told) == (1, True), told
    assert penstock("tell", run, "drain", "h1", "--reason", "old")[0] == 0
    assert penstock("tell", run, "explode")[0] == 1
    assert wait_until(lambda: len(controller.told) == 2, 10.0)
    controller.ended.set()
    controller.join()
    who = f"{getpass.getuser()}, over the API"
    assert [(c.kind, c.subject, c.reason, c.by) for c in controller.told] == [
        ("apply", None, "better", who),
        ("drain", "h1", "old", who),
    ]
    assert not (there / "shop").exists()
