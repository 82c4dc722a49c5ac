"""Letting others go first: work that nobody waits for yet does not slow down what runs beside it."""

from __future__ import annotations

import contextlib
import os
import resource

LATER = 10
"""How nice a process is that lets others go first."""


def let_others_go_first() -> bool:
    """Give this process, and what it starts, less of a busy processor; whether that was done.

    Only where it can be taken back: a system may let a process be nice and never forget it.
    """
    limit = getattr(resource, "RLIMIT_NICE", None)
    may = os.geteuid() == 0 or (limit is not None and resource.getrlimit(limit)[0] >= 20)
    if may:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, LATER)
            return True
    return False


def go_first_again() -> None:
    """Take it back, for every process and thread of this process's group."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, 0)
