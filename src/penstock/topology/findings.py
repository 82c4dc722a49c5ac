"""What a search for mistakes writes into: the topology, the lines of its file, and the mistakes so far.

The checks themselves are in `validation` (values and choices), `wiring` (the graph) and `sizes` (what fits
where); all of them tell through here, so that each mistake has its line and none is told twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from penstock.choosing import nearest
from penstock.errors import Mistake
from penstock.topology.model import Topology, Unit

Path: TypeAlias = tuple[str, ...]
"""Where in the file something stands, such as `("operators", "parse", "slo")`."""


def sorted_mistakes(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Mistakes in the order of their lines, each one once."""
    return tuple(sorted(dict.fromkeys(mistakes), key=lambda m: (m.line is None, m.line or 0, m.message)))


class Findings:
    """One search: the topology, where things stand, and the mistakes so far."""

    def __init__(
        self,
        topology: Topology,
        file: str | None = None,
        lines: Mapping[Path, int] | None = None,
        already: Collection[Path] = (),
    ) -> None:
        """`already` names places whose mistakes were told before, so that no consequence is told too."""
        self.topology = topology
        self.file = file
        self.lines = lines or {}
        self.already = frozenset(already)
        self.mistakes: list[Mistake] = []
        self.operators = {operator.name: operator for operator in topology.operators}
        self.sites = {site.name: site for site in topology.sites}
        self._written = {path[:2] for path in self.lines}

    def tell(self, path: Path, code: str, message: str) -> None:
        """Note a mistake at the line of the path, or of the nearest thing around it."""
        if path in self.already:
            return
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        self.mistakes.append(Mistake(message, self.file, line, code))

    def unit_path(self, unit: Unit) -> Path:
        """Where a unit stands; one that an operator got by itself stands where the operator does."""
        written = ("units", unit.name)
        return written if written in self._written or not unit.operators else ("operators", unit.operators[0])

    def positive(self, path: Path, what: str, value: float, most: float = math.inf, unit: str = "") -> None:
        """A number above 0, and not beyond what can be meant."""
        if not (value > 0 and math.isfinite(value)):
            self.tell(path, "not-positive", f"{what}: expected more than 0, got {value:g}{unit}")
        elif value > most:
            self.tell(path, "out-of-range", f"{what}: expected at most {most:g}{unit}, got {value:g}{unit}")

    def not_negative(self, path: Path, what: str, value: float, most: float = math.inf) -> None:
        """A number of 0 or more, and not beyond what can be meant."""
        if not (value >= 0 and math.isfinite(value)):
            self.tell(path, "negative", f"{what}: expected 0 or more, got {value:g}")
        elif value > most:
            self.tell(path, "out-of-range", f"{what}: expected at most {most:g}, got {value:g}")

    def within(self, path: Path, what: str, value: int | None, least: int, most: int) -> None:
        """A whole number in a range; None is right, too."""
        if value is not None and value < least:
            self.tell(path, "out-of-range", f"{what}: expected {least} or more, got {value}")
        elif value is not None and value > most:
            self.tell(path, "out-of-range", f"{what}: expected {most} or less, got {value}")

    def one_of(self, path: Path, what: str, value: str, known: Collection[str]) -> None:
        """One of a few words."""
        if value not in known:
            self.tell(path, "unknown-value", f'{what}: unknown "{value}"{nearest(value, known)}')
