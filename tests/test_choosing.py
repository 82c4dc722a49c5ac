"""A thing chosen by name is made, or the mistake is told with what would be right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest

from penstock.choosing import Range, Registry, made, nearest, parameters_of
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


@dataclass(frozen=True)
class Pump:
    """A pump to choose.

    More words about it.
    """

    name: ClassVar[str] = "pump"
    rate_per_s: float
    """How much it moves."""
    start_s: float = 2.0
    memory_mib: int = 64
    share: Annotated[float, Range(above=0, most=1)] = 0.5
    mode: Literal["fast", "slow"] = "slow"
    levels: tuple[float, ...] = (1.0,)
    pair: tuple[float, float] | None = None
    column: str | int | None = field(default=None, metadata={"doc": "a column's name or number"})


PUMPS = Registry("machine", Pump)


def test_values_are_read_by_their_types_and_by_the_unit_their_name_ends_in() -> None:
    made_ = PUMPS.make(
        "pump",
        {"rate_per_s": "60/min", "start_s": "1 min", "memory_mib": "2 GiB", "share": "80 %",
         "levels": [1, "2"], "pair": [1, 2.5], "column": 3},
    )  # fmt: skip
    assert made_ == Pump(1.0, 60.0, 2048, 0.8, "slow", (1.0, 2.0), (1.0, 2.5), 3)


def test_every_mistake_is_told_at_once_with_the_parameter_it_is_about() -> None:
    given = {"rate_per_s": -1, "start_s": "3 GiB", "share": 0, "mode": "quick", "pair": [1], "x": 1}
    wrong = PUMPS.mistakes("pump", given)
    assert [mistake.parameter for mistake in wrong] == list(given)
    with pytest.raises(ConfigurationError) as told:
        PUMPS.make("pump", given)
    lines = str(told.value).splitlines()
    assert len(lines) == len(given)
    assert "rate_per_s: expected a number, 0 or more, got -1" in lines[0]
    assert "share: expected a number, more than 0, at most 1, got 0" in lines[2]
    assert "mode: expected one of fast, slow, got 'quick'" in lines[3]


def test_a_parameter_that_must_be_given_is_missed() -> None:
    with pytest.raises(ConfigurationError, match='machine "pump" needs the parameter "rate_per_s"'):
        PUMPS.make("pump", {})


def test_a_registry_describes_its_kinds_for_people() -> None:
    assert list(PUMPS) == ["pump"]
    assert PUMPS.described("pump") == "A pump to choose."
    parameters = PUMPS.parameters("pump")
    assert parameters["rate_per_s"].meaning == "How much it moves."
    assert parameters["rate_per_s"].default_text == "required"
    assert parameters["column"].meaning == "a column's name or number"
    assert parameters["start_s"].default_text == "2"


def test_a_finished_thing_is_made_of_the_parameters() -> None:
    registry = Registry("machine", Pump, finish=lambda pump: pump.rate_per_s * 2)
    assert registry.make("pump", {"rate_per_s": 3}) == 6.0


@pytest.mark.parametrize("name", ["x" * 1000, "threshold"])
def test_no_hint_is_looked_for_where_it_would_take_long(name: str) -> None:
    assert nearest(name, [f"name_{i}" for i in range(5000)]) == ""


def test_a_number_of_thousands_of_digits_is_refused_in_words() -> None:
    for value in (10**5000, -(10**5000), [10**5000], {"a": 10**5000}):
        with pytest.raises(ConfigurationError, match=r"many digits|too long to show") as refused:
            made("thing", REGISTRY, "knobs", {"count": value})
        assert len(str(refused.value)) < 200
