"""The testbed of paper 001 and its evaluation, on short runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ClusterError
from penstock.experiments import kalman
from penstock.experiments.kalman_evaluation import Prices, break_even, settled_s, start_trails
from penstock.experiments.kalman_model import HOST, Testbed
from penstock.experiments.kalman_paper import PAPER, reason_for
from penstock.experiments.kalman_plane import RunResult, TestbedPlane
from penstock.experiments.kalman_runs import (
    WORKLOADS,
    Configuration,
    LabLike,
    SeedResult,
    run_configuration,
    train,
)
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import SeenInstance, Submission, Wanted, WantedInstance
from penstock.monitoring.measurements import Measurement
from penstock.topology.model import Choice
from penstock.workload.patterns import Constant

SHORT = replace(Testbed(), duration_s=200.0)


@dataclass
class Bed:
    """One unit on the testbed, told by hand what is wanted of it."""

    plane: TestbedPlane
    names: list[str]

    def look(self, at_s: float) -> tuple[Measurement, dict[str, SeenInstance]]:
        (report,), _ = self.plane.reports(at_s)
        assert report.measurement is not None
        return report.measurement, {seen.id: seen for seen in report.instances}

    def want(self, at_s: float) -> None:
        self.plane.tell("unit", wanted(self.names), at_s)


def wanted(names: Iterable[str]) -> Wanted:
    return Wanted(tuple(WantedInstance(name, HOST, 1.0, 1024) for name in names))


def a_bed(rate: float, instances: int, bed: Testbed = SHORT) -> Bed:
    plane = TestbedPlane({"unit": (Constant(level_per_s=rate), 1)}, bed)
    names = [f"unit-{i}" for i in range(instances)]
    plane.submit(Submission("unit", 1, 1, wanted(names)))
    return Bed(plane, names)


def test_pyramid_and_square_are_as_the_paper_gives_them() -> None:
    at_s = np.array([0.0, 130.0, 260.0, 390.0, 520.0, 650.0, 780.0, 910.0, 1040.0]) + 1.0
    assert WORKLOADS["Pyramid"].rate_per_s(at_s).tolist() == [0, 15, 30, 45, 60, 45, 30, 15, 0]
    assert WORKLOADS["Square"].rate_per_s(np.array([1.0, 369.0, 371.0, 739.0, 741.0])).tolist() == [
        1, 1, 65, 65, 1,
    ]  # fmt: skip


def test_the_lab_like_trace_is_the_same_every_time_and_bursty() -> None:
    at_s = np.arange(0.0, 2700.0, 5.0)
    rates = LabLike().rate_per_s(at_s)
    np.testing.assert_array_equal(rates, LabLike().rate_per_s(at_s))
    assert np.abs(np.diff(rates)).max() > 8.0
    assert 20.0 < rates.mean() < 45.0


def test_readings_follow_the_load_below_saturation() -> None:
    bed = a_bed(20.0, 8)
    cpu = [np.mean([r.cpu_ratio for r in bed.look(0.5 * tick)[0].readings]) for tick in range(1, 200)]
    # Utilisation law: rate × service time / instances.
    assert np.mean(cpu[20:]) == pytest.approx(20.0 * 0.22 / 8, abs=0.02)


def test_every_image_is_begun_once_and_none_is_lost() -> None:
    bed = a_bed(10.0, 1)
    for tick in range(1, 200):
        measurement, _ = bed.look(0.5 * tick)
    result = bed.plane.result("unit")
    assert result.images == pytest.approx(10.0 * 99.5, abs=1)
    assert measurement.waiting > 400
    assert result.violations > 400


def test_an_instance_is_ready_after_five_to_twenty_five_seconds() -> None:
    bed = a_bed(5.0, 2)
    bed.look(0.5)
    bed.names += [f"unit-{i}" for i in range(10, 30)]
    bed.want(0.5)
    shown: dict[str, SeenInstance] = {}
    for tick in range(2, 80):
        shown |= bed.look(0.5 * tick)[1]
    late = [seen.since_s - 0.5 for name, seen in shown.items() if seen.since_s and name > "unit-1"]
    assert len(late) == 20
    assert min(late) >= 5.0
    assert max(late) <= 25.5


def test_what_is_wanted_twice_changes_nothing_more() -> None:
    bed = a_bed(5.0, 2)
    bed.look(0.5)
    bed.names = ["unit-0", "unit-7"]
    for _ in range(2):
        bed.want(0.5)
    _, shown = bed.look(1.0)
    assert {name: seen.state for name, seen in shown.items()} == {
        "unit-0": InstanceState.RUNNING,
        "unit-1": InstanceState.RETIRING,
        "unit-7": InstanceState.STARTING,
    }


def test_an_instance_told_to_go_hands_over_its_state_and_takes_no_image_meanwhile() -> None:
    bed = a_bed(5.0, 2)
    bed.look(0.5)
    bed.names = ["unit-0"]
    bed.want(0.5)
    alive = {}
    for tick in range(2, 20):
        measurement, shown = bed.look(0.5 * tick)
        assert [reading.instance for reading in measurement.readings] == ["unit-0"]
        alive[0.5 * tick] = "unit-1" in shown
    gone_s = min(at_s for at_s, there in alive.items() if not there)
    assert gone_s == 0.5 + SHORT.transfer_s[1] + SHORT.reading_s
    assert not any(there for at_s, there in alive.items() if at_s > gone_s)


def test_instances_are_the_same_object_while_nothing_changed() -> None:
    bed = a_bed(5.0, 2)
    shown = [bed.plane.reports(0.5 * tick)[0][0].instances for tick in range(1, 4)]
    assert shown[0] is shown[1] is shown[2]


def test_the_machine_is_up_whatever_is_asked_of_it_and_there_is_no_other() -> None:
    provider = a_bed(5.0, 1).plane.ground.providers[HOST]
    (machine,) = provider.hosts(0.0)
    provider.create(machine.id, machine.flavour, 0.0)
    provider.delete(machine.id, 1.0)
    assert provider.hosts(2.0) == (machine,)
    with pytest.raises(ClusterError, match="has the machine cloud alone"):
        provider.create("another", machine.flavour, 2.0)


def test_queries_wait_while_state_is_moved() -> None:
    calm, busy = a_bed(30.0, 12), a_bed(30.0, 12)
    for tick in range(1, 300):
        calm.look(0.5 * tick)
        _, shown = busy.look(0.5 * tick)
        if tick % 6 == 0:
            oldest = next(name for name, seen in shown.items() if seen.state is InstanceState.RUNNING)
            busy.names.remove(oldest)
            busy.names.append(f"unit-{100 + tick}")
            busy.want(0.5 * tick)
    assert busy.plane.result("unit").query_s > 2 * calm.plane.result("unit").query_s


def test_training_finds_the_service_time_and_no_drift() -> None:
    training = train()
    (a, b), _ = training.sensitivity
    assert a == 0.0
    assert b == pytest.approx(Testbed().image_s, rel=0.1)
    assert 0.05 < training.cpu_std < 0.3


def test_a_seed_gives_the_same_run_alone_and_beside_others() -> None:
    cell = Configuration("Pyramid", Choice("gaussian"), Choice("utilisation", {"step": "single"}))
    many, _ = run_configuration(cell, 3, SHORT)
    alone, _ = run_configuration(cell, 1, SHORT, first_seed=2)
    assert many[2] == alone[0]


def test_a_start_under_full_load_recovers_within_a_minute() -> None:
    trails = start_trails(train(), 2)
    assert max(settled_s(trail) for trail in trails.values()) <= 60.0


def a_result(vm_h: float, violations: int) -> SeedResult:
    return SeedResult(RunResult(100, 1, 0.3, 0.1, violations, vm_h), 1, 1, 0)


@pytest.mark.parametrize(
    ("ours", "theirs", "price", "pays", "saved"),
    [
        ((10.0, 100), (8.0, 300), 2.0 * 0.06 / 200, "from 0.0006 EUR a violation on", 200 * 0.001 - 0.12),
        ((8.0, 100), (10.0, 300), None, "at any price", 200 * 0.001 + 0.12),
        ((10.0, 300), (8.0, 100), None, "never", -200 * 0.001 - 0.12),
        ((8.0, 300), (10.0, 100), None, "up to 0.0006 EUR a violation", -200 * 0.001 + 0.12),
        ((8.0, 100), (8.0, 100), None, "at any price", 0.0),
    ],
)
def test_the_break_even_is_extra_hours_priced_over_violations_saved(
    ours: tuple[float, int], theirs: tuple[float, int], price: float | None, pays: str, saved: float
) -> None:
    found = break_even([a_result(*ours)], [a_result(*theirs)], Prices(0.06, 0.001, "EUR"))
    assert found.violation_price == (None if price is None else pytest.approx(price))
    assert found.pays == pays
    assert found.saved == pytest.approx(saved)


def test_a_row_that_differs_from_the_paper_has_a_reason_and_one_that_does_not_has_none() -> None:
    published = PAPER["Square"]["VM time"]
    assert reason_for("VM time", tuple(1.05 * value for value in published), published) == ""
    assert "overshoot" in reason_for("VM time", (published[0] * 1.2, *published[1:]), published)


@pytest.mark.slow
def test_a_small_evaluation_writes_its_tables_its_page_and_its_figures(tmp_path: Path) -> None:
    said: list[str] = []
    figures = kalman.run(2, tmp_path, said.append, testbed=replace(Testbed(), duration_s=30.0))
    assert {path.name for path in tmp_path.iterdir()} == {
        "kalman.html", "summary.json", "tables.csv", "verdict.txt",
    }  # fmt: skip
    assert [figure.name for figure in figures if figure.bar] == [
        entry["name"] for entry in json.loads((tmp_path / "summary.json").read_text()) if entry["bar"]
    ]
    page = (tmp_path / "kalman.html").read_text(encoding="utf-8")
    for heading in ("Table 2", "Table 3", "Table 4", "Table 5", "Figure 8", "Figure 9", "Break-even"):
        assert heading in page
    assert any(line.startswith("37 of 37") for line in said)
    assert "as printed" in (tmp_path / "verdict.txt").read_text(encoding="utf-8")
