"""Arrival patterns read from a file: any delimited text with a time column and a value column.

Files from elsewhere differ in delimiter, header, column names and clock. What can be seen in the file is
found out; what cannot (what a value counts, what to do about gaps) is asked for. A gap is never filled
silently: the default refuses it and names the line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from penstock.errors import ConfigurationError
from penstock.workload.curve import Floats, RateCurve
from penstock.workload.model import Pattern, positive

Gaps: TypeAlias = Literal["refuse", "hold", "interpolate", "zero"]
LARGEST_FILE = 64 * 1024 * 1024
"""Bytes of a trace that is read: more than a month of seconds."""
LARGEST_NUMBER = 1e30
"""Numbers beyond this are no times and no counts; sums of them would not be finite."""
MOST_FILLED = 10_000_000
"""Values that gaps are filled with at most."""
DELIMITERS = (",", ";", "|", "\t")
_MISSING = {"", "nan", "na", "n/a", "null", "none", "-"}


@dataclass(frozen=True)
class Trace(Pattern):
    """A recorded rate, read from a CSV file (`,` `;` `|` or tab; epoch or ISO time; any column names)."""

    name: ClassVar[str] = "trace"
    path: str = ""
    """The file; in a topology file, relative to that file."""
    time_column: str | int | None = None
    """Name of the time column, or its number from 1; by default the first that holds times."""
    value_column: str | int | None = None
    """Name of the value column, or its number from 1; by default the first other one that holds numbers."""
    per_s: float = 1.0
    """The span a value counts records for: 1 where values are rates, 300 for counts of five minutes."""
    time_unit_s: float | None = None
    """Unit of a numeric time column; by default seconds (or ms, µs, ns where an epoch time is too big)."""
    gaps: Gaps = "refuse"
    """Missing rows or values: `refuse`, `hold` the last value, `interpolate` between both ends, or `zero`."""
    start_s: float = 0.0
    """Where in the trace to begin."""
    length_s: float | None = None
    """How much of the trace to play; None means all of it."""
    repeat: bool = False
    """Whether the trace starts again at its end; otherwise nothing arrives any more."""

    def shape(self) -> RateCurve:
        """One step for each value, the last as long as the usual distance."""
        if not self.path:
            raise ConfigurationError('workload "trace" needs the parameter "path": the file to read')
        times_s, values = read_series(
            self.path, self.time_column, self.value_column, self.time_unit_s, gaps=self.gaps
        )
        step_s = _usual_step(times_s)
        edges = np.append(times_s, times_s[-1] + step_s) - times_s[0]
        with np.errstate(over="ignore"):  # the curve refuses what is not finite
            rates = values / positive(self.per_s, "per_s")
        edges, rates = self._cut(edges, rates)
        return RateCurve(edges, rates, rates, repeats=self.repeat)

    def _cut(self, edges: Floats, rates: Floats) -> tuple[Floats, Floats]:
        """The asked-for part of the trace, counted from 0."""
        length_s = edges[-1] - self.start_s if self.length_s is None else positive(self.length_s, "length_s")
        end_s = min(self.start_s + length_s, edges[-1])
        if self.start_s < 0 or self.start_s >= edges[-1]:
            raise ConfigurationError(
                f"expected start_s within the trace (0 to {edges[-1]:g} s), got {self.start_s:g} s"
            )
        first = int(np.searchsorted(edges, self.start_s, side="right")) - 1
        after = int(np.searchsorted(edges, end_s, side="left"))
        cut = edges[first : after + 1].copy()
        cut[0], cut[-1] = self.start_s, end_s
        return cut - self.start_s, rates[first:after]


def read_series(
    path: str | Path,
    time_column: str | int | None = None,
    value_column: str | int | None = None,
    time_unit_s: float | None = None,
    *,
    gaps: Gaps = "refuse",
) -> tuple[Floats, Floats]:
    """Read times in seconds and values from a delimited file, sorted, with gaps filled or refused."""
    lines, rows = _read_rows(Path(path))
    header = _header(rows[0])
    if header is not None:
        lines, rows = lines[1:], rows[1:]
    if len(rows) < 2:
        raise ConfigurationError(f"{path}: expected at least two rows of data, got {len(rows)}")
    time_at = _column(path, time_column, header, rows, "time")
    value_at = _column(path, value_column, header, rows, "value", taken=time_at)
    times_s = _times(path, lines, rows, time_at, time_unit_s)
    values = _values(path, lines, rows, value_at)
    backward = np.flatnonzero(np.diff(times_s) <= 0)
    if backward.size:
        row = int(backward[0]) + 1
        raise ConfigurationError(
            f"{path}:{lines[row]}: expected a time after the one before it, got {rows[row][time_at]!r}; "
            "sort the file and remove doubled rows"
        )
    return _without_gaps(path, lines, times_s, values, gaps)


def _read_rows(path: Path) -> tuple[list[int], list[list[str]]]:
    """The file's line numbers and cells, without empty lines and comments."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"cannot read the trace {str(path)!r}: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # a path may hold a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot read the trace {str(path)!r}: {reason}") from None
    if len(content) > LARGEST_FILE:
        raise ConfigurationError(
            f"the trace {str(path)!r} is larger than {LARGEST_FILE >> 20} MiB; cut it, or give coarser values"
        )
    kept = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not kept:
        raise ConfigurationError(f"{path}: expected rows of data, got an empty file")
    sample = [line for _, line in kept[:20]]
    counts = {delimiter: min(line.count(delimiter) for line in sample) for delimiter in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda candidate: counts[candidate])
    if counts[delimiter] == 0:
        raise ConfigurationError(
            f"{path}:{kept[0][0]}: expected columns separated by one of , ; | or tab, got {kept[0][1][:60]!r}"
        )
    try:
        read = csv.reader((line for _, line in kept), delimiter=delimiter)
        rows = [[cell.strip() for cell in row] for row in read]
    except csv.Error as error:  # a cell without end, a NUL
        raise ConfigurationError(f"{path}: not a delimited file: {error}") from None
    width = len(rows[0])
    for (number, _), row in zip(kept, rows, strict=False):
        if len(row) != width:
            raise ConfigurationError(
                f"{path}:{number}: expected {width} columns as in the first row, got {len(row)}"
            )
    return [number for number, _ in kept], rows


def _number(cell: str) -> float | None:
    try:
        found = float(cell)
    except ValueError:
        return None
    return math.inf if abs(found) > LARGEST_NUMBER else found


def _instant(cell: str) -> float | None:
    """Seconds since 1970 of an ISO time; a time without a zone is taken as UTC."""
    try:
        # Python 3.10 does not read the Z.
        found = datetime.fromisoformat(f"{cell[:-1]}+00:00" if cell.endswith(("Z", "z")) else cell)
        return (found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):  # a zone may lead out of the years there are
        return None


def _header(row: Sequence[str]) -> list[str] | None:
    """The column names where the first row holds names, that is, neither a number nor a time."""
    if any(_number(cell) is not None or _instant(cell) is not None for cell in row):
        return None
    return list(row)


def _column(
    path: str | Path,
    wanted: str | int | None,
    header: list[str] | None,
    rows: list[list[str]],
    role: str,
    taken: int | None = None,
) -> int:
    """The index of the asked-for column, or of the first one whose first values fit the role."""
    width = len(rows[0])
    if wanted is not None:
        if header is not None and str(wanted) in header:
            return header.index(str(wanted))
        number = _number(str(wanted))
        if number is not None and number.is_integer() and 1 <= number <= width:
            return int(number) - 1
        names = ", ".join(header) if header is not None else f"1 to {width}, the file has no header"
        raise ConfigurationError(f"{path}: expected a {role} column out of {names}, got {str(wanted)!r}")
    sample = rows[:50]
    for at in (at for at in range(width) if at != taken):
        cells = [row[at] for row in sample if row[at].lower() not in _MISSING]
        fits = [
            _number(cell) is not None or (role == "time" and _instant(cell) is not None) for cell in cells
        ]
        if fits and all(fits):
            return at
    expected = "epoch or ISO times" if role == "time" else "numbers"
    raise ConfigurationError(f"{path}: expected a column of {expected}, found none; name it as {role}_column")


def _times(
    path: str | Path, lines: list[int], rows: list[list[str]], at: int, time_unit_s: float | None
) -> Floats:
    times = np.empty(len(rows))
    numeric = _number(rows[0][at]) is not None
    for i, (line, row) in enumerate(zip(lines, rows, strict=False)):
        found = _number(row[at]) if numeric else _instant(row[at])
        if found is None or not math.isfinite(found):
            expected = (
                "a number like the rows before" if numeric else "an ISO time such as 2026-01-31T12:00:00"
            )
            raise ConfigurationError(f"{path}:{line}: expected {expected}, got {row[at]!r}")
        times[i] = found
    if not numeric:
        return times
    if time_unit_s is not None:
        return times * positive(time_unit_s, "time_unit_s")
    # An epoch time in seconds has ten digits until the year 2286; every three more are the next smaller unit.
    biggest = float(np.abs(times).max())
    unit = next((unit for limit, unit in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6)) if biggest < limit), 1e-9)
    since_first: Floats = (times - times[0]) * unit
    return since_first


def _values(path: str | Path, lines: list[int], rows: list[list[str]], at: int) -> Floats:
    values = np.empty(len(rows))
    for i, (line, row) in enumerate(zip(lines, rows, strict=False)):
        found = math.nan if row[at].lower() in _MISSING else _number(row[at])
        if found is None:
            raise ConfigurationError(f"{path}:{line}: expected a number of records, got {row[at]!r}")
        if found < 0 or math.isinf(found):
            raise ConfigurationError(
                f"{path}:{line}: expected a number of records of 0 or more, got {row[at]!r}"
            )
        values[i] = found
    return values


def _usual_step(times_s: Floats) -> float:
    return float(np.median(np.diff(times_s)))


def _without_gaps(
    path: str | Path, lines: list[int], times_s: Floats, values: Floats, gaps: Gaps
) -> tuple[Floats, Floats]:
    """Refuse or fill missing rows (a distance above 1.5 usual steps) and missing values."""
    step_s = _usual_step(times_s)
    wide = np.flatnonzero(np.diff(times_s) > 1.5 * step_s)
    missing = np.isnan(values)
    if not wide.size and not missing.any():
        return times_s, values
    if missing.all():
        raise ConfigurationError(f"{path}: expected numbers of records, got missing values only")
    if gaps == "refuse":
        where = [lines[i] for i in np.flatnonzero(missing)] + [lines[i + 1] for i in wide]
        first = min(where)
        raise ConfigurationError(
            f"{path}:{first}: the first of {len(where)} gap(s) in the trace (usual distance {step_s:g} s); "
            "fill them with gaps: hold, interpolate or zero"
        )
    missing_steps = float(np.sum(np.diff(times_s)[wide] / step_s))
    if missing_steps > MOST_FILLED:
        raise ConfigurationError(
            f"{path}: its gaps would take {missing_steps:.3g} values to fill at the usual distance of "
            f"{step_s:g} s, more than {MOST_FILLED:,}; is the time of every row right?"
        )
    added = [
        np.arange(times_s[i] + step_s, times_s[i + 1] - step_s / 2, step_s, dtype=np.float64) for i in wide
    ]
    all_times = np.concatenate([times_s, *added])
    all_values = np.concatenate([values, *(np.full(part.size, np.nan) for part in added)])
    order = np.argsort(all_times, kind="stable")
    all_times, all_values = all_times[order], all_values[order]
    holes = np.isnan(all_values)
    known_times, known_values = all_times[~holes], all_values[~holes]
    if gaps == "zero":
        all_values[holes] = 0.0
    elif gaps == "interpolate":
        all_values[holes] = np.interp(all_times[holes], known_times, known_values)
    else:
        before = np.maximum(np.searchsorted(known_times, all_times[holes], side="right") - 1, 0)
        all_values[holes] = known_values[before]
    return all_times, all_values
