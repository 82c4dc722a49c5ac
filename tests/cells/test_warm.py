"""A warm start of the experiment's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.feed import Load
from cells.laboratory import topology_of

from penstock.experiments.cells import begun
from penstock.simulator import simulate
from penstock.topology.model import Choice

LOAD = Load("constant", {"level_per_s": 8}, duration_s=80.0)


def test_a_warm_start_begins_as_the_run_before_was(tmp_path: Path) -> None:
    cold = topology_of(LOAD, filter=Choice("none"))
    three = topology_of(LOAD, filter=Choice("none"), policy=Choice("fixed", {"instances": 3}))
    simulate(three, duration_s=300.0, journal=tmp_path / "journal.db")

    warm = begun(cold, tmp_path)

    assert [unit.initial_instances for unit in warm.units] == [3, 1]
