"""Graph questions, asked in one place: an order by inputs, cycles, and what is reached from somewhere.

A graph is a mapping from a node to its inputs. The standard library's `graphlib` does the sorting and finds
the cycles; it is small and loads at once, which a command that only checks a file needs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)

MOST_CYCLES = 20
"""Cycles that are told: who has more of them mends the first ones first."""


def in_order(inputs: Mapping[Node, Iterable[Node]]) -> tuple[Node, ...]:
    """The nodes so that each follows its inputs, otherwise in the given order; those in cycles come last."""
    sorter = _sorter(inputs)
    place = {node: i for i, node in enumerate(inputs)}
    with suppress(CycleError):  # what no cycle blocks is still given out
        sorter.prepare()
    order: dict[Node, None] = {}
    while ready := sorter.get_ready():
        order.update(dict.fromkeys(sorted(ready, key=place.__getitem__)))
        sorter.done(*ready)
    return (*order, *(node for node in inputs if node not in order))


def find_cycles(inputs: Mapping[Node, Iterable[Node]]) -> tuple[tuple[Node, ...], ...]:
    """Cycles that share no node, each in the direction of flow, starting at its first node given."""
    place = {node: i for i, node in enumerate(inputs)}
    remaining = {node: tuple(names) for node, names in inputs.items()}
    found: list[tuple[Node, ...]] = []
    while len(found) < MOST_CYCLES:
        try:
            _sorter(remaining).prepare()
        except CycleError as error:
            cycle: list[Node] = list(error.args[1])[:-1]  # its last node is its first again
            first = min(range(len(cycle)), key=lambda i: place[cycle[i]])
            found.append((*cycle[first:], *cycle[:first]))
            for node in cycle:
                del remaining[node]
        else:
            break
    return tuple(sorted(found, key=lambda cycle: place[cycle[0]]))


def reached(neighbours: Mapping[Node, Iterable[Node]], start: Iterable[Node]) -> set[Node]:
    """The nodes one comes to by going on from neighbour to neighbour, the start included."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(neighbours.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def _sorter(inputs: Mapping[Node, Iterable[Node]]) -> TopologicalSorter[Node]:
    """A sorter of the nodes that are keys; inputs from elsewhere do not count."""
    sorter: TopologicalSorter[Node] = TopologicalSorter()
    for node, names in inputs.items():
        sorter.add(node, *(name for name in names if name in inputs))
    return sorter
