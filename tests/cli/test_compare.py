"""`compare`: without billing units to try, every site is billed as the file says."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.cli.compare import Cell, run_comparison
from penstock.experiments.clairvoyant import clairvoyant_cost
from penstock.runs.assembly import load
from penstock.simulator import SimulationSettings, simulate
from tests.cli.test_commands import penstock

TOPOLOGY = """\
name: steps
sources:
  s: {workload: {name: stepwise, levels_per_s: [20, 60, 20], hold_s: 300 s}}
operators:
  work: {inputs: s, slo: 2 s, service: 50 ms, cores: 1, memory: 1 GiB}
policy: rate
sites:
  cloud:
    btu: 1 h
    minimum: 60 s
    increment: 1 s
    flavours:
      m: {cores: 2, memory: 8 GiB, price: 0.20 USD/h}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "steps.yaml"
    place.write_text(TOPOLOGY)
    return place


def test_without_billing_units_a_minimum_and_an_increment_are_the_file_s(file: Path) -> None:
    topology = load(file)
    (row,) = run_comparison(topology, [Cell("rate", "none", None)], [1], 900.0, jobs=1)
    as_it_is = simulate(topology, SimulationSettings(seed=1), duration_s=900.0)
    assert Decimal(str(row.cost)) == pytest.approx(as_it_is.resource_cost)
    assert row.ratio == pytest.approx(row.cost / float(clairvoyant_cost(topology, 900.0)))
    (hourly,) = run_comparison(topology, [Cell("rate", "none", 3600.0)], [1], 900.0, jobs=1)
    assert hourly.cost > 1.5 * row.cost


def test_the_command_bills_as_the_file_says_and_says_so(file: Path, tmp_path: Path) -> None:
    shown = penstock(
        "compare", file, "--policies", "rate", "--seeds", "1", "--duration", "10 min", "--keep", "50%",
        "--jobs", "1", "--out", "here", folder=tmp_path,
    )  # fmt: skip
    (row,) = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert row["btu_s"] is None
    assert row["cost"] < 0.1
    assert "a billing unit of" not in " ".join(shown.split())
