"""Health: what was executed over what was emitted towards it, for units, operators and sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.channels.feeder import feed
from penstock.controller.journal import Journal
from penstock.controller.state import State
from penstock.monitoring.health import CONGESTED, health, health_over, operator_health, told_healths
from penstock.runs.sources import FEED, Feed
from penstock.simulator import SimulationSettings, simulate
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import generated_sources
from penstock.topology.model import Choice, Unit
from tests.builders import a_measurement, a_signal, a_topology, a_view, an_operator


def test_health_is_executed_over_received_and_ends_at_one() -> None:
    assert health(45, 50) == pytest.approx(0.9)
    assert health(80, 50) == 1.0
    assert health(0, 0) is None


def test_a_period_counts_as_a_whole_not_as_the_mean_of_its_parts() -> None:
    parts = [a_measurement(arrived=100, processed=0), a_measurement(arrived=100, processed=200)]
    assert health_over(parts) == 1.0


def test_a_policy_sees_the_health_of_the_last_minute() -> None:
    old = a_signal(at_s=5000.0, arrived=1000, processed=0)
    new = a_signal(at_s=5990.0, arrived=100, processed=80)
    view = a_view(queue=None)
    seen = type(view)(view.now_s, view.topology, view.deployment, windows={"a": (old, new)})
    assert seen.health("a") == pytest.approx(0.8)
    assert seen.health("a", over_s=2000.0) == pytest.approx(80 / 1100)
    assert seen.health("b") is None


def test_inside_a_unit_only_what_takes_records_from_outside_can_be_congested() -> None:
    operators = [an_operator("parse"), an_operator("count", ["parse"])]
    topology = a_topology(operators=operators, units=[Unit("u", ("parse", "count"))])
    assert operator_health(topology, "u", 0.5) == {"parse": 0.5, "count": 1.0}


def test_until_something_is_finished_the_health_is_not_known() -> None:
    state = State(a_topology())
    state.remember([a_signal(at_s=10.0, arrived=50, processed=0)])
    assert state.health("a", 10.0) is None
    state.remember([a_signal(at_s=20.0, arrived=50, processed=40)])
    assert state.health("a", 20.0) == pytest.approx(0.4)
    state.remember([a_signal(at_s=100.0, arrived=50, processed=0)])
    assert state.health("a", 100.0) == 0.0


def test_the_journal_tells_the_same_health_as_the_status() -> None:
    at = ((10.0, 50, 0), (20.0, 50, 40), (75.0, 10, 0), (90.0, 0, 0), (200.0, 0, 0))
    rows = [{"unit": "a", "at_s": s, "arrived": came, "processed": done} for s, came, done in at]
    assert told_healths(rows) == [None, pytest.approx(0.4), pytest.approx(40 / 60), 0.0, None]
    other = {"unit": "b", "at_s": 20.0, "arrived": 5, "processed": 0}
    assert told_healths([*rows, other])[-1] is None


def test_an_overloaded_unit_is_congested_in_the_journal_and_a_sufficient_one_is_not(tmp_path: Path) -> None:
    topology = a_topology(
        operators=[an_operator("a", service_s=0.1), an_operator("b", service_s=0.01)],
        units=["a", "b"],
        per_s=20.0,
        policy=Choice("fixed", {"instances": 1}),
    )
    with Journal(tmp_path / "journal.db", topology.name) as journal:
        simulate(topology, SimulationSettings(), duration_s=600.0, journal=journal)
        late = [row for row in journal.rows("observation") if row["at_s"] > 300.0]
        of = {unit: [row["health"] for row in late if row["unit"] == unit] for unit in ("a", "b")}
        assert max(of["a"]) < 0.6 < CONGESTED
        assert min(of["b"]) > 0.95


def test_a_source_that_stands_still_emits_less_than_is_due(tmp_path: Path) -> None:
    topology = a_topology(per_s=20.0)
    folders = RunFolders(tmp_path)
    source = Feed("r", topology, folders)
    assert source.health(1000.0) == {}
    (tmp_path / FEED).write_text('{"started_s": 1000.0}')
    clock = [1000.0]
    units = [folders.sources / "s" / unit for unit in generated_sources(topology)["s"]]

    def wait(span_s: float) -> None:
        clock[0] += span_s

    chosen = topology.sources[0].workload
    assert chosen is not None
    feed("s", chosen, "number long", units, 1000.0, 30.0, lambda: clock[0], wait)
    assert source.health(1029.0)["s"] == 1.0
    # Half a minute of silence: half of the last minute's records are missing.
    assert source.health(1061.0)["s"] == pytest.approx(0.5, abs=0.02)
