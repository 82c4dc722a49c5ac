"""Reading the picture of a display back into numbers: optical character recognition.

The counters stand at fixed places, so finding text in the picture (nine tenths of the work) is left
out at first: each counter is cut out and recognised alone. Where the check number disagrees, the
whole display is looked at once more, with text detection. What still disagrees is unreadable and
says so; a wrong number is never passed on as a right one.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from factory.display import DIGITS, Box, Cycle, check_number, counter_boxes

RECOGNISER_WIDTH_PX = 176
"""Width a counter is scaled into at the recogniser's height of 48: five digits and a margin."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from one picture."""

    cycle: Cycle | None
    """None where the picture could not be read."""
    looks: int
    """1 where the counters alone were enough, 2 where the whole display was looked at."""


class DisplayReader:
    """An optical character recogniser for displays; loading takes about a second, so keep it."""

    def __init__(self) -> None:
        from rapidocr_onnxruntime import RapidOCR

        # One thread: an executor's slot is one core, and its neighbours have the others.
        self._engine = RapidOCR(
            intra_op_num_threads=1,
            inter_op_num_threads=1,
            rec_img_shape=[3, 48, RECOGNISER_WIDTH_PX],
        )

    def read(self, png: bytes, *, both: bool = False) -> Reading:
        """Read one picture; never raises for what is on the picture, only where it is no picture.

        With `both`, the second look is taken at every picture, and a reading counts where the two agree.
        """
        from PIL import Image

        pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
        quick = _cycle_of(self._recognise([_inside(pixels, box) for box in counter_boxes()]))
        if quick is not None and not both:
            return Reading(quick, 1)
        thorough = _cycle_of(self._look_at_all(pixels))
        return Reading(thorough if quick in (None, thorough) else None, 2)

    def _recognise(self, pictures: list[Any]) -> list[str]:
        found, _ = self._engine.text_rec(pictures)
        return [text for text, _ in found]

    def _look_at_all(self, pixels: Any) -> list[str]:
        """The text nearest to each counter's place, found on the whole picture."""
        found, _ = self._engine(pixels, use_cls=False)
        texts = [""] * len(counter_boxes())
        for corners, text, _ in found or ():
            middle_x, middle_y = np.mean(corners, axis=0)
            for place, box in enumerate(counter_boxes()):
                if box.left <= middle_x <= box.right and box.top <= middle_y <= box.bottom:
                    texts[place] = text
        return texts


@cache
def display_reader() -> DisplayReader:
    """The one reader of this Python worker."""
    return DisplayReader()


def _inside(pixels: Any, box: Box) -> Any:
    """The counter without its frame, cut to the dark columns with a margin."""
    inner = pixels[box.top + 5 : box.bottom - 4, box.left + 5 : box.right - 4]
    columns = np.flatnonzero(inner[:, :, 0].min(axis=0) < 128)
    if columns.size == 0:
        return inner
    return inner[:, max(columns[0] - 8, 0) : columns[-1] + 9]


def _cycle_of(texts: list[str]) -> Cycle | None:
    """The cycle the six texts show, or None where they are no numbers or the check disagrees."""
    texts = [text.strip().replace(" ", "") for text in texts]
    if not all(len(text) == DIGITS and text.isascii() and text.isdigit() for text in texts):
        return None
    *values, check = (int(text) for text in texts)
    cycle = Cycle(*values)
    return cycle if check_number(cycle) == check else None
