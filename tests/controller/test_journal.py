"""What is written is read back equal, buffered or not; a broken file is told in words."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.schema import CreateTable

from penstock.controller.guards import Verdict
from penstock.controller.journal import Journal, TickRecord, enacted_kinds
from penstock.controller.journal.tables import RECORDS
from penstock.errors import JournalError
from penstock.fleet.actions import (
    Hold,
    LeaseHost,
    MigrateInstance,
    ProlongLease,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.fleet.lives import Life
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Measurement, Signal

LEASE = Lease("c-h1", "c", "m", 15.0, 600.0, Decimal("0.016666666667"), 1, None, "EUR")
SIGNAL = Signal(
    Measurement(
        "a", 15.0, 15.0, 75, 70, 140, 5, 3, 0.25, 0.5, 0.75, 0.1, 1.01, 0.24, 1.5, 2.5, on_time=66,
    ),
    0.51, 0.36, 0.02, 0.01, False,
)  # fmt: skip
UNKNOWN = Signal(Measurement("b", 15.0, 15.0))
ACTIONS = (
    LeaseHost("c-h1", "c", "m", "needed", "a"),
    ProlongLease("c-h0", "kept"),
    ReleaseHost("c-h2", 'empty; "quoted" – dash'),
    StartInstance("a-1", "a", "c-h1", "queue"),
    StartInstance("a-2", "a", None, "queue"),
    StopInstance("b-3", "b", "idle"),
    MigrateInstance("b-4", "b-5", "b", "c-h1", "room"),
)
TICK = TickRecord(
    at_s=15.0,
    decided=True,
    next_host=2,
    next_instance=6,
    hosts=3,
    hosts_up=2,
    bill=Decimal("1.0166"),
    signals=(SIGNAL, UNKNOWN),
    instances={"a": 2},
    running={"a": 1},
    verdicts=(
        *(Verdict(action, "threshold") for action in ACTIONS),
        Verdict(StartInstance("a-7", "a", None, "more"), "threshold", "bound"),
        Verdict(Hold("b", "calm"), "threshold"),
    ),
    leases=(LEASE,),
    charges=(Charge("c-h1", 15.0, 1, Decimal("0.016666666667"), "needed"),),
    budgets={"a": 0.75},
    budget_reason="first",
    notices=("host c-h0 crashed",),
    lives=(
        Life("host", "c-h1", 15.0, "requested", payload={"site": "c", "address": None}),
        Life("instance", "b-3", 15.0, "stopped", over=True),
    ),
    settings={"topology": "name: x"},
)


def a_journal(folder: Path, **options: bool) -> Journal:
    return Journal(folder / "journal.db", "r", **options)


@pytest.mark.parametrize("buffered", [True, False])
def test_everything_written_is_read_back_equal(tmp_path: Path, buffered: bool) -> None:
    with a_journal(tmp_path, buffered=buffered) as journal:
        assert journal.empty
        assert journal.restore(40) is None
        journal.record(TICK)
        journal.notice(20.0, "a word")
    with a_journal(tmp_path) as journal:
        assert not journal.empty
        restored = journal.restore(40)
        assert restored is not None
        assert restored.leases == (LEASE,)
        assert journal.charges() == TICK.charges
        assert [charge.amount for charge in restored.charges] == [TICK.charges[0].amount]
        assert restored.lives == TICK.lives[:1]
        assert journal.recall("topology") == "name: x"
        assert restored.signals == (SIGNAL, UNKNOWN)
        assert [measured.on_time for measured in journal.past(60.0, 60.0).recent] == [66, None]
        assert restored.intended == ACTIONS
        assert restored.actions == ()
        assert restored.budgets == {"a": 0.75}
        assert (restored.next_host, restored.next_instance) == (2, 6)
        assert restored.last_decided_s == 15.0
        assert [row["text"] for row in journal.rows("notice")] == ["host c-h0 crashed", "a word"]
        assert [row["status"] for row in journal.rows("action")] == ["intended"] * 7 + ["refused", "held"]
        assert journal.rows("action")[7]["refused"] == "bound"
        (tick,) = journal.rows("tick")
        assert (tick["bill"], tick["hosts"], tick["hosts_up"]) == ("1.0166", 3, 2)
        assert [(row["instances"], row["running"]) for row in journal.rows("observation")] == [(2, 1), (0, 0)]


def written(journal: Journal) -> dict[str, list[dict[str, object]]]:
    tables = ("tick", "observation", "action", "lease", "charge", "budget", "notice", "life")
    return {table: journal.rows(table) for table in tables}


def test_a_buffered_journal_writes_what_an_unbuffered_one_writes(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / f"{buffered}.db", "r", buffered=buffered) for buffered in (True, False)]
    ended = LEASE.ended(700.0)
    second = TickRecord(700.0, False, 2, 6, 1, 1, Decimal(2), leases=(ended,))
    for journal in journals:
        journal.record(TICK)
        journal.confirm(15.0, {("ReleaseHost", "c-h2"): "it is stuck"})
        journal.record(second)
    assert written(journals[0]) == written(journals[1])
    assert journals[0].leases() == (ended,)
    for journal in journals:
        journal.close()


def test_confirmed_actions_are_enacted_and_failed_ones_are_not(tmp_path: Path) -> None:
    for buffered in (True, False):
        journal = Journal(tmp_path / f"{buffered}.db", "r", buffered=buffered)
        journal.record(TICK)
        if buffered:
            journal.flush()  # what is on disk already is confirmed there
        journal.confirm(15.0, {("StartInstance", "a-1"): "no executor came"})
        restored = journal.restore(40)
        assert restored is not None
        assert restored.intended == ()
        assert restored.actions == tuple((15.0, a) for a in ACTIONS if getattr(a, "instance", "") != "a-1")
        assert restored.scalings == {"a": 1, "b": 1}
        counts = enacted_kinds(journal.rows("action"))
        assert counts == {
            "LeaseHost": 1, "ProlongLease": 1, "ReleaseHost": 1, "StartInstance": 1, "StopInstance": 1,
            "MigrateInstance": 1, "ResizeInstance": 0,
        }  # fmt: skip
        journal.close()


def test_leases_stay_in_the_order_they_were_made_in_however_they_change(tmp_path: Path) -> None:
    leases = [Lease(f"c-h{n}", "c", "m", 0.0, 60.0, Decimal(1)) for n in (10, 9, 8)]
    with a_journal(tmp_path) as journal:
        journal.record(TickRecord(0.0, True, 1, 1, 0, 0, Decimal(3), leases=leases))
        changed = [lease.paid_through(5) for lease in (leases[2], leases[0])]
        journal.record(TickRecord(15.0, True, 1, 1, 0, 0, Decimal(3), leases=changed))
    with a_journal(tmp_path) as journal:
        assert [(lease.host, lease.units) for lease in journal.leases()] == [
            ("c-h10", 5),
            ("c-h9", 1),
            ("c-h8", 5),
        ]
        journal.record(TickRecord(30.0, True, 1, 1, 0, 0, Decimal(3), leases=[leases[1].paid_through(7)]))
        assert [lease.units for lease in journal.leases()] == [5, 7, 5]


def test_only_the_last_signals_of_each_unit_are_taken_up(tmp_path: Path) -> None:
    with a_journal(tmp_path) as journal:
        for at_s in range(0, 150, 15):
            signals = [Signal(Measurement(unit, float(at_s), 15.0)) for unit in "ab"]
            journal.record(TickRecord(float(at_s), True, 1, 1, 0, 0, Decimal(0), signals=signals))
        restored = journal.restore(3)
    assert restored is not None
    assert [(s.unit, s.at_s) for s in restored.signals] == [
        (unit, at_s) for unit in "ab" for at_s in (105.0, 120.0, 135.0)
    ]


@pytest.mark.parametrize("buffered", [True, False])
def test_the_newest_entry_of_every_life_that_is_not_over_is_taken_up(tmp_path: Path, buffered: bool) -> None:
    told = (
        (Life("instance", "a-1", 0.0, "requested"), Life("host", "a-1", 0.0, "up")),
        (Life("unit", "a", 15.0, "running", payload={"revision": 2, "of": [1.5, "x", None]}),),
        (Life("host", "c-h1", 30.0, "released", over=True), Life("instance", "a-1", 30.0, "running")),
        (Life("host", "c-h1", 45.0, "requested"), Life("unit", "b", 45.0, "gone", over=True)),
    )
    with a_journal(tmp_path, buffered=buffered) as journal:
        for number, lives in enumerate(told):
            journal.record(TickRecord(15.0 * number, True, 1, 1, 0, 0, Decimal(0), lives=lives))
    with a_journal(tmp_path) as journal:
        restored = journal.restore(40)
    assert restored is not None
    assert restored.lives == (told[2][1], told[0][1], told[1][0], told[3][0])


@pytest.mark.parametrize("buffered", [True, False])
def test_a_setting_is_its_newest_value_of_this_run(tmp_path: Path, buffered: bool) -> None:
    with a_journal(tmp_path, buffered=buffered) as journal:
        assert journal.recall("plan") is None
        journal.remember("plan", {"feed": True, "drain_s": [1.5, None]})
        assert journal.recall("plan") == {"feed": True, "drain_s": [1.5, None]}
        journal.remember("plan", "shorter")
        assert journal.recall("plan") == "shorter"
        journal.record(TickRecord(0.0, True, 1, 1, 0, 0, Decimal(0), settings={"anchor": 1.7e9 + 0.123456}))
    with a_journal(tmp_path) as journal, Journal(tmp_path / "journal.db", "other") as other:
        assert (journal.recall("plan"), journal.recall("anchor")) == ("shorter", 1.7e9 + 0.123456)
        assert other.recall("plan") is None


def test_two_runs_in_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", "one") as one, Journal(tmp_path / "j.db", "two") as two:
        one.record(TICK)
        assert two.empty
        two.record(TickRecord(0.0, False, 1, 1, 0, 0, Decimal(0)))
        two.confirm(0.0, {})
        restored = one.restore(40)
        assert restored is not None
        assert restored.intended == ACTIONS


# -- what goes wrong ----------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"the folder .*missing does not exist"):
        Journal(tmp_path / "missing" / "journal.db")


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="it is a folder, expected a file"):
        Journal(tmp_path)


@pytest.mark.parametrize("buffered", [True, False])
def test_a_file_that_is_no_journal_is_told(tmp_path: Path, buffered: bool) -> None:
    (tmp_path / "journal.db").write_text("These are my holiday plans. " * 100)
    with pytest.raises(JournalError, match="file is not a database"):
        a_journal(tmp_path, buffered=buffered)


def test_a_file_damaged_in_the_middle_is_told(tmp_path: Path) -> None:
    with a_journal(tmp_path, buffered=True) as journal:
        for number in range(200):
            journal.notice(float(number), "news " * 40)
    path = tmp_path / "journal.db"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"journal\.db.*malformed"):
        a_journal(tmp_path).rows("notice")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_file_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    a_journal(tmp_path, buffered=True).close()
    (tmp_path / "journal.db").chmod(0o400)
    with pytest.raises(JournalError, match="may not be written"):
        a_journal(tmp_path).record(TICK)


def test_a_read_only_database_is_told_and_keeps_what_was_not_written(tmp_path: Path) -> None:
    a_journal(tmp_path, buffered=True).close()
    journal = Journal(f"sqlite:///file:{tmp_path / 'journal.db'}?mode=ro&uri=true", "r", buffered=True)
    journal.record(TICK)
    with pytest.raises(JournalError, match="readonly"):
        journal.flush()


def test_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.record(TICK)
    pages = journal._database.connection.execute(sa.text("PRAGMA page_count")).scalar_one()
    journal._database.connection.execute(sa.text(f"PRAGMA max_page_count={pages + 2}"))
    big = TickRecord(30.0, True, 9, 9, 0, 0, Decimal(0), leases=(LEASE.ended(30.0),), notices=("x" * 50_000,))
    with pytest.raises(JournalError, match="database or disk is full"):
        journal.record(big)
    with a_journal(tmp_path) as reader:
        assert len(reader.rows("tick")) == 1
        assert reader.leases() == (LEASE,)
    # Room again: what could not be written was kept, and is written once.
    journal._database.connection.execute(sa.text("PRAGMA max_page_count=100000"))
    journal.flush()
    with a_journal(tmp_path) as reader:
        assert len(reader.rows("tick")) == 2
        assert reader.leases() == (LEASE.ended(30.0),)
    journal.close()


@pytest.mark.parametrize("url", ["nosuch://x/y", "postgresql://a:secret@127.0.0.1:1/x", "://"])
def test_a_database_out_of_reach_is_told_without_the_password(url: str) -> None:
    with pytest.raises(JournalError, match="cannot open the journal") as told:
        Journal(url)
    assert "secret" not in str(told.value)


def test_every_table_can_be_made_and_written_in_postgresql() -> None:
    dialect = psycopg.dialect()
    for table in RECORDS:
        assert "SERIAL" in str(CreateTable(table).compile(dialect=dialect))
        insert = table.insert().inline().compile(dialect=dialect, column_keys=["run", "at_s"])
        assert not insert.positional
        assert "%(run)s" in str(insert)
        assert "RETURNING" not in str(insert)


def test_a_postgresql_server_keeps_a_journal_by_its_url(server: str) -> None:
    with Journal(server, f"test-{os.getpid()}") as journal:
        journal.record(TICK)
        journal.confirm(15.0, {("StartInstance", "a-1"): "no"})
        restored = journal.restore(40)
        assert restored is not None
        assert (restored.leases, restored.signals) == ((LEASE,), (SIGNAL, UNKNOWN))
        assert restored.lives == TICK.lives[:1]
        assert journal.recall("topology") == "name: x"
