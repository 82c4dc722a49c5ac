"""Listeners: told of what happens, in their own thread, and never in the way."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from penstock import Listener
from penstock.controller.listening import MOST_UNTOLD, Telling
from penstock.controller.status import QueryStatus, Status

STATUS = Status("job", 0.0, (), (), "0")


class Heard(Listener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_tick(self, status: Status) -> None:
        self.heard.append("tick")

    def on_decision(self, text: str, status: Status) -> None:
        self.heard.append(("decision", text))

    def on_notice(self, text: str, status: Status) -> None:
        self.heard.append(("notice", text))

    def on_slo(self, query: QueryStatus, kept: bool, status: Status) -> None:
        self.heard.append((query.name, kept))

    def on_end(self, status: Status) -> None:
        self.heard.append("end")


class Fails(Listener):
    """Cannot bear to be told anything."""

    def on_tick(self, status: Status) -> None:
        raise RuntimeError("no")


def test_everything_is_told_in_order_whatever_another_listener_does() -> None:
    heard = Heard()
    telling = Telling([Fails(), heard])
    telling.tick(STATUS, ["start one: because"], ["an executor was lost"])
    telling.end(STATUS)
    assert heard.heard == [
        ("decision", "start one: because"), ("notice", "an executor was lost"), "tick", "end",
    ]  # fmt: skip


def test_a_missed_slo_is_told_once_and_once_more_when_it_is_kept_again() -> None:
    heard = Heard()
    telling = Telling([heard])
    query = QueryStatus("orders", "1", slo_s=1.0)
    for duration_s in (None, 0.5, 2.0, 3.0, 0.5):
        telling.tick(replace(STATUS, queries=(replace(query, duration_s=duration_s),)), [], [])
    telling.end(STATUS)
    assert [item for item in heard.heard if isinstance(item, tuple)] == [("orders", False), ("orders", True)]


def test_a_listener_that_hangs_delays_nobody_and_fills_no_memory() -> None:
    free = threading.Event()

    class Hangs(Listener):
        def on_tick(self, status: Status) -> None:
            free.wait(30)

    telling = Telling([Hangs()])
    began_s = time.monotonic()
    for _ in range(3 * MOST_UNTOLD):
        telling.tick(STATUS, [], [])
    telling.end(STATUS, wait_s=0.1)
    assert time.monotonic() - began_s < 5
    assert telling._news.qsize() <= MOST_UNTOLD
    free.set()


def test_without_listeners_there_is_no_thread() -> None:
    before = threading.active_count()
    telling = Telling([])
    telling.tick(STATUS, ["x"], [])
    telling.end(STATUS)
    assert threading.active_count() == before
