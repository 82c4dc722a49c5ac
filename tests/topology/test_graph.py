"""Graph questions: an order by inputs, cycles, what is reached."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.topology.graph import MOST_CYCLES, find_cycles, in_order, reached

graphs = st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 15), max_size=4), max_size=13)


@settings(max_examples=200, deadline=None)
@given(graphs)
def test_an_order_holds_every_node_once_and_each_behind_its_inputs(inputs: dict[int, list[int]]) -> None:
    order = in_order(inputs)
    assert sorted(order) == sorted(inputs)
    if not find_cycles(inputs):
        place = {node: i for i, node in enumerate(order)}
        for node, names in inputs.items():
            assert all(place[name] < place[node] for name in names if name in inputs)


def test_what_is_free_keeps_the_given_order() -> None:
    assert in_order({"c": (), "a": (), "b": ("a",), "d": ("c",)}) == ("c", "a", "b", "d")


def test_what_a_cycle_blocks_comes_last() -> None:
    assert in_order({"x": ("y",), "y": ("x",), "a": (), "b": ("a",)}) == ("a", "b", "x", "y")


def test_a_cycle_begins_at_its_first_node_and_runs_in_the_direction_of_flow() -> None:
    assert find_cycles({"a": ("c",), "b": ("a",), "c": ("b",), "d": ("d",)}) == (("a", "b", "c"), ("d",))


def test_only_so_many_cycles_are_told() -> None:
    assert len(find_cycles({i: (i,) for i in range(100)})) == MOST_CYCLES


@settings(max_examples=100, deadline=None)
@given(graphs, st.sets(st.integers(0, 15), max_size=3))
def test_what_is_reached_is_closed(neighbours: dict[int, list[int]], start: set[int]) -> None:
    found = reached(neighbours, start)
    assert start <= found
    assert all(set(neighbours.get(node, ())) <= found for node in found)
    assert all(node in start or any(node in neighbours.get(other, ()) for other in found) for node in found)
