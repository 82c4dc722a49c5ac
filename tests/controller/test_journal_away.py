"""A loop whose journal is away: it goes on observing, decides nothing it cannot record, and resumes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal, database
from penstock.controller.loop import Controller, Tick
from penstock.errors import JournalError
from penstock.fleet.actions import LeaseHost, StartInstance
from penstock.fleet.ports import Wanted
from tests.builders import a_topology
from tests.grounds import HandGround, KilledError, MortalJournal


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else holds the journal's file."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@dataclass
class Interrupted(HandGround):
    """A ground at which something happens when a unit is told: after the record, before the confirmation."""

    then: Callable[[], None] = lambda: None

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        super().tell(unit, wanted, now_s)
        self.then()


class Loop:
    """A controller on a hand-written cluster, whose journal is in a file; a locked one is not waited for."""

    def __init__(self, path: Path) -> None:
        # A host holds four: one more needs another host.
        self.topology = a_topology(initial_instances=4, max_instances=9)
        self.path, self.clock, self.ground = path, VirtualClock(), Interrupted(self.topology)
        self.journal = MortalJournal(path, "r")
        self.journal.bomb = lambda point: None
        self.journal.claim()
        self.controller = self.another()

    def another(self) -> Controller:
        return Controller(self.topology, self.ground.ground, self.clock, self.journal)

    def tick(self) -> Tick:
        found = self.controller.tick()
        self.clock.wait_until(self.clock.now_s() + 60.0)
        return found

    def statuses(self, kind: str) -> dict[str, str]:
        return {row["subject"]: row["status"] for row in self.journal.rows("action") if row["kind"] == kind}

    def told(self) -> list[str]:
        return [row["text"] for row in self.journal.rows("notice") if "cannot be written" in row["text"]]


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    monkeypatch.setattr(database, "WAIT_S", 0.05)
    found = Loop(tmp_path / "journal.db")
    yield found
    found.journal.close()


def test_nothing_is_enacted_while_it_is_locked_and_what_was_put_by_follows_then(loop: Loop) -> None:
    loop.tick()
    loop.tick()
    before, said = dict(loop.ground.instances), len(loop.ground.told)
    assert len(before) == 4
    loop.ground.queues["a"] = 1000
    with locked(loop.path):
        ticks = [loop.tick() for _ in range(3)]
        decided = [v.action for tick in ticks for v in tick.verdicts if v.action.changes]
        assert [type(action) for action in decided] == [LeaseHost, StartInstance, StartInstance], "once"
        assert all(tick.signals for tick in ticks), "it goes on observing"
        assert not any(tick.outcomes for tick in ticks)
        assert (loop.ground.instances, list(loop.ground.hosts)) == (before, ["c-h1"])
        assert len(loop.ground.told) == said
    del loop.ground.queues["a"]
    outcomes = loop.tick().outcomes
    assert [(outcome.action, outcome.error) for outcome in outcomes] == [(action, None) for action in decided]
    loop.tick()
    assert list(loop.ground.hosts) == ["c-h1", "c-h2"]
    assert len(loop.ground.instances) == 6
    assert set(loop.statuses("StartInstance").values()) == {"enacted"}
    (told,) = loop.told()
    assert "database is locked" in told


def test_one_that_goes_away_between_record_and_confirm_ends_no_turn(loop: Loop) -> None:
    with ExitStack() as stack:

        def lock() -> None:
            stack.enter_context(locked(loop.path))
            loop.ground.then = lambda: None

        loop.ground.then = lock
        assert len(loop.tick().outcomes) == 5, "what was recorded is enacted"
        loop.tick()
    loop.tick()
    assert loop.statuses("LeaseHost") == {"c-h1": "enacted"}
    assert set(loop.statuses("StartInstance").values()) == {"enacted"}
    assert len(loop.told()) == 1


def test_a_controller_that_comes_back_confirms_what_it_finds_once_it_is_free(loop: Loop) -> None:
    def die(point: str) -> None:
        if point == "before confirm":
            raise KilledError

    loop.journal.bomb = die
    with pytest.raises(KilledError):
        loop.tick()
    loop.journal.bomb = lambda point: None
    assert loop.statuses("LeaseHost") == {"c-h1": "intended"}
    with locked(loop.path):
        loop.controller = loop.another()
    loop.tick()
    assert loop.statuses("LeaseHost") == {"c-h1": "enacted"}


def test_hosts_are_given_back_at_the_end_though_it_is_locked_and_what_is_not_on_record_is_named(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.tick()
    loop.tick()
    loop.ground.queues["a"] = 1000
    with locked(loop.path):
        loop.tick()
        loop.controller.finish()
        assert loop.ground.hosts == {}
    assert "the end of the run is not on record: host c-h1 was given back" in caplog.text
    loop.journal.flush()
    assert loop.statuses("ReleaseHost") == {"c-h1": "enacted"}
    assert loop.statuses("LeaseHost") == {"c-h1": "enacted", "c-h2": "failed"}, "none is asked for at the end"
    assert [lease.units for lease in loop.journal.leases()] == [1, 0], "nor paid for"
    with Journal(loop.path, "r") as seen:
        assert sum(charge.amount for charge in seen.charges()) == loop.controller.state.ledger.total == 6


def test_hosts_are_given_back_at_the_end_though_the_journal_is_damaged(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.tick()
    with sqlite3.connect(loop.path) as other:
        other.execute("DROP TABLE tick")
    other.close()
    with pytest.raises(JournalError, match="no such table"):
        loop.tick()
    loop.controller.finish()
    assert loop.ground.hosts == {}
    assert "the end of the run is not on record: host c-h1 was given back" in caplog.text
    loop.journal.abandon()
