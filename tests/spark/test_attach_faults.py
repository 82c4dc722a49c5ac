"""What goes wrong beside an attached job is told, waited out, and never reaches the job."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

import penstock
from penstock.controller import Journal
from penstock.controller.journal import database
from penstock.fleet.actions import Action
from penstock.machine.processes import wait_until
from penstock.policies.registry import POLICIES
from penstock.policies.view import View
from penstock.spark.gateway.executors import ExecutorControl
from tests.controller.test_journal_away import locked

pytestmark = pytest.mark.spark


@pytest.fixture
def attached(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Attaches to the session, whose one executor is kept, and stops that afterwards."""
    with ExitStack() as stack:

        def attach(**options: Any) -> Any:
            given = {"policy": "fixed", "max_instances": 1, "interval": "500 ms", **options}
            handle = penstock.attach(spark, journal=tmp_path / "journal.db", **given)
            stack.callback(handle.stop, 60.0)
            return handle

        yield attach


def runs(handle: Any) -> bool:
    return bool(handle.running and handle.status().phase == "running")


def test_a_journal_that_is_locked_at_first_is_waited_for_and_executors_are_kept_meanwhile(
    spark: Any, attached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.2)
    control = ExecutorControl(spark)
    assert wait_until(lambda: len(control.executors()) == 1, 60)
    control.set_target(0)  # as where Spark's own manager was stopped before it had asked for any
    with locked(tmp_path / "journal.db"):
        handle = attached()
        assert wait_until(lambda: handle.status().problem is not None, 30)
        assert "nothing is decided until there is a journal" in handle.status().problem
        assert "database is locked" in handle.status().problem
        (first,) = control.executors()
        os.kill(pid_of(first.id, spark), signal.SIGKILL)
        assert wait_until(lambda: [e.id for e in control.executors()] not in ([first.id], []), 120), (
            "it is replaced: the number that was taken over stands"
        )
        assert (handle.running, handle.status().phase) == (True, "starting")
    assert wait_until(lambda: runs(handle), 30), handle.status()
    assert handle.status().problem is None
    handle.stop(60.0)
    with Journal(tmp_path / "journal.db", run="spark-tests") as record:
        assert record.rows("tick")
        assert any("until there is a journal" in row["text"] for row in record.rows("notice"))


def pid_of(executor: str, spark: Any) -> int:
    wanted = {"--executor-id", executor, "--app-id", spark.sparkContext.applicationId}
    (found,) = (p.pid for p in psutil.process_iter(["cmdline"]) if wanted <= set(p.info["cmdline"] or ()))
    return int(found)


def test_a_journal_that_is_locked_for_a_while_ends_nothing_and_at_the_end_it_is_told(
    attached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.2)
    handle = attached(advise_only=True)
    assert wait_until(lambda: runs(handle), 60), handle.status()
    with locked(tmp_path / "journal.db"):
        at_s = handle.status().at_s
        assert wait_until(lambda: handle.status().at_s > at_s + 3.0, 60), "it goes on observing"
        assert runs(handle)
        handle.stop(60.0)
        assert not handle.running
        assert "not all that happened is on record" in str(handle.status().problem)
        assert "database is locked" in str(handle.status().problem)


def test_a_port_that_is_taken_ends_nothing_and_is_told(spark: Any, attached: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        handle = attached(metrics=port)
        assert wait_until(lambda: runs(handle), 60), handle.status()
    status = handle.status()
    assert f"no metrics are served: cannot listen at 127.0.0.1:{port}" in status.reason
    assert (status.acting, status.metrics, status.problem) == (True, "", None)
    assert spark.range(100).count() == 100


@dataclass(frozen=True)
class Broken:
    """A policy with a defect."""

    name: ClassVar[str] = "broken"

    def decide(self, view: View) -> tuple[Action, ...]:
        """Fail."""
        raise ZeroDivisionError("a defect of this policy")


class Heard(penstock.Listener):
    """Writes down the end."""

    problem: str | None = None

    def on_end(self, status: Any) -> None:
        self.problem = status.problem


def test_a_policy_that_raises_ends_the_loop_alone_and_is_told(
    spark: Any, attached: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(POLICIES._kinds, Broken.name, Broken)
    heard = Heard()
    handle = attached(policy="broken", listeners=[heard])
    assert wait_until(lambda: not handle.running, 60)
    assert handle.status().phase == "ended"
    assert handle.status().problem == heard.problem == "ZeroDivisionError: a defect of this policy"
    assert "the job goes on with the executors it has" in caplog.text
    assert spark.range(100).count() == 100
