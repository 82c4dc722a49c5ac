"""Executors that come while others serve count once they are warm."""

from __future__ import annotations

import threading

from penstock.machine.processes import wait_until
from penstock.spark.gateway.executors import Executor
from penstock.spark.unit.newcomers import LONGEST_S, Newcomers


def executor(name: str) -> Executor:
    return Executor(name, "127.0.0.11", 1, 0.0, 0, 0, 0.0, 100)


OLD, NEW = executor("0"), executor("1")


class Stove:
    """Warms executors when it is let."""

    def __init__(self) -> None:
        self.lit, self.asked, self.now_s = threading.Event(), list[str](), 0.0

    def warm(self, executor: Executor) -> None:
        self.asked.append(executor.id)
        assert self.lit.wait(60)

    def newcomers(self) -> Newcomers:
        return Newcomers(self.warm, lambda: self.now_s)


def test_the_first_executors_of_a_unit_serve_at_once() -> None:
    stove = Stove()
    assert stove.newcomers().starting([OLD], ()) == frozenset()
    assert stove.asked == []


def test_a_replacement_serves_once_it_is_warm_and_is_warmed_once() -> None:
    stove = Stove()
    newcomers = stove.newcomers()
    newcomers.starting([OLD], ())
    assert newcomers.starting([OLD, NEW], ()) == {"1"}
    assert newcomers.starting([OLD, NEW], ()) == {"1"}
    stove.lit.set()
    assert wait_until(lambda: not newcomers.starting([OLD, NEW], ()), 60)
    assert newcomers.starting([NEW], ()) == frozenset()
    assert stove.asked == ["1"]


def test_one_that_cannot_be_warmed_is_not_waited_for_for_ever() -> None:
    stove = Stove()
    newcomers = stove.newcomers()
    newcomers.starting([OLD], ())
    assert newcomers.starting([OLD, NEW], ()) == {"1"}
    stove.now_s = LONGEST_S + 1.0
    assert newcomers.starting([OLD, NEW], ()) == frozenset()
    stove.lit.set()


def test_where_nobody_else_serves_whoever_is_there_does() -> None:
    stove = Stove()
    newcomers = stove.newcomers()
    newcomers.starting([OLD], ())
    assert newcomers.starting([OLD, NEW], ()) == {"1"}
    assert newcomers.starting([OLD, NEW], ("0",)) == frozenset(), "the other one goes"
    lost = stove.newcomers()
    lost.starting([OLD], ())
    assert lost.starting([NEW], ()) == frozenset()
    stove.lit.set()


def test_executors_that_are_gone_are_forgotten() -> None:
    stove = Stove()
    stove.lit.set()
    newcomers = stove.newcomers()
    newcomers.starting([OLD], ())
    for number in range(1, 6):
        came = executor(str(number))
        newcomers.starting([OLD, came], ())
        assert wait_until(lambda came=came: not newcomers.starting([OLD, came], ()), 60)  # type: ignore[misc]
    newcomers.starting([OLD], ())
    assert (newcomers._begun_s, newcomers._warmed) == ({}, set())
