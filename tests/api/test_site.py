"""The service of a site in the background: started, found, asked, ended; and back after it was killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.api import client
from penstock.cli.main import app
from penstock.controller.status import Status
from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.processes import wait_until
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.file import dump_topology
from tests.runs.test_changes import a_pair


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """The folder of a site with one run that somebody runs."""
    place = RunFolder.at(tmp_path / "edge" / "shop")
    place.write_plan(RunPlan.of(a_pair(), "shop"))
    asks = ("unit second does not stay up",)
    place.write_status(Status("shop", 1.0, (), (), "0.068333333347", "EUR", phase="running", asks=asks))
    place.log.write_text("it began\nit ended\n")
    with place.lock():
        yield tmp_path / "edge"
    client.stop(tmp_path / "edge")


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
