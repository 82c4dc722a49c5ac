"""What a move is charged: as much as keeps the moves to those that the load itself asks for.

How often instances must come and go is a matter of the load. A plain rule says how often: a number that is
right stays until the load is an eighth off it. Where `auto` moved more than that of late, what comes or goes
is charged more, so that it follows less closely; where it moved less, following more closely is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.policies.view import View

RESCALE_BINS = 40.0
"""What comes or goes, an instance or a host, is charged with its price for about so many intervals."""
LOOKED_BACK = 240
"""Bins over which moves are compared."""
BAND = 0.125
"""The plain rule moves once the load is off by this share."""
PLANNED = 0.8
"""The plain rule plans for this utilisation."""
FEW = 8.0
"""So many moves more or less say nothing."""
STARTS = 4.0
"""An instance on a host that costs us nothing is charged with so many times the time its start takes.

It does nothing while it starts, about as long again it compiles, and the micro-batches that began without it
have grown meanwhile.
"""
LASTING = 0.2
"""What comes or goes is charged with at most this share of how long the load stays above or below a level.

Where a day takes an hour, what its valley does not need could never go otherwise.
"""
CHEAPEST, DEAREST = 0.1, 2.0
"""A move is charged at least and at most so many times the usual."""


def moves_of(view: View, bin_s: float) -> dict[str, int]:
    """Instances of each unit that came, went or moved within the span looked back on."""
    since_s = view.now_s - LOOKED_BACK * bin_s
    found: dict[str, int] = {}
    for event in reversed(view.history):
        if event.at_s <= since_s:
            break
        if event.unit is not None and event.kind in ("StartInstance", "StopInstance", "MigrateInstance"):
            found[event.unit] = found.get(event.unit, 0) + 1
    return found


def plain_moves(
    loads_per_s: Sequence[float] | NDArray[np.float64], rate_per_s: float, held_per_s: float | None = None
) -> float:
    """Instances that the plain rule would have moved over a load, of so many records a second each.

    It begins with those for the first load, or for `held_per_s`.
    """
    loads = np.asarray(loads_per_s, dtype=np.float64)
    moved, held = 0.0, float(loads[0]) if len(loads) else 0.0
    if held_per_s is not None:
        held = held_per_s
    while True:
        off = np.abs(loads - held) > BAND * held
        first = int(off.argmax()) if len(loads) else 0
        if not len(loads) or not off[first]:
            return moved / (PLANNED * rate_per_s)
        moved += abs(float(loads[first]) - held)
        held, loads = float(loads[first]), loads[first:]


def charged_bins(moved: float, plain: float) -> float:
    """Intervals that what comes or goes is charged with."""
    return RESCALE_BINS * min(DEAREST, max(CHEAPEST, _ratio(moved, plain) ** 2))


def most_charged_bins(
    moved: float,
    plain: float,
    loads_per_s: Sequence[float] | NDArray[np.float64],
    rate_per_s: float,
    held_per_s: float | None = None,
) -> float:
    """The most that is worth charging: a share of how long the load stays above or below a level.

    That is told by how many levels there were between the lowest and the highest load, and how often the
    plain rule moved among them. Who moves more than the plain rule is charged more all the same.
    """
    loads = np.asarray(loads_per_s, dtype=np.float64)
    if not len(loads) or plain <= 0.0:
        return math.inf
    held = float(loads[0]) if held_per_s is None else held_per_s
    levels = (max(held, float(loads.max())) - min(held, float(loads.min()))) / (PLANNED * rate_per_s)
    return LASTING * len(loads) * levels / plain * max(1.0, _ratio(moved, plain) ** 2)


def _ratio(moved: float, plain: float) -> float:
    return (moved + FEW) / (plain + FEW)


def unpaid_share(lead_bins: float) -> float:
    """The part of that charge which holds where hosts cost us nothing.

    The long charge is for leases: a host that comes and goes is paid for its minimum. An executor of somebody
    else's cluster costs what it is there for without serving.
    """
    return min(1.0, STARTS * max(1.0, lead_bins) / RESCALE_BINS)
