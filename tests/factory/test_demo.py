"""The factory on a real local cluster: killed executors and hosts change nothing about the results."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("PIL")
pytest.importorskip("rapidocr_onnxruntime")
pytest.importorskip("fpdf")

from factory.demo import load_of, run_factory, topology_of

from factory import demo, feed, inbox
from penstock.errors import ConfigurationError
from penstock.fleet.deployment import HostState
from penstock.runs.run import Run

DURATION_S = 16.0


@pytest.fixture(autouse=True)
def _own_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's inbox variable is put back afterwards."""
    monkeypatch.setenv(inbox.FOLDER_VARIABLE, "")


def test_the_demo_has_two_units_or_one_for_each_operator() -> None:
    load = load_of([2, 4], 60.0, 0.5, seed=1)

    usual = topology_of(load)
    single = topology_of(load, single=True)

    assert [unit.name for unit in usual.units] == ["read", "analyse"]
    assert {unit.operators for unit in single.units} == {(operator.name,) for operator in usual.operators}
    assert {unit.policy for unit in single.units} == {usual.units[0].policy}


def test_the_simulated_load_is_the_one_the_feed_emits() -> None:
    load = load_of([2, 4, 2], 90.0, 0.5, seed=1)
    workload = topology_of(load).source_by_name["production"].workload

    emitted = sum(1 for _ in feed.emissions(load))
    expected = sum(workload.parameters["levels_per_s"]) * workload.parameters["hold_s"]
    assert emitted == pytest.approx(expected, rel=0.02)


def test_another_policy_and_channel_can_be_chosen() -> None:
    load = load_of([2], 60.0, 0.5, seed=1)

    topology = topology_of(load, policy="threshold", channel="kafka")

    assert {unit.policy.name for unit in topology.units} == {"threshold"}
    assert [channel.kind for channel in topology.channels] == ["kafka"]


@pytest.mark.parametrize("machines", ["", "two", "3,0", "4;2"])
def test_machines_that_are_no_numbers_are_refused(machines: str) -> None:
    with pytest.raises(ConfigurationError, match="numbers of machines"):
        demo._levels(machines)


class Killer:
    """Kills one executor, later the worker of one host, each once, in the middle of the feed."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    def __call__(self, run: Run, tick: Any) -> None:
        started_s = run.feed.started_s
        if started_s is None:
            return
        since_s = tick.at_s - started_s
        if since_s > 0.2 * DURATION_S and "executor" not in self.killed:
            self._once("executor", lambda: self._kill_executor(run))
        elif since_s > 0.5 * DURATION_S and "host" not in self.killed:
            self._once("host", lambda: self._kill_host(run))

    def _once(self, what: str, kill: Callable[[], bool]) -> None:
        if kill():
            self.killed.append(what)

    def _kill_executor(self, run: Run) -> bool:
        for record in run.clusters.only.processes.values():
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(record.pid).children(recursive=True):
                    if child.status() == psutil.STATUS_ZOMBIE:
                        continue
                    if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                        os.kill(child.pid, signal.SIGKILL)
                        return True
        return False

    def _kill_host(self, run: Run) -> bool:
        for host in run.clusters.only.hosts().values():
            if host.state is HostState.UP:
                run.clusters.only.kill_host(host.id)
                return True
        return False


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killing_an_executor_and_a_host_midway_changes_no_count(tmp_path: Path) -> None:
    load = load_of([2, 3], DURATION_S, 0.1, seed=3)
    killer = Killer()

    outcome = run_factory(topology_of(load), load, tmp_path / "run", watch=killer, drain_s=240.0)

    assert killer.killed == ["executor", "host"]
    assert outcome.reconciliation.rows[0][1] == sum(1 for _ in feed.emissions(load))
    assert outcome.reconciliation.complete, outcome.reconciliation.rows
    assert outcome.reconciliation.wrong == 0
    told = outcome.page.read_text()
    assert "It could have cost" in told  # beside what it did cost, on the first screen
    assert "Kept: " in told or "Missed by " in told
