"""A site's service and its run on a real local cluster, back after all of it died as in a power cut."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from penstock.api import client
from penstock.machine.processes import read_records, wait_until
from penstock.runs.folder import RunFolder
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Site

from .conftest import HERE, one_operator
from .test_cluster_run import FAST_START, PATIENCE_S, results

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(500)]

TOPOLOGY = replace(
    one_operator(),
    sites=(
        Site(
            "here",
            Choice("local"),
            flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
            max_hosts=1,
            settings={"spark.executor.extraJavaOptions": FAST_START},
        ),
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0),
)


def power_cut(site: Path, run: str) -> None:
    """Kill the service and everything of its run at once, as the end of the machine would."""
    name = RunFolder(site / run).plan().name
    doomed = [record.pid for record in read_records() if record.group.startswith(name) and record.alive]
    named = {p.pid: " ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])}
    doomed += [pid for pid, command in named.items() if str(site) in command]
    for pid in dict.fromkeys(doomed):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for each in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    each.kill()


def test_a_service_and_its_run_come_back_after_a_power_cut(tmp_path: Path) -> None:
    site = tmp_path / "edge"
    folder = site / "numbers"
    try:
        service, _ = client.start(site, "127.0.0.1", 0)
        service.post("/runs", {"name": "numbers", "topology": dump_topology(TOPOLOGY), "code": str(HERE)})
        assert wait_until(lambda: len(results(folder)) > 0, PATIENCE_S), "records came out"
        power_cut(site, "numbers")
        before = len(results(folder))
        assert not service.answers()

        service, started = client.start(site, "127.0.0.1", 0)
        assert started
        assert "taken up again: numbers" in (site / client.LOG_FILE).read_text()
        assert wait_until(lambda: len(results(folder)) > before + 40, PATIENCE_S), "records came out again"
        service.post("/runs/numbers/commands", {"kind": "finish", "reason": "test"})
        assert wait_until(lambda: RunFolder(folder).result() is not None, PATIENCE_S), "it ended in order"
        found = results(folder)
        result = RunFolder(folder).result()
        assert result is not None
        assert len(found) == len(set(found)) == result.records_in
    finally:
        client.stop(site)
        power_cut(site, "numbers")
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
