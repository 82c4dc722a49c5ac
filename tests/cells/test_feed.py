"""What the laboratory sends: the same again, without gaps, and on after a stop."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.feed import IMAGES, QUERIES, Load, by_tick, emissions, truth, write_feed
from cells.laboratory import topology_of
from cells.window import region_at

from penstock.channels.sinks import read_results
from penstock.runs.plan import RunPlan
from penstock.topology.model import Choice

LOAD = Load("constant", {"level_per_s": 30}, duration_s=4.0, query_every=10, album=5)


def test_regions_number_their_images_without_a_gap() -> None:
    images, _ = truth(LOAD, 10_000)
    by_region: dict[int, list[int]] = {}
    for image in images:
        by_region.setdefault(image.region, []).append(image.sequence)

    assert len(images) == 120
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_region.values())


def test_a_query_knows_how_many_images_of_its_region_came_before_it() -> None:
    taken: Counter[int] = Counter()
    asked = 0
    for image, query in emissions(LOAD):
        taken[image.region] += 1
        if query is not None:
            asked += 1
            assert query.sequence == taken[region_at(query.x, query.y)]

    assert asked == 12


def test_another_seed_asks_other_questions() -> None:
    first, second = (truth(replace(LOAD, seed=seed), 10_000)[1] for seed in (1, 2))

    assert [(q.x, q.y) for q in first] != [(q.x, q.y) for q in second]


def test_a_feed_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    streams = {source: [tmp_path / source / "lab"] for source in (IMAGES, QUERIES)}
    ticks = 0

    def stopped() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks > 15

    write_feed(LOAD, tmp_path, streams, 0.0, now_s=lambda: 1e9, stopped=stopped)
    before = len(read_results(streams[IMAGES][0]))
    counts = write_feed(LOAD, tmp_path, streams, 0.0, now_s=lambda: 1e9)

    images, queries = (read_results(streams[source][0]) for source in (IMAGES, QUERIES))
    assert 0 < before < len(images)
    assert counts == {IMAGES: 120, QUERIES: 12}
    assert [image["record_id"] for image in images] == [f"image-{n:08d}" for n in range(120)]
    assert [query["record_id"] for query in queries] == [f"query-{n:08d}" for n in range(12)]


def test_ticks_hold_every_emission_once() -> None:
    found = [image for _, images, _ in by_tick(LOAD) for image in images]

    assert found == [image for image, _ in emissions(LOAD)]


def test_the_topology_has_the_loads_workload_and_one_query_to_so_many_images() -> None:
    topology = topology_of(LOAD, filter=Choice("none"))

    assert topology.source_by_name[IMAGES].workload == Choice("constant", {"level_per_s": 30})
    assert topology.source_by_name[QUERIES].workload == Choice("constant", {"level_per_s": 3.0})


def test_choices_are_those_of_the_unit_that_scales() -> None:
    see, remember = topology_of(LOAD, filter=Choice("gaussian"), policy=Choice("threshold")).units

    assert (see.policy.name, see.filter.name) == ("threshold", "gaussian")
    assert (remember.policy.name, remember.filter.name) == ("fixed", "none")
    (lab,) = topology_of(LOAD, filter=Choice("gaussian"), together=True).units
    assert (lab.filter.name, lab.operators) == ("gaussian", ("see", "remember"))


@pytest.mark.parametrize("together", [False, True])
def test_a_run_reads_the_topology_again_as_it_was(together: bool) -> None:
    topology = topology_of(LOAD, together=together)

    again = RunPlan.of(topology, "cells").read_topology()

    assert [(unit.name, unit.operators) for unit in again.units] == [
        (unit.name, unit.operators) for unit in topology.units
    ]


def test_state_has_no_more_shards_than_slots_that_work_on_it() -> None:
    _, remember = topology_of(LOAD).units

    assert (remember.shards, remember.max_instances * remember.slots) == (1, 1)


def test_an_image_has_five_seconds_and_a_query_one() -> None:
    operators = topology_of(LOAD).operator_by_name

    assert operators["see"].slo_s + operators["remember"].slo_s == 5.0
    assert operators["remember"].slo_s == 1.0
