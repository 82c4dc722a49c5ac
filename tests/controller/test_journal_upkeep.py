"""A journal grows old well: versions, a month of rows, thinning; restarts and the bill do not notice."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.clock import VirtualClock
from penstock.controller.guards import Verdict
from penstock.controller.journal import Journal, Restored, TickRecord, migrations, restoring
from penstock.controller.journal.tables import CLAIMS, HOURS, LIVES, METADATA, SCHEMA, SETTINGS
from penstock.controller.upkeep import Upkeep
from penstock.errors import JournalError
from penstock.fleet.actions import Hold, LeaseHost, StartInstance, StopInstance
from penstock.fleet.lives import Life
from penstock.infrastructure.leases import Charge, Lease
from penstock.monitoring.measurements import Measurement, Signal

SHIPPED = Path(__file__).with_name("shipped_journal.sql")
DAY_S = 24 * 3600.0
HOUR_S = 3600.0

# -- versions -----------------------------------------------------------------------------------------


def a_shipped_journal(folder: Path, *further: str) -> Path:
    path = folder / "journal.db"
    connection = sqlite3.connect(path)
    connection.executescript(SHIPPED.read_text() + ";".join(further))
    connection.close()
    return path


def structure(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    made = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    found = {re.sub(r"\s+", " ", sql).replace('"', "") for kind, _, sql in made if kind != "table"}
    for kind, name, _ in made:
        if kind == "table":  # a column that came later stands after the constraints in the text
            columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
            found |= {f"{name}: {column}" for column in columns}
    connection.close()
    return found


def test_the_journal_that_shipped_is_taken_up_and_the_change_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = a_shipped_journal(tmp_path)
    told = "the journal's tables were brought from version 1 to 5"
    with caplog.at_level(logging.INFO, "penstock"), Journal(path, "r") as journal:
        restored = journal.restore(40)
        notices = [row["text"] for row in journal.rows("notice")]
    assert restored is not None
    assert [signal.unit for signal in restored.signals] == ["a", "b"]
    assert restored.signals[0].measurement.latency_p95_s == 2.5
    assert restored.intended == (StartInstance("a-3", "a", "c-h1", "queue"),)
    assert restored.actions == ((15.0, LeaseHost("c-h1", "c", "m", "needed", "a")),)
    assert restored.leases == (
        Lease("c-h1", "c", "m", 15.0, 600.0, Decimal("0.016666666667"), 1, None, "EUR"),
    )
    assert sum(charge.amount for charge in restored.charges) == Decimal("0.016666666667")
    assert (restored.next_host, restored.next_instance, restored.budgets) == (2, 4, {"a": 0.75})
    assert notices == ["it's up", told]
    assert told in caplog.text
    caplog.clear()
    with Journal(path, "other") as journal:
        assert not journal.empty
        assert journal.claim() == 1
    assert told not in caplog.text


def test_a_journal_brought_up_to_date_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    path = a_shipped_journal(tmp_path)
    Journal(path, "r").close()
    Journal(tmp_path / "new.db", "r").close()
    assert structure(path) == structure(tmp_path / "new.db")


def test_leases_that_two_controllers_wrote_both_stay_on_the_bill(tmp_path: Path) -> None:
    path = a_shipped_journal(
        tmp_path,
        "INSERT INTO lease VALUES(9,'r',15.0,'c-h1','c','m',600.0,'0.016666666667',3,99.0,'EUR')",
        "INSERT INTO charge VALUES(9,'r',15.0,'c-h1',3,'0.050000000001','needed')",
    )
    with Journal(path, "r") as journal:
        assert [lease.host for lease in journal.leases()] == ["c-h1", "c-h1 (doubled, 2)"]
        assert sum(lease.cost for lease in journal.leases()) == sum(c.amount for c in journal.charges())


def test_a_process_killed_while_it_brings_a_journal_up_to_date_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_shipped_journal(tmp_path)
    before = structure(path)

    def dies(connection: sa.Connection) -> None:
        migrations._from_1(connection)
        raise JournalError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_STEPS", (dies,))
        with pytest.raises(JournalError, match="killed"):
            Journal(path, "r")
    assert structure(path) == before
    with Journal(path, "r") as journal:
        assert journal.restore(40) is not None


def test_a_journal_of_a_newer_penstock_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path, "r").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema SET version = 99")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(JournalError, match=r"\.db.*version 5 or older, got version 99.*newer Penstock"):
        Journal(path, "r")
    assert path.read_bytes() == content


def test_a_postgresql_journal_without_a_version_is_brought_up_to_date(server: str) -> None:
    name = f"shipped_{os.getpid()}"
    url = f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{name}"
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    shipped = [t for t in METADATA.sorted_tables if t not in (LIVES, HOURS, SETTINGS, CLAIMS, SCHEMA)]
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
        METADATA.create_all(connection, tables=shipped)
        connection.execute(sa.text("DROP INDEX lease_host"))
        connection.execute(sa.text("DROP INDEX action_enacted"))
    try:
        with Journal(url, "r") as journal:
            journal.claim()
            journal.record(a_tick(0))
            assert journal.restore(3) is not None
        assert sa.inspect(engine).get_indexes("lease", schema=name)[1]["unique"]
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


# -- a long run ---------------------------------------------------------------------------------------

UNITS = ("a", "b", "c", "d", "e", "f", "g", "h", "i")


def a_tick(number: int, interval_s: float = 900.0) -> TickRecord:
    """A tick of a run in which something happens at every one."""
    at_s = number * interval_s
    units = UNITS[:2]
    lease = Lease(f"c-h{number // 4}", "c", "m", at_s, 3600.0, Decimal("0.016666666667"))
    past = Lease(f"c-h{number // 4 - 1}", "c", "m", at_s - HOUR_S, 3600.0, Decimal("0.016666666667"), 1, at_s)
    return TickRecord(
        at_s, number % 3 > 0, number + 1, number + 2, 1, 1, lease.price_per_btu * (number // 4 + 1),
        signals=[Signal(Measurement(u, at_s, interval_s, number, number, 2 * number, 7)) for u in units],
        instances=dict.fromkeys(units, 2), running=dict.fromkeys(units, 1),
        verdicts=(
            Verdict(StartInstance(f"a-{number}", "a", None, "more"), "threshold"),
            Verdict(StopInstance(f"b-{number}", "b", "less"), "threshold", "bound" if number % 2 else None),
            Verdict(Hold("b", "calm"), "threshold"),
        ),
        leases=() if number % 4 else (lease, past) if number else (lease,),
        charges=() if number % 4 else (Charge(lease.host, at_s, 1, lease.price_per_btu, "new"),),
        budgets={"a": float(number)},
        lives=(
            Life("instance", f"a-{number}", at_s, "running", payload={"number": number}),
            Life("instance", f"a-{number - 5}", at_s, "stopped", over=True),
            Life("unit", "a", at_s, "running", payload={"tick": number}),
        ),
    )  # fmt: skip


def a_run(journal: Journal, ticks: int) -> None:
    """Much happens at first, and a host comes to stay; the last quarter is calm."""
    for number in range(ticks):
        tick = a_tick(number)
        if number == ticks // 4:
            tick = replace(tick, lives=(*tick.lives, Life("host", "c-h", tick.at_s, "up")))
        journal.record(tick if number < 3 * ticks // 4 else replace(tick, verdicts=()))
        journal.confirm(900.0 * number, {})


def everything(journal: Journal) -> tuple[Restored | None, tuple[Lease, ...], tuple[Charge, ...], str]:
    return journal.restore(10), journal.leases(), journal.charges(), journal.rows("tick")[-1]["bill"]


def trimmed(journal: Journal, before_s: float, keep: int) -> int:
    rows, more = 0, True
    while more:
        done = journal.trim(before_s, keep=keep)
        rows, more = rows + done.rows, done.more
    return rows


@pytest.mark.parametrize("on_server", [False, True], ids=["sqlite", "postgresql"])
def test_trimming_changes_neither_the_bill_nor_what_a_restart_takes_up(
    tmp_path: Path, request: pytest.FixtureRequest, on_server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "ACTIONS_TAKEN_UP", 50)
    url = request.getfixturevalue("server") if on_server else tmp_path / "journal.db"
    with Journal(url, f"trimmed {os.getpid()}", buffered=True) as journal, Journal(url, "other") as other:
        a_run(journal, 400)
        journal.flush()
        other.record(replace(a_tick(0), lives=()))
        observed = journal.rows("observation")
        before = everything(journal)
        assert trimmed(journal, 3 * DAY_S + 1800.0, keep=50) > 2000
        assert everything(journal) == before
        assert trimmed(journal, 3 * DAY_S + 1800.0, keep=50) == 0
        # What is asked for never reaches the newest.
        assert trimmed(journal, 1e12, keep=50) > 0
        assert everything(journal) == before

        ticks = [row["at_s"] for row in journal.rows("tick")]
        cut_s = 350 * 900.0 // HOUR_S * HOUR_S
        assert [at_s for at_s in ticks if at_s >= cut_s] == [900.0 * n for n in range(int(cut_s // 900), 400)]
        assert [at_s for at_s in ticks if at_s < cut_s] == [
            HOUR_S * n + 2700.0 for n in range(int(cut_s // HOUR_S))
        ]
        left, hours = journal.rows("observation"), journal.rows("observation_hour")
        assert [row["at_s"] for row in left] == [row["at_s"] for row in observed if row["at_s"] >= cut_s]
        for name in ("arrived", "processed", "emitted", "interval_s"):
            assert sum(row[name] for row in (*left, *hours)) == sum(row[name] for row in observed)
        assert {(row["observations"], row["waiting"], row["waiting_most"]) for row in hours} == {(4, 7.0, 7)}
        assert {(row["instances"], row["running"]) for row in hours} == {(2.0, 1.0)}
        assert sum(row["status"] == "enacted" for row in journal.rows("action")) == 50
        assert len(journal.rows("life")) < 4 * 3 + 3 * 60
        assert len(other.rows("observation")) == 2


def test_a_call_of_trim_takes_a_day_at_most(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", "r", buffered=True) as journal:
        a_run(journal, 400)
        first = journal.trim(3 * DAY_S, keep=1)
        assert (first.hours, first.more) == (24, True)
        assert min(row["at_s"] for row in journal.rows("observation")) == DAY_S


def test_a_journal_that_is_kept_for_minutes_is_thinned_by_spans_of_a_tenth_of_them(tmp_path: Path) -> None:
    clock = VirtualClock(2800.0)
    with Journal(tmp_path / "journal.db", "r", buffered=True) as journal:
        for number in range(1000 + 1800):
            journal.record(replace(a_tick(number, 1.0), lives=(), leases=(), charges=()))
        upkeep = Upkeep(journal, clock, raw_s=600.0, every_s=0.0)
        for _ in range(3):
            upkeep.tick()
        kept = [row["at_s"] for row in journal.rows("tick")]
        assert [at_s for at_s in kept if at_s < 1800.0] == [60.0 * span + 59.0 for span in range(30)]
        assert [at_s for at_s in kept if at_s >= 1800.0] == [float(number) for number in range(1800, 2800)]
        assert {row["observations"] for row in journal.rows("observation_hour")} == {60}


def test_a_trimmed_journal_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    sizes = []
    with Journal(path, "r") as journal:
        for number in range(600):
            journal.record(replace(a_tick(number), leases=(), charges=()))
            journal.confirm(0.0, {})
            if number % 100 == 99:
                trimmed(journal, 900.0 * number - DAY_S, keep=20)
                sizes.append(path.stat().st_size)
    assert sizes[-1] <= 1.1 * sizes[2] + 4096  # a page more or less


def test_charges_by_the_second_are_added_up_to_one_an_hour_and_host_and_to_the_same_bill(
    tmp_path: Path,
) -> None:
    price = Decimal("0.000055555556")
    with Journal(tmp_path / "journal.db", "r", buffered=True) as journal:
        for number in range(4 * 360):
            tick = replace(a_tick(number, 10.0), verdicts=(), lives=(), leases=(), signals=())
            charges = [Charge(host, tick.at_s, 10, 10 * price, "lease ran on") for host in ("c-h1", "c-h2")]
            if number % 360 == 100:
                charges.append(Charge("c-h2", tick.at_s, 3, 3 * price, "as the provider recorded it"))
            journal.record(replace(tick, charges=charges))
        before = journal.charges()
        journal.trim(3 * HOUR_S, keep=1)
        after = journal.charges()
        restored = journal.restore(3)
    old = [charge for charge in after if charge.at_s < 3 * HOUR_S]
    assert [(charge.host, charge.units) for charge in old] == [
        ("c-h1", 3600),
        ("c-h2", 3600),
        ("c-h2", 3),
    ] * 3
    assert [charge.at_s // HOUR_S for charge in old] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert after[len(old) :] == tuple(charge for charge in before if charge.at_s >= 3 * HOUR_S)
    bill = sum(charge.amount for charge in before)
    assert sum(charge.amount for charge in after) == bill
    assert restored is not None
    assert sum(charge.amount for charge in restored.charges) == bill


def a_long_journal(path: Path, ticks: int, calm_ticks: int = 0) -> None:
    """Nine units at 15 s, written by the database itself; after the calm every 40th decision is a start."""
    Journal(path, "r").close()
    connection = sqlite3.connect(path)
    connection.executescript(f"""
        PRAGMA synchronous=OFF;
        BEGIN;
        CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
            WHERE i < {ticks - 1}) SELECT i, i * 15.0 AS at_s,
            i % 40 OR i < {calm_ticks} AS calm FROM n;
        CREATE TEMP TABLE u (unit); INSERT INTO u VALUES {", ".join(f"('{unit}')" for unit in UNITS)};
        INSERT INTO tick SELECT NULL, 'r', at_s, i % 4 = 0, 5, i, 2, 2, '0.5' FROM n;
        INSERT INTO observation SELECT NULL, 'r', at_s, unit, 15.0, 75, 70, 140, 5, 3, 0.25, 0.5, 0.75, 0.1,
            1.0, 0.25, 1.5, 2.5, 0.5, 0.4, 0.1, 0.1, 1, 2, 2,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM n, u;
        INSERT INTO action SELECT NULL, 'r', at_s, iif(calm, 'Hold', 'StartInstance'), 'threshold', unit,
            iif(calm, unit, unit || '-' || i), 'calm: 5 waiting, 75 arrived, 70 done in the last 15 s',
            iif(calm, 'held', 'enacted'), NULL,
            iif(calm, '{{}}', json_object('instance', unit || '-' || i, 'unit', unit, 'host', NULL,
            'reason', 'more')) FROM n, u;
        INSERT INTO life SELECT NULL, 'r', at_s, 'instance', unit || '-' || i, 'stopped', 1, '{{}}'
            FROM n, u WHERE NOT calm;
        INSERT INTO lease SELECT NULL, 'r', at_s, 'h' || i, 's', 'm', 3600.0, '0.016666666667', 1,
            iif(i < {ticks} - 240, at_s + 3600.0, NULL), 'EUR' FROM n WHERE i % 240 = 0 AND i >= {calm_ticks};
        INSERT INTO charge SELECT NULL, 'r', at_s, 'h' || i, 1, '0.016666666667', 'new' FROM n
            WHERE i % 240 = 0 AND i >= {calm_ticks};
        COMMIT;
    """)
    connection.close()


@contextmanager
def counted_steps(journal: Journal) -> Iterator[list[None]]:
    """One entry for every hundred instructions SQLite needs: a measure of the rows it looks at."""
    taken: list[None] = []
    driver = journal._database.connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(lambda: taken.append(None), 100)
    yield taken
    driver.set_progress_handler(None, 100)


def test_a_restart_looks_at_the_newest_rows_alone(tmp_path: Path) -> None:
    steps = {}
    for ticks in (6_000, 24_000):
        path = tmp_path / f"{ticks}.db"
        a_long_journal(path, ticks, calm_ticks=ticks - 6_000)
        with Journal(path, "r") as journal:
            with counted_steps(journal) as taken:
                restored = journal.restore(40)
            steps[ticks] = len(taken)
        assert restored is not None
        assert [(s.unit, s.at_s) for s in restored.signals] == [
            (unit, 15.0 * n) for unit in UNITS for n in range(ticks - 40, ticks)
        ]
    # 162,000 observations and as many decisions more, and the same number of starts, lives and leases.
    assert steps[24_000] <= 1.05 * steps[6_000]


@pytest.mark.slow
def test_a_month_of_nine_units_is_taken_up_within_a_second_and_little_memory(tmp_path: Path) -> None:
    a_long_journal(tmp_path / "journal.db", 30 * 24 * 240)
    with Journal(tmp_path / "journal.db", "r") as journal:
        began_s = time.process_time()
        restored = journal.restore(40)
        needed_s = time.process_time() - began_s
        tracemalloc.start()
        journal.restore(40)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert restored is not None
    assert len(restored.signals) == 9 * 40
    assert len(restored.actions) == 1000
    assert restored.scalings == dict.fromkeys(UNITS, 30 * 24 * 6)
    assert [charge.amount for charge in restored.charges] == [720 * Decimal("0.016666666667")]
    assert needed_s < 1.0
    assert most < 10_000_000
