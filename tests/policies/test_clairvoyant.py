from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.experiments.clairvoyant import clairvoyant_cost, unit_loads
from penstock.experiments.visp_topology import visp_topology
from penstock.policies.clairvoyant import _several_flavours, cheapest_leases, fewest_instances, needs_of
from penstock.topology.model import Choice, HostFlavour, Site
from tests.policies.views import a_topology


def a_site(btu_s: float = 3600.0, *flavours: HostFlavour) -> Site:
    return Site("c", btu_s=btu_s, flavours=flavours or (HostFlavour("m", 4.0, 4096, Decimal(6)),))


def leases(needed, btu_steps):
    """The cheapest leases for so many hosts of 4 cores in each step of a minute."""
    needed = np.asarray(needed, dtype=float)
    return cheapest_leases(a_site(60.0 * btu_steps), needed * 4.0, needed * 100.0, 60.0)


@pytest.mark.parametrize(
    ("needed", "btu_steps", "units"),
    [
        ([1, 1, 1, 1], 4, 1),
        ([1, 1, 1, 1, 1], 4, 2),  # one step more than is paid
        ([1, 2, 1, 1], 4, 2),
        ([1, 0, 0, 1], 2, 2),
        ([2, 0, 0, 0], 4, 2),
        ([0, 0, 3, 3], 2, 3),
        ([1, 2, 1, 2, 1], 1, 7),
        ([0, 0], 3, 0),
    ],
)
def test_leases_begin_when_something_is_missing(needed, btu_steps, units):
    assert leases(needed, btu_steps).cost == 6 * units


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_for_one_flavour_the_sweep_costs_what_the_solver_finds(needed, span):
    flavour = HostFlavour("m", 4.0, 4096, Decimal(6))
    cores, memory = np.array(needed) * 4.0, np.array(needed) * 100.0
    swept = cheapest_leases(a_site(60.0 * span, flavour), cores, memory, 60.0)
    assert swept.cost == _several_flavours([flavour], cores, memory, span, 1).cost


def test_with_several_flavours_the_cheapest_mix_is_found():
    site = a_site(
        120.0, HostFlavour("small", 2.0, 4096, Decimal(2)), HostFlavour("large", 8.0, 16384, Decimal(5))
    )
    schedule = cheapest_leases(site, np.array([8.0, 8.0, 2.0, 2.0]), np.zeros(4), 60.0)
    assert schedule.cost == Decimal(7)
    assert schedule.starts == {"small": (0, 0, 1, 0), "large": (1, 0, 0, 0)}


def test_a_billing_unit_shorter_than_a_step_is_paid_as_often_as_it_fits():
    assert cheapest_leases(a_site(1.0), np.array([4.0, 8.0]), np.zeros(2), 60.0).cost == 6 * 60 * 3


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 6))
def test_more_load_never_costs_less(needed, span):
    assert leases([n + 1 for n in needed], span).cost >= leases(needed, span).cost


def test_the_fewest_instances_are_busy_all_the_time():
    found = fewest_instances(np.array([0.0, 1.0, 10.0, 10.1]), 0.5, 2, 1, 3)
    assert found.tolist() == [1, 1, 3, 3]


def test_memory_counts_as_well_as_cores():
    topology = a_topology(cores=0.1, memory_mib=3584)
    ((cores, memory),) = needs_of(topology, {"a": np.array([2.0, 3.0])}).values()
    assert cores.tolist() == pytest.approx([0.2, 0.3])
    assert cheapest_leases(topology.sites[0], cores, memory, 3600.0).cost == 6 + 12


def test_loads_follow_the_workload_through_the_topology():
    topology = visp_topology(workload=Choice("constant", {"level_per_s": 160.0}))
    loads = unit_loads(topology, 600.0, 60.0)
    assert loads["monitor_temperature"][0] == pytest.approx(np.full(10, 100.0))
    assert loads["calculate_oee"][0] == pytest.approx(np.full(10, 30.0))
    assert loads["generate_report"][0] == pytest.approx(np.full(10, 10.0))
    assert loads["inform_user"][0] == pytest.approx(np.full(10, 50 / 50 + 100 / 100 + 10 / 300))
    assert loads["parse_and_distribute"][1] == 1.5


def test_the_bound_of_a_constant_load_is_what_the_needed_hosts_cost():
    topology = visp_topology(workload=Choice("constant", {"level_per_s": 100.0}), slots=5)
    one_hour = clairvoyant_cost(topology, 3600.0)
    assert clairvoyant_cost(topology, 7200.0) == 2 * one_hour
    assert clairvoyant_cost(topology, 3660.0) == 2 * one_hour
    assert one_hour % 6 == 0


def test_shorter_billing_units_of_the_same_price_never_cost_more():
    loads = Choice("two_level")
    costs = [
        clairvoyant_cost(replace(visp_topology(btu_s=btu_s, workload=loads)), 7200.0)
        for btu_s in (3600.0, 1800.0, 600.0)
    ]
    assert costs == sorted(costs, reverse=True)
