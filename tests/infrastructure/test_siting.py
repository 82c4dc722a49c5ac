"""Which site a unit is at: price and distance weighed, one site at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from penstock.infrastructure.siting import became_dear, best_site, placed, price_per_hour, too_dear
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


def test_a_unit_leaves_a_site_whose_price_has_risen_so_far_that_a_move_pays_and_says_by_how_much() -> None:
    places = {"first": "near", "second": "far"}
    found = too_dear(two_sites(), two_sites(far="9"), "second", places)
    assert found is not None
    assert found[0] == "near"
    assert "costs 2.25 an hour at site far, 1.50 times the 1.5 at near" in found[1]
    assert "it was 1.00 times" in found[1]
    assert too_dear(two_sites(), two_sites(far="7.5"), "second", places) is None, "1.25 times is not enough"
    assert too_dear(two_sites(far="8"), two_sites(far="9"), "second", places) is None, "somebody wants it so"


def test_a_unit_does_not_come_and_go_with_prices_that_swing_a_little() -> None:
    places, swing = {"first": "near", "second": "far"}, ["6", "7", "6.5", "7.4", "5"]
    for before, now in pairwise(swing):
        assert too_dear(two_sites(far=before), two_sites(far=now), "second", places) is None
    back = {"first": "near", "second": "near"}
    assert too_dear(two_sites(far="9"), two_sites(far="5"), "second", back) is None, "6 is 1.2 times 5"


def test_nobody_saves_by_going_where_no_room_is() -> None:
    places = {"first": "near", "second": "far"}
    assert too_dear(two_sites(), two_sites(far="9"), "second", places, without=("near",)) is None


def test_a_site_without_a_host_that_holds_an_instance_is_not_chosen() -> None:
    topology = two_sites()
    tiny = a_site("far", flavours=[a_flavour(cores=0.5, price="0.1")])
    assert placed(replace(topology, sites=(topology.sites[0], tiny)))["second"] == "near"


def test_an_instance_that_takes_all_memory_of_a_host_costs_that_host_however_many_cores_are_left() -> None:
    topology = two_sites()
    greedy = Operator("b", ("a",), cores=1.0, memory_mib=8192)
    big = a_site("near", flavours=[a_flavour(cores=8.0, price="0.4")])
    fit = a_site("far", flavours=[a_flavour(cores=2.0, price="0.2")])
    topology = replace(topology, operators=(topology.operators[0], greedy), sites=(big, fit))
    assert [price_per_hour(topology, "second", site) for site in (big, fit)] == [0.4, 0.2]
    assert placed(topology)["second"] == "far"
