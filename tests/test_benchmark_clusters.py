"""What the runs on existing clusters tell of a lost node."""

from __future__ import annotations

import pytest
from benchmarks.clusters.campaign import Look, Outcome, replaced


def a_run(*looks: tuple[int, int]) -> Outcome:
    """A look every ten seconds, each with executors and how many were wanted; a node is lost at 20 s."""
    seen = [Look(10.0 * n, 4.0, executors, wanted) for n, (executors, wanted) in enumerate(looks)]
    return Outcome(looks=seen, lost_s=20.0)


@pytest.mark.parametrize(
    ("looks", "here", "holds"),
    [
        # Four were there before, and the policy had shrunk to three when the node was lost.
        ([(4, 4), (4, 3), (3, 3), (2, 3), (3, 3)], 20.0, True),
        # One more than was wanted was there still.
        ([(4, 4), (4, 3), (4, 3), (2, 3), (3, 3)], 20.0, True),
        ([(4, 4), (4, 4), (4, 4), *[(3, 4)] * 6, (4, 4)], 70.0, False),
        ([(4, 4), (4, 4), (4, 4), (3, 4), (3, 4)], "not before the end", False),
        (
            [(4, 4), (4, 4), (4, 4), (3, 4), (3, 2), (2, 2), (4, 4)],
            "fewer than 4 were wanted after 20 s",
            None,
        ),
        # Wanted for longer than it may take.
        ([(4, 4), (4, 4), (4, 4), *[(3, 4)] * 6, (3, 2)], "not before the end", False),
    ],
)
def test_as_many_executors_again_are_those_there_were_as_the_node_was_lost(
    looks: list[tuple[int, int]], here: float | str, holds: bool | None
) -> None:
    figure = replaced("yarn", a_run(*looks))
    assert (figure.here, figure.holds, figure.bar) == (here, holds, "<= 60 s")
