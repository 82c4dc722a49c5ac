"""Drawn pictures, and what is found on them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.page import as_png, outlined
from cells.window import PICTURE_BYTES

from cells import seeing, tissue

SMALL = 0.15


def tiffs(count: int, seed: int) -> tuple[list[bytes], list[int]]:
    pictures = tissue.imagined(count, seed, SMALL)
    return [tissue.as_tiff(tissue.draw(p)) for p in pictures], [p.marked for p in pictures]


def test_a_picture_has_the_papers_size_unless_told_otherwise() -> None:
    width, height = tissue.size_of(tissue.FULL_MEGAPIXELS)

    assert width * height == pytest.approx(1.7e6, rel=0.01)
    assert tissue.imagine(0, megapixels=SMALL).width < width / 3


def test_the_same_seed_draws_the_same_pictures_and_another_does_not() -> None:
    first, again, other = (tissue.as_tiff(tissue.draw(tissue.imagine(3, seed, SMALL))) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_counts_are_near_the_truth_and_dust_is_not_counted() -> None:
    found, truth = tiffs(20, seed=5)

    counts = [seeing.look(tiff).cells for tiff in found]

    assert tissue.accuracy(counts, truth) > 0.95
    assert sum(truth) > 100


def test_a_picture_without_cells_has_none() -> None:
    picture = tissue.imagine(1, 1, SMALL)
    empty = tissue.Picture(picture.width, picture.height, (), picture.specks, picture.noise_seed)

    assert seeing.look(tissue.as_tiff(tissue.draw(empty))).cells == 0


def test_the_grid_has_three_channels_at_every_point() -> None:
    found, _ = tiffs(1, seed=1)

    assert len(seeing.look(found[0]).grid) == PICTURE_BYTES


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="picture"):
        seeing.look(b"not a tiff")


def test_an_album_keeps_the_pictures_it_has(tmp_path: Path) -> None:
    first = tissue.make_album(tmp_path, 2, 1, SMALL)
    before = first.file(0).stat().st_mtime_ns

    larger = tissue.make_album(tmp_path, 3, 1, SMALL)

    assert first.file(0).stat().st_mtime_ns == before
    assert larger.file(2).exists()


def test_the_page_shows_a_picture_with_its_cells_outlined() -> None:
    found, _ = tiffs(1, seed=1)

    drawn, seen = outlined(found[0])

    assert seen.cells > 0
    assert (drawn != seeing.decoded(found[0])).any()
    assert as_png(drawn, 100).startswith(b"\x89PNG")
