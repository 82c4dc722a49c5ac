"""Pictures of tissue that does not exist, and the exact truth about them.

A picture shows cells under a fluorescence microscope: nuclei glow blue, cells that carry the marker glow
green, and the tissue itself glows faintly red. Specks of dust glow green, too, but are no cells. What is on
a picture follows from the seed and its number alone, so every count can be compared with the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FULL_MEGAPIXELS = 1.7
"""The size of the paper's pictures."""
CELL_RADIUS_PX = (10.0, 15.0)
"""Smallest and largest half axis of a cell; the same at every size, as if less tissue were shown."""
CELLS_PER_MEGAPIXEL = 140.0
MARKED_SHARE = 0.6
"""About how many of the cells carry the marker."""
SPECKS_PER_MEGAPIXEL = 60.0
SPECK_RADIUS_PX = 2
NOISE_STD = 4.0
"""Noise of the camera, in steps of 256."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell on a picture, in pixels."""

    x: float
    y: float
    half_axes: tuple[float, float]
    angle: float
    marked: bool
    """Whether it carries the marker."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is on a picture: the truth."""

    width: int
    height: int
    cells: tuple[Cell, ...]
    specks: tuple[tuple[float, float], ...]
    noise_seed: int

    @property
    def marked(self) -> int:
        """How many cells carry the marker."""
        return sum(cell.marked for cell in self.cells)


def size_of(megapixels: float) -> tuple[int, int]:
    """Width and height of a picture with so many megapixels; the sides are as 19 to 14."""
    width = round(math.sqrt(megapixels * 1e6 * 19 / 14))
    return width, round(megapixels * 1e6 / width)


def imagine(number: int, seed: int = 1, megapixels: float = FULL_MEGAPIXELS) -> Picture:
    """What the picture with this number shows; the same for the same number, seed and size."""
    random = np.random.default_rng([seed, number])
    width, height = size_of(megapixels)
    margin = CELL_RADIUS_PX[1] + 2
    wanted = random.poisson(CELLS_PER_MEGAPIXEL * megapixels)
    places: list[tuple[float, float]] = []
    for x, y in zip(
        random.uniform(margin, width - margin, wanted),
        random.uniform(margin, height - margin, wanted),
        strict=True,
    ):
        # Cells may touch, but none lies on another.
        if all((x - a) ** 2 + (y - b) ** 2 > (1.9 * CELL_RADIUS_PX[1]) ** 2 for a, b in places):
            places.append((float(x), float(y)))
    cells = tuple(
        Cell(
            x,
            y,
            (float(random.uniform(*CELL_RADIUS_PX)), float(random.uniform(*CELL_RADIUS_PX))),
            float(random.uniform(0.0, 180.0)),
            bool(random.random() < MARKED_SHARE),
        )
        for x, y in places
    )
    count = random.poisson(SPECKS_PER_MEGAPIXEL * megapixels)
    specks = tuple(
        (float(x), float(y))
        for x, y in zip(
            random.uniform(5, width - 5, count), random.uniform(5, height - 5, count), strict=True
        )
    )
    return Picture(width, height, cells, specks, int(random.integers(2**31)))


def draw(picture: Picture) -> Any:
    """The picture as pixels: height × width × (red, green, blue), 8 bits each."""
    import cv2

    random = np.random.default_rng(picture.noise_seed)
    shape = (picture.height, picture.width)
    # Tissue glows in soft clouds: few random numbers, stretched over the picture.
    clouds = random.uniform(20, 70, (6, 8)).astype(np.float32)
    red = cv2.resize(clouds, (picture.width, picture.height), interpolation=cv2.INTER_CUBIC)
    green = np.full(shape, 14, np.float32)
    blue = np.full(shape, 10, np.float32)
    shift, scale = 4, 16
    for cell in picture.cells:
        centre = (round(cell.x * scale), round(cell.y * scale))
        axes = tuple(round(half * scale) for half in cell.half_axes)
        if cell.marked:
            cv2.ellipse(green, centre, axes, cell.angle, 0, 360, 150.0, -1, cv2.LINE_8, shift)
        nucleus = tuple(round(half * scale * 0.5) for half in cell.half_axes)
        cv2.ellipse(blue, centre, nucleus, cell.angle, 0, 360, 190.0, -1, cv2.LINE_8, shift)
    for x, y in picture.specks:
        cv2.circle(green, (round(x), round(y)), SPECK_RADIUS_PX, 170.0, -1)
    planes = [cv2.GaussianBlur(plane, (0, 0), 1.2) for plane in (red, green, blue)]
    pixels = np.stack(planes, axis=-1)
    noise = random.standard_normal((picture.height, picture.width), dtype=np.float32) * NOISE_STD
    return np.clip(pixels + noise[:, :, None], 0, 255).astype(np.uint8)


def as_tiff(pixels: Any) -> bytes:
    """Pixels as a compressed TIFF."""
    import cv2

    lzw = [cv2.IMWRITE_TIFF_COMPRESSION, 5]
    done, content = cv2.imencode(".tiff", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), lzw)
    if not done:
        raise ValueError(f"OpenCV could not write a TIFF of {pixels.shape} pixels")
    return bytes(content)


@dataclass(frozen=True, slots=True)
class Album:
    """Pictures drawn before a run begins, as files: drawing must not take the cores that are measured.

    The n-th picture that is taken is the album's (n mod its size)-th, as in a laboratory that has only so
    many recordings to play.
    """

    folder: Path
    pictures: tuple[Picture, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def file(self, number: int) -> Path:
        """The file of the picture with this number."""
        return self.folder / f"picture-{number:04d}.tiff"


def make_album(folder: Path, count: int, seed: int = 1, megapixels: float = FULL_MEGAPIXELS) -> Album:
    """Draw so many pictures into a folder; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    album = Album(folder, imagined(count, seed, megapixels))
    for number, picture in enumerate(album.pictures):
        file = album.file(number)
        if not file.exists():
            temporary = file.with_suffix(".part")
            temporary.write_bytes(as_tiff(draw(picture)))
            temporary.replace(file)
    return album


def imagined(count: int, seed: int, megapixels: float) -> tuple[Picture, ...]:
    """What an album's pictures show."""
    return tuple(imagine(number, seed, megapixels) for number in range(count))


def accuracy(found: Sequence[int], truth: Sequence[int]) -> float:
    """One less the mean relative error of counts; 1 where every count is right."""
    errors = [abs(a - b) / max(b, 1) for a, b in zip(found, truth, strict=True)]
    return 1.0 - sum(errors) / len(errors) if errors else 1.0
