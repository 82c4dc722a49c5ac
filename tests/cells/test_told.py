"""What is told of a run: its profile has the whole load, its events and hours are those of the feed."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("cv2")

from cells.feed import Load, truth
from cells.laboratory import told_by, topology_of

from penstock.controller.journal import Journal
from penstock.experiments.cells import of_images, simulated_row
from penstock.experiments.within import scaling_events
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


def test_what_is_due_in_the_lead_in_counts_nowhere() -> None:
    led_in = replace(TWO_ROUNDS, lead_in_s=20.0)
    topology = topology_of(led_in, policy=Choice("fixed"), filter=Choice("none"))
    journal = Journal("sqlite://", "r", buffered=True)
    simulate(topology, duration_s=200.0, journal=journal)
    profile, _, vm_h = told_by(journal, topology, led_in, BEGUN_S)
    assert vm_h == pytest.approx(0.75 * told_by(journal, topology, TWO_ROUNDS, BEGUN_S)[2])
    scaled = a_journal()
    whole, counted = (told_by(scaled, topology, load, BEGUN_S)[1] for load in (TWO_ROUNDS, led_in))
    assert whole - counted == scaling_events(scaled, BEGUN_S, BEGUN_S + 20.0 - 1e-6)

    slow = {name: UnitProfile(100, 0.01, 9.0, 0.0) for name in ("see", "remember")}
    ready = replace(profile, units=slow, host_start_s=0.0, instance_start_s=0.0)
    row = simulated_row("Square", "none", 1, topology, ready, led_in.lead_in_s)

    images, _ = truth(led_in, 10_000)
    assert row.image_violations == pytest.approx(sum(image.at_s >= 20.0 for image in images), abs=1)
    assert row.vm_h == pytest.approx(2 * 60.0 / 3600)


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
