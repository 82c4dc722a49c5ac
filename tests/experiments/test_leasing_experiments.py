"""The trends of papers 000 and 003, asserted on fewer seeds than the experiments use."""

import json
from pathlib import Path

import pytest

from penstock.experiments import pesp
from penstock.experiments.ads_clicks import ads_outcome
from penstock.experiments.btu_claims import figures_of, mean_of, wins
from penstock.experiments.btu_page import tables_as_text, write_page
from penstock.experiments.btu_paper import PAPER
from penstock.experiments.btu_runs import BTUS_MIN, POLICIES, Cell, clairvoyant_bounds, outcomes_of
from penstock.experiments.recordings import CLICKS, TAXIS, Recording, find_recordings
from penstock.experiments.taxi_rides import LOCATIONS, REPLAY_S, RIDES, drawn_rides
from penstock.experiments.visp_topology import visp_topology
from penstock.monitoring.sla import LEVELS
from penstock.report.figures import write_figures
from penstock.runs.assembly import load
from penstock.topology.model import Choice


def silent(_: str) -> None:
    """Progress nobody looks at."""


def recorded(recording: Recording) -> Path:
    """The file of a recorded series; the test is skipped where it is absent."""
    path = find_recordings().find(recording)
    if path is None:
        pytest.skip(find_recordings().absent(recording))
    return path


@pytest.fixture(scope="module")
def outcomes():
    return outcomes_of(1, silent, find_recordings())


@pytest.mark.slow
def test_the_trends_of_paper_000_come_out(outcomes):
    won = wins(outcomes)
    assert won["compliance"] == (36, 36)
    assert won["resource BTU60"] == (4, 4)
    assert won["total"] == (32, 32)


@pytest.mark.slow
def test_compliance_rises_with_the_billing_unit_and_with_the_level(outcomes):
    for pattern in PAPER:
        for policy in POLICIES:
            for btu_min in BTUS_MIN:
                ratios = [mean_of(outcomes, Cell(pattern, policy, btu_min), level) for level in LEVELS]
                assert ratios == sorted(ratios)
    means = [sum(mean_of(outcomes, Cell(p, "btu", b), "real_time") for p in PAPER) / 4 for b in (10, 60)]
    assert means[1] > means[0]


@pytest.mark.slow
def test_tables_and_page_are_written_with_the_papers_values(outcomes, tmp_path):
    bounds = clairvoyant_bounds(find_recordings())
    figures = figures_of(outcomes, bounds)
    text = tables_as_text(outcomes, bounds)
    assert "Table 6: random_walk_2" in text
    assert "/ 223.4" in text  # the paper's threshold real-time cost at BTU60
    assert "## Verdict" in text
    write_page(tmp_path / "report.html", outcomes, bounds, figures, 1, "these walks")
    page = (tmp_path / "report.html").read_text()
    assert "Figure 11" in page
    assert "these walks" in page
    assert "cdn.plot.ly" not in page.split("<main>")[1]
    write_figures(figures, tmp_path / "summary.json")
    assert json.loads((tmp_path / "summary.json").read_text())[0]["holds"] is True


@pytest.mark.slow
def test_the_trends_of_paper_003_come_out_on_recorded_rides(tmp_path):
    recorded(TAXIS)
    figures = pesp.run(1, tmp_path, silent, find_recordings())
    assert [figure.holds for figure in figures[:3]] == [True, True, True]
    assert {path.name for path in tmp_path.iterdir()} == {
        "summary.json",
        "tables.md",
        "verdict.txt",
        "report.html",
    }


def test_drawn_rides_are_as_many_and_as_long_as_the_recorded_ones():
    rides = drawn_rides(3)
    assert len(rides.ends_s) == RIDES
    assert sum(rides.levels_per_s()) * 60 == pytest.approx(LOCATIONS)
    assert max(rides.ends_s) <= REPLAY_S + 1e-6
    assert drawn_rides(3) == rides


def test_a_report_takes_the_age_of_its_last_position_and_its_analysis():
    last_stage = [
        {"at_s": 10.0, "latency_s": 2.0},
        {"at_s": 20.0, "latency_s": 2.0},
        {"at_s": 25.0, "latency_s": None},
        {"at_s": 30.0, "latency_s": 5.0},  # sent at 25 s
    ]
    analysis = [{"at_s": 10.0, "duration_s": 4.0}, {"at_s": 30.0, "duration_s": 4.0}]
    durations = pesp.report_durations_s([8.0, 21.5, 25.0], last_stage, analysis)
    assert durations == pytest.approx([2.0 + 4.0, 3.5 + 4.0, 5.0 + 4.0])


def test_the_example_file_is_the_topology_of_the_experiment():
    root = Path(__file__).parents[2]
    assert load(root / "examples/topologies/factory_model.yaml") == visp_topology(policy=Choice("btu"))


@pytest.mark.slow
def test_rate_stays_far_below_static_peak_cost_on_the_click_stream():
    path = recorded(CLICKS)
    # Three of the eighteen hours; the benchmark plays all of them.
    length_s = 10_800.0
    static = ads_outcome(path, "static", Choice("fixed", {"instances": 44}), 60.0, length_s)
    ours = ads_outcome(path, "rate", Choice("rate", {"target_ratio": 0.9}), 60.0, length_s)
    assert ours.cost <= 0.6 * static.cost
    assert ours.p95_s <= 2.0
    assert ours.cost >= ours.bound
