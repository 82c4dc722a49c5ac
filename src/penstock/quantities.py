"""Quantities with units, read at the edge of the system: "5 s", "2 GiB", "0.10 USD/h".

Inside, a duration is a float in seconds, memory an integer in MiB, a rate a float a second
and money a Decimal. Names carry the unit (`_s`, `_mib`, `_per_s`), so nothing is converted twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from penstock.errors import QuantityError

_NUMBER = r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*(?P<unit>[A-Za-zµ%/]*)\s*$")

_PARTS = re.compile(r"\s*(\d+\s*[A-Za-z]+)\s+(\d+(?:\.\d+)?\s*[A-Za-zµ]+)\s*")
"""A duration as it is shown where it is long: "2 h 05 min"."""
DURATION_UNITS_S = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "m": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
MEMORY_UNITS_MIB = {
    "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "TiB": 1024.0**2,
    "kB": 1e3 / 2**20, "KB": 1e3 / 2**20, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20, "TB": 1e12 / 2**20,
    "k": 1 / 1024, "m": 1.0, "g": 1024.0, "M": 1.0, "G": 1024.0,
}  # fmt: skip
RATE_UNITS_PER_S = {
    "/s": 1.0, "/sec": 1.0, "/min": 1 / 60, "/m": 1 / 60, "/h": 1 / 3600, "/d": 1 / 86400, "/ms": 1e3,
}  # fmt: skip

LONGEST_S = 1e11
"""The longest duration that is read, some 3,000 years: what is longer was not meant."""
MOST_MEMORY_MIB = 2**40
"""The most memory that is read, an exbibyte."""
MOST_PER_S = 1e12
"""The highest rate that is read."""
MOST_MONEY = Decimal("1e15")
"""The highest price that is read."""
_LONGEST_TEXT = 64


def shown(value: object) -> str:
    """A value as a message shows it: short, whatever it is."""
    try:
        text = repr(value) if not isinstance(value, int) or abs(value) < 10**60 else "a number of many digits"
    except (ValueError, RecursionError):  # Python writes no number of thousands of digits
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def _split(value: object, what: str, example: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise QuantityError(f"expected {what} such as {example}, got {shown(value)}")
    match = _QUANTITY.match(value) if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    if isinstance(value, str) and match is None:
        raise QuantityError(f"expected {what} such as {example}, got {shown(value)}")
    try:
        number = float(value if match is None else match["number"])
    except OverflowError:  # an integer of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise QuantityError(f"expected {what} such as {example}, a finite one, got {shown(value)}")
    return number, "" if match is None else match["unit"]


def _scaled(value: object, units: dict[str, float], most: float, what: str, example: str) -> float:
    """A number with its unit; one beyond what can be meant is refused, for later sums would not be finite."""
    number, unit = _split(value, what, example)
    if unit and unit not in units:
        known = ", ".join(units)
        raise QuantityError(
            f"{shown(value)} has the unit {unit!r}, expected {what} such as {example} (units: {known})"
        )
    found = number * units[unit] if unit else number
    if abs(found) > most:
        raise QuantityError(f"{shown(value)} is too big for {what}, expected one such as {example}")
    return found


def duration_s(value: object) -> float:
    """Read a duration such as "250 ms", "5 s", "10 min" or "1 h 05 min"; a plain number is in seconds."""
    parts = _PARTS.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    if parts is None:
        return _one_duration_s(value)
    larger_s, smaller_s = (_one_duration_s(part) for part in parts.groups())
    unit_s = DURATION_UNITS_S[_split(parts[1], "", "")[1]]
    if smaller_s >= unit_s:
        raise QuantityError(f"{shown(value)}: expected the second part to be less than one of the first")
    return _one_duration_s(larger_s + smaller_s)


def _one_duration_s(value: object) -> float:
    return _scaled(value, DURATION_UNITS_S, LONGEST_S, "a duration", '"5 s"')


def memory_mib(value: object) -> int:
    """Read an amount of memory such as "512 MiB" or "2 GiB"; a plain number is in MiB."""
    return round(_scaled(value, MEMORY_UNITS_MIB, MOST_MEMORY_MIB, "an amount of memory", '"2 GiB"'))


def rate_per_s(value: object) -> float:
    """Read a rate such as "100/s" or "6000/min"; a plain number is per second."""
    return _scaled(value, RATE_UNITS_PER_S, MOST_PER_S, "a rate", '"100/s"')


def ratio(value: object) -> float:
    """Read a ratio such as 0.8 or "80 %"."""
    return _scaled(value, {"%": 0.01}, MOST_PER_S, "a ratio", '0.8 or "80 %"')


def number(value: object) -> float:
    """Read a plain number such as 2 or 0.5, or a share such as "80 %"."""
    return _scaled(value, {"%": 0.01}, math.inf, "a number", "2 or 0.5")


READERS: dict[str, Callable[[object], float]] = {
    "_per_s": rate_per_s,
    "_s": duration_s,
    "_mib": memory_mib,
    "_ratio": ratio,
}
"""How the value of a name is read: the end of the name says its unit; the longer ends come first."""


def reader_of(name: str) -> Callable[[object], float] | None:
    """What reads a value of this name, by the unit the name ends in; None where it ends in none."""
    return next((read for end, read in READERS.items() if name.endswith(end)), None)


@dataclass(frozen=True, slots=True)
class Price:
    """What a host costs: an exact amount for a span of time."""

    amount: Decimal
    per_s: float | None
    """The span the amount is for; None means "for one billing time unit"."""
    currency: str = ""

    def for_span(self, span_s: float) -> Decimal:
        """The exact price of a span, for example of one billing time unit."""
        if self.per_s is None:
            return self.amount
        return self.amount * Decimal(str(span_s)) / Decimal(str(self.per_s))


_PRICE = re.compile(rf"^\s*{_NUMBER}\s*(?P<currency>[A-Za-z€$£]*)\s*(?:/\s*(?P<span>[A-Za-z]+))?\s*$")


def price(value: object) -> Price:
    """Read a price such as "0.10 USD/h" or "3" (an amount for each billing time unit)."""
    if isinstance(value, Price):
        return value
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return Price(_money(value, value), None)
    match = _PRICE.match(value) if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f'expected a price such as "0.10 USD/h", got {shown(value)}')
    span = match["span"]
    if span is not None and span.lower() != "btu" and span not in DURATION_UNITS_S:
        raise QuantityError(
            f'{shown(value)} is for a {span!r}, expected a price such as "0.10 USD/h" or "3/BTU"'
        )
    per_s = None if span is None or span.lower() == "btu" else DURATION_UNITS_S[span]
    return Price(_money(match["number"], value), per_s, match["currency"] or "")


def _money(number: int | float | Decimal | str, written: object) -> Decimal:
    """An exact amount; one beyond what can be meant is refused, one too small to be told from 0 is 0."""
    wrong = QuantityError(f'expected a price such as "0.10 USD/h", a finite one, got {shown(written)}')
    if isinstance(number, Decimal) and not number.is_finite():
        raise wrong  # a signalling NaN cannot even be compared
    if isinstance(number, int) and abs(number) > MOST_MONEY:
        raise wrong  # before its digits are written out, which may be many
    if not abs(float(number)) <= float(MOST_MONEY):
        raise wrong
    return Decimal(str(number)) if float(number) else Decimal(0)


def format_duration(seconds: float) -> str:
    """Write a duration the way a person would: "850 ms", "12.5 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    # Each limit is where the shorter form would round up to the next unit ("60 s", "60 min 00 s").
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" + (f" {rest:02d} s" if rest else "")
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h" + (f" {rest:02d} min" if rest else "")


def counted(number: int, what: str) -> str:
    """How many there are of something, in words: `1 instance`, `2 instances`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def figure(value: float) -> str:
    """A number as a person writes it: few digits, no exponent, 0 where it is next to nothing."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}" if abs(value) >= 1 else f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
