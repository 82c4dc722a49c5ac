"""The check of a run: what must have come out, and what it does not let pass."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.checking import Result, check
from cells.feed import Load, image_record, query_record, truth
from cells.seeing import look
from cells.tissue import Album, make_album
from cells.window import in_batch, point_at, region_at

LOAD = Load("constant", {"level_per_s": 40}, duration_s=3.0, query_every=10, megapixels=0.05, album=3)
IMAGES = 120
BEGUN_S = 1.7e9
LATENCY_S = 0.2


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Album:
    return make_album(tmp_path_factory.mktemp("album"), LOAD.album, LOAD.seed, LOAD.megapixels)


def results_of(album: Album) -> list[Result]:
    """What a laboratory gives that sees an image after 0.2 s and answers over all that came before."""
    images, queries = truth(LOAD, IMAGES)
    seen = [look(album.file(number).read_bytes()) for number in range(LOAD.album)]
    grids: dict[int, list[bytes]] = {}
    found = []
    for image in images:
        grids.setdefault(image.region, []).append(seen[image.picture].grid)
        row = {**image_record(image, Path(), BEGUN_S), "kind": "image", "cells": seen[image.picture].cells}
        found.append(Result(BEGUN_S + image.at_s + LATENCY_S, row))
    for query in queries:
        region, point = region_at(query.x, query.y), point_at(query.x, query.y)
        answer = in_batch(grids.get(region, []), point, query.sequence)
        row = {**query_record(query, BEGUN_S), "kind": "query", "through": query.sequence}
        row["intensities"] = base64.b64encode(answer).decode()
        found.append(Result(BEGUN_S + query.at_s + LATENCY_S, row))
    return found


def test_what_is_right_passes_and_keeps_its_promises(album: Album) -> None:
    found = check(LOAD, album, IMAGES, results_of(album))

    assert found.right, found.rows
    assert found.violations == found.behind == 0


def test_an_answer_over_nothing_does_not_pass_once_images_could_be_seen(album: Album) -> None:
    results = results_of(album)
    last = results.pop()
    assert last.row["through"] > 1
    empty = replace(last, row={**last.row, "through": 0, "intensities": ""})

    found = check(LOAD, album, IMAGES, [*results, empty])

    assert [row for row in found.rows if row[1] != row[2]] == [
        ("answers without images that could be seen before", 0, 1)
    ]


def test_an_image_that_never_comes_out_breaks_its_promise(album: Album) -> None:
    results = results_of(album)

    found = check(LOAD, album, IMAGES, results[2:])

    assert found.broken("image") == found.violations == 2


def test_what_is_due_in_the_lead_in_is_checked_and_breaks_no_promise(album: Album) -> None:
    slow = [
        replace(r, seen_s=r.seen_s + (60.0 if r.source_s < BEGUN_S + 1.0 else 0.0)) for r in results_of(album)
    ]

    assert check(LOAD, album, IMAGES, slow).violations > 0
    found = check(replace(LOAD, lead_in_s=1.0), album, IMAGES, slow[1:])

    assert found.violations == 0
    assert not found.right, "one is missing"
    assert found.durations["image"].count == 80


def test_images_still_on_their_way_need_not_be_in_an_answer(album: Album) -> None:
    late = [replace(r, seen_s=r.seen_s + 60.0) if r.row["kind"] == "image" else r for r in results_of(album)]
    none = [
        replace(r, row={**r.row, "through": 0, "intensities": ""}) if r.row["kind"] == "query" else r
        for r in late
    ]

    found = check(LOAD, album, IMAGES, none)

    assert found.right, found.rows
    assert found.behind > 0


def test_an_image_behind_one_that_cannot_be_seen_yet_need_not_be_in_an_answer(album: Album) -> None:
    results = results_of(album)
    last = results[-1].row
    of_region = [r for r in results if r.row["kind"] == "image" and r.row["region"] == last["region"]]
    first = of_region[0]
    late = [replace(r, seen_s=r.seen_s + 60.0) if r is first else r for r in results[:-1]]
    empty = replace(results[-1], row={**last, "through": 0, "intensities": ""})

    assert check(LOAD, album, IMAGES, [*late, empty]).right


@pytest.mark.parametrize("spoiled", ["lost", "twice", "another's"])
def test_a_query_lost_answered_twice_or_with_anothers_answer_is_told(album: Album, spoiled: str) -> None:
    *results, last = results_of(album)
    wrong = {
        "lost": [],
        "twice": [last, last],
        "another's": [replace(last, row={**last.row, "intensities": results[-1].row["intensities"]})],
    }[spoiled]

    assert not check(LOAD, album, IMAGES, [*results, *wrong]).right
