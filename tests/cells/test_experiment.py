"""The experiment's folder: what has finished stays, and only what is missing is run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cv2")

from cells.checking import Check
from cells.feed import Load
from cells.laboratory import Moment, told_by

from cells import laboratory
from penstock.controller.journal import Journal
from penstock.errors import ClusterError, ConfigurationError
from penstock.experiments.cells import Series
from penstock.experiments.kalman_evaluation import Prices
from penstock.monitoring.sla import Compliance, DurationStatistics
from penstock.runs.profile import PROFILE
from penstock.simulator import simulate
from penstock.topology.model import Topology

SQUARE = ("Square", "none", 1)
LAB = ("Lab", "none", 1)


@dataclass(frozen=True)
class Ended:
    """What the experiment asks of a run that ended."""

    folder: Path
    events: int
    check: Check
    vm_h: float = 0.01
    moments: tuple[Any, ...] = ()
    interrupted: bool = False


@dataclass
class SimulatedLaboratory:
    """The laboratory without Spark; what is in a run's folder already comes before what the run adds."""

    ran: list[str] = field(default_factory=list)
    fails: str = ""
    """The run that fails."""
    interrupted: str = ""
    """The run that is interrupted."""
    memory_ratio: float = 0.2
    topology_of = staticmethod(laboratory.topology_of)

    def run_laboratory(self, topology: Topology, load: Load, folder: Path, *, album: Path) -> Ended:
        """A run of the simulator."""
        self.ran.append(folder.name)
        if folder.name == self.fails:
            raise ClusterError("no executor came")
        folder.mkdir(parents=True)  # a folder that is there is another run's
        journal = Journal("sqlite://", "r", buffered=True)
        simulate(topology, duration_s=load.duration_s + 60.0, journal=journal)
        profile, events, _ = told_by(journal, topology, load, 10.0)
        profile.write(folder / PROFILE)
        read = Moment(1.0, "see", 0.5, 0.5, self.memory_ratio, 1, 8.0, 0)
        other = replace(read, unit="remember", memory=0.9)
        stopped = folder.name == self.interrupted
        return Ended(folder, events, a_check(), moments=(read, other), interrupted=stopped)


def a_check() -> Check:
    """All in time."""
    kinds = ("image", "query")
    in_time, durations = Compliance(10, 10, 10, 10), DurationStatistics(10, 0.5, 0.5, 0.5, 0.5)
    return Check((), 1.0, 0, dict.fromkeys(kinds, in_time), dict.fromkeys(kinds, durations))


def a_series(out: Path, *, minutes: float = 0.5, warm: bool = False) -> tuple[Series, SimulatedLaboratory]:
    """An experiment without Spark."""
    found = SimulatedLaboratory()
    return Series(found, out, minutes, Prices(), warm=warm), found


def quiet(text: str) -> None:
    """Nobody is told."""


def test_a_run_that_has_finished_is_not_run_again(tmp_path: Path) -> None:
    series, _ = a_series(tmp_path)
    first = series.run([SQUARE], quiet)

    again, rest = a_series(tmp_path)
    second = again.run([SQUARE, LAB], quiet)

    assert rest.ran == ["lab-none-1"]
    assert {f.name: f.here for f in first}["Square, none: scaling events"] == {
        f.name: f.here for f in second
    }["Square, none: scaling events"]
    assert "simulator: VM time of 1 other runs" in {f.name for f in second}
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 1 + 3


def test_what_is_left_of_a_run_that_did_not_finish_is_removed_before_it_runs(tmp_path: Path) -> None:
    left = tmp_path / "runs" / "square-none-1" / "sources"
    left.mkdir(parents=True)

    series, ran = a_series(tmp_path)
    series.run([SQUARE], quiet)

    assert ran.ran == ["square-none-1"]
    assert not left.exists()


def test_runs_of_other_settings_are_refused(tmp_path: Path) -> None:
    a_series(tmp_path)[0].run([SQUARE], quiet)

    longer, ran = a_series(tmp_path, minutes=0.6)
    with pytest.raises(ConfigurationError, match=r"minutes 0\.5, and 0\.6 is asked for.*--out"):
        longer.run([LAB], quiet)
    assert ran.ran == []


def test_a_row_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    a_series(tmp_path)[0].run([SQUARE], quiet)
    file = tmp_path / "runs" / "square-none-1" / "row.json"
    file.write_text(json.dumps({"row": {}}))

    with pytest.raises(ConfigurationError, match=r"row\.json"):
        a_series(tmp_path)[0].run([SQUARE], quiet)


def test_a_calibration_that_was_measured_is_used_again(tmp_path: Path) -> None:
    measured = {
        "metrics": ["cpu", "memory"], "covariance": [[0.01, 0.0], [0.0, 0.001]], "mean": [0.5, 0.2],
        "readings": 50, "interval_s": 1.0, "load_ratio": 0.5,
    }  # fmt: skip
    (tmp_path / "calibration.json").write_text(json.dumps(measured))

    series, ran = a_series(tmp_path)
    series.run([("Square", "kalman", 1)], quiet)

    assert ran.ran == ["square-kalman-1"]


def test_a_run_that_fails_is_told_and_the_next_goes_on(tmp_path: Path) -> None:
    series, ran = a_series(tmp_path)
    ran.fails = "square-none-1"

    figures = {figure.name: figure for figure in series.run([SQUARE, LAB], quiet)}

    assert ran.ran == ["square-none-1", "lab-none-1"]
    assert (figures["runs that have finished"].here, figures["runs that have finished"].bar) == (1.0, "= 2")
    assert "no executor came" in (tmp_path / "cells.html").read_text()


def test_an_interrupted_run_leaves_no_row_and_is_the_last(tmp_path: Path) -> None:
    series, ran = a_series(tmp_path)
    ran.interrupted = "lab-none-1"
    series.run([SQUARE, LAB, ("Pyramid", "none", 1)], quiet)

    assert ran.ran == ["square-none-1", "lab-none-1"]
    assert [file.parent.name for file in tmp_path.glob("runs/*/row.json")] == ["square-none-1"]
    assert "runs that have finished" in (tmp_path / "summary.json").read_text()

    again, rest = a_series(tmp_path)
    again.run([SQUARE, LAB], quiet)
    assert rest.ran == ["lab-none-1"]


def test_an_interrupted_calibration_is_none(tmp_path: Path) -> None:
    series, ran = a_series(tmp_path)
    ran.interrupted = "calibration"

    series.run([("Square", "kalman", 1)], quiet)

    assert ran.ran == ["calibration"]
    assert not (tmp_path / "calibration.json").exists()


def test_memory_that_would_decide_in_place_of_cpu_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    series, ran = a_series(tmp_path)
    found = {figure.name: figure.here for figure in series.run([SQUARE], quiet)}
    assert found["Square, none: memory reading"] == 0.2
    assert not caplog.records

    ran.memory_ratio = 0.32
    series.run([LAB], quiet)
    assert "lab-none-1: memory read 0.32" in caplog.text


def test_what_the_laboratory_books_fits_a_machine_of_24_gib() -> None:
    topology = laboratory.topology_of(Load("constant", {"level_per_s": 8}))
    site, see = topology.sites[0], topology.operator_by_name["see"]

    assert see.memory_mib <= site.flavours[0].memory_mib
    assert (site.max_hosts or 0) * site.flavours[0].memory_mib <= 22 * 1024
