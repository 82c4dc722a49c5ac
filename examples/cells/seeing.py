"""What is done with a picture: Gaussian blur, split into channels, edge detection, object count.

Plain functions over arrays, so that the stream, the batch that checks it and the benchmark's process pool
run the very same code. OpenCV does the work on one thread: a slot is one core, and its neighbours have
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cells.window import GRID

BLUR_SIGMA = 2.0
EDGE_THRESHOLDS = (40, 90)
"""Canny's: an edge begins above the second and goes on while it is above the first."""
SMALLEST_PX = 120.0
"""Objects with a smaller area are dust."""
ALONE_RATIO = 1.55
"""An object larger than this many usual ones is several cells that touch."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found on one picture."""

    cells: int
    """Cells that carry the marker."""
    edge_ratio: float
    """The share of pixels of the marker's channel that lie on an edge."""
    grid: bytes
    """Intensities (R, G, B) at `GRID` × `GRID` points, row by row: what the window remembers."""


def look(tiff: bytes) -> Seen:
    """Everything that is done with one picture."""
    planes = channels(blurred(decoded(tiff)))
    outline = edges(planes[1])
    found = outlines(outline)
    return Seen(count(found), float(np.count_nonzero(outline)) / outline.size, grid_of(planes))


def decoded(tiff: bytes) -> Any:
    """A TIFF's pixels as height × width × (blue, green, red), as OpenCV has them."""
    import cv2

    cv2.setNumThreads(1)
    pixels = cv2.imdecode(np.frombuffer(tiff, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise ValueError(f"expected a picture OpenCV can read, got {len(tiff)} bytes it cannot")
    return pixels


def blurred(pixels: Any) -> Any:
    """The picture without the camera's noise."""
    import cv2

    return cv2.GaussianBlur(pixels, (0, 0), BLUR_SIGMA)


def channels(pixels: Any) -> tuple[Any, Any, Any]:
    """Red, green and blue as arrays of their own."""
    import cv2

    blue, green, red = cv2.split(pixels)
    return red, green, blue


def edges(plane: Any) -> Any:
    """Where a channel has edges: 255 on an edge, else 0."""
    import cv2

    return cv2.Canny(plane, *EDGE_THRESHOLDS)


def outlines(edge_map: Any) -> list[Any]:
    """The outlines of objects large enough to be cells."""
    import cv2

    # Edges have gaps of a pixel where two meet: close them, or an outline is open and has no area.
    closed = cv2.morphologyEx(edge_map, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
    found, _ = cv2.findContours(closed, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [outline for outline in found if cv2.contourArea(outline) >= SMALLEST_PX]


def count(found: list[Any]) -> int:
    """How many cells the outlines are of: large ones are several that touch."""
    import cv2

    if not found:
        return 0
    areas = np.array([cv2.contourArea(outline) for outline in found])
    usual = float(np.median(areas))
    several = areas > ALONE_RATIO * usual
    return int(np.count_nonzero(~several) + np.rint(areas[several] / usual).sum())


def grid_of(planes: tuple[Any, Any, Any]) -> bytes:
    """Intensities at evenly spread points, each with its three channels."""
    height, width = planes[0].shape
    rows = ((np.arange(GRID) + 0.5) * height / GRID).astype(int)
    columns = ((np.arange(GRID) + 0.5) * width / GRID).astype(int)
    return np.stack([plane[np.ix_(rows, columns)] for plane in planes], axis=-1).tobytes()
