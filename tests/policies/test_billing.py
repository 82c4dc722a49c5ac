"""The billing rule, minimum and increment, in the clairvoyant bound and in a simulated run."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from penstock.experiments.clairvoyant import clairvoyant_cost
from penstock.policies.clairvoyant import cheapest_leases
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, HostFlavour, Site
from tests.policies.views import a_topology

FLAVOUR = HostFlavour("m", 4.0, 4096, Decimal(36))


def cost_of(needed, *, minimum_s, increment_s):
    site = Site("c", btu_s=3600.0, minimum_s=minimum_s, increment_s=increment_s, flavours=(FLAVOUR,))
    hosts = np.asarray(needed, dtype=float)
    return cheapest_leases(site, hosts * 4.0, hosts * 100.0, 60.0).cost


@pytest.mark.parametrize(
    ("needed", "minimum_s", "steps"),
    [
        ([1, 2, 1], 60.0, 4),  # what is needed, nothing more
        ([1, 0, 0, 1], 120.0, 3),  # the last lease ends with the span looked at
        ([0, 1, 0, 0, 0], 180.0, 3),  # the whole minimum for one step
        ([1, 1, 1, 1, 0, 0], 180.0, 4),  # longer than the minimum, released at once
        ([2, 1, 1, 2, 0, 0, 0], 120.0, 8),  # two short leases beside one
    ],
)
def test_a_lease_lasts_its_minimum_and_ends_when_it_is_not_needed(needed, minimum_s, steps):
    assert cost_of(needed, minimum_s=minimum_s, increment_s=1.0) == Decimal("0.6") * steps


def test_minimum_and_increment_of_the_billing_time_unit_are_the_billing_time_unit():
    needed = [1, 2, 3, 1, 0, 0, 2, 2, 1, 1, 0, 3]
    site = Site("c", btu_s=180.0, flavours=(replace(FLAVOUR, price_per_btu=Decimal("1.8")),))
    hosts = np.asarray(needed, dtype=float)
    papers = cheapest_leases(site, hosts * 4.0, hosts * 100.0, 60.0).cost
    assert cost_of(needed, minimum_s=180.0, increment_s=180.0) == papers
    assert cost_of(needed, minimum_s=60.0, increment_s=1.0) <= papers


def test_a_bill_by_the_second_is_below_one_by_the_hour_and_above_the_bound():
    hourly = a_topology(btu_s=3600.0)
    workload = Choice("stepwise", {"levels_per_s": (2.0, 8.0, 3.0), "hold_s": 300.0})
    hourly = replace(
        hourly,
        sources=(replace(hourly.sources[0], workload=workload),),
        units=(replace(hourly.units[0], policy=Choice("rate")),),
    )
    site = hourly.sites[0]
    by_second = replace(hourly, sites=(replace(site, minimum_s=60.0, increment_s=1.0),))
    bills = []
    for topology in (hourly, by_second):
        result = simulate(topology, SimulationSettings(seed=3), duration_s=900.0)
        bills.append(result.resource_cost)
        assert clairvoyant_cost(topology, 900.0) <= result.resource_cost
    assert bills[1] < bills[0]
