"""Which streams are empty between two versions, so that no record comes by two ways, or by none."""

from __future__ import annotations

from dataclasses import replace

from penstock.topology.boundary import Edge, rewired
from penstock.topology.model import Choice, Operator, Sink, Source, Topology, Unit


def a_version(wiring: str, units: dict[str, str], **sinks: str) -> Topology:
    """Operators as `name<input+input`, units as their operators, sinks as their inputs."""
    parts = [part.partition("<") for part in wiring.split()]
    operators = tuple(Operator(name, tuple(given.split("+"))) for name, _, given in parts)
    inputs = {name for operator in operators for name in operator.inputs}
    sources = inputs - {operator.name for operator in operators}
    return Topology(
        "ways",
        tuple(Source(name, workload=Choice("constant", {"level_per_s": 1.0})) for name in sorted(sources)),
        operators,
        tuple(Sink(name, tuple(given.split("+"))) for name, given in sinks.items()),
        tuple(Unit(name, tuple(own.split())) for name, own in units.items()),
    )


def emptied(old: Topology, new: Topology) -> dict[str, tuple[Edge, ...]]:
    return {found.name: found.emptied for found in rewired(old, new)}


THREE = {"front": "read", "middle": "work", "side": "look"}
BESIDE = a_version("read<numbers work<read look<read", THREE, out="work", seen="look")
BEHIND = a_version("read<numbers work<read look<work", THREE, out="work", seen="look")


def test_who_goes_further_down_waits_for_what_is_on_its_way_there() -> None:
    assert emptied(BESIDE, BEHIND) == {"look": (("read", "middle"), ("read", "side"))}


def test_who_goes_further_up_waits_for_what_has_passed_there() -> None:
    assert emptied(BEHIND, BESIDE) == {"look": (("read", "middle"), ("work", "side"))}


def test_all_hops_between_are_empty() -> None:
    units = {"front": "a", "one": "b", "two": "c", "side": "look"}
    near = a_version("a<numbers b<a c<b look<a", units, seen="look")
    far = a_version("a<numbers b<a c<b look<c", units, seen="look")
    assert emptied(near, far) == {"look": (("a", "one"), ("a", "side"), ("b", "two"))}
    assert emptied(far, near) == {"look": (("a", "one"), ("b", "two"), ("c", "side"))}


def test_both_sides_of_a_diamond_are_empty_and_what_lies_before_it_is_not() -> None:
    units = {"front": "a", "left": "b", "right": "c", "side": "look"}
    left = a_version("a<numbers b<a c<a look<b", units, seen="look")
    right = a_version("a<numbers b<a c<a look<c", units, seen="look")
    assert emptied(left, right) == {"look": (("a", "left"), ("a", "right"), ("b", "side"))}


def test_a_join_that_gets_one_of_its_inputs_from_elsewhere_waits_for_that_way_alone() -> None:
    units = {"front": "a", "left": "b", "right": "c", "third": "d", "side": "join"}
    before = a_version("a<numbers b<a c<a d<others join<b+d", units, seen="join")
    after = a_version("a<numbers b<a c<a d<others join<c+d", units, seen="join")
    assert emptied(before, after) == {"join": (("a", "left"), ("a", "right"), ("b", "side"))}


def test_who_begins_to_read_a_second_input_and_keeps_the_first_waits_for_nobody() -> None:
    both = a_version("read<numbers work<read look<read+work", THREE, out="work", seen="look")
    assert emptied(BESIDE, both) == {}
    assert emptied(both, BESIDE) == {}, "nor who gives one of two up"


def test_inputs_without_a_common_origin_need_no_boundary() -> None:
    before = a_version("read<numbers work<others look<read", THREE, out="work", seen="look")
    after = a_version("read<numbers work<others look<work", THREE, out="work", seen="look")
    assert emptied(before, after) == {}


def test_another_operator_of_the_unit_may_keep_the_stream_that_one_gives_up() -> None:
    units = {**THREE, "side": "look keep"}
    before = a_version("read<numbers work<read look<read keep<read", units, seen="look", kept="keep")
    after = a_version("read<numbers work<read look<work keep<read", units, seen="look", kept="keep")
    assert emptied(before, after) == {"look": (("read", "middle"), ("read", "side"))}


def test_a_sink_that_gets_its_records_from_another_unit_counts_as_well() -> None:
    units = {"front": "read", "middle": "work"}
    early = a_version("read<numbers work<read", units, out="read", done="work")
    late = a_version("read<numbers work<read", units, out="work", done="work")
    assert emptied(early, late) == {"out": (("read", "middle"),)}
    assert emptied(late, early) == {"out": (("read", "middle"),)}


def test_an_operator_that_goes_to_a_unit_which_reads_the_same_stream_counts_as_well() -> None:
    units = {"front": "read", "one": "work keep", "two": "look"}
    before = a_version("read<numbers work<read keep<read look<read", units, out="work")
    after = replace(
        before, units=(Unit("front", ("read",)), Unit("one", ("keep",)), Unit("two", ("look", "work")))
    )
    assert emptied(before, after)["work"] == (("read", "one"), ("read", "two"))


def test_ways_that_part_at_a_source_are_empty_up_to_it() -> None:
    direct = a_version("read<numbers work<read look<numbers", THREE, out="work", seen="look")
    assert emptied(BESIDE, direct) == {"look": (("numbers", "front"), ("read", "side"))}
    assert emptied(direct, BESIDE) == {"look": (("numbers", "front"), ("numbers", "side"))}


def test_an_operator_in_the_place_of_another_takes_over_what_waits_for_that_one() -> None:
    labour = a_version(
        "read<numbers labour<read look<read", {**THREE, "middle": "labour"}, out="labour", seen="look"
    )
    assert emptied(BESIDE, labour) == {}
    inserted = a_version(
        "read<numbers work<read pre<read look<pre", {**THREE, "side": "pre look"}, out="work", seen="look"
    )
    assert emptied(BESIDE, inserted) == {}
