"""The comparison by pairs that benchmarks use: what counts, what is left out, and in which order it runs."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import benchmarks
import pytest
from benchmarks.pairs import Comparison, Pair, Run, Side, Spent, compare, watched

BENCHMARKS = Path(benchmarks.__file__).parent
MODULES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem != "__main__")


def a_pair(first_s: float, second_s: float, others: float = 0.0) -> Pair:
    return Pair(Run(first_s, Spent(first_s, first_s, 0.0)), Run(second_s, Spent(second_s, second_s, others)))


def test_the_answer_is_the_median_of_the_ratios_and_the_spread_is_said() -> None:
    found = Comparison((a_pair(1.0, 1.0), a_pair(0.8, 1.0), a_pair(3.0, 2.0)), 3)
    assert found.ratio == 1.0
    assert found.words() == "median of 3 pairs, 0.800 to 1.500"


def test_a_disturbed_pair_is_left_out_where_enough_others_are_there() -> None:
    calm = (a_pair(1.0, 1.0), a_pair(0.98, 1.0), a_pair(0.96, 1.0))
    found = Comparison((a_pair(0.5, 1.0, others=0.4), *calm), 3)
    assert found.judged
    assert found.ratio == 0.98
    assert found.words() == "median of 3 pairs, 0.960 to 1.000, 1 disturbed left out"


def test_all_pairs_are_shown_without_a_verdict_where_hardly_any_is_undisturbed() -> None:
    pairs = (a_pair(1.0, 1.0), a_pair(0.5, 1.0, others=0.4), a_pair(0.6, 1.0, others=0.4))
    found = Comparison(pairs, 3)
    assert found.ratio == 0.6
    assert not found.judged
    assert found.words().endswith("too disturbed by others for a verdict")


def scripted(others: list[float], log: list[str], name: str) -> Side:
    """A side that takes a second and is disturbed as told, run by run."""
    left = iter(others)

    def run(_: str) -> Run:
        log.append(name)
        return Run(1.0, Spent(1.0, 1.0, next(left, 0.0)))

    return run


@pytest.mark.parametrize(
    ("others", "limit_s", "runs"),
    [
        ([], 60.0, 3),
        ([0.0, 0.5], 60.0, 4),  # the disturbed pair is run again
        ([0.5] * 20, 60.0, 6),  # but not for ever
        ([0.5] * 20, 0.0, 3),  # nor when time is up
    ],
)
def test_disturbed_pairs_are_run_again_within_bounds(others: list[float], limit_s: float, runs: int) -> None:
    log: list[str] = []
    found = compare(
        "test", "ab", scripted([], log, "a"), scripted(others, log, "b"), pairs=3, warm_ups=0, limit_s=limit_s
    )
    assert len(found.pairs) == runs
    assert log == (["a", "b", "b", "a"] * 3)[: 2 * runs]


def test_a_balanced_pair_runs_one_side_around_the_other_so_that_a_steady_drift_favours_neither() -> None:
    clock = iter(range(1, 100))
    log: list[str] = []

    def side(name: str) -> Side:
        def run(_: str) -> Run:
            log.append(name)
            taken_s = 10.0 + next(clock)  # a machine that gets slower with every run
            return Run(taken_s, Spent(taken_s, taken_s, 0.0))

        return run

    found = compare("test", "ab", side("a"), side("b"), pairs=3, warm_ups=0, limit_s=60.0, balanced=True)
    assert "".join(log) == "abbabaababba"
    assert [pair.ratio for pair in found.pairs] == [1.0, 1.0, 1.0]
    assert found.pairs[0].first.spent.wall_s == 25.0


def test_work_of_this_process_is_its_own_and_not_that_of_others() -> None:
    with watched() as watch:
        until_s = time.process_time() + 0.5
        while time.process_time() < until_s:
            pass
    assert watch.spent.cpu_s == pytest.approx(0.5, abs=0.2)
    assert 0.0 <= watch.spent.others_ratio <= 1.0


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_can_be_begun(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
