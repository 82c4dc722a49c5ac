"""The clock of a run: its anchor to the time of day is kept in the run's folder while the machine is up.

A controller that comes back after somebody set the machine's clock would else see every lease as old as that
step, and pay for it.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from penstock.clock import WallClock
from penstock.machine.files import written
from penstock.machine.processes import boot_id

FILE = "clock.json"


def clock_of(folder: Path) -> WallClock:
    """The clock of the run in a folder; it is anchored anew where the machine has booted since."""
    file = folder / FILE
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(file.read_text())
        if boot_id() and known["boot"] == boot_id():
            return WallClock(float(known["anchor_s"]))
    clock = WallClock()
    folder.mkdir(parents=True, exist_ok=True)
    written(file, json.dumps({"boot": boot_id(), "anchor_s": clock.anchor_s}))
    return clock
