"""Letting others go first: work that nobody waits for yet does not slow down what runs beside it.

Linux may share processors between sessions first, and only then between the processes of each by how nice
they are (`sched_autogroup_enabled`). Then a process that is nice alone in its session lets nobody go first:
the session has to be.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path

LATER = 10
"""How nice a process is that lets others go first."""
_TRIES, _PAUSE_S = 10, 0.05
"""Linux takes ten changes of this kind a second, of all its users together."""


def let_others_go_first() -> bool:
    """Give this process, and what it starts, less of a busy processor; whether that was done.

    Only where it can be taken back: a system may let a process be nice and never forget it.
    """
    done = os.getsid(0) == os.getpid() and session_goes(LATER)
    limit = getattr(resource, "RLIMIT_NICE", None)
    if os.geteuid() == 0 or (limit is not None and resource.getrlimit(limit)[0] >= 20):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, LATER)
            done = True
    return done


def go_first_again() -> None:
    """Take it back, for every process and thread of this process's group and session."""
    if os.getsid(0) == os.getpid():
        session_goes(0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, 0)


def session_goes(nice: int, leader: int | None = None) -> bool:
    """Make a session so nice to others, by its leading process (this one's, if none is named).

    False where sessions are not told apart here.
    """
    file = Path(f"/proc/{leader or 'self'}/autogroup")
    for _ in range(_TRIES):
        try:
            file.write_text(str(nice))
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True
    return False
