"""A warm start: units begin with the mean instances of the last run, within their bounds."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import EARLIER_LOADS, Journal
from penstock.controller.loop import Controller
from penstock.controller.warm_start import earlier_loads, earlier_seasons, mean_instances, warm_started
from penstock.errors import ConfigurationError
from penstock.experiments.kalman_model import Testbed, topology_of
from penstock.experiments.kalman_plane import TestbedPlane
from penstock.fleet.deployment import Deployment
from penstock.fleet.ports import Ground
from penstock.forecasts.record import DEPTH
from penstock.forecasts.season import DAY_S
from penstock.simulator import SimulationSettings, simulate
from penstock.simulator.plane import SimulatedPlane
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Service,
    Site,
    Source,
    Topology,
    Unit,
)  # fmt: skip
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


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two simulated days of a load that is four times as high in the afternoon as at night."""
    folder = tmp_path_factory.mktemp("days")
    with Journal(folder / "journal.db", "days", buffered=True) as journal:
        simulate(a_day_twice(), duration_s=2 * DAY_S, journal=journal)
    return folder


def a_day_twice() -> Topology:
    hours = [5.0] * 12 + [20.0] * 12
    return Topology(
        "days",
        (
            Source(
                "records", workload=Choice("stepwise", {"levels_per_s": (*hours, *hours), "hold_s": 3600.0})
            ),
        ),
        (Operator("count", ("records",), slo_s=5.0, service=Service(0.5)),),
        units=(Unit("count", ("count",), policy=Choice("auto"), max_instances=40),),
        sites=(Site("cloud", btu_s=60.0, flavours=(HostFlavour("m", 4.0, 8192, Decimal("0.01")),)),),
        loop=LoopSettings(monitoring_s=60.0, provisioning_s=60.0),
    )


def test_of_a_run_of_days_this_time_of_the_day_counts(long_run: Path) -> None:
    night, afternoon = (mean_instances(long_run, hour * 3600.0)["count"] for hour in (6, 18))
    assert night <= 5
    assert afternoon >= 2.5 * night
    assert mean_instances(long_run, 5 * DAY_S + 18 * 3600.0)["count"] == afternoon


def test_what_the_load_of_an_earlier_run_usually_does_is_known(long_run: Path) -> None:
    season = earlier_seasons(long_run)["count"]
    assert season.period_s == DAY_S
    assert np.exp(season.level[(6 * 12)]) == pytest.approx(5.0, rel=0.1)
    assert np.exp(season.level[(18 * 12)]) == pytest.approx(20.0, rel=0.1)


def test_a_controller_that_comes_back_knows_the_load_it_knew(long_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "journal.db"
    copy.write_bytes((long_run / "journal.db").read_bytes())
    plane = SimulatedPlane(a_day_twice(), SimulationSettings())
    with Journal(copy, "days") as journal:
        observed = len(journal.rows("observation", ("id",)))
        controller = Controller(a_day_twice(), Ground(plane, plane.providers), VirtualClock(), journal)
        view = controller.state.view(Deployment(), 2 * DAY_S, ("count",))
    assert len(view.loads["count"]) == min(observed, DEPTH)
    assert view.loads["count"].rate_per_s[-1] == pytest.approx(20.0, rel=0.1)
    assert view.seasons["count"].period_s == DAY_S


def test_a_new_run_knows_what_an_earlier_one_told_it(long_run: Path, tmp_path: Path) -> None:
    plane = SimulatedPlane(a_day_twice(), SimulationSettings())
    with Journal(tmp_path / "journal.db", "new") as journal:
        journal.remember(EARLIER_LOADS, earlier_loads(long_run))
        controller = Controller(a_day_twice(), Ground(plane, plane.providers), VirtualClock(), journal)
        view = controller.state.view(Deployment(), 2 * DAY_S, ("count",))
    assert "count" not in view.loads or len(view.loads["count"]) == 0
    assert view.seasons["count"].period_s == DAY_S
