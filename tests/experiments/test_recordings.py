"""Recorded series: found where the user says, described where they are absent, and the rest is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.experiment import EXPERIMENTS
from penstock.cli.main import app
from penstock.errors import ConfigurationError
from penstock.experiments import pesp, rate
from penstock.experiments.btu import walks_played
from penstock.experiments.btu_runs import drawn_walks, patterns
from penstock.experiments.recordings import (
    CLICKS,
    TAXIS,
    VARIABLE,
    WALK_1,
    WALK_2,
    Recordings,
    find_recordings,
)
from penstock.experiments.taxi_rides import recorded_rides
from penstock.topology.model import Choice


def silent(_: str) -> None:
    """Progress nobody looks at."""


def test_the_named_folder_goes_before_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, of_environment = tmp_path / "named", tmp_path / "environment"
    named.mkdir()
    of_environment.mkdir()
    (of_environment / CLICKS.file).write_text("timestamp|value\n0|1\n1|2\n")
    monkeypatch.setenv(VARIABLE, str(of_environment))
    assert find_recordings().find(CLICKS) == of_environment / CLICKS.file
    # What the user names is all that is looked into.
    assert find_recordings(named).find(CLICKS) is None


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="--data"):
        find_recordings(tmp_path / "nowhere")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=VARIABLE):
        find_recordings()


@pytest.mark.parametrize(
    "recording", [r for e in EXPERIMENTS.values() for r in e.recordings], ids=lambda r: r.file
)
def test_an_absent_series_is_described(recording, tmp_path: Path) -> None:
    for recordings in (Recordings(None), Recordings(tmp_path)):
        said = recordings.absent(recording)
        assert said.startswith(f"{recording.file} is absent")
        assert recording.columns in said
        assert recording.origin in said


def test_published_walks_are_played_where_they_are_at_hand(tmp_path: Path) -> None:
    (tmp_path / WALK_1.file).write_text("minute,level\n0,2\n1,3\n")
    recordings = Recordings(tmp_path)
    found = patterns(recordings)
    assert found["random_walk_1"].name == "trace"
    assert found["random_walk_2"] == Choice("random_walk", {"seed": 2})
    assert list(drawn_walks(recordings)) == [WALK_2]
    assert "visp_random_walk_2.csv is absent, drawn by Eq. (6) with seed 2" in walks_played(recordings)
    assert patterns(Recordings(None))["random_walk_1"] == Choice("random_walk", {"seed": 1})


def test_a_recorded_day_with_other_columns_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / TAXIS.file
    path.write_text("1,7,2009-01-06T05:15:07,40.0,116.6,0,0\nhello,world\n")
    with pytest.raises(ConfigurationError, match=r"beijing_taxi_gps.csv:2: expected the columns .*bearing"):
        recorded_rides(path)


def test_without_the_recorded_day_rides_are_drawn_and_the_summary_says_so(tmp_path: Path) -> None:
    figures = pesp.run(1, tmp_path, silent, Recordings(None))
    assert figures[-1].name == f"left out: {TAXIS.file}"
    assert "drawn with seed" in str(figures[-1].here)
    assert figures[-1].name in [
        entry["name"] for entry in json.loads((tmp_path / "summary.json").read_text())
    ]
    assert f"{TAXIS.file} is absent" in (tmp_path / "verdict.txt").read_text()


def test_without_the_click_stream_the_step_load_is_still_played(tmp_path: Path) -> None:
    converged, missing = rate.run(1, tmp_path, silent, Recordings(None))
    assert converged.holds
    assert missing.name == f"left out: {CLICKS.file}"


def test_the_command_describes_what_is_absent_and_refuses_a_folder_nobody_needs(tmp_path: Path) -> None:
    run = CliRunner().invoke(
        app, ["experiment", "rate", "--seeds", "1", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert run.exit_code == 0, run.output
    assert f"{CLICKS.file} is absent: it is not in" in run.output
    assert "dos-group/demeter" in run.output
    refused = CliRunner().invoke(app, ["experiment", "budgets", "--data", str(tmp_path)])
    assert isinstance(refused.exception, ConfigurationError)
