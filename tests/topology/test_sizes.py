"""What the planner places is what Spark starts: sizes Spark cannot start are refused with what to write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.topology.model import Choice, HostFlavour, Operator, Shape, Site, Topology, Unit
from penstock.topology.sizes import LEAST_EXECUTOR_MIB, has_whole_cores, whole_cores
from tests.topology.strategies import a_topology

LOCAL = Site("here", provider=Choice("local"))
MASTER = Site("there", master="spark://there:7077")


def a_unit(cores: float, memory_mib: int, slots: int = 1, *, sites: tuple[Site, ...] = (LOCAL,)) -> Topology:
    operators = (Operator("a", ("clicks",), cores=cores, memory_mib=memory_mib),)
    return a_topology(operators=operators, sinks=(), units=(Unit("u", ("a",), slots=slots),), sites=sites)


@pytest.mark.parametrize("site", [LOCAL, MASTER], ids=lambda site: site.name)
def test_a_fraction_of_a_core_is_refused_where_executors_are_real(site: Site) -> None:
    assert has_whole_cores(site)
    (mistake,) = whole_cores(a_unit(0.5, 512, sites=(site,)))
    assert mistake.code == "fraction-of-a-core"
    assert f'site "{site.name}"' in mistake.message
    assert "write cores: 1" in mistake.message


def test_slots_do_not_make_a_fraction_whole() -> None:
    # Five slots of a fifth are one core in sum, but each slot is a task, and a task has whole cores.
    assert [m.code for m in whole_cores(a_unit(0.2, 512, 5))] == ["fraction-of-a-core"]


def test_less_memory_than_an_executor_has_is_refused_with_what_each_operator_should_get() -> None:
    operators = tuple(Operator(name, ("clicks",), memory_mib=100) for name in "abc")
    topology = a_topology(operators=operators, sinks=(), units=(Unit("u", ("a", "b", "c")),), sites=(LOCAL,))
    (mistake,) = whole_cores(topology)
    assert mistake.code == "too-little-memory"
    assert "write memory: 171 MiB for each of its operators" in mistake.message
    enough = tuple(replace(operator, memory_mib=171) for operator in operators)
    assert whole_cores(replace(topology, operators=enough)) == ()


def test_whole_sizes_are_right_and_a_simulated_site_takes_fractions() -> None:
    assert whole_cores(a_unit(2.0, LEAST_EXECUTOR_MIB, 3)) == ()
    simulated = a_unit(0.5, 96, sites=(Site("cloud"),))
    assert whole_cores(simulated) == ()
    assert {m.code for m in whole_cores(simulated, everywhere=True)} == {
        "fraction-of-a-core",
        "too-little-memory",
    }


def test_only_the_sites_a_unit_may_run_at_count() -> None:
    topology = a_unit(0.5, 96, sites=(Site("cloud"), LOCAL))
    assert whole_cores(topology)
    kept = replace(topology, units=(replace(topology.units[0], sites=("cloud",)),))
    assert whole_cores(kept) == ()


def test_a_shape_is_slots_times_the_hungriest_operator_and_the_sum_of_memory() -> None:
    operators = (Operator("a", ("clicks",), cores=1.0), Operator("b", ("a",), cores=2.0, memory_mib=1024))
    topology = a_topology(operators=operators, sinks=(), units=(Unit("u", ("a", "b"), slots=3),))
    shape = topology.unit_shape("u")
    assert shape == Shape(3, 6.0, 1536)
    assert (topology.unit_cores("u"), topology.unit_memory_mib("u")) == (6.0, 1536)
    flavour = HostFlavour("m", 6.0, 1536, topology.sites[0].flavours[0].price_per_btu)
    assert shape.fits(flavour)
    assert not shape.fits(replace(flavour, cores=5.0))
    assert not shape.fits(replace(flavour, memory_mib=1535))
