"""A run in a process of its own, and its watcher: a controller that is killed is started again.

The watcher is what `penstock run` is. It starts the controller's process, shows its status, and starts it
again where somebody killed it: units and hosts go on meanwhile, and the next controller takes them up.
Without its watcher the controller ends the run in order, for nobody else would.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.controller.result import RunResult
from penstock.controller.status import Status
from penstock.errors import (
    ClusterError,
    FencedError,
    JournalUnavailableError,
    PenstockError,
)
from penstock.machine.processes import (
    ChildProcesses,
    end_orphans,
    exit_on_sigterm,
    kept_by,
    log_tail,
    read_records,
    wait_until,
)
from penstock.machine.secrets import log_redacted
from penstock.runs.folder import RunFolder
from penstock.runs.part import here
from penstock.runs.plan import DRAIN_S, RunPlan
from penstock.runs.run import Run, require_runnable
from penstock.spark.training import ensure_archive
from penstock.topology.model import Topology
from penstock.trying import PAUSES

LOG = logging.getLogger(__name__)

COMING_UP_S = 300.0
"""How long a controller may take until its first tick."""
EXIT_TAKEN_OVER = 76
"""Exit code of a controller whose run another one has taken over: it leaves all of it to that one."""
EXIT_AGAIN = 75
"""Exit code of a controller that could not go on for want of room or of its journal: it is tried again."""
SERVED = "PENSTOCK_SERVED"
"""The variable that says that a service started the run, and starts it again where somebody ends its
processes: a signal is no wish to end the run then, for a machine that shuts down sends one to everybody."""
MACHINE = 1
"""The first process of every machine: it is there as long as the machine is up."""
LEAVING_S = 40.0
"""How long the controller of a killed watcher may take to stop everything in order."""
STOP_S = 60.0
LOOK_S = 0.5


def run_topology(
    topology: Topology,
    folder: Path,
    *,
    duration_s: float | None = None,
    name: str | None = None,
    code: Path | None = None,
    bootstrap: str | None = None,
    own_broker: bool = False,
    settings: Mapping[str, str] | None = None,
    drain_s: float = DRAIN_S,
    feed: bool = True,
    journal: str | None = None,
    site: str | None = None,
    warm_from: Path | None = None,
    watch: Callable[[Status], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Run a topology to its end, on a local cluster or where its sites say, and give back the result.

    Blocks for the duration (None: until Ctrl-C or SIGTERM). `watch` gets the run's status about twice a
    second. Everything of the run is in `folder`. `stopped` saying so ends the run in order. A folder of a run
    that was killed is taken up again: checkpoints, journal, counts, and the sources' place. With `site` only
    the units at that site run here; others have a run of the same name elsewhere. `warm_from` is the folder
    or journal of an earlier run, which tells what the units' loads usually do.
    """
    require_runnable(topology, folder, here(topology, {}, site))
    place = RunFolder.at(folder)
    earlier = place.earlier_plan()
    # The runs of several sites have one name: topics bear it.
    new = f"run-{topology.name}-{secrets.token_hex(4)}" if site is None else topology.name
    chosen = name or (earlier.name if earlier is not None else new)
    plan = RunPlan.of(
        topology,
        chosen.replace(" ", "-"),
        duration_s=duration_s,
        drain_s=drain_s,
        feed=feed,
        code=None if code is None else str(code.resolve()),
        bootstrap=bootstrap,
        own_broker=own_broker,
        settings=dict(settings or {}),
        journal=journal,
        site=site,
        warm_from=None if warm_from is None else str(warm_from.resolve()),
    )
    if earlier is not None:
        plan = plan.going_on(earlier)
    with place.watch_lock():
        _await_earlier(plan.label)
        with place.lock():
            # Held for a moment only: where another watcher's controller runs, this says so and whose it is.
            pass
        ensure_archive()
        place.write_plan(plan)
        place.forget_result()
        watched = ChildProcesses(f"{plan.label}-controller")
        told = False
        try:
            _watch(watched, place, watch, stopped, topology.loop.silence_s)
        except KeyboardInterrupt:
            # SIGTERM, which nobody inherits as ignored: a run in the background of a shell ends as well.
            told = True
            watched.signal("controller", signal.SIGTERM)
            wait_until(lambda: not watched.alive("controller"), STOP_S, poll_s=0.2)
        finally:
            watched.stop_all(30.0)
        result = place.result()
    if result is None and told and is_served():
        raise ClusterError("a signal ended the processes of the run; its service takes it up again")
    if result is None:
        raise ClusterError(f"the run left no result:\n{log_tail(place.log, 12)}")
    return result


def is_served() -> bool:
    """Whether a service started this run, and takes it up again: a signal does not end it."""
    return os.environ.get(SERVED) == "1"


def _watch(
    watched: ChildProcesses,
    place: RunFolder,
    watch: Callable[[Status], None] | None,
    stopped: Callable[[], bool],
    silence_s: float,
) -> None:
    """Keep the controller running until there is a result; KeyboardInterrupt where it shall end before.

    One that was killed is started again, and so is one whose status stays the same for `silence_s`.
    """
    command = [sys.executable, "-m", "penstock.runs.service", str(place.root)]
    restarts = 0
    watched.start("controller", command, log=place.log)
    pulse = Pulse(place.status(), time.monotonic(), silence_s)
    while place.result() is None:
        if watched.alive("controller") and pulse.hangs(place.status(), time.monotonic()):
            LOG.warning("the controller hangs: it is killed and started again")
            watched.signal("controller", signal.SIGKILL)
            wait_until(lambda: not watched.alive("controller"), STOP_S, poll_s=0.1)
        if not watched.alive("controller"):
            code = watched.exit_code("controller")
            if place.result() is not None:
                return
            if code == EXIT_TAKEN_OVER:
                raise ClusterError(f"another controller has taken the run in {place.root} over")
            again = code is None or code < 0 or code == EXIT_AGAIN
            restarts = 0 if pulse.lasted(time.monotonic()) else restarts
            pause_s = PAUSES.after(restarts)
            if not again or pause_s is None:
                raise ClusterError(f"the run ended with an error:\n{log_tail(place.log, 12)}")
            # Killed from outside: units and hosts still run, the next controller adopts them.
            restarts += 1
            if code == EXIT_AGAIN:
                time.sleep(pause_s)
            watched.start("controller", command, log=place.log)
            pulse = Pulse(place.status(), time.monotonic(), silence_s)
        status = place.status()
        if watch is not None and status is not None:
            watch(status)
        if stopped():
            raise KeyboardInterrupt
        time.sleep(LOOK_S)


class Pulse:
    """Tells a controller that hangs by its status, which is a new one after every tick of it."""

    def __init__(self, status: Status | None, now_s: float, silence_s: float) -> None:
        """`status` is what an earlier controller left; instants are of a clock that is never set."""
        self._last = status
        self._started_s = self._seen_s = now_s
        self._looked_s = now_s
        self._silence_s = silence_s
        self._ticked = False

    def hangs(self, status: Status | None, now_s: float) -> bool:
        """Whether nothing new was seen for too long; time in which nobody looked does not count."""
        self._seen_s += max(0.0, now_s - self._looked_s - self._silence_s / 2)
        self._looked_s = now_s
        if status is not None and status != self._last:
            self._last, self._seen_s, self._ticked = status, now_s, True
        return now_s - self._seen_s > (self._silence_s if self._ticked else COMING_UP_S)

    def lasted(self, now_s: float) -> bool:
        """Whether the controller came up and worked for a while."""
        return self._ticked and now_s - self._started_s >= PAUSES.held_s


def _await_earlier(name: str) -> None:
    """Let the controller of a killed watcher of the same run end: it ends the run in order by itself.

    Where it was killed as well, its units, hosts and sources go on: the next controller adopts them.
    """
    own = [r for r in read_records() if r.group == name or r.group.startswith(f"{name}-")]
    controllers = [r for r in own if r.group == f"{name}-controller" and r.orphaned]
    wait_until(lambda: not any(record.alive for record in controllers), LEAVING_S, poll_s=0.2)
    ended = end_orphans(keep={record.group for record in own if record not in controllers})
    if ended:
        LOG.warning("ended %d processes that a killed run had left behind", len(ended))


def end_controller(place: RunFolder) -> None:
    """Kill the controller and the watcher of a run that hang; its units, hosts and sources go on."""
    group = f"{place.plan().name}-controller"
    for record in [record for record in read_records() if record.group == group]:
        for process in filter(None, (record.owner, record.process)):  # who would start it again goes first
            if process.alive and process.pid != os.getpid():
                os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda one=record: not one.alive, STOP_S, poll_s=0.05)  # type: ignore[misc]


def told_by_signals() -> list[int]:
    """The signals to end this process that came since now; it ends itself, in order."""
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # Set here and not inherited: a shell starts what runs in its background with SIGINT ignored.
        signal.signal(number, lambda received, _frame: told.append(received))
    return told


def main(arguments: list[str] | None = None) -> int:
    """The controller's process: run what the folder says, write the result, leave."""
    folder = RunFolder.at(Path((arguments or sys.argv[1:])[0]))
    log_redacted()
    told = told_by_signals()
    watcher = os.getppid()
    leaving = False

    def leaves() -> bool:
        # Without its watcher nobody would ever end this run: leave in order.
        nonlocal leaving
        leaving = bool(told) or os.getppid() != watcher
        return leaving

    try:
        plan = folder.plan()
        # What a stand-by may take over is ended by nobody else who clears up on this machine meanwhile.
        kept_by(watcher if plan.journal is None else MACHINE)
        with Run(plan, folder) as run:
            gc.collect()
            gc.freeze()  # what starting left stays: no turn has to wait while a full collection walks it
            run.run(stopped=leaves)
            result, last = run.result(), run.status()
    except FencedError as error:
        LOG.error("%s; this one leaves everything to it", error)
        sys.stderr.flush()
        os._exit(EXIT_TAKEN_OVER)  # nothing that would otherwise be stopped on leaving is its own any more
    except (OSError, JournalUnavailableError) as error:
        LOG.error("%s; the controller is started again", error)
        return EXIT_AGAIN
    except PenstockError as error:
        LOG.error("%s", error)
        return 2
    if leaving and is_served():
        LOG.warning("everything was stopped for a signal, or for want of a watcher; the run is not over")
        return EXIT_AGAIN
    # In place only once everything is stopped: the watcher takes it as "all is over".
    folder.write_end(last, result)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        exit_on_sigterm()
    sys.exit(main())
