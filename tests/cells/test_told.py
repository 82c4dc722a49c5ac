"""What is told of a run: its profile has the whole load, its events and hours are those of the feed."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("cv2")

from cells.feed import Load, truth
from cells.laboratory import told_by, topology_of

from penstock.controller.journal import Journal
from penstock.experiments.cells import of_images, simulated_row
from penstock.runs.profile import UnitProfile, with_delay
from penstock.simulator import simulate
from penstock.topology.model import Choice
from penstock.workload.registry import make_workload

TWO_ROUNDS = Load("square", {"low_per_s": 2, "high_per_s": 10, "hold_s": 20}, duration_s=80.0)
BEGUN_S = 10.0


def a_journal(length_s: float = 200.0) -> Journal:
    """The laboratory, simulated."""
    journal = Journal("sqlite://", "r", buffered=True)
    simulate(topology_of(TWO_ROUNDS, filter=Choice("none")), duration_s=length_s, journal=journal)
    return journal


def test_the_twin_gets_the_whole_load() -> None:
    topology = topology_of(TWO_ROUNDS)
    profile, _, _ = told_by(a_journal(), topology, TWO_ROUNDS, BEGUN_S)

    twin = with_delay(topology, profile.feed_start_s, profile.duration_s, profile.feed_s)

    images, _ = truth(TWO_ROUNDS, 10_000)
    workload = twin.source_by_name["images"].workload
    assert workload is not None
    assert float(make_workload(workload).curve.records(200.0)) == pytest.approx(len(images), abs=1)


def test_hours_are_those_of_the_feed_however_long_a_run_drains() -> None:
    topology = topology_of(TWO_ROUNDS)
    short, long = (told_by(a_journal(s), topology, TWO_ROUNDS, BEGUN_S)[2] for s in (100.0, 300.0))

    assert short == long
    assert long <= 4 * 80.0 / 3600


def test_the_twin_is_judged_by_images_alone_and_by_the_feeds_time() -> None:
    topology = topology_of(TWO_ROUNDS, filter=Choice("none"))
    profile, _, _ = told_by(a_journal(), topology, TWO_ROUNDS, BEGUN_S)

    row = simulated_row("Square", "none", 1, topology, profile)

    assert row.query_violations != row.query_violations, "queries are not told apart"
    assert 0 <= row.image_violations <= len(truth(TWO_ROUNDS, 10_000)[0])
    assert 80.0 / 3600 * 0.99 <= row.vm_h <= 4 * 80.0 / 3600
    assert [source.name for source in of_images(topology).sources] == ["images"]
    assert of_images(topology).operator_by_name["remember"].inputs == ("see",)


def test_an_image_is_judged_by_its_five_seconds_from_end_to_end() -> None:
    topology = topology_of(TWO_ROUNDS, policy=Choice("fixed"), filter=Choice("none"))
    profile, _, _ = told_by(a_journal(), topology, TWO_ROUNDS, BEGUN_S)

    def late(see_s: float) -> float:
        units = {
            "see": UnitProfile(100, 0.01, see_s, 0.0),
            "remember": UnitProfile(100, 0.01, 0.5, 0.0),
        }
        ready = replace(profile, units=units, host_start_s=0.0, instance_start_s=0.0)
        return simulated_row("Square", "none", 1, topology, ready).image_violations

    assert late(4.2) == 0, "more than `see` has for itself, less than an image has"
    assert late(4.8) == len(truth(TWO_ROUNDS, 10_000)[0])
