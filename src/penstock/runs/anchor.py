"""The clock of a run: its anchor to the time of day is kept in the run's folder while the machine is up.

A controller that comes back after somebody set the machine's clock would else see every lease as old as that
step, and pay for it.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from penstock.clock import WallClock, counted_s
from penstock.machine.files import written
from penstock.machine.processes import boot_id

FILE = "clock.json"
ANCHOR = "counted_anchor_s"
"""The anchor of `counted_s`; `anchor_s` in older files is one of a clock that stood still in a suspend."""


def clock_of(folder: Path) -> WallClock:
    """The clock of the run in a folder; it is anchored anew where the machine has booted since."""
    file = folder / FILE
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(file.read_text())
        if boot_id() and known["boot"] == boot_id():
            if ANCHOR in known:
                return WallClock(float(known[ANCHOR]))
            # Of a version that did not count while the machine was suspended: its clock goes on from here.
            return _kept(file, WallClock(float(known["anchor_s"]) + time.monotonic() - counted_s()))
    return _kept(file, WallClock())


def _kept(file: Path, clock: WallClock) -> WallClock:
    """Write a clock's anchor down."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written(file, json.dumps({"boot": boot_id(), ANCHOR: clock.anchor_s}))
    return clock
