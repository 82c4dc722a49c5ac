"""`penstock budget`: a table, JSON, a page, and errors in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.budget import budget
from penstock.errors import ConfigurationError, InfeasibleError
from penstock.runs.assembly import budgeting_for, source_rates
from penstock.topology import Choice, LatencyBound, Operator, Source, Topology

FILE = """
name: shop
sources:
  orders:
    workload: {name: constant, level_per_s: 50}
operators:
  parse: {inputs: [orders], service: {mean: 20 ms}}
  score: {inputs: [parse], service: {mean: 100 ms}}
  store: {inputs: [score], service: {mean: 40 ms}}
sinks:
  out: {inputs: [store]}
latency_bounds:
  - bound: 2 s
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE)
    return path


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(budget)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_lists_every_unit_with_budget_instances_cost_and_slack(file: Path) -> None:
    output = run(str(file))
    for word in (
        "shop: bound 2 s",
        "parse",
        "score",
        "store",
        "budget",
        "instances",
        "cost/h",
        "slack",
        "hull",
    ):
        assert word in output


@pytest.mark.parametrize("solver", ["hull", "exact", "greedy"])
def test_json_holds_the_budgets_of_every_solver_within_the_bound(file: Path, solver: str) -> None:
    found = json.loads(run(str(file), "--json", "--solver", solver, "--bound", "1.5 s", "--step", "10 ms"))
    assert found["solver"] == solver
    assert found["step_s"] == 0.01
    assert sum(unit["budget_s"] for unit in found["units"]) <= 1.5 + 1e-9
    assert {unit["unit"]: unit["arrival_rate_per_s"] for unit in found["units"]} == {
        "parse": 50.0, "score": 50.0, "store": 50.0,
    }  # fmt: skip
    assert found["cost_per_h"] == pytest.approx(sum(unit["cost_per_h"] for unit in found["units"]))


def test_a_rate_takes_the_place_of_the_workloads(file: Path) -> None:
    few = json.loads(run(str(file), "--json", "--rate", "1/s"))
    many = json.loads(run(str(file), "--json", "--rate", "6000/min"))
    assert many["cost_per_h"] > few["cost_per_h"]


def test_the_page_holds_the_graph_and_loads_nothing(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "budget.html"
    run(str(file), "--html", str(page))
    text = page.read_text()
    assert "<svg" in text
    assert "score" in text
    assert 'src="http' not in text


def test_an_unreachable_bound_is_told_in_words(file: Path) -> None:
    with pytest.raises(InfeasibleError, match="smallest bound that would work is"):
        run(str(file), "--bound", "50 ms")


def test_a_source_without_a_workload_asks_for_a_rate() -> None:
    topology = Topology("t", (Source("s"),), (Operator("a", ("s",)),), latency_bounds=(LatencyBound(5.0),))
    with pytest.raises(ConfigurationError, match="--rate"):
        source_rates(topology)
    assert budgeting_for(topology) is not None


def test_the_mean_of_a_wave_and_the_share_of_a_source_count() -> None:
    wave = Choice("sine", {"mean_per_s": 40.0, "period_s": 600.0})
    topology = Topology("t", (Source("s", workload=wave, share=2.0),), (Operator("a", ("s",)),))
    assert source_rates(topology)["s"] == pytest.approx(80.0)
    assert budgeting_for(topology) is None
