"""A warm start: units begin with the mean instances of the last run, within their bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller
from penstock.controller.warm_start import mean_instances, warm_started
from penstock.errors import ConfigurationError
from penstock.experiments.kalman_model import Testbed, topology_of
from penstock.experiments.kalman_plane import TestbedPlane
from penstock.topology.model import Choice, Topology, Unit
from penstock.workload.patterns import Constant

BED = replace(Testbed(), duration_s=300.0)


def a_topology(**changes: object) -> Topology:
    unit = Unit("work", ("work",), policy=Choice("utilisation"), filter=Choice("gaussian"), max_instances=32)
    return topology_of([replace(unit, **changes)], BED)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def last_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run under 30 images/s, which take 6.6 instances' work."""
    folder = tmp_path_factory.mktemp("run")
    with Journal(folder / "journal.db", "older", buffered=True) as journal:
        run(a_topology(), journal, until_s=5.0)
    with Journal(folder / "journal.db", "work", buffered=True) as journal:
        run(a_topology(), journal, until_s=300.0)
    return folder


def run(topology: Topology, journal: Journal, until_s: float) -> Controller:
    plane = TestbedPlane({"work": (Constant(level_per_s=30.0), 1)}, BED)
    controller = Controller(topology, plane.ground, VirtualClock(), journal)
    controller.run(until_s)
    return controller


def test_the_mean_of_the_journals_last_run_is_taken(last_run: Path) -> None:
    with Journal(last_run / "journal.db", "work") as journal:
        counts = [row["instances"] for row in journal.rows("observation")]
    # Ticks are evenly apart, so the time-weighted mean is that of all ticks but the last.
    expected = round(sum(counts[:-1]) / (len(counts) - 1))
    assert expected > 5
    assert mean_instances(last_run) == {"work": expected}
    assert mean_instances(last_run / "journal.db") == {"work": expected}


@pytest.mark.parametrize(("least", "most", "expected"), [(1, 32, None), (1, 4, 4), (20, 32, 20)])
def test_a_unit_starts_with_it_within_its_bounds(
    last_run: Path, least: int, most: int, expected: int | None
) -> None:
    topology = a_topology(min_instances=least, max_instances=most)
    warm = warm_started(topology, last_run)
    assert warm.unit_by_name["work"].initial_instances == (expected or mean_instances(last_run)["work"])
    with Journal("sqlite://", "again", buffered=True) as journal:
        run(warm, journal, until_s=0.5)
        assert {row["instances"] for row in journal.rows("observation")} == {
            warm.unit_by_name["work"].initial_instances
        }


def test_a_unit_that_was_not_in_the_last_run_keeps_its_own_number(last_run: Path) -> None:
    old = a_topology().units[0]
    topology = topology_of([old, replace(old, name="other", operators=("other",), initial_instances=3)], BED)
    assert warm_started(topology, last_run).unit_by_name["other"].initial_instances == 3


def test_what_is_no_earlier_run_of_this_topology_is_told(last_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"expected the folder of a run with journal\.db"):
        warm_started(a_topology(), tmp_path)
    (tmp_path / "journal.db").write_text("no journal at all, but long enough to be looked at")
    with pytest.raises(ConfigurationError, match="expected the journal of a run"):
        warm_started(a_topology(), tmp_path)
    stranger = topology_of([replace(a_topology().units[0], name="other", operators=("other",))], BED)
    with pytest.raises(ConfigurationError, match="has none of its units"):
        warm_started(stranger, last_run)
