"""A run that lasts: the journal is thinned as it goes, and neither totals nor results notice."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from penstock.clock import VirtualClock
from penstock.controller.guards import Verdict
from penstock.controller.journal import Journal, TickRecord
from penstock.controller.result import RunResult, result_of
from penstock.controller.upkeep import Upkeep
from penstock.errors import JournalUnavailableError
from penstock.fleet.actions import StartInstance
from penstock.monitoring import Measurement, Signal
from penstock.monitoring.sla import DurationStatistics
from penstock.runs.progress import Progress

from ..spark_units.conftest import one_operator

DAY_S = 86_400.0
EVERY_S = 300.0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def days(journal: Journal, number: int) -> float:
    """A run of some days in which an instance is started at every tick; when it ends."""
    topology = one_operator()
    slow_s = 5 * topology.unit_slo_s("unit")
    ticks = int(number * DAY_S / EVERY_S)
    for tick in range(ticks):
        at_s = tick * EVERY_S
        # Three hours in twelve it is delayed.
        duration_s = slow_s if (at_s // 3600) % 12 < 3 else 0.01
        measured = Measurement("unit", at_s, EVERY_S, 10, 9, 8, tick % 50, duration_s=duration_s)
        started = Verdict(StartInstance(f"unit-{tick}", "unit", None, "more"), "threshold")
        journal.record(
            TickRecord(
                at_s, True, 1, 1, 1, 1, Decimal(0), signals=[Signal(measured)],
                instances={"unit": 1}, running={"unit": 1}, verdicts=(started,),
            )
        )  # fmt: skip
        journal.confirm(at_s, {})
    journal.flush()
    return ticks * EVERY_S


def summed(journal: Journal) -> Progress:
    progress = Progress(one_operator())
    progress.take_up(journal)
    return progress


def result(journal: Journal, end_s: float) -> RunResult:
    progress, topology = summed(journal), one_operator()
    counts = {"unit": progress.totals["unit"].count()}
    return result_of(
        topology, journal, counts, kind="spark", duration_s=end_s, end_s=end_s,
        end_to_end=DurationStatistics.weighted([]), records_in=0, records_out=0,
    )  # fmt: skip


def test_totals_and_results_are_the_same_after_trimming(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", "run", buffered=True) as journal:
        end_s = days(journal, 6)
        before, whole = result(journal, end_s), summed(journal).totals["unit"]
        rows = len(journal.rows("observation"))
        upkeep = Upkeep(journal, VirtualClock(end_s), raw_s=1 * DAY_S, every_s=0.0)
        for _ in range(6):
            upkeep.tick()
        assert len(journal.rows("observation")) < rows, "it was trimmed"
        assert journal.trimmed_actions(), "so were actions"

        after, left = result(journal, end_s), summed(journal).totals["unit"]
        assert (left.arrived, left.processed, left.emitted) == (whole.arrived, whole.processed, whole.emitted)
        assert after.actions == before.actions
        assert after.units["unit"].largest_queue == before.units["unit"].largest_queue == 49
        assert after.units["unit"].processed == before.units["unit"].processed
        assert after.compliance.ratio("real_time") == pytest.approx(
            before.compliance.ratio("real_time"), abs=0.01
        )
        adapted = before.units["unit"].time_to_adapt_s
        assert after.units["unit"].time_to_adapt_s == pytest.approx(adapted, abs=3600.0)


def test_upkeep_waits_for_its_time_and_for_a_journal_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    class LockedStandIn:
        """A journal whose database is locked."""

        def trim(self, before_s: float, span_s: float) -> None:
            asked.append(before_s)
            raise JournalUnavailableError("locked")

    clock = VirtualClock(10 * DAY_S)
    hourly = Upkeep(LockedStandIn(), clock, raw_s=DAY_S, every_s=3600.0)  # type: ignore[arg-type]
    hourly.tick()
    hourly.tick()
    assert asked == [9 * DAY_S], "not at every tick"
    assert "could not be trimmed" in caplog.text
