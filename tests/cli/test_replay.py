"""`replay`, `tune` and `explain`: a run that was, told and tried again."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.replay import _allowance, _changed, _offering, _on_spot, _repriced
from penstock.cli.tune import Trial, best_of, frontier, lines_of, searched
from penstock.controller.journal import Journal
from penstock.controller.kept import keep_topology
from penstock.controller.warm_start import earlier_seasons
from penstock.errors import ConfigurationError
from penstock.experiments.twin import best_cost_of, bound_of, opened, recorded, replayed, topology_of_run
from penstock.report.run_report import write_run_report
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LatencyBound,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)


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
    # What ended after the last look alone is in no observation.
    assert run.happened.kept == pytest.approx(result.compliance.ratio("real_time"), abs=0.0005)
    twin = replayed(run, run.topology, "twin", seed=8)
    assert twin.cost == pytest.approx(run.happened.cost, rel=0.1)
    assert twin.host_minutes == pytest.approx(run.happened.host_minutes, rel=0.1)
    assert twin.kept == pytest.approx(run.happened.kept, abs=0.02)


def test_the_twin_s_sources_send_what_came_from_each(tmp_path):
    one = a_topology()
    (source,), (operator,) = one.sources, one.operators
    little = Source("few", workload=Choice("constant", {"level_per_s": 2.0}))
    both = replace(one, sources=(source, little), operators=(replace(operator, inputs=("s", "few")),))
    with Journal(tmp_path / "journal.db", "web", buffered=True) as journal:
        simulate(both, SimulationSettings(seed=3), duration_s=1200.0, journal=journal)
        run = recorded(journal, both)
    sent = {
        source.name: sum(source.workload.parameters["levels_per_s"]) * source.workload.parameters["hold_s"]
        for source in run.topology.sources
    }
    assert sent["few"] == pytest.approx(2400, rel=0.05)
    assert sent["s"] == pytest.approx(600 * (20 + 30), rel=0.05)


def test_the_twin_of_a_unit_of_several_operators_has_their_shares_of_the_work(tmp_path):
    one = a_topology()
    operators = (
        Operator("parse", ("s",), slo_s=2.0, ratio=0.5, service=Service(0.1)),
        Operator("score", ("parse",), slo_s=2.0, ratio=0.01, service=Service(0.3)),
        Operator("tell", ("score",), slo_s=2.0, service=Service(0.8, shape="exponential")),
    )
    unit = replace(one.units[0], operators=("parse", "score", "tell"))
    several = replace(one, operators=operators, sinks=(Sink("k", ("tell",)),), units=(unit,))
    with Journal(tmp_path / "journal.db", "web", buffered=True) as journal:
        simulate(several, SimulationSettings(seed=3), duration_s=1800.0, journal=journal)
        # Declared too short: all take twice as long as they are said to.
        halved = [replace(o, service=replace(o.service, mean_s=o.service.mean_s / 2)) for o in operators]
        run = recorded(journal, replace(several, operators=tuple(halved)))
    for was, found in zip(operators, run.topology.operators, strict=True):
        assert found.service.mean_s == pytest.approx(was.service.mean_s, rel=0.05)
        assert found.service.shape == was.service.shape
    twin = replayed(run, run.topology, "twin", seed=8)
    assert twin.cost == pytest.approx(run.happened.cost, rel=0.1)


def test_a_run_is_replayed_and_tuned_under_its_latency_bounds(a_run):
    folder, _ = a_run
    free = a_topology("queueing")
    bounded = replace(free, latency_bounds=(LatencyBound(0.5, sink="k"),))
    with opened(folder) as journal:
        run = recorded(journal, bounded)
    tight = replayed(run, run.topology, "bounded")
    assert tight.kept > replayed(run, replace(run.topology, latency_bounds=()), "free").kept + 0.03
    (trial,) = searched(run.topology, run.duration_s, 0.0, (1,), 1, (Choice("queueing"),))
    assert (trial.cost, trial.kept, trial.rescales) == (tight.cost, tight.kept, tight.rescales)


def test_the_twin_of_a_real_run_has_its_measured_times(a_run):
    folder, _ = a_run
    real = a_topology()
    real = replace(real, sites=(replace(real.sites[0], provider=Choice("local")),))
    with opened(folder) as journal:
        run = recorded(journal, real)
    times = run.topology.sites[0].provider
    assert times.name == "simulated"
    # Hosts of this run were up after 30 to 60 s, and an instance did a record in 0.3 s.
    assert 30.0 <= times.parameters["host_start_most_s"] <= 75.0
    unit, operator = run.topology.units[0], run.topology.operators[0]
    assert operator.service.mean_s / unit.slots == pytest.approx(0.3, rel=0.15)


def test_the_policy_of_a_real_run_s_twin_sees_its_work_steady_and_not_its_wait(a_run):
    folder, _ = a_run
    real = a_topology("queueing")
    real = replace(real, sites=(replace(real.sites[0], provider=Choice("local")),))
    with opened(folder) as journal:
        run = recorded(journal, real)
    twin = replayed(run, run.topology, "twin", seed=8)
    settings = SimulationSettings(seed=8, steady_service=True)
    same = simulate(run.topology, settings, duration_s=run.duration_s)
    assert (twin.cost, twin.rescales) == (float(same.resource_cost), same.rescales)
    (trial,) = searched(run.topology, run.duration_s, 0.0, (8,), 1, (Choice("queueing"),), steady=run.steady)
    assert (trial.cost, trial.rescales) == (twin.cost, twin.rescales)
    varying = simulate(run.topology, SimulationSettings(seed=8), duration_s=run.duration_s)
    assert (twin.cost, twin.rescales) != (float(varying.resource_cost), varying.rescales)


def test_a_run_whose_old_observations_were_thinned_is_replayed_from_the_others_on(a_run, tmp_path):
    folder, _ = a_run
    (tmp_path / "journal.db").write_bytes((folder / "journal.db").read_bytes())
    with Journal(tmp_path / "journal.db", "web") as journal:
        whole = recorded(journal, a_topology())
        while journal.trim(1800.0, keep=1, span_s=600.0).more:
            pass
        run = recorded(journal, a_topology())
        assert best_cost_of(journal, a_topology()) is None
    assert run.duration_s == pytest.approx(1800.0, abs=20.0)
    assert run.happened.cost == pytest.approx(whole.happened.bill[-1] - whole.happened.bill[120], rel=0.05)
    assert 0 < run.happened.rescales < whole.happened.rescales
    assert run.happened.bill[-1] == pytest.approx(run.happened.cost, rel=0.05)
    twin = replayed(run, run.topology, "twin", seed=8)
    assert twin.cost == pytest.approx(run.happened.cost, rel=0.1)
    assert twin.host_minutes == pytest.approx(run.happened.host_minutes, rel=0.1)


def test_the_starting_times_of_a_thinned_real_run_are_those_of_its_hosts_and_instances(a_run, tmp_path):
    folder, _ = a_run
    (tmp_path / "journal.db").write_bytes((folder / "journal.db").read_bytes())
    real = a_topology()
    real = replace(real, sites=(replace(real.sites[0], provider=Choice("local")),))
    with Journal(tmp_path / "journal.db", "web") as journal:
        while journal.trim(1800.0, keep=1, span_s=600.0).more:
            pass
        times = recorded(journal, real).topology.sites[0].provider.parameters
    assert 30.0 <= times["host_start_most_s"] <= 60.0
    assert 0.0 < times["instance_start_most_s"] <= 30.0


def test_the_last_time_of_a_run_alone_is_replayed_where_it_is_asked_for(a_run, tmp_path):
    folder, _ = a_run
    with opened(folder) as journal:
        run = recorded(journal, a_topology(), 1200.0)
        with pytest.raises(ConfigurationError, match="nothing was observed in the last 1 s"):
            recorded(journal, a_topology(), 1.0)
    twin = replayed(run, run.topology, "twin", seed=8)
    # Its instances serve when the span begins, as those of the run did.
    assert twin.kept == pytest.approx(run.happened.kept, abs=0.02)
    assert twin.cost == pytest.approx(run.happened.cost, rel=0.1)
    assert abs(twin.rescales - run.happened.rescales) <= 4
    sent = run.topology.sources[0].workload.parameters
    assert sum(sent["levels_per_s"]) * sent["hold_s"] == pytest.approx(600 * (25 + 40), rel=0.03)
    asked = ["--policies", "rate", "--jobs", "1", "--last", "20 min", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, ["replay", str(folder), *asked])
    assert shown.exit_code == 0, shown.output
    was = next(line for line in shown.output.splitlines() if "as it happened" in line).split("│")
    assert float(was[2]) == pytest.approx(run.happened.cost, rel=0.001)


def test_replay_shows_the_run_its_twin_other_policies_and_the_plan_of_hindsight(a_run, tmp_path):
    folder, _ = a_run
    out = tmp_path / "out"
    shown = CliRunner().invoke(
        app, ["replay", str(folder), "--policies", "auto", "--jobs", "1", "--out", str(out)]
    )
    assert shown.exit_code == 0, shown.output
    for text in ("as it happened", "the twin of it", "auto", "clairvoyant", "the twin is off by"):
        assert text in " ".join(shown.output.split())
    page = (out / "report.html").read_text()
    for curves in ("Instances", "Bill so far", "Load", "clairvoyant plan"):
        assert curves in page


def test_replay_tries_spot_hosts_free_hours_other_flavours_and_other_slos(a_run, tmp_path):
    folder, _ = a_run
    asked = ["--flavours", "l=8x16GiB@1.20", "--spot", "0.5", "--taken", "20 min"]
    asked += ["--free", "30 min", "--slo", "o=3s"]
    shown = CliRunner().invoke(
        app,
        ["replay", str(folder), "--policies", "rate", "--jobs", "1", "--out", str(tmp_path), *asked],
    )
    assert shown.exit_code == 0, shown.output
    # At most three hosts of 0.60 an hour for an hour and their started units, less half an hour.
    cost = next(line for line in shown.output.splitlines() if "│ rate" in line).split("│")[2]
    assert 0.3 < float(cost) < 1.8


def test_what_was_is_held_against_the_plan_at_its_own_prices(a_run, tmp_path):
    folder, _ = a_run
    with opened(folder) as journal:
        run = recorded(journal, a_topology())
    asked = ["--policies", "rate", "--jobs", "1", "--prices", "m=0.06", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, ["replay", str(folder), *asked])
    assert shown.exit_code == 0, shown.output
    ratios = [float(line.split("│")[3]) for line in shown.output.splitlines() if line.count("│") == 7]
    was, twin, cheaper, best = ratios
    assert was == pytest.approx(run.happened.cost / bound_of(run), abs=0.006)
    assert twin == pytest.approx(cheaper, rel=0.1)
    assert best == 1.0


def test_spot_hosts_are_taken_away_with_notice_and_replaced():
    topology = _on_spot(a_topology(), 0.4, 900.0)
    assert topology.sites[0].flavours[0].price_per_btu == Decimal("0.004")
    assert topology.sites[0].flavours[0].spot
    with Journal("sqlite://", "web", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=3), duration_s=3600.0, journal=journal)
        reasons = [row["reason"] for row in journal.rows("action", ("kind", "reason"))]
    assert any("takes it away in" in reason for reason in reasons)
    usual = simulate(a_topology(), SimulationSettings(seed=3), duration_s=3600.0)
    assert float(result.resource_cost) < 0.6 * float(usual.resource_cost)
    assert result.compliance.ratio("real_time") > usual.compliance.ratio("real_time") - 0.02


def test_of_several_flavours_the_spot_hosts_alone_are_taken_away():
    steady = HostFlavour("steady", 4.0, 8192, Decimal("0.02"))
    spot = HostFlavour("spot", 4.0, 8192, Decimal("0.01"), max_hosts=2, spot=True)
    one = a_topology()
    site = replace(
        one.sites[0], flavours=(steady, spot), provider=Choice("simulated", {"taken_after_s": 300.0})
    )
    with Journal("sqlite://", "web", buffered=True) as journal:
        simulate(replace(one, sites=(site,)), SimulationSettings(seed=3), duration_s=3600.0, journal=journal)
        flavours = {lease.host: lease.flavour for lease in journal.leases()}
        told = [json.loads(row["payload"]) for row in journal.rows("life") if row["what"] == "host"]
        names = [row["name"] for row in journal.rows("life") if row["what"] == "host"]
    taken = {flavours[name] for name, payload in zip(names, told, strict=True) if payload.get("taken_s")}
    assert set(flavours.values()) == {"steady", "spot"}
    assert taken == {"spot"}


def test_an_allowance_is_worth_hours_of_the_cheapest_flavour():
    assert _allowance(a_topology(), "2 h") == pytest.approx(2 * 0.6)
    assert _allowance(a_topology(), None) == 0.0


@pytest.mark.parametrize("flavours", ["large", "large=8@0.3", "large=8x16GiB", "large=manyx16GiB@1"])
def test_a_flavour_that_says_too_little_is_refused(flavours):
    with pytest.raises(ConfigurationError, match="expected a flavour"):
        _offering(a_topology(), flavours)


def test_an_slo_of_an_operator_that_is_not_there_is_refused():
    assert _changed(a_topology(), None, "o=7s").operators[0].slo_s == 7.0
    assert _changed(a_topology(), None, "5s").operators[0].slo_s == 5.0
    with pytest.raises(ConfigurationError, match="SLOs of the operators"):
        _changed(a_topology(), None, "p=7s")


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
    assert "start 6 × o" in text
    assert "up from" in text


def test_explain_tells_what_the_alternatives_would_have_cost(tmp_path):
    topology = a_topology("auto")
    with Journal(tmp_path / "journal.db", "web", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=3), duration_s=1800.0, journal=journal)
        write_run_report(tmp_path, topology, result, journal)
    shown = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    lines = [line.strip() for line in shown.output.splitlines()]
    assert any(line.startswith("instead, ") and " costs " in line for line in lines)
    assert " × :" not in shown.output


def test_a_journal_without_its_topology_asks_for_it(a_run, tmp_path):
    folder, _ = a_run
    (tmp_path / "journal.db").write_bytes((folder / "journal.db").read_bytes())
    shown = CliRunner().invoke(app, ["replay", str(tmp_path)])
    assert isinstance(shown.exception, ConfigurationError)
    assert "--topology" in str(shown.exception)


def test_a_run_that_goes_on_has_its_topology_in_its_plan(a_run, tmp_path):
    folder, _ = a_run
    (tmp_path / "journal.sqlite").write_bytes((folder / "journal.db").read_bytes())
    RunFolder(tmp_path).write_plan(RunPlan.of(a_topology(), "web"))
    assert topology_of_run(tmp_path, None) == a_topology()


def test_an_attached_job_is_replayed_from_its_journal_alone(tmp_path):
    """Of its executors the journal knows no memory, which no topology file may say."""
    file = tmp_path / "journal.db"
    room = HostFlavour("any", 1008.0, 1 << 20, Decimal(0))
    attached = Topology(
        "job",
        (Source("input"),),
        (Operator("job", ("input",), slo_s=2.0, memory_mib=1),),
        units=(Unit("job", ("job",), policy=Choice("rate"), initial_instances=2),),
        sites=(Site("their-machines", Choice("managed"), 365 * 86_400.0, (room,), max_hosts=1),),
    )
    came = replace(attached.sources[0], workload=Choice("constant", {"level_per_s": 20.0}))
    with Journal(file, "job", buffered=True) as journal:
        simulate(replace(attached, sources=(came,)), duration_s=900.0, journal=journal)
        keep_topology(journal, attached)
    assert topology_of_run(file, None) == attached
    asked = ["--policies", "rate", "--jobs", "1", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, ["replay", str(file), *asked])
    assert shown.exit_code == 0, shown.output
    assert "the twin is off by" in " ".join(shown.output.split())


def test_an_hour_is_no_season(a_run):
    folder, _ = a_run
    assert earlier_seasons(folder) == {}


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
