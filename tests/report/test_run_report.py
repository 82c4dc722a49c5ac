"""The report of a run: what matters first, small, with the moments worth looking at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.journal import Journal
from penstock.experiments.twin import best_cost_of
from penstock.report.hints import hints
from penstock.report.lines import thinned
from penstock.report.moments import moments_of
from penstock.report.run_report import write_run_report
from penstock.runs.assembly import load
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, Unit
from tests.builders import AT_ONCE, a_site, a_topology, an_operator

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    topology = load(EXAMPLES / "factory_model.yaml")
    with Journal(folder / "journal.db", topology.name, buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=1), duration_s=4 * 3600, journal=journal)
        best = best_cost_of(journal, topology)
        return write_run_report(
            folder, topology, result, journal, {"twin": result}, best_cost=best, busy_ratio=0.5
        ).read_text()


def words(page: str) -> str:
    return re.sub(r"<[^>]+>", " ", page.partition("<main>")[2])


def test_it_begins_with_whether_the_slo_was_kept_at_what_cost_and_where_to_look(report: str) -> None:
    first = words(report)[:1500]
    assert re.search(
        r"(Kept|Missed by [\w, ]+): [\d.]+% of the records were processed within their SLO, for", first
    )
    assert re.search(r"It could have cost [\d.]+.*this run paid [\d.]+ times that", first)
    assert first.index("Worth looking at") < 900
    assert 1 <= report.count("<li><b>minute") <= 3


def test_a_unit_that_misses_is_not_outweighed_by_others(tmp_path: Path) -> None:
    topology = a_topology(
        operators=[an_operator("slow", service_s=0.4), an_operator("quick", service_s=0.001)],
        units=("slow", "quick"),
        policy=Choice("fixed", {"instances": 1}),
        sites=[a_site(times=AT_ONCE)],
        per_s=5.0,
    )
    with Journal(tmp_path / "journal.db", topology.name) as journal:
        result = simulate(topology, SimulationSettings(seed=1), duration_s=600, journal=journal)
        first = words(write_run_report(tmp_path, topology, result, journal).read_text())[:300]
    assert result.units["quick"].compliance.ratio("real_time") > 0.9
    assert "Missed by slow: " in first


def test_of_a_unit_of_several_operators_it_says_which_was_congested(tmp_path: Path) -> None:
    topology = a_topology(
        operators=[an_operator("slow", service_s=0.4), an_operator("behind", ("slow",), service_s=0.001)],
        units=[Unit("both", ("slow", "behind"), policy=Choice("fixed", {"instances": 1}))],
        sites=[a_site(times=AT_ONCE)],
        per_s=5.0,
    )
    with Journal(tmp_path / "journal.db", topology.name) as journal:
        result = simulate(topology, SimulationSettings(seed=1), duration_s=600, journal=journal)
        told = words(write_run_report(tmp_path, topology, result, journal).read_text())
    assert re.search(r"slow\s+both\s+0\.[45]\d\s+behind\s+both\s+1\.00", told)


def test_it_stays_below_a_megabyte_with_four_hours_of_nine_units(report: str) -> None:
    assert len(report.encode()) < 1_000_000


def test_it_loads_nothing_from_anywhere(report: str) -> None:
    outside = report.replace("http://www.w3.org/2000/svg", "")
    assert "src=" not in outside.partition("<script>")[0]
    assert "//# sourceMappingURL" not in outside
    assert not re.search(r"(?:src|href)=\"?https?:", outside)


def test_a_run_that_missed_says_what_it_could_have_kept_and_that_the_machine_was_the_limit() -> None:
    topology = a_topology(per_s=30.0, policy=Choice("fixed", {"instances": 1}))
    result = simulate(topology, SimulationSettings(seed=1), duration_s=300)
    told, limit = hints(result, 0.97)
    assert "a kept" in told
    assert "would have been kept" in told
    assert "97% busy" in limit
    calm = simulate(
        a_topology(per_s=1.0, sites=[a_site(times=AT_ONCE)]), SimulationSettings(seed=1), duration_s=300
    )
    assert hints(calm, 0.97) == []


def test_thinning_keeps_both_ends_and_every_peak() -> None:
    values: list[float | None] = [1.0] * 10_000
    values[5_003] = 99.0
    values[7_001] = -5.0
    times, kept = thinned(range(10_000), values)
    assert len(times) <= 510
    assert (times[0], times[-1]) == (0, 9_999)
    assert {99.0, -5.0} <= set(kept)


def test_the_worst_moment_says_who_was_behind_by_how_much_and_for_how_long() -> None:
    def row(at_s: float, duration_s: float) -> dict[str, Any]:
        known = {"unit": "a", "interval_s": 15.0, "arrived": 30, "waiting": 7}
        return {**known, "at_s": at_s, "duration_s": duration_s}

    rows = [row(0.0, 0.5), row(300.0, 8.0), row(600.0, 0.4)]
    (moment,) = [m for m in moments_of(a_topology(), {"a": rows}, [], []) if m.at_s == 300.0]
    assert "a was furthest behind: 8 s where 1 s were promised, 7 records waited, for 5 min" in moment.what


def test_the_largest_change_is_told_in_words() -> None:
    actions = [
        {"at_s": at_s, "kind": kind, "status": "enacted", "policy": "rate", "reason": "more load"}
        for at_s, kind in ((0.0, "StartInstance"), (60.0, "StartInstance"))
    ]
    told = [moment.what for moment in moments_of(a_topology(), {}, actions, [])]
    assert "the largest change: 1 instance started; more load" in told
