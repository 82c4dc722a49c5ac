"""A thing chosen by name is made, or the mistake is told with what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock.choosing import made, nearest, parameters_of
from penstock.errors import ConfigurationError


@dataclass(frozen=True)
class Knobs:
    """Something to choose."""

    count: int = 1
    share: float = 0.5
    label: str = ""
    eager: bool = False
    most: int | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is below 0")


REGISTRY = {"knobs": Knobs}


@pytest.mark.parametrize(
    "parameters", [{}, {"count": 3}, {"share": 1}, {"most": None}, {"most": 4}, {"eager": True, "label": "x"}]
)
def test_right_parameters_are_taken(parameters: dict[str, Any]) -> None:
    assert made("thing", REGISTRY, "knobs", parameters) == Knobs(**parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("knob", {}, 'unknown thing "knob"; did you mean "knobs"'),
        ("xyz", {}, r'unknown thing "xyz" \(known: knobs\)'),
        ("knobs", {"cuont": 1}, 'has no parameter "cuont"; did you mean "count"'),
        ("knobs", {"count": "many"}, "count: expected a whole number, got 'many'"),
        ("knobs", {"count": 1.5}, "count: expected a whole number, got 1.5"),
        ("knobs", {"count": True}, "count: expected a whole number"),
        ("knobs", {"count": None}, "count: expected a whole number"),
        ("knobs", {"share": float("nan")}, "share: expected a number"),
        ("knobs", {"share": [1]}, "share: expected a number"),
        ("knobs", {"label": 3}, "label: expected text"),
        ("knobs", {"eager": "yes"}, "eager: expected true or false"),
        ("knobs", {"count": -1}, 'thing "knobs": count is below 0'),
    ],
)
def test_a_mistake_is_told_with_what_would_be_right(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        made("thing", REGISTRY, name, parameters)


def test_parameters_are_the_fields() -> None:
    assert list(parameters_of(Knobs)) == ["count", "share", "label", "eager", "most"]


def test_nothing_to_choose_from_is_said() -> None:
    assert nearest("x", []) == " (there are none)"
