"""`replay`, `tune` and `explain`: a run that was, told and tried again."""

from __future__ import annotations

from decimal import Decimal

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.replay import _repriced
from penstock.cli.tune import Trial, best_of, frontier, lines_of, searched
from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.experiments.twin import opened, recorded, replayed, seasons_of
from penstock.report.run_report import write_run_report
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, HostFlavour, Operator, Service, Sink, Site, Source, Topology, Unit


def a_topology(policy: str = "rate") -> Topology:
    levels = (20.0, 30.0, 45.0, 30.0, 25.0, 40.0)
    return Topology(
        "web",
        (Source("s", workload=Choice("stepwise", {"levels_per_s": levels, "hold_s": 600.0})),),
        (Operator("o", ("s",), slo_s=2.0, memory_mib=512, service=Service(0.3)),),
        (Sink("k", ("o",)),),
        units=(Unit("o", ("o",), policy=Choice(policy), initial_instances=8),),
        sites=(Site("c", btu_s=60.0, flavours=(HostFlavour("m", 4.0, 8192, Decimal("0.01")),)),),
    )


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    topology = a_topology()
    with Journal(folder / "journal.db", "web", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=3), duration_s=3600.0, journal=journal)
        write_run_report(folder, topology, result, journal)
    return folder, result


def test_the_twin_of_a_run_comes_to_what_the_run_came_to(a_run):
    folder, result = a_run
    with opened(folder) as journal:
        run = recorded(journal, a_topology())
    assert run.happened.cost == pytest.approx(float(result.resource_cost))
    assert run.happened.rescales == result.rescales
    # A journal has percentiles of durations, not the count of late records.
    assert run.happened.kept == pytest.approx(result.compliance.ratio("real_time"), abs=0.02)
    twin = replayed(run, run.topology, "twin", seed=8)
    assert twin.cost == pytest.approx(run.happened.cost, rel=0.1)
    assert twin.host_minutes == pytest.approx(run.happened.host_minutes, rel=0.1)
    assert twin.kept == pytest.approx(run.happened.kept, abs=0.02)


def test_replay_shows_the_run_its_twin_other_policies_and_the_plan_of_hindsight(a_run, tmp_path):
    folder, _ = a_run
    out = tmp_path / "out"
    shown = CliRunner().invoke(
        app, ["replay", str(folder), "--policies", "auto", "--jobs", "1", "--out", str(out)]
    )
    assert shown.exit_code == 0, shown.output
    for text in ("as it happened", "the twin of it", "auto", "clairvoyant", "the twin is off by"):
        assert text in " ".join(shown.output.split())
    assert (out / "report.html").is_file()


def test_other_prices_are_an_hour_and_other_leases_have_a_minimum_and_steps():
    (site,) = _repriced(a_topology(), "m=1.20", "60s", "1s").sites
    assert site.first_price(site.flavours[0]) == Decimal("0.02")
    assert site.price_per_step(site.flavours[0]) * 60 == Decimal("0.02")
    assert _repriced(a_topology(), None, None, None) == a_topology()


@pytest.mark.parametrize("prices", ["unknown=1", "m=dear", "m"])
def test_a_price_that_says_nothing_is_refused(prices):
    with pytest.raises(ConfigurationError, match="expected"):
        _repriced(a_topology(), prices, None, None)


def test_explain_tells_what_was_seen_and_decided(a_run):
    folder, _ = a_run
    shown = CliRunner().invoke(app, ["explain", str(folder), "--at", "21 min"])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "into the run" in text
    assert "o: 45/s came" in text
    assert "StartInstance" in text
    assert "up from" in text


def test_a_journal_without_its_topology_asks_for_it(a_run, tmp_path):
    folder, _ = a_run
    (tmp_path / "journal.db").write_bytes((folder / "journal.db").read_bytes())
    shown = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert isinstance(shown.exception, ConfigurationError)
    assert "--topology" in str(shown.exception)


def test_an_hour_is_no_season(a_run):
    folder, _ = a_run
    with opened(folder) as journal:
        assert seasons_of([journal]) == {}


def test_the_search_stops_early_where_a_candidate_is_hopeless():
    candidates = (
        Choice("fixed", {"instances": 2}),
        Choice("fixed", {"instances": 16}),
        Choice("fixed", {"instances": 20}),
    )
    trials = searched(a_topology(), 1200.0, 0.9, (1, 2), 1, candidates)
    assert [trial.stopped_early for trial in trials] == [True, False, False]
    assert best_of(trials, 0.9).kept >= 0.9


def test_the_frontier_has_nothing_that_another_beats():
    trials = [
        Trial(Choice(name), cost, kept, 0.0)
        for name, cost, kept in [("a", 1.0, 0.9), ("b", 2.0, 0.99), ("c", 2.5, 0.95), ("d", 3.0, 0.999)]
    ]
    assert [trial.choice.name for trial in frontier(trials)] == ["a", "b", "d"]
    assert best_of(trials, 0.95).choice.name == "b"
    assert best_of(trials, 0.9999).choice.name == "d"


def test_the_chosen_lines_are_those_of_a_topology_file():
    assert lines_of(Choice("auto", {"keep": 0.99})) == "policy:\n  name: auto\n  keep: 0.99"
    assert lines_of(Choice("rate")) == "policy: rate"
