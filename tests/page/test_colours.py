"""Colours that people with any kind of colour vision can tell apart, in the light and in the dark."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.page.files import own_file

Colour = NDArray[np.float64]
# Machado, Oliveira and Fernandes (2009): what is seen without one kind of cone, on linear light.
SEEN = {
    "all cones": np.eye(3),
    "no red cones": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no green cones": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no blue cones": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
TELL_APART = 10.0
"""A distance in CIELAB that is seen at a glance; 2.3 is what can just be seen side by side."""


def linear(text: str) -> Colour:
    value = np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour: Colour) -> Colour:
    xyz = TO_XYZ @ np.clip(colour, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours: Sequence[str], seen: Colour) -> tuple[float, tuple[str, str]]:
    return min(
        (float(np.linalg.norm(lab(seen @ linear(a)) - lab(seen @ linear(b)))), (a, b))
        for a, b in itertools.combinations(colours, 2)
    )


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(text)) for text in (one, other))
    return (high + 0.05) / (low + 0.05)


def text(name: str) -> str:
    return own_file(name)[0].decode()


def states(theme: str) -> dict[str, str]:
    """The colours of a theme by their names."""
    start = ":root {" if theme == "light" else ':root[data-theme="dark"] {'
    block = text("style.css").split(start)[1].split("}")[0]
    return dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", block))


def lines(theme: str) -> list[str]:
    """The colours of lines in a chart."""
    name = "ON_WHITE" if theme == "light" else "ON_BLACK"
    found = re.search(rf"const {name} = \[(.*?)\]", text("charts.js"))
    assert found is not None
    return re.findall(r"#[0-9a-f]{6}", found[1])


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_states_and_the_first_lines_are_told_apart_by_everybody(theme: str, seen: str) -> None:
    own = states(theme)
    for colours in ([own["kept"], own["near"], own["late"]], lines(theme)[:6]):
        distance, pair = nearest(colours, SEEN[seen])
        assert distance > TELL_APART, (pair, distance)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_stand_out_from_what_is_behind_them(theme: str) -> None:
    paper = states(theme)["paper"]
    assert [colour for colour in lines(theme) if contrast(colour, paper) < 2.7] == []
