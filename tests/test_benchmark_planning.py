"""What the benchmark of planning calls out of reach."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.planning_reach import unavoidable


def a_jump(at_s: int, to: float) -> np.ndarray:
    loads = np.full(1200, 10.0)
    loads[at_s:] = to
    return loads


def test_what_comes_until_the_first_decision_after_a_jump_serves_is_late_for_everybody() -> None:
    able = np.full(1200, 12.0)
    late = unavoidable(a_jump(130, 30.0), able, 60.0, 50.0, 1.0)
    # From 130 s on; the decision at 180 s serves at 230 s; a backlog of a second's wait takes no second.
    assert late * a_jump(130, 30.0).sum() == pytest.approx(30.0 * 99, rel=0.02)


def test_nothing_is_late_where_what_is_held_carries_the_jump() -> None:
    assert unavoidable(a_jump(130, 30.0), np.full(1200, 30.0), 60.0, 50.0, 1.0) == 0.0


def test_a_jump_that_what_is_held_works_off_within_the_slack_makes_nothing_late() -> None:
    loads = np.full(1200, 10.0)
    loads[130] = 20.0
    assert unavoidable(loads, np.full(1200, 12.0), 60.0, 50.0, 1.0) == 0.0
