"""From topologies and measurements to budgets: prices, loads, bounds by source and sink, the threshold."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.budgets import (
    Load,
    RemoteCost,
    Table,
    distribute,
    loads_from_measurements,
    loads_from_sources,
    needs_redistribution,
    problem_of,
    solve,
)
from penstock.budgets.distribution import at_places, default_step_s, instance_price_per_h
from penstock.errors import ConfigurationError
from penstock.monitoring import Measurement
from penstock.topology import HostFlavour, LatencyBound, Operator, Service, Sink, Site, Source, Topology, Unit


def a_topology(**changes: object) -> Topology:
    """Two sources, three units, two sinks: `fast` and `slow` feed `join`."""
    topology = Topology(
        "t",
        sources=(Source("clicks"), Source("views")),
        operators=(
            Operator("parse", ("clicks",), service=Service(0.01, 0.5), ratio=2.0),
            Operator("enrich", ("parse",), service=Service(0.02, 0.5), ratio=0.5),
            Operator("slow", ("views",), service=Service(0.1, 1.0)),
            Operator("join", ("enrich", "slow"), service=Service(0.05, 0.2)),
        ),
        sinks=(Sink("store", ("join",)), Sink("raw", ("slow",))),
        units=(Unit("fast", ("parse", "enrich")),),
        sites=(Site("local", btu_s=1800.0, flavours=(HostFlavour("small", 4.0, 8192, Decimal(2)),)),),
        latency_bounds=(LatencyBound(3.0),),
    )
    return replace(topology, **changes)  # type: ignore[arg-type]


RATES = {"clicks": 100.0, "views": 20.0}


def test_loads_follow_the_ratios_and_sum_the_work_of_fused_operators() -> None:
    loads = loads_from_sources(a_topology(), RATES)
    # A click is parsed once and enriched twice: 0.01 + 2 · 0.02 s.
    assert loads["fast"].arrival_rate_per_s == 100.0
    assert loads["fast"].service_s == pytest.approx(0.05)
    assert loads["join"].arrival_rate_per_s == pytest.approx(100.0 * 2.0 * 0.5 + 20.0)
    assert loads["slow"] == Load(20.0, 0.1, 1.0, 1.0)


def test_measurements_take_the_place_of_what_was_expected() -> None:
    window = [
        Measurement("join", 15.0, 15.0, arrived=150, service_s=0.2, arrival_cv=2.0),
        Measurement("join", 30.0, 15.0, arrived=450, service_s=0.4, service_cv=0.5),
    ]
    assert loads_from_measurements(a_topology(), {"join": window, "slow": []}) == {
        "join": Load(20.0, pytest.approx(0.3), 2.0, 0.5)
    }


def test_an_instance_costs_its_share_of_a_host() -> None:
    # 2 for half an hour is 4 an hour; one of four cores is a quarter.
    assert instance_price_per_h(a_topology(), "slow") == pytest.approx(1.0)
    small = (Site("local", flavours=(HostFlavour("tiny", 0.5, 64, Decimal(1)),)),)
    with pytest.raises(ConfigurationError, match="no flavour at the sites of unit 'slow' holds"):
        instance_price_per_h(a_topology(sites=small), "slow")


def test_a_topology_becomes_a_problem_whose_budgets_keep_its_bound() -> None:
    topology = a_topology()
    solution = solve(problem_of(topology, loads=loads_from_sources(topology, RATES), step_s=0.01), "exact")
    budgets = solution.budgets_s
    assert budgets["fast"] + budgets["join"] <= 3.0 + 1e-9
    assert budgets["slow"] + budgets["join"] <= 3.0 + 1e-9
    assert solution.parallelism["fast"] is not None
    assert solution.parallelism["fast"] >= 6  # 100/s of 0.05 s keep five servers busy


def test_bounds_run_from_the_units_of_a_source_to_the_units_of_a_sink() -> None:
    bounds = (LatencyBound(2.0, source="clicks"), LatencyBound(1.0, sink="raw"), LatencyBound(9.0))
    topology = a_topology(latency_bounds=bounds)
    budgets = solve(problem_of(topology, loads=loads_from_sources(topology, RATES), step_s=0.01)).budgets_s
    assert budgets["fast"] + budgets["join"] <= 2.0 + 1e-9
    assert budgets["slow"] <= 1.0 + 1e-9


def test_delays_between_sites_are_taken_off_the_bound() -> None:
    sites = (Site("edge", distance_s={"cloud": 0.5}), Site("cloud"))
    units = (
        Unit("fast", ("parse", "enrich"), ("edge",)),
        Unit("slow", ("slow",), ("cloud",)),
        Unit("join", ("join",), ("cloud",)),
    )
    problem = problem_of(a_topology(sites=sites, units=units), loads=loads_from_sources(a_topology(), RATES))
    assert dict(problem.delays_s) == {("fast", "join"): 0.5}


def test_units_are_priced_and_their_ways_counted_at_the_sites_they_are_at() -> None:
    dear = HostFlavour("small", 4.0, 8192, Decimal(8))
    cheap = HostFlavour("small", 4.0, 8192, Decimal(4))
    sites = (
        Site("city", flavours=(dear,), distance_s={"cloud": 0.02, "private": 0.03}),
        Site("cloud", flavours=(cheap,), distance_s={"private": 0.04}),
        Site("private", flavours=(dear,)),
    )
    units = (
        Unit("fast", ("parse", "enrich"), ("city", "cloud")),
        Unit("slow", ("slow",), ("city",)),
        Unit("join", ("join",), ("private",)),
    )
    whole = a_topology(sites=sites, units=units)
    loads = loads_from_sources(whole, RATES)
    placed, told = at_places(whole), at_places(whole, {"fast": "city", "slow": "city", "join": "private"})
    assert (instance_price_per_h(placed, "fast"), instance_price_per_h(told, "fast")) == (1.0, 2.0)
    ways = {("fast", "join"): 0.04, ("slow", "join"): 0.03}
    assert dict(problem_of(placed, loads=loads).delays_s) == ways
    assert dict(problem_of(told, loads=loads).delays_s) == ways | {("fast", "join"): 0.03}


def test_where_hosts_are_a_manager_s_an_instance_costs_its_cores_and_memory() -> None:
    """Or nothing, where the site has no prices and nothing to be leased."""
    theirs = Site("c", master="spark://x:7077", flavours=(), core_hour=Decimal(2), gib_hour=Decimal(1))
    assert instance_price_per_h(a_topology(sites=(theirs,)), "slow") == pytest.approx(2.5)
    free = a_topology(sites=(replace(theirs, core_hour=Decimal(0), gib_hour=Decimal(0)),))
    assert instance_price_per_h(free, "slow") == 0.0
    assert instance_price_per_h(a_topology(sites=(Site("c", flavours=()),)), "slow") == 0.0
    budgets = distribute(free, loads_from_sources(free, RATES)).budgets_s
    assert budgets["fast"] + budgets["join"] <= 3.0 + 1e-9


def test_a_given_bound_stands_for_every_path_and_none_at_all_is_an_error() -> None:
    topology = a_topology(latency_bounds=())
    loads = loads_from_sources(topology, RATES)
    assert problem_of(topology, loads=loads, bound_s=5.0).bounds[0].bound_s == 5.0
    with pytest.raises(ConfigurationError, match="has no latency bound"):
        problem_of(topology, loads=loads)
    with pytest.raises(ConfigurationError, match="the load of unit 'fast' is not known"):
        problem_of(topology, loads={}, bound_s=5.0)


@pytest.mark.parametrize(("bound_s", "step_s"), [(1.0, 0.005), (3.0, 0.01), (30.0, 0.1), (7.9, 0.02)])
def test_the_default_step_is_a_round_number_near_a_two_hundredth(bound_s: float, step_s: float) -> None:
    assert default_step_s([bound_s, 100.0]) == pytest.approx(step_s)


def test_budgets_are_distributed_anew_only_when_work_moved_past_the_threshold() -> None:
    topology = a_topology()
    loads = loads_from_sources(topology, RATES)
    assert needs_redistribution(None, loads) == "first distribution"
    first = distribute(topology, loads)
    assert needs_redistribution(first, loads_from_sources(topology, {"clicks": 110.0, "views": 22.0})) is None
    reason = needs_redistribution(first, loads_from_sources(topology, {"clicks": 150.0, "views": 20.0}))
    assert reason is not None
    assert "the work of unit fast went from 5 to 7.5 servers (threshold 20%)" in reason
    assert "topology changed (slow)" in str(
        needs_redistribution(first, {k: v for k, v in loads.items() if k != "slow"})
    )


def test_a_unit_with_hardly_any_work_may_double_it_unnoticed() -> None:
    topology = a_topology()
    first = distribute(topology, loads_from_sources(topology, {"clicks": 1.0, "views": 0.5}))
    assert needs_redistribution(first, loads_from_sources(topology, {"clicks": 2.0, "views": 1.0})) is None


def test_a_unit_beyond_its_capacity_is_budgeted_as_if_nearly_full() -> None:
    topology = a_topology()
    found = distribute(topology, loads_from_sources(topology, {"clicks": 100.0, "views": 5_000.0}))
    assert "unit slow has work for 500 servers, more than its 50" in found.reason
    assert set(found.budgets_s) == {"fast", "slow", "join"}


def test_a_bound_out_of_reach_gives_the_smallest_that_works_and_says_so() -> None:
    topology = a_topology(latency_bounds=(LatencyBound(0.1),))
    found = distribute(topology, loads_from_sources(topology, RATES))
    assert "no distribution keeps the bound of 0.1 s" in found.reason
    assert "distributed that instead" in found.reason
    assert found.budgets_s["slow"] + found.budgets_s["join"] > 0.1


def test_a_distribution_hands_out_what_is_left_of_the_bound() -> None:
    topology = a_topology()
    found = distribute(topology, loads_from_sources(topology, RATES))
    assert all(found.budgets_s[name] >= budget_s for name, budget_s in found.solution.budgets_s.items())
    for before in ("fast", "slow"):
        assert found.budgets_s[before] + found.budgets_s["join"] <= 3.0 + 1e-9
    assert max(found.budgets_s[before] for before in ("fast", "slow")) + found.budgets_s[
        "join"
    ] == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(6))
def test_handing_out_the_rest_keeps_several_bounds_too(seed: int) -> None:
    draw = random.Random(seed)
    bounds = (
        LatencyBound(draw.uniform(1.5, 4.0), source="clicks"),
        LatencyBound(draw.uniform(1.5, 4.0), sink="raw"),
    )
    topology = a_topology(latency_bounds=(*bounds, LatencyBound(draw.uniform(2.0, 8.0))))
    budgets = distribute(topology, loads_from_sources(topology, RATES)).budgets_s
    assert budgets["fast"] + budgets["join"] <= topology.latency_bounds[0].bound_s + 1e-9
    assert budgets["slow"] <= topology.latency_bounds[1].bound_s + 1e-9
    assert budgets["slow"] + budgets["join"] <= topology.latency_bounds[2].bound_s + 1e-9


def test_a_silent_unit_keeps_its_last_budget_and_the_reason_says_so() -> None:
    topology = a_topology()
    loads = loads_from_sources(topology, RATES)
    first = distribute(topology, loads, costs={"slow": Table(((0.5, 10.0), (1.0, 3.0)))})
    silent = {"slow": RemoteCost("http://127.0.0.1:9/cost", retries=0)}
    second = distribute(topology, loads, reason="load moved", last=first, costs=silent)
    assert second.budgets_s["slow"] == first.budgets_s["slow"]
    assert "unit slow keeps its last budget" in second.reason
    assert second.reason.startswith("load moved: ")
