"""Which site a unit is at: price and distance weighed, one site at a time."""

from __future__ import annotations

from dataclasses import replace

from penstock.infrastructure.siting import became_dear, best_site, placed
from penstock.topology.model import Operator, Source, Topology, Unit
from tests.builders import a_flavour, a_site


def two_sites(near: str = "6", far: str = "4", way_s: float = 0.0, slo_s: float = 1.0) -> Topology:
    """A unit that is at `near`, and one behind it that may be at `near` or `far`."""
    return Topology(
        "t",
        (Source("s"),),
        (Operator("a", ("s",), slo_s=slo_s), Operator("b", ("a",), slo_s=slo_s)),
        units=(Unit("first", ("a",), sites=("near",)), Unit("second", ("b",), sites=("near", "far"))),
        sites=(
            a_site("near", flavours=[a_flavour(price=near)]),
            a_site("far", flavours=[a_flavour(price=far)], distance_s={"near": way_s}),
        ),
    )


def test_a_unit_is_where_it_is_cheapest() -> None:
    assert placed(two_sites()) == {"first": "near", "second": "far"}


def test_of_sites_that_cost_the_same_the_first_is_taken() -> None:
    assert placed(two_sites(near="4"))["second"] == "near"


def test_a_way_that_takes_much_of_the_slo_makes_a_cheap_site_dear() -> None:
    # 4 × 1 / (1 - 0.3) = 5.7 < 6, and 4 × 1 / (1 - 0.4) = 6.7 > 6
    assert placed(two_sites(way_s=0.3))["second"] == "far"
    assert placed(two_sites(way_s=0.4))["second"] == "near"


def test_no_price_makes_up_for_a_way_as_long_as_the_slo() -> None:
    assert placed(two_sites(far="0.01", way_s=1.0))["second"] == "near"


def test_a_unit_stays_where_it_is_as_long_as_it_may_be_there() -> None:
    topology = two_sites()
    assert placed(topology, {"second": "near"})["second"] == "near"
    only_far = replace(topology, units=(topology.units[0], replace(topology.units[1], sites=("far",))))
    assert placed(only_far, {"second": "near"})["second"] == "far"


def test_a_site_that_is_left_out_is_taken_only_where_there_is_no_other() -> None:
    topology = two_sites()
    assert best_site(topology, "second", {"first": "near"}, without=("far",)) == "near"
    assert best_site(topology, "first", {}, without=("near",)) == "near"


def test_a_site_becomes_dear_by_a_change_of_prices_and_not_by_having_been_chosen() -> None:
    places = {"first": "near", "second": "far"}
    assert became_dear(two_sites(), two_sites(far="8"), "second", places)
    assert not became_dear(two_sites(), two_sites(far="7"), "second", places), "a move is not for nothing"
    assert not became_dear(two_sites(far="9"), two_sites(far="9.5"), "second", places), "it was chosen so"


def test_a_site_without_a_host_that_holds_an_instance_is_not_chosen() -> None:
    topology = two_sites()
    tiny = a_site("far", flavours=[a_flavour(cores=0.5, price="0.1")])
    assert placed(replace(topology, sites=(topology.sites[0], tiny)))["second"] == "near"
