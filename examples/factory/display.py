"""The display of a manufacturing machine: what it shows of a cycle, and the picture a camera takes of it.

Some machines offer no interface but their display, so the factory's production data (sensor S2 of
paper 000) is a picture. It shows six counters at fixed places; the last one is a check number over
the other five, so that a reader can tell a wrong reading from a right one without knowing the truth.
"""

from __future__ import annotations

import io
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

WIDTH_PX = 850
HEIGHT_PX = 300
DIGITS = 5
"""Every counter is padded with zeros to this many digits, as on a mechanical counter."""
CHECK_MODULUS = 99_991
"""The largest prime of five digits: one wrong digit anywhere changes the check number."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """What the display shows about the last reporting cycle of its machine."""

    produced: int
    """Goods made in the cycle, good and defective ones."""
    defective: int
    ideal_ms: int
    """Ideal production time of one good."""
    planned_stop_s: int
    """Scheduled downtime within the cycle."""
    defect_stop_s: int
    """Unscheduled downtime within the cycle."""


LABELS = ("PRODUCED", "DEFECTIVE", "IDEAL TIME ms", "PLANNED STOP s", "DEFECT STOP s", "CHECK")
"""The counters in the order of `Cycle`'s fields, then the check number."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the display, in pixels."""

    left: int
    top: int
    right: int
    bottom: int


def counter_boxes() -> tuple[Box, ...]:
    """Where the six counters stand: two rows of three, in the order of `LABELS`."""
    return tuple(Box(left, top, left + 230, top + 66) for top in (106, 212) for left in (24, 304, 584))


def check_number(cycle: Cycle) -> int:
    """The number that tells whether five counters were read right."""
    total = 0
    for value in astuple(cycle):
        total = (total * 100_003 + value) % CHECK_MODULUS
    return total


@cache
def _font(size_px: int) -> Any:
    from PIL import ImageFont

    # Pillow carries this font, so the picture is the same on every machine.
    return ImageFont.load_default(size_px)


def draw_display(machine: str, cycle_number: int, cycle: Cycle, *, smudged: bool = False) -> bytes:
    """The picture of the display as PNG, 850 × 300 pixels and about 12 kB.

    `smudged` wipes over the counters, as glare or dirt does; nobody can read them then.
    """
    from PIL import Image, ImageDraw, ImageFilter

    picture = Image.linear_gradient("L").resize((WIDTH_PX, HEIGHT_PX)).point(lambda value: 205 + value // 6)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, WIDTH_PX - 1, 62), fill=60)
    pen.text((24, 10), f"MACHINE {machine}", fill=245, font=_font(36))
    pen.text((560, 10), f"CYCLE {cycle_number:06d}", fill=245, font=_font(36))
    for label, value, box in zip(
        LABELS, (*astuple(cycle), check_number(cycle)), counter_boxes(), strict=True
    ):
        pen.text((box.left, box.top - 32), label, fill=70, font=_font(24))
        pen.rectangle((box.left, box.top, box.right, box.bottom), fill=252, outline=120, width=2)
        pen.text((box.left + 24, box.top + 2), f"{value:0{DIGITS}d}", fill=10, font=_font(56))
    if smudged:
        area = (0, 64, WIDTH_PX, HEIGHT_PX)
        picture.paste(picture.crop(area).filter(ImageFilter.GaussianBlur(14)), area)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
