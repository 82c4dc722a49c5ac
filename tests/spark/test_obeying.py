"""Executors are brought to what is wanted in a thread of its own, whatever the cluster manager does."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.errors import ClusterError
from penstock.fleet.ports import Wanted, WantedInstance
from penstock.machine.processes import wait_until
from penstock.spark.session.obeying import Obeying


class Manager:
    """The executors of a session whose cluster manager refuses, or hangs, for a while."""

    def __init__(self) -> None:
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)))
        self.spark = SimpleNamespace(sparkContext=context)
        self.answers = threading.Event()
        self.hangs = threading.Event()
        self.said = threading.Event()
        self.target: int | None = None
        self.ids = ["1", "2", "3"]
        self.killed: list[str] = []
        self.retiring: frozenset[str] = frozenset()

    def executors(self) -> list[Any]:
        return [SimpleNamespace(id=name) for name in self.ids]

    def set_target(self, number: int) -> None:
        if self.hangs.is_set():
            self.answers.wait(60)
        if not self.answers.is_set():
            raise ClusterError("the application master is away")
        self.target = number

    def retire(self, ids: Collection[str]) -> None:
        self.retiring |= frozenset(ids)

    def kill(self, ids: Collection[str]) -> None:
        self.killed.extend(ids)
        self.ids = [name for name in self.ids if name not in ids]

    def tick(self) -> None:
        self.said.set()


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def obeying(manager: Manager) -> Iterator[Obeying]:
    found = Obeying(cast(Any, manager))
    yield found
    manager.answers.set()
    found.end()
    found.thread.join(30)
    assert not found.thread.is_alive()


def so_many(number: int, **more: Any) -> Wanted:
    return Wanted(tuple(WantedInstance(f"i{n}", None, 1.0, 512) for n in range(number)), **more)


def test_what_a_manager_refuses_is_told_and_tried_again(manager: Manager, obeying: Obeying) -> None:
    obeying.tell(so_many(2))
    assert wait_until(lambda: obeying.problem is not None, 30)
    assert "the application master is away" in str(obeying.problem)
    manager.answers.set()
    assert wait_until(lambda: manager.target == 2, 30)
    assert wait_until(lambda: obeying.problem is None, 30)


def test_nobody_waits_for_a_manager_that_hangs(manager: Manager, obeying: Obeying) -> None:
    manager.hangs.set()
    obeying.tell(so_many(2))
    obeying.tell(so_many(3))
    assert manager.target is None
    manager.answers.set()
    assert wait_until(lambda: manager.target == 3, 30), "and what was wanted last is what it comes to"


def test_what_was_taken_over_is_said_before_anything_is_wanted(manager: Manager, obeying: Obeying) -> None:
    obeying.start()
    assert manager.said.wait(30)


def test_who_shall_go_is_retired_and_who_shall_go_at_once_is_killed(
    manager: Manager, obeying: Obeying
) -> None:
    manager.answers.set()
    obeying.tell(so_many(1, retire=("2", "gone"), kill=("3",)))
    assert wait_until(lambda: manager.killed == ["3"], 30)
    assert manager.retiring == {"2", "3"}
