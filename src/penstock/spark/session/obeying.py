"""An attached session's executors, brought to what is wanted by a thread of its own.

To ask for executors is to wait for the cluster manager's answer: for minutes where it hangs, and in vain
where it is being started again (YARN's application master on a lost machine). Nothing that measures or
decides may wait for that. What fails is told and tried again.
"""

from __future__ import annotations

import logging
import threading

from penstock.fleet.ports import Wanted
from penstock.spark.gateway.connect import Executors
from penstock.spark.gateway.errors import cause_of
from penstock.spark.gateway.session import is_stopped

LOG = logging.getLogger(__name__)

PULSE_S = 1.0


class Obeying:
    """Asks for executors and retires them, once a second and whenever something else is wanted."""

    def __init__(self, control: Executors) -> None:
        self.problem: str | None = None
        """Why the executors cannot be changed at present; None where they can."""
        self._control = control
        self._wanted: Wanted | None = None
        self._gone: Wanted | None = None
        """What was wanted when everybody who shall go was seen to be gone."""
        self._wake = threading.Event()
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="penstock-executors", daemon=True)

    def start(self) -> None:
        """Begin: until something is wanted, the target that was taken over stands, and is said."""
        if self.thread.ident is None:
            self.thread.start()
        self._wake.set()

    def tell(self, wanted: Wanted) -> None:
        """What is wanted from now on; returns at once."""
        self._wanted = wanted
        self.start()

    def end(self) -> None:
        """Change nothing any more."""
        self._ended.set()
        self._wake.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.wait(PULSE_S)
            self._wake.clear()
            if self._ended.is_set():
                return
            try:
                if self._wanted is not None:
                    self._bring(self._wanted)
                self._control.tick()
                self.problem = None
            except Exception as error:
                if self._ended.is_set() or is_stopped(self._control.spark):
                    return
                problem = cause_of(error)
                if problem != self.problem:
                    LOG.warning("the executors could not be brought to what is wanted yet: %s", problem)
                self.problem = problem

    def _bring(self, wanted: Wanted) -> None:
        # The target first: an executor that leaves above the target would be replaced.
        if wanted.target and wanted.target != self._control.target:
            self._control.set_target(wanted.target)
        if (wanted.retire or wanted.kill) and wanted is not self._gone:
            alive = {executor.id for executor in self._control.executors()}
            going = [name for name in (*wanted.retire, *wanted.kill) if name in alive]
            if not going:
                self._gone = wanted
            if new := [name for name in going if name not in self._control.retiring]:
                self._control.retire(new)
            if hurried := [name for name in wanted.kill if name in alive]:
                self._control.kill(hurried)
