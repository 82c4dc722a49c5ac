"""What does not stay up is left to a person in the end: told once, in the status, tried when told so."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ClusterError
from penstock.fleet.units import UnitState
from penstock.page.shown import Shown
from penstock.report.terminal import headline_of, line_of
from penstock.runs import commands
from penstock.runs.clusters import Clusters
from penstock.runs.commands import Command
from penstock.topology.model import Choice
from tests.builders import a_site, a_topology
from tests.runs.controllers import a_java
from tests.runs.test_changes import a_pair
from tests.runs.test_killed_amid_changes import Bomb, Stage, bomb  # noqa: F401


def noticed(stage: Stage, words: str) -> list[str]:
    """What was said of something."""
    return [row["text"] for row in stage.run.journal.rows("notice") if words in row["text"]]


def test_a_unit_that_does_not_stay_up_is_left_to_a_person_and_the_others_go_on(
    tmp_path: Path,
    bomb: Bomb,  # noqa: F811
) -> None:
    stage = Stage(tmp_path / "run", a_pair(), bomb)
    for _ in range(1000):
        stage.world.drivers.pop("second", None)
        stage.turn()
    status = stage.place.status()
    assert status is not None
    assert status.asks == ("unit second does not stay up",)
    for shown in (headline_of(status, status.at_s), line_of(status), str(status)):
        assert "a person is asked: unit second does not stay up" in shown
    told = Shown(stage.place.root).status()
    assert told is not None
    assert told["asks"] == list(status.asks), "the page shows them"
    assert [unit.state for unit in status.units] == [UnitState.RUNNING, UnitState.DOWN]
    assert [text.partition("(")[0] for text in noticed(stage, "unit second went down")] == [
        "unit second went down ",
        "unit second went down 21 times in a row ",
    ]

    commands.put(stage.place.commands, Command("resume", "it was repaired"))
    for _ in range(5):
        stage.turn()
    status = stage.place.status()
    assert status is not None
    assert status.asks == ()
    assert stage.all_run()


def test_a_master_that_never_comes_up_is_tried_after_growing_pauses_until_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_JAVA", str(a_java(tmp_path / "java")))
    topology = a_topology(sites=[replace(a_site("here"), provider=Choice("local"))])
    clusters = Clusters(topology, {"a": "here"}, f"run-{os.getpid()}", tmp_path / "run")
    try:
        with pytest.raises(ClusterError, match="did not start"):
            clusters.open(["here"])
        told = [notice for second in range(600) for notice in clusters.watch(float(second))]
    finally:
        clusters.stop()

    died, asked = told
    assert died == "the Spark master died or hung; it is started again"
    assert "the Spark master was started 20 times and did not stay up; a person is asked" in asked
    assert sum("cannot be started again now" in record.message for record in caplog.records) == 20
    assert clusters.asks == ("the Spark master does not stay up",)
