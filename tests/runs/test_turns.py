"""Two services on one journal: one serves, the other takes over, the older one is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import FencedError
from penstock.runs import turns
from penstock.runs.turns import Turn
from tests.controller import databases


@pytest.fixture(params=["sqlite", "postgresql"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "journal.sqlite")
        return
    if why := databases.missing():
        pytest.skip(why)
    with databases.a_postgresql_server() as url:
        yield url


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become tenths."""
    monkeypatch.setattr(turns, "BEAT_S", 0.1)
    monkeypatch.setattr(turns, "SILENT_S", 1.0)


def test_the_first_service_serves_at_once_and_the_second_when_the_first_is_silent(journal: str) -> None:
    with Turn(journal, "here") as first, Turn(journal, "here") as second:
        assert first.wait()
        assert first.epoch == 1
        first.keep(lambda why: None)
        stands_by = threading.Thread(target=second.wait)
        stands_by.start()
        time.sleep(1.5)  # longer than a silence that would lose the turn
        assert second.epoch == 0, "the first one is there"
        first._ended.set()  # as if it were killed
        silent_s = time.monotonic()
        stands_by.join(10)
        assert second.epoch == 2
        assert time.monotonic() - silent_s < 3.0
        with pytest.raises(FencedError, match="epoch 2, this one's was 1"):
            first.beat()
        second.beat()


def test_a_service_that_lost_its_turn_is_told_once(journal: str) -> None:
    told: list[str] = []
    with Turn(journal, "here") as frozen, Turn(journal, "here") as other:
        frozen.wait()
        other.wait()  # it said nothing for as long as it may
        frozen.keep(told.append)
        assert frozen._beating is not None
        frozen._beating.join(10)
        assert len(told) == 1
        assert "taken over" in told[0]


def test_one_that_is_told_to_end_while_it_stands_by_takes_nothing(journal: str) -> None:
    with Turn(journal, "here") as first, Turn(journal, "here") as second:
        first.wait()
        assert not second.wait(stopped=lambda: True)
        first.beat()
