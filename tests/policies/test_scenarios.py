"""Whole simulated runs: every policy in every kind of cluster keeps the books and its promises."""

from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.controller.journal import Journal
from penstock.experiments.step_load import changes_after_jump, step_topology
from penstock.policies.registry import POLICIES
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import (
    Choice,
    HostFlavour,
    Operator,
    Service,
    Site,
    Source,
    Topology,
    Unit,
)

LOAD = Choice("stepwise", {"levels_per_s": (10.0, 60.0, 20.0), "hold_s": 300.0})
SMALL = HostFlavour("small", 2.0, 2048, Decimal(1))
LARGE = HostFlavour("large", 4.0, 8192, Decimal("1.5"))


def operators(*, ratio: float = 1.0) -> tuple[Operator, ...]:
    return (
        Operator("parse", ("s",), slo_s=0.3, memory_mib=300, ratio=ratio, service=Service(0.15)),
        Operator("match", ("parse",), slo_s=0.3, memory_mib=300, ratio=0.5, service=Service(0.15)),
        Operator("count", ("match",), slo_s=0.3, memory_mib=300, service=Service(0.1)),
    )


def cluster(kind: str, policy: Choice, btu_s: float) -> Topology:
    """A topology of three operators: alone or fused, at one site or two, with one flavour or two."""
    source = (Source("s", workload=LOAD),)
    site = Site("here", btu_s=btu_s, flavours=(LARGE,))
    if kind == "an operator a unit":
        units = tuple(Unit(o.name, (o.name,), policy=policy, max_instances=20) for o in operators())
        return Topology("t", source, operators(), units=units, sites=(site,))
    if kind == "units of several operators":
        units = (
            Unit("first", ("parse", "match"), policy=policy, max_instances=20, slots=2),
            Unit("last", ("count",), policy=policy, max_instances=20),
        )
        return Topology("t", source, operators(), units=units, sites=(site,))
    units = (
        Unit("parse", ("parse",), sites=("here", "there"), policy=policy, max_instances=20),
        Unit("match", ("match",), sites=("there",), policy=policy, max_instances=20),
        Unit("count", ("count",), sites=("here",), policy=policy, max_instances=20),
    )
    here = replace(site, flavours=(SMALL, LARGE), max_hosts=3)
    return Topology(
        "t", source, operators(), units=units, sites=(here, replace(here, name="there", max_hosts=6))
    )


@pytest.mark.parametrize("btu_s", [1.0, 600.0])
@pytest.mark.parametrize(
    "kind", ["an operator a unit", "units of several operators", "two sites and two flavours"]
)
@pytest.mark.parametrize("name", ["btu", "pesp", "rate"])
def test_a_run_keeps_its_books_and_its_promises(name, kind, btu_s):
    topology = cluster(kind, Choice(name), btu_s)
    with Journal("sqlite://", "t", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=3), duration_s=1200.0, journal=journal)
        actions, leases = journal.rows("action"), journal.leases()
    assert result.resource_cost == sum((lease.cost for lease in leases), Decimal(0))
    assert [row["refused"] for row in actions if row["status"] in ("refused", "failed")] == []
    assert all(row["reason"] for row in actions)
    for unit in result.units.values():
        assert unit.arrived == unit.processed + unit.left
    assert result.actions["StartInstance"] > len(topology.units), "it never grew"
    assert result.leases > 1


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"fixed"}))
def test_every_policy_serves_a_load_that_jumps(name):
    result = simulate(step_topology(Choice(name)), SimulationSettings(seed=1), duration_s=2400.0)
    assert result.actions["StartInstance"] > 2
    assert result.records_out > 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rate_finds_the_right_number_within_three_decisions(seed):
    changes = changes_after_jump(seed=seed)
    assert all(1 <= count <= 3 for count in changes.values()), changes
    assert changes["first"] <= 2


def test_longer_billing_units_keep_hosts_longer_under_btu():
    def host_s(btu_s: float) -> float:
        return simulate(
            cluster("an operator a unit", Choice("btu"), btu_s), SimulationSettings(seed=3), duration_s=1200.0
        ).host_s

    assert host_s(3600.0) >= host_s(60.0)
