"""Whatever is written as a quantity is read as a finite number that can be meant, or refused in words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import QuantityError
from penstock.quantities import (
    DURATION_UNITS_S,
    LONGEST_S,
    MEMORY_UNITS_MIB,
    MOST_MEMORY_MIB,
    MOST_MONEY,
    MOST_PER_S,
    RATE_UNITS_PER_S,
    Price,
    duration_s,
    memory_mib,
    number,
    price,
    rate_per_s,
    ratio,
)
from tests.fuzz.limits import tried, within

READERS: dict[Callable[[object], Any], float] = {
    duration_s: LONGEST_S,
    memory_mib: float(MOST_MEMORY_MIB),
    rate_per_s: MOST_PER_S,
    ratio: MOST_PER_S,
    number: math.inf,
    price: float(MOST_MONEY),
}
"""Every reader with the most it gives."""

NUMBERS = (
    "0", "-0", "1", "-1", "5", "1e3", "1e-9", "1e-300", "1e-400", "1e12", "1e15", "1e300", "1e308",
    "-1e308", "1e309",
    "1e99999", "1e-99999999999999999999", "9" * 30, "9" * 400, "0." + "0" * 300 + "1", ".5", "5.", "+3",
    "--3",
    "nan", "NaN", "inf", "-inf", "Infinity", "0x10", "1_000", "1,5", "٣", "½", "1e", "e3", "", " ", "1 2",
)  # fmt: skip
UNITS = (
    *DURATION_UNITS_S, *MEMORY_UNITS_MIB, *RATE_UNITS_PER_S, "%", "USD/h", "EUR", "/BTU",
    "USD/fortnight", "GiB/s",
    "s s", "kg", "\x00", "\x1b[31m", "S", "µ", "🐢", "/", "//", "s/",
)  # fmt: skip
OTHERS: tuple[object, ...] = (
    None, True, False, [], {}, (), b"5 s", object(), math.nan, math.inf, -math.inf, 1e308, -5, 10**400,
    -(10**400),
    Decimal("NaN"), Decimal("sNaN"), Decimal("-sNaN123"), Decimal("Infinity"), Decimal("1e400"),
    "x" * 1_000_000, "9" * 1_000_000,
    "5" + " " * 500_000 + "s",
)  # fmt: skip


def inputs() -> list[object]:
    """Numbers with units, texts with a change or two, and things that are no text."""
    random_ = random.Random(1)
    written = [f"{n}{gap}{unit}" for n in NUMBERS for unit in UNITS for gap in ("", " ")]
    random_.shuffle(written)
    changed = []
    for text in written[:600]:
        letters = list(text)
        for _ in range(random_.randint(1, 3)):
            letters.insert(
                random_.randint(0, len(letters)), chr(random_.choice((0, 9, 32, 37, 46, 101, 955)))
            )
        changed.append("".join(letters))
    return [*OTHERS, *written[: tried(400, 2000)], *changed[: tried(100, 600)]]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_it_is_read_as_what_can_be_meant_or_refused_in_words(read: Callable[[object], Any]) -> None:
    for given_ in inputs():
        said = ""
        with within(2.0):
            try:
                found = read(given_)
            except QuantityError as error:
                said = str(error)
        if said:
            assert len(said) < 500, given_
            continue
        amount = float(found.amount if isinstance(found, Price) else found)
        assert math.isfinite(amount), given_
        assert abs(amount) <= READERS[read], given_


@settings(max_examples=tried(100, 2000), deadline=None)
@given(
    st.one_of(
        st.text(max_size=40), st.floats(), st.integers(), st.from_regex(r"-?\d+(\.\d+)?e?\d* ?[a-zA-Z/%]*")
    )
)
def test_nothing_at_all_ends_in_another_error(given_: object) -> None:
    for read, most in READERS.items():
        try:
            found = read(given_)
        except QuantityError:
            continue
        amount = float(found.amount if isinstance(found, Price) else found)
        assert math.isfinite(amount)
        assert abs(amount) <= most


@pytest.mark.parametrize("text", ["1e308 TiB", "1e308 d", "1e300 s", "99999999999999 d", "1e13/s"])
def test_what_cannot_be_meant_is_told_as_too_big(text: str) -> None:
    readers = {"B": memory_mib, "s": rate_per_s if "/" in text else duration_s, "d": duration_s}
    with pytest.raises(QuantityError, match=r"too big|finite"):
        readers[text[-1]](text)
