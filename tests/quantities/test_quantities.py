"""Quantities are read at the edge; what cannot be read is told with what was expected."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import QuantityError
from penstock.quantities import (
    DURATION_UNITS_S,
    Price,
    duration_s,
    figure,
    format_duration,
    memory_mib,
    price,
    rate_per_s,
    ratio,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250 ms", 0.25), ("5 s", 5.0), ("5s", 5.0), (" 10 min ", 600.0), ("1 h", 3600.0), ("2 d", 172800.0),
        ("1.5 h", 5400.0), (".5 s", 0.5), ("1e3 ms", 1.0), ("-3 s", -3.0), ("50 µs", 5e-5), ("7", 7.0),
        (7, 7.0), (0.25, 0.25), ("3 minutes", 180.0), ("1 h 05 min", 3900.0), ("3 min 20 s", 200.0),
        ("2d 12h", 216000.0), ("1 s 500 ms", 1.5),
    ],
)  # fmt: skip
def test_a_duration_is_read_in_seconds(text: object, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512 MiB", 512), ("2 GiB", 2048), ("1 TiB", 1048576), ("1 GB", 954), ("2048 KiB", 2), (512, 512),
        ("2g", 2048), ("512m", 512),
    ],
)  # fmt: skip
def test_memory_is_read_in_mib(text: object, mib: int) -> None:
    assert memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "per_s"),
    [("100/s", 100.0), ("6000/min", 100.0), ("100 /s", 100.0), ("3600/h", 1.0), ("1/ms", 1000.0), (4, 4.0)],
)
def test_a_rate_is_read_per_second(text: object, per_s: float) -> None:
    assert rate_per_s(text) == pytest.approx(per_s)


@pytest.mark.parametrize(("text", "value"), [("80 %", 0.8), ("80%", 0.8), (0.8, 0.8), ("0.8", 0.8)])
def test_a_ratio_is_read_as_a_number_or_per_cent(text: object, value: float) -> None:
    assert ratio(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.10 USD/h", Price(Decimal("0.10"), 3600.0, "USD")),
        ("3", Price(Decimal(3), None)),
        (3, Price(Decimal(3), None)),
        (0.1, Price(Decimal("0.1"), None)),
        ("3/BTU", Price(Decimal(3), None)),
        ("2 €/h", Price(Decimal(2), 3600.0, "€")),
        ("$ 1/h", None),
        ("0.5 EUR", Price(Decimal("0.5"), None, "EUR")),
    ],
)
def test_a_price_is_read_exactly(text: object, expected: Price | None) -> None:
    if expected is None:
        with pytest.raises(QuantityError, match=r"0\.10 USD/h"):
            price(text)
    else:
        assert price(text) == expected


def test_a_price_for_another_span_is_exact_where_decimals_are() -> None:
    assert price("0.10 USD/h").for_span(1800.0) == Decimal("0.05")
    assert price("0.10 USD").for_span(1800.0) == Decimal("0.10")
    assert price(price("1/h")).for_span(3600.0) == 1


@pytest.mark.parametrize(
    ("read", "value", "named"),
    [
        (duration_s, "five", "a duration such as"),
        (duration_s, "5 parsecs", "parsecs"),
        (duration_s, "5 GiB", "a duration such as"),
        (duration_s, None, "a duration such as"),
        (duration_s, True, "a duration such as"),
        (duration_s, [5], "a duration such as"),
        (duration_s, float("nan"), "finite"),
        (duration_s, float("inf"), "finite"),
        (duration_s, "1e999 s", "finite"),
        (duration_s, 10**400, "finite"),
        (memory_mib, "2 h", "an amount of memory such as"),
        (memory_mib, float("inf"), "finite"),
        (memory_mib, "", "an amount of memory such as"),
        (rate_per_s, "100 s", "a rate such as"),
        (ratio, "80 s", "a ratio such as"),
        (price, "cheap", "a price such as"),
        (price, "3/parsec", "parsec"),
        (price, True, "a price such as"),
        (price, float("nan"), "finite"),
        (price, None, "a price such as"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_was_expected(read, value, named) -> None:
    with pytest.raises(QuantityError, match=named):
        read(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.85, "850 ms"), (0.9996, "1 s"), (12.5, "12.5 s"), (59.97, "1 min"), (60, "1 min"),
        (200, "3 min 20 s"), (3599.8, "1 h"), (3600, "1 h"), (7500, "2 h 05 min"), (-5, "-5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_the_way_a_person_would(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0.0, 1e8))
def test_a_duration_is_read_as_it_is_shown(seconds: float) -> None:
    assert duration_s(format_duration(seconds)) == pytest.approx(seconds, rel=0.01, abs=0.0006)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5 min 3 h", "less than one of the first"), ("1 h 60 min", "less than one of the first"),
        ("1 h 5 kg", "unit 'kg'"), ("1 h 5", "such as"), ("1 h -5 min", "such as"),
        ("1 h 5 min 3 s", "such as"),
    ],
)  # fmt: skip
def test_parts_of_a_duration_that_do_not_belong_together_are_told(text: str, told: str) -> None:
    with pytest.raises(QuantityError, match=told):
        duration_s(text)


@given(st.floats(-1e6, 1e6), st.sampled_from(sorted(DURATION_UNITS_S)))
def test_every_unit_scales_the_number_in_front_of_it(number: float, unit: str) -> None:
    assert duration_s(f"{number!r} {unit}") == pytest.approx(number * DURATION_UNITS_S[unit])


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for read in (duration_s, memory_mib, rate_per_s, ratio, price):
        with suppress(QuantityError):
            read(text)


@pytest.mark.parametrize("text", ["1e999", "1e99999999999999999999"])
def test_a_price_beyond_all_numbers_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="finite"):
        price(text)
    assert price(f"1e-{text[2:]}").amount == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_700.4, "12,700"), (40.0, "40"), (2.521, "2.52"), (0.00679, "0.0068"), (3.68e-43, "0"), (-1e-9, "0")],
)
def test_a_figure_is_written_as_a_person_does(value: float, text: str) -> None:
    assert figure(value) == text
