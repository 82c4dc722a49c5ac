"""The terminal view: units, queues, hosts with their lease clocks, the bill and the last decisions."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from penstock.controller.status import HostStatus, SourceStatus, Status, UnitStatus
from penstock.fleet.deployment import HostState
from penstock.fleet.units import UnitState
from penstock.monitoring import InstanceReading, Measurement
from penstock.plain import from_json, to_json
from penstock.report.terminal import LiveView, ProgressLines, flow_of, headline_of, line_of, side_by_side
from tests.builders import a_topology

MEASURED = Measurement(
    "read", 150.0, 3.0, arrived=15, processed=12, waiting=7, duration_s=2.5,
    readings=(InstanceReading("read-1", 0.5),),
)  # fmt: skip
STATUS = Status(
    "factory", 150.0,
    (
        UnitStatus("read", UnitState.RUNNING, "btu", 2, 1, 1, 4, 2.0, ("h1",), measurement=MEASURED),
        UnitStatus("analyse", UnitState.SUBMITTED, "btu", 1, 0, 1, 4, 8.0, why="within its SLO"),
    ),
    (HostStatus("h1", "here", "bench", HostState.UP, ("read", "read"), None, 180.0, 40.0, "2 × 1"),),
    "2.50", "EUR", since_s=100.0, duration_s=60.0,
    decisions=("lease h2: no host has room",), notices=("a driver came back",),
)  # fmt: skip


def drawn(status: Status | None, width: int = 110, **lines: str) -> str:
    output = StringIO()
    view = LiveView(lambda: 150.0, **{name: (lambda text=text: text) for name, text in lines.items()})
    if status is not None:
        view.show(status)
    Console(file=output, width=width, no_color=True).print(view)
    return output.getvalue()


def test_everything_a_person_looks_for_is_there() -> None:
    shown = drawn(STATUS)
    for text in (
        "factory · 50 s of 1 min",
        "read",
        "1/2",
        "5.0",
        "4.0",
        "2.5 s",
        "50%",
        "within its SLO",
        "bill 2.5 EUR",
        "30 s left",
        "2 × 1",
        "lease h2: no host has room",
        "a driver came back",
    ):
        assert text in shown, text


def test_it_can_be_read_at_80_columns() -> None:
    shown = drawn(STATUS, 80)
    assert max(len(line) for line in shown.splitlines()) <= 80
    # Nothing is broken over two lines, and nothing a person looks for is gone.
    for text in (
        "analyse (submitted)",
        "2.5 s",
        "30 s left",
        "analyse: within its SLO",
        "lease h2: no host has room",
    ):
        assert text in shown, text


def test_the_bill_stands_in_one_line_and_a_run_without_hosts_has_no_month() -> None:
    dear = replace(STATUS, month="129600.00", units=())
    assert "hosts · bill 2.5 EUR · 129600.00 a month at this rate" in drawn(dear, width=80)
    over = drawn(replace(dear, hosts=()), width=80)
    assert "no hosts · bill 2.5 EUR" in over
    assert "a month" not in over


def test_a_health_that_is_not_known_yet_is_not_told_as_a_number() -> None:
    first = STATUS.units[0]
    assert "not yet" in drawn(STATUS, width=140)
    assert "health not known yet" in str(STATUS)
    known = replace(STATUS, units=(replace(first, health=0.25),))
    assert "0.25" in drawn(known, width=140)
    idle = replace(first, measurement=replace(MEASURED, arrived=0, waiting=0))
    assert "not yet" not in drawn(replace(STATUS, units=(idle,)), width=140)


def test_the_congested_operator_of_several_is_named_and_so_is_a_slow_source() -> None:
    fused = replace(STATUS.units[0], health=0.56, operator_health={"count": 0.56, "gather": 1.0})
    slow = (SourceStatus("atoms", 0.7), SourceStatus("others", 1.0))
    shown = drawn(replace(STATUS, units=(fused,), sources=slow), width=140)
    assert "read: congested before count (0.56)" in shown
    assert "source atoms emits 70% of what is due" in shown
    assert "gather" not in shown
    assert "others" not in shown


def test_before_the_first_tick_it_says_what_it_waits_for() -> None:
    assert "starting" in drawn(None)
    assert "warming up" in drawn(None, headline="warming up")


def test_a_caller_may_add_its_own_lines() -> None:
    shown = drawn(STATUS, headline="6 machines on", footline="inbox: 3 warnings")
    assert "6 machines on" in shown
    assert "inbox: 3 warnings" in shown


def test_without_a_terminal_it_is_one_line() -> None:
    assert line_of(STATUS) == "factory running: read 1/2 (7 waiting), analyse 0/1; 1 host; bill 2.5 EUR"


def test_a_job_that_only_advises_says_so() -> None:
    advising = Status("job", 1.0, (), (), "0", acting=False, reason="the master is local[1]")
    assert headline_of(advising, 1.0) == "job · running · advising only: the master is local[1]"


def test_a_status_survives_the_way_through_a_file() -> None:
    assert from_json(Status, to_json(STATUS)) == STATUS


def test_a_status_prints_as_lines_a_person_reads() -> None:
    assert repr(STATUS) == str(STATUS)
    head, first, *_ = str(STATUS).splitlines()
    assert head == "factory: running, bill 2.50 EUR"
    assert first == "  read: running, 1 of 2 instances, 5/s in, 7 waiting, health not known yet"


def test_the_units_in_a_line_each_with_what_it_reads() -> None:
    assert flow_of(a_topology(units=("a", "b"), chained=True)) == "s → [a]   a → [b]"


def test_progress_is_told_once_a_step_and_draining_once():
    out = StringIO()
    told = ProgressLines(Console(file=out, width=80), 40.0)
    for since_s in (0.0, 3.0, 16.0, 17.0, 31.0, 46.0, 61.0, 200.0):
        told(replace(STATUS, since_s=100.0, at_s=100.0 + since_s))
    assert out.getvalue().split("\n")[:-1] == [
        "stream: starting",
        "stream: 15 s",
        "stream: 30 s",
        "stream: draining",
    ]


def test_a_run_and_its_twin_stand_side_by_side():
    out = StringIO()
    Console(file=out, width=80).print(side_by_side([("cost", 15.0, 14.0, -0.0667), ("late", 0.0, 1.0, None)]))
    assert "-6.7%" in out.getvalue()
    assert "–" in out.getvalue()
