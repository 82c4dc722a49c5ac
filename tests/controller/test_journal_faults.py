"""A journal that cannot be written keeps what it has and writes it once; older controllers write nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Table, text
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.exc import OperationalError

from penstock.controller.guards import Verdict
from penstock.controller.journal import Journal, TickRecord, database, unwritten
from penstock.controller.journal.tables import CLAIMS, LEASES, SETTINGS, written
from penstock.errors import FencedError, JournalUnavailableError
from penstock.fleet.actions import StartInstance
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Measurement, Signal


def a_tick(number: int, **options: object) -> TickRecord:
    at_s = 15.0 * number
    lease = Lease(f"c-h{number}", "c", "m", at_s, 60.0, Decimal("0.25"))
    return TickRecord(
        at_s, True, number + 1, 1, 0, 0, Decimal(number), signals=(Signal(Measurement("a", at_s, 15.0)),),
        leases=(lease,), charges=(Charge(lease.host, at_s, 1, Decimal("0.25"), "new"),), **options,  # type: ignore[arg-type]
    )  # fmt: skip


def recorded(path: Path | str, run: str = "r") -> list[float]:
    """The ticks on record, seen by somebody else; every table must tell the same."""
    with Journal(path, run) as journal:
        ticks = [row["at_s"] for row in journal.rows("tick")]
        assert [row["at_s"] for row in journal.rows("observation")] == ticks
        assert [charge.at_s for charge in journal.charges()] == ticks
        assert [lease.started_s for lease in journal.leases()] == ticks
    return ticks


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.1)


# -- a database that cannot be written ----------------------------------------------------------------


def test_a_locked_file_is_waited_for_and_told_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path, "r") as journal:
        journal.claim()
        journal.record(a_tick(0))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        began_s = time.monotonic()
        with pytest.raises(JournalUnavailableError, match="database is locked"):
            journal.record(a_tick(1))
        assert 0.9 * database.WAIT_S < time.monotonic() - began_s < 3 * database.WAIT_S
        other.execute("ROLLBACK")
        other.close()
        journal.record(a_tick(2))
        assert recorded(path) == [0.0, 15.0, 30.0]
    assert recorded(path) == [0.0, 15.0, 30.0]


@pytest.mark.usefixtures("_impatient")
def test_what_was_enacted_while_the_file_was_locked_is_marked_once_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    started = tuple(Verdict(StartInstance(f"a-{n}", "a", None, "more"), "threshold") for n in (1, 2, 3))
    with Journal(path, "r") as journal:
        journal.record(a_tick(0, verdicts=started[:2]))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnavailableError):
            journal.confirm(0.0, {("StartInstance", "a-2"): "no room"})
        with pytest.raises(JournalUnavailableError):
            journal.record(
                a_tick(1, verdicts=(Verdict(StartInstance("a-3", "a", None, "more"), "threshold"),))
            )
        other.execute("ROLLBACK")
        other.close()
        journal.flush()
        assert [(row["subject"], row["status"]) for row in journal.rows("action")] == [
            ("a-1", "enacted"),
            ("a-2", "failed"),
            ("a-3", "intended"),
        ]
        journal.confirm(15.0, {})
        assert [row["status"] for row in journal.rows("action")] == ["enacted", "failed", "enacted"]


@pytest.mark.usefixtures("_impatient")
def test_opening_a_locked_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalUnavailableError, match=r"cannot open the journal .*database is locked"):
        Journal(path)
    other.close()


@pytest.mark.parametrize("claimed", [True, False])
def test_a_removed_file_is_told_and_gone_on_with_once_it_is_back(tmp_path: Path, claimed: bool) -> None:
    folder, away = tmp_path / "run", tmp_path / "away"
    folder.mkdir()
    with Journal(folder / "journal.db", "r") as journal:
        if claimed:
            journal.claim()
        journal.record(a_tick(0))
        folder.rename(away)
        for number in (1, 2):
            with pytest.raises(JournalUnavailableError, match=r"the file is gone; the folder .*run does not"):
                journal.record(a_tick(number))
        away.rename(folder)
        journal.record(a_tick(3))
        assert recorded(folder / "journal.db") == [0.0, 15.0, 30.0, 45.0]
        # A copy is another file with the same content.
        shutil.copytree(folder, away)
        shutil.rmtree(folder)
        with pytest.raises(JournalUnavailableError, match="the file is gone"):
            journal.record(a_tick(4))
        shutil.copytree(away, folder)
        journal.flush()
    assert recorded(folder / "journal.db") == [0.0, 15.0, 30.0, 45.0, 60.0]


def test_neither_an_older_copy_nor_another_file_is_taken_for_the_journal(tmp_path: Path) -> None:
    path, older = tmp_path / "journal.db", tmp_path / "older.db"
    journal = Journal(path, "r")
    journal.claim()
    journal.record(a_tick(0))
    with sqlite3.connect(path) as source, sqlite3.connect(older) as target:
        source.backup(target)
    source.close()
    target.close()
    journal.record(a_tick(1))
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(JournalUnavailableError, match="another file without its tables"):
        journal.record(a_tick(2))
    path.unlink()
    older.rename(path)
    with pytest.raises(JournalUnavailableError, match="an older copy is in its place"):
        journal.record(a_tick(3))
    journal.abandon()
    assert recorded(path) == [0.0]


def test_a_full_disk_is_told_and_what_did_not_fit_is_written_once_there_is_room(small_disk: Path) -> None:
    path, ballast = small_disk / "journal.db", small_disk / "ballast"
    journal = Journal(path, "r")
    journal.claim()
    journal.record(a_tick(0))
    room = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * room.f_bavail * room.f_frsize)
    number = 1
    with pytest.raises(JournalUnavailableError, match=r"disk is full|disk I/O error"):
        journal.record(a_tick(number, notices=("x" * 100_000,)))
    for _ in range(3):
        number += 1
        with pytest.raises(JournalUnavailableError):
            journal.record(a_tick(number))
    ballast.unlink()
    journal.record(a_tick(number + 1))
    journal.close()
    assert recorded(path) == [15.0 * n for n in range(number + 2)]


@pytest.mark.usefixtures("_impatient")
def test_memory_is_bounded_while_nothing_can_be_written_but_no_money_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwritten, "KEPT_ROWS", 5)
    path = tmp_path / "journal.db"
    with Journal(path, "r") as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in range(12):
            with pytest.raises(JournalUnavailableError):
                journal.record(a_tick(number))
        other.close()
        journal.flush()
        assert [row["at_s"] for row in journal.rows("tick")] == [15.0 * n for n in range(7, 12)]
        assert [row["at_s"] for row in journal.rows("observation")] == [15.0 * n for n in range(7, 12)]
        assert len(journal.charges()) == len(journal.leases()) == 12
        (notice,) = journal.rows("notice")
        assert notice["text"] == "14 rows were dropped while the journal could not be written"


@pytest.mark.parametrize("went_through", [True, False])
def test_a_transaction_whose_end_was_not_confirmed_is_written_once(
    tmp_path: Path, went_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    with Journal(path, "r") as journal:
        journal.claim()
        journal.record(a_tick(0))
        connection = journal._database.connection
        commit = connection.commit

        def cut_off() -> None:
            """The line is cut before or after the server hears of the end."""
            if went_through:
                commit()
            else:
                connection.rollback()
            cause = sqlite3.OperationalError("server closed the connection")
            cause.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise OperationalError("COMMIT", None, cause)

        monkeypatch.setattr(connection, "commit", cut_off)
        started = Verdict(StartInstance("a-1", "a", None, "more"), "threshold")
        with pytest.raises(JournalUnavailableError) as told:
            journal.record(a_tick(1, verdicts=(started,)))
        assert told.value.in_doubt
        monkeypatch.undo()
        journal.record(a_tick(2))
        restored = journal.restore(40)
        assert restored is not None
        assert restored.intended == (started.action,)
        journal.confirm(15.0, {})
        assert [row["status"] for row in journal.rows("action")] == ["enacted"]
    assert recorded(path) == [0.0, 15.0, 30.0]


# -- fencing ------------------------------------------------------------------------------------------


def test_after_a_second_claim_none_of_the_first_ones_writes_lands(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first, second = Journal(path, "r"), Journal(path, "r")
    assert first.claim() == 1
    first.record(a_tick(0))
    assert second.claim() == 2
    for write in (
        lambda: first.record(a_tick(1)),
        lambda: first.confirm(0.0, {}),
        lambda: first.notice(0.0, "still here"),
        lambda: first.remember("key", 1),
        lambda: first.trim(1e9),
        lambda: first.claim(),
        lambda: first.flush() or first.record(a_tick(9)),
    ):
        with pytest.raises(FencedError, match=r"taken over by another .*\(epoch 2, this one's was 1\)"):
            write()
    second.record(a_tick(2))
    first.close()  # it has nothing to write, and says nothing more
    second.close()
    assert recorded(path) == [0.0, 30.0]


def test_a_claimed_run_takes_nothing_from_who_did_not_claim_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path, "r") as claimed, Journal(path, "s") as other:
        reader = Journal(path, "r")
        claimed.claim()
        with pytest.raises(FencedError, match='the run "r" is claimed by a controller'):
            reader.record(a_tick(0))
        reader.close()
        other.record(a_tick(1))
        assert not claimed.rows("tick")
    assert recorded(path, "s") == [15.0]


def test_a_simulated_run_claims_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", "r", buffered=True) as journal:
        assert journal.claim() == 0
        journal.record(a_tick(0))
    assert recorded(tmp_path / "journal.db") == [0.0]


STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["claim", "record", "again"])), max_size=25)


def play(url: Path | str, run: str, steps: list[tuple[int, str]]) -> None:
    """Three controllers on one journal: only the records of who claimed last land, every one of them."""
    journals = [Journal(url, run) for _ in range(3)]
    owner: int | None = None
    fenced: set[int] = set()
    claims = 0
    expected: list[float] = []
    for number, (who, what) in enumerate(steps):
        if what == "again":
            journals[who].close()
            journals[who] = Journal(url, run)
            fenced.discard(who)
            owner = -1 if owner == who else owner
        elif what == "claim" and who not in fenced:
            claims += 1
            assert journals[who].claim() == claims
            owner = who
        else:
            try:
                journals[who].record(a_tick(number))
                expected.append(15.0 * number)
                assert owner in (who, None)
            except FencedError:
                assert owner not in (who, None)
                fenced.add(who)
    for journal in journals:
        journal.close()
    assert recorded(url, run) == expected


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_only_the_newest_claim_writes_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    play(tmp_path_factory.mktemp("fencing") / "journal.db", "r", steps)


def test_only_the_newest_claim_writes_on_a_postgresql_server_too(server: str) -> None:
    @settings(max_examples=10, deadline=None)
    @given(steps=STEPS)
    def on_server(steps: list[tuple[int, str]]) -> None:
        runs.append(f"run {len(runs)} of {os.getpid()}")
        play(server, runs[-1], steps)

    runs: list[str] = []
    on_server()


@pytest.mark.usefixtures("_impatient")
def test_a_postgresql_server_that_ends_connections_or_holds_a_lock_is_waited_out(server: str) -> None:
    import psycopg as driver

    run = f"cut off {os.getpid()}"
    with Journal(server, run) as journal:
        journal.claim()
        journal.record(a_tick(0))
        own = journal._database.connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with driver.connect(server) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (own,))
        with pytest.raises(JournalUnavailableError):
            journal.record(a_tick(1))
        journal.record(a_tick(2))
        with driver.connect(server) as other:
            other.execute("LOCK TABLE observation IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(JournalUnavailableError, match="timeout"):
                journal.record(a_tick(3))
        journal.flush()
    assert recorded(server, run) == [0.0, 15.0, 30.0, 45.0]


@pytest.mark.parametrize(("table", "keys"), [(LEASES, "run, host"), (SETTINGS, "run, key"), (CLAIMS, "run")])
def test_rows_with_a_key_are_changed_in_their_place_in_postgresql_too(table: Table, keys: str) -> None:
    columns = [column.name for column in table.columns if column.name != "id"]
    statement = written(table, "postgresql", **({"epoch": CLAIMS.c.epoch + 1} if table is CLAIMS else {}))
    compiled = str(statement.compile(dialect=psycopg.dialect(), column_keys=columns))
    assert f"ON CONFLICT ({keys}) DO UPDATE SET" in compiled
    assert "RETURNING" not in compiled
