"""Table III in small: what is played, and how it is reckoned; the runs on Spark themselves take minutes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.channels.batches import publish
from penstock.cli.main import app
from penstock.errors import ConfigurationError
from penstock.experiments import pesp_rig, pesp_spark
from penstock.experiments.pesp_spark import PLAY_S, SLA_S, Small
from penstock.experiments.recordings import VARIABLE, Recordings, find_recordings
from penstock.experiments.taxi_rides import BIN_S, REPLAY_S, RIDES, Rides, drawn_rides
from penstock.runs.part import here
from penstock.runs.run import require_runnable
from penstock.topology.model import Choice

DRAWN = drawn_rides(3)
EBBING = Rides(
    tuple(REPLAY_S * (n + 1) / RIDES for n in range(RIDES)),
    tuple(reversed(range(1, int(REPLAY_S / BIN_S) + 1))),
    "rides that end evenly while positions become fewer",
)


def test_nodes_are_counted_while_they_are_there() -> None:
    rows = [
        {"unit": "a", "at_s": 0.0, "instances": 2},
        {"unit": "a", "at_s": 30.0, "instances": 4},
        {"unit": "b", "at_s": 0.0, "instances": 1},
    ]
    # a: 2 × 20 s + 4 × 30 s, b: 1 × 50 s, of the time from 10 s to 60 s
    assert pesp_spark.node_minutes(rows, 10.0, 60.0) == pytest.approx((40 + 120 + 50) / 60)


def test_the_simulator_tells_the_setups_apart_as_the_paper_does() -> None:
    found = {setup: pesp_spark.simulated(DRAWN, setup) for setup in ("elastic", "over", "under")}
    assert found["under"].node_minutes < found["over"].node_minutes
    assert found["under"].report_s > found["over"].report_s
    figures = pesp_spark.figures_of({setup: [one, one] for setup, one in found.items()})
    assert {figure.paper for figure in figures[:2]} == {18.9, 4.6}


def test_each_unit_is_at_a_site_of_its_own() -> None:
    topology = pesp_spark.small_topology(DRAWN, "over", Choice("local"))
    assert {unit.name: unit.sites for unit in topology.units} == {"speed": ("cloud",), "report": ("private",)}
    assert topology.unit_by_name["speed"].min_instances == 4


def test_reports_are_as_late_as_their_files_say(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    file = tmp_path / "part.json"
    file.write_text(json.dumps({"ride": 7, "source_time": "2026-01-01T00:00:00.000000+00:00"}) + "\n")
    sent_s = 1767225600.0
    os.utime(file, (sent_s + 4, sent_s + 4))
    publish(tmp_path / "staging", [file], 1, [folder], 0)
    assert pesp_spark.written_reports(folder) == [(7, sent_s, sent_s + 4)]


def test_adherence_counts_rides_within_their_time() -> None:
    assert Small("over", "spark", 1.0, 1.0, SLA_S, 15, RIDES).row()["adherence (%)"] == pytest.approx(80.0)


@pytest.mark.parametrize("rides", [DRAWN, EBBING])
def test_every_ride_ends_once_whatever_the_batches(rides: Rides, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.syspath_prepend(str(pesp_spark.CODE))
    from cabs import small

    monkeypatch.setattr(small, "rides_at_hand", lambda _: (rides, {}))
    made, found, due = small.positions("taxis"), [], 0.0
    for second in range(int(PLAY_S)):
        due += pesp_spark.small_levels(rides)[int(second / pesp_spark.HOLD_S)]
        found += made(0, second + np.linspace(0.0, 0.95, int(due)))
        due -= int(due)
    assert [record["ride"] for record in found if record["last"]] == list(range(RIDES))


def test_what_is_sent_is_made_of_the_recordings_that_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    named = tmp_path / "named"
    named.mkdir()
    seen = []

    def played(*_: object) -> Small:
        seen.append(find_recordings().folder)  # as the process that makes the records looks for them
        return Small("over", "spark", 1.0, 1.0, 1.0, 0, RIDES)

    monkeypatch.setattr(pesp_spark, "on_spark", played)
    monkeypatch.setattr(pesp_spark, "unavailable", lambda: "no rig is needed")
    pesp_spark.run(DRAWN, tmp_path, lambda _: None, ("over",), Recordings(named))
    assert seen == [named]


def test_over_the_rig_each_site_has_a_run_of_its_own_with_kafka_between() -> None:
    topology = pesp_rig._over_kafka(
        pesp_spark.small_topology(DRAWN, "elastic", Choice("local")), "10.77.2.2:9092"
    )
    parts = {site: here(topology, {}, site) for site in ("cloud", "private")}
    assert {site: [unit.name for unit in part.units] for site, part in parts.items()} == {
        "cloud": ["speed"],
        "private": ["report"],
    }
    require_runnable(topology, part=parts["cloud"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["pesp", "--setups", "over"], "--setups is for pesp --on spark"),
        (
            ["pesp", "--on", "spark", "--setups", "over,middling"],
            "expected setups out of elastic, over, under",
        ),
    ],
)
def test_a_setup_that_there_is_not_is_told_before_anything_runs(
    given: list[str], message: str, tmp_path: Path
) -> None:
    shown = CliRunner().invoke(app, ["experiment", *given, "--out", str(tmp_path)])
    assert isinstance(shown.exception, ConfigurationError)
    assert message in str(shown.exception)
