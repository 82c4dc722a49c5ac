"""What a run that missed its SLOs should have promised, or had: said at its end, where people look."""

from __future__ import annotations

import math

from penstock.controller.result import RunResult
from penstock.quantities import format_duration

KEPT_RATIO = 0.9
"""A unit whose records kept their SLO in this share is told as kept."""
BUSY_RATIO = 0.9
"""A machine whose cores were used so much on average has nothing left to give."""


def hints(result: RunResult, busy_ratio: float | None = None) -> list[str]:
    """Sentences, none where everything was kept. `busy_ratio` is how busy the machine's cores were."""
    found = []
    for unit in result.units.values():
        if unit.compliance.records and unit.compliance.ratio("real_time") < KEPT_RATIO:
            took, would = unit.durations.p95_s, _rounded_up(unit.durations.p95_s)
            found.append(
                f"{unit.unit} kept {unit.compliance.shown('real_time')} within its SLO of "
                f"{format_duration(unit.slo_s)}; 95 % took less than {format_duration(took)}: "
                f"an SLO of {format_duration(would)} would have been kept"
            )
    if found and busy_ratio is not None and busy_ratio >= BUSY_RATIO:
        found.append(
            f"this machine's cores were {busy_ratio:.0%} busy: it was the limit, and more instances on it "
            "would not have helped; try a lighter load, fewer units, or more cores"
        )
    return found


def _rounded_up(seconds: float) -> float:
    """One or two digits a person would write."""
    if seconds <= 0:
        return 0.0
    scale = 10.0 ** math.floor(math.log10(seconds))
    return float(math.ceil(seconds / scale * 2) / 2 * scale)
