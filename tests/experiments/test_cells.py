"""What the laboratory's experiment makes of its runs; the runs themselves need Spark and minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ConfigurationError
from penstock.experiments.cells import (
    LEAD_IN_PER_S,
    LEAD_IN_S,
    PRICES,
    calibration_of,
    filter_of,
    in_turns,
    led_in,
    load_parameters,
    run,
)
from penstock.experiments.cells_page import figures_of, pays, write_page
from penstock.experiments.cells_rows import WORKLOADS, Row
from penstock.experiments.kalman_evaluation import Prices
from penstock.filters import make_filter
from penstock.filters.calibration import Calibration
from penstock.filters.readings import Readings
from penstock.topology.model import Choice
from penstock.workload.registry import make_workload


def a_row(**changes: object) -> Row:
    row = {
        "workload": "Square", "filter": "none", "seed": 1, "kind": "spark", "vm_h": 1.0, "events": 10.0,
        "image_s": 2.0, "query_s": 0.8, "image_violations": 30.0, "query_violations": 4.0, "right": True,
    }  # fmt: skip
    return Row(**{**row, **changes})  # type: ignore[arg-type]


def test_kalman_is_held_against_none_on_events_and_violations() -> None:
    rows = [a_row(), a_row(filter="kalman", events=3.0, image_violations=31.0, vm_h=1.2)]

    found = {figure.name: figure for figure in figures_of(rows, Prices())}

    events = found["Square: scaling events of kalman against none"]
    assert events.here == pytest.approx(-70.0)
    assert events.holds
    assert found["Square: SLA violations of kalman less those of none"].holds is False
    assert found["Square, kalman: VM time"].here == 1.2


def test_one_wrong_answer_is_told() -> None:
    assert figures_of([a_row(), a_row(right=False)], Prices())[0].holds is False


def test_the_simulator_is_compared_with_the_runs_it_was_not_given() -> None:
    rows = [a_row(), a_row(seed=2), a_row(seed=2, kind="simulated", events=11.0, vm_h=2.0)]

    found = {figure.name: figure for figure in figures_of(rows, Prices())}

    assert found["simulator: scaling events of 1 other runs"].holds
    assert found["simulator: VM time of 1 other runs"].holds is False


def test_errors_of_the_simulator_that_cancel_out_are_told_a_run(tmp_path: Path) -> None:
    rows = [a_row(seed=2), a_row(seed=3)]
    rows += [a_row(seed=seed, kind="simulated", events=events) for seed, events in ((2, 5.0), (3, 15.0))]

    figures = figures_of(rows, Prices())
    found = {figure.name: figure for figure in figures}

    assert found["simulator: scaling events of 2 other runs"].here == 0.0
    a_run = found["simulator: scaling events, mean absolute deviation a run"]
    assert (a_run.here, a_run.holds) == (pytest.approx(50.0), False)
    write_page(tmp_path / "cells.html", rows, figures)
    assert "Real beside simulated" in (tmp_path / "cells.html").read_text()


def test_queries_do_not_count_where_the_simulator_is_compared() -> None:
    rows = [a_row(), a_row(seed=2, query_violations=900.0)]
    rows.append(a_row(seed=2, kind="simulated", image_violations=30.0, query_violations=math.nan))

    found = {figure.name: figure for figure in figures_of(rows, Prices())}

    assert found["simulator: image violations of 1 other runs"].here == 0.0
    assert "simulator: SLA violations of 1 other runs" not in found


def test_more_hours_for_fewer_violations_pay_from_a_price_on() -> None:
    prices = Prices(vm_hour=0.06)

    assert pays(1.0, 60.0, prices) == "from 0.001 USD a violation"
    assert pays(-1.0, 60.0, prices) == "at any price of a violation"
    assert pays(1.0, -60.0, prices) == "at no price of a violation"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_fills_a_run_and_reaches_its_top(workload: str) -> None:
    curve = make_workload(load_parameters(workload, 120.0, 40.0)).curve
    rates = [float(curve.records(t + 0.1) - curve.records(t)) / 0.1 for t in range(119)]

    assert max(rates) == pytest.approx(40.0, rel=0.02)
    assert min(rates) < 25.0


def test_a_run_begins_with_a_lead_in_at_a_low_load() -> None:
    plain = load_parameters("Pyramid", 120.0)
    curve, led = make_workload(plain).curve, make_workload(led_in(plain, 120.0)).curve

    assert float(led.records(LEAD_IN_S)) == pytest.approx(LEAD_IN_PER_S * LEAD_IN_S)
    assert float(led.records(LEAD_IN_S + 60.0) - led.records(LEAD_IN_S)) == pytest.approx(
        float(curve.records(60.0))
    )


def test_the_break_even_is_told_at_todays_price_and_at_the_papers() -> None:
    rows = [a_row(), a_row(filter="kalman", vm_h=2.0, image_violations=20.0)]

    found = {figure.name: figure.here for figure in figures_of(rows, PRICES)}

    assert found["Square: kalman pays against none at 0.0408 USD/h"] == "from 0.00408 USD a violation"
    assert found["Square: kalman pays against none at 0.0612 USD/h"] == "from 0.00612 USD a violation"


@dataclass
class Read:
    """What was read of a unit at a tick."""

    at_s: float
    raw_cpu: float | None
    memory: float | None = 0.2
    unit: str = "see"


def test_the_noise_is_that_of_readings_once_the_load_has_settled(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    settled = [Read(35.0 + 0.25 * n, 0.5 + 0.08 * random.standard_normal()) for n in range(200)]
    others = [
        Read(5.0, 1.0),
        Read(30.0, 0.1),
        Read(40.0, None),
        Read(40.0, 0.9, unit="remember"),
        Read(95.0, 0.0),
    ]

    calibration_of([*others, *settled], "see", 1.0).write(tmp_path / "r.json")

    found = Calibration.read(tmp_path / "r.json")
    assert found.covariance[0][0] ** 0.5 == pytest.approx(0.08, rel=0.1)
    assert (found.readings, found.load_ratio) == (200, pytest.approx(0.5, abs=0.02))
    chosen = filter_of("kalman", tmp_path / "r.json")
    assert make_filter(chosen).name == "kalman"
    assert filter_of("gaussian", tmp_path / "r.json") == Choice("gaussian")


def test_a_restless_start_of_an_executor_makes_no_nervous_filter(tmp_path: Path) -> None:
    Calibration(("cpu",), ((0.01,),), (0.5,), 50, 1.0, 0.5).write(tmp_path / "r.json")
    random = np.random.default_rng(1)
    restless = [1.0, 0.1, 0.9, 0.2, 1.0, 0.1, 0.8, 0.2, 1.0, 0.1, 0.6]
    settled = 0.6 + 0.1 * random.standard_normal(100)

    tracked = make_filter(filter_of("kalman", tmp_path / "r.json"))
    estimates = []
    for at_s, value in enumerate([*restless, *settled]):
        readings = Readings(float(at_s), ("see/1",), np.array([[value]]), np.zeros((1, 2)))
        estimates.append(float(tracked.step(readings).values[0, 0]))

    assert np.std(estimates[60:]) < 0.03, "a third of the readings' own spread"


def test_a_wrong_calibration_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="calibration"):
        run(1, tmp_path, lambda text: None, calibration=tmp_path / "none.json")


def test_each_filter_is_the_first_of_a_seed() -> None:
    found = in_turns(["Square", "Lab"], ["none", "gaussian", "kalman"], 3)

    assert len(set(found)) == 18
    assert [found[6 * turn][1] for turn in range(3)] == ["none", "gaussian", "kalman"]


def test_an_unknown_workload_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Pyramid"):
        run(1, tmp_path, lambda text: None, workloads=["Circle"])
