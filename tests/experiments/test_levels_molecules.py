"""Figure 11: what is measured on Spark, and what the benchmark on the simulator makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.experiments.levels_molecules import (
    ATOMS,
    Measured,
    SizeMeasured,
    figure_11,
    measured,
    molecule_figures,
    slots_on_spark,
    sources_needed,
)

SIZE = SizeMeasured(ATOMS, "a test", 1000.0, (640.0, 1200.0), (320.0, 600.0))


def test_the_shipped_measurement_has_the_papers_default_problem_in_both_shapes() -> None:
    size = measured().at(ATOMS)
    assert size.atoms == ATOMS
    assert len(size.histogram_per_s) == len(size.distance_per_s) == 2
    with pytest.raises(ConfigurationError, match=r"measure\.py"):
        measured(Path("absent.yaml"))


def test_sources_double_until_each_is_healthy() -> None:
    assert [sources_needed(SIZE, load) for load in (900.0, 1112.0, 2300.0, 8000.0)] == [1, 2, 4, 8]


def test_slots_are_those_that_were_measured_and_no_more() -> None:
    assert slots_on_spark(SIZE, "distance", 355.0) == 1
    assert slots_on_spark(SIZE, "distance", 356.0) == 2
    assert slots_on_spark(SIZE, "distance", 700.0) is None


def test_the_simulator_needs_as_many_slots_as_the_work_fills_and_stays_healthy() -> None:
    found = Measured(1000, (SIZE,))
    answers = figure_11(found, lambda text: None, (10.0, 100.0))
    for answer in answers:
        load = answer.iterations_per_s * 32
        for name, number in answer.instances.items():
            filled = load / SIZE.taken(name)[0]
            # Healthy is nine tenths of what comes in; one more where it does not divide.
            assert 0.85 * filled <= number <= filled + 1.5
        assert answer.least_health >= 0.9
    assert answers[1].instances["distance"] > answers[1].instances["histogram"]
    told = {figure.name: figure for figure in molecule_figures(found, answers)}
    assert told["Figure 11, 10 it/s of 32,000 atoms: sources, histogram, distance"].paper == "1, 1, 1"


def test_the_nearest_size_answers() -> None:
    found = Measured(1000, (replace(SIZE, atoms=4000), SIZE, replace(SIZE, atoms=256000)))
    assert [found.at(atoms).atoms for atoms in (1000, 30_000, 32_000_000)] == [4000, 32_000, 256_000]
