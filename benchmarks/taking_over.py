"""Who takes over: a controller killed amid a change, a version that fails, a service that is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.controller import databases

from benchmarks.changing import Changed, Service, a_service, measured, whole
from benchmarks.kinds import FIRST, operator
from penstock.errors import ClusterError, FencedError
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.runs.turns import SILENT_S, Turn
from penstock.topology.file import dump_topology

Say = Callable[[str], None]
TAKEN_OVER_S = SILENT_S + 6.0
"""Within this time the stand-by answers: a silence, a look, a start of its API."""
CONTROLLED_S = 30.0
"""Within this time the run has a controller again: the same, a start of its process, and its first claim."""


def crashes(folder: Path, say: Say) -> list[Figure]:
    """A controller is killed amid a change and comes back; a version that fails is rolled back."""
    with a_service(folder) as service:
        run = Changed(service)
        run.start(folder / "code")
        calm_s = time.time()
        found = [*killed(run), *rolled_back(run)]
        run.finish()
        return [
            *found,
            *(f for f in measured(run, calm_s) if "usual" not in f.name and "goes on" not in f.name),
        ]


def killed(run: Changed) -> list[Figure]:
    """Kill the controller once while the next version is made ready, and once when a unit has drained."""
    found = []
    moments: dict[str, Callable[[], bool]] = {
        "while the next version is made ready": lambda: run.place.plan().pending is not None,
        "when a unit has drained": lambda: (run.place.root / "units" / "middle" / "drained").exists(),
    }
    for number, (moment, is_so) in enumerate(moments.items()):
        function = ("work:worked_better", "work:worked")[number]
        before, asked_s = run.revision(), time.time()
        body = {"topology": dump_topology(operator(FIRST, "work", function=function)), "revision": before}
        wish = run.in_background("apply", body)
        if not wait_until(is_so, 200.0, poll_s=0.02):
            raise ClusterError(f"waited in vain for the moment {moment}")
        pid = int((run.place.root / "controller.lock").read_text())
        os.kill(pid, signal.SIGKILL)
        run.settled(f"controller killed {moment}", asked_s, {}, at_least=before + 1)
        wish.join(60)
        done = run.revision() == before + 1 and run.place.plan().read_topology() == operator(
            FIRST, "work", function=function
        )
        name = f"a controller killed {moment}: the change is finished"
        found.append(Figure(name, "so" if done else f"revision {run.revision()}", "so", holds=done))
    return found


def rolled_back(run: Changed) -> list[Figure]:
    """Take up a version that works where it is tried and throws soon after: it is taken back by itself."""
    before, asked_s, limit = run.revision(), time.time(), f"/runs/{run.name}/lookups/limit"
    body = {"topology": dump_topology(operator(FIRST, "work", function="work:limited")), "revision": before}
    status, answer = run.service.ask(f"/runs/{run.name}/apply", body)
    if status != 200:
        return [Figure("a version that fails is rolled back", f"{status} {answer}"[:200], "so", holds=False)]
    run.settled("limited", asked_s, {})
    broken_s = time.time()
    run.service.ask(limit, {"value": 0, "reason": "everything is beyond it"}, "PUT")
    run.settled("a version that fails", broken_s, {}, at_least=before + 2)
    operators = run.place.plan().read_topology().operator_by_name
    right = operators["work"].function == "work:worked"
    told = "so" if right else str(operators["work"].function)
    return [
        Figure("a version that fails is rolled back", told, "so", holds=right),
        Figure("… from the first failure to records of the version before", time.time() - broken_s, unit="s"),
    ]


def pair(folder: Path, say: Say) -> list[Figure]:
    """Kill the service that serves, with the run's controller and its watcher: the other one takes over."""
    if why := databases.missing():
        return [Figure("could not be measured", why, holds=False)]
    with databases.a_postgresql_server() as url, a_service(folder, journal=url) as first:
        run = Changed(first)
        run.start(folder / "code")
        second = Service(folder, journal=url, log="second.log")
        try:
            wait_until(lambda: "standing by" in (folder / "second.log").read_text(), 120.0)
            found = _taken_over(run, first, second, url)
            run.service = second
            run.finish()
            return [*found, *whole(run)]
        finally:
            second.stop()


def _taken_over(run: Changed, first: Service, second: Service, url: str) -> list[Figure]:
    plan, epoch = run.place.plan(), _epoch(run)
    victims = [
        first.process.pid,
        *(p.pid for p in psutil.Process(first.process.pid).children(recursive=True)),
    ]
    controller = int((run.place.root / "controller.lock").read_text())
    own = [pid for pid in victims if pid == first.process.pid or _controls(pid)]
    killed_s = time.monotonic()
    for pid in own:
        os.kill(pid, signal.SIGKILL)
    second.ready()
    answers_s = time.monotonic() - killed_s
    if not wait_until(lambda: _epoch(run) > epoch, 120.0, poll_s=0.05):
        raise ClusterError("no controller took the run over")
    controls_s = time.monotonic() - killed_s
    changed_s = time.time()
    run.wait(lambda: all(run.newest(sink) > changed_s for sink in ("out", "seen")), "records came out again")
    adopted = [n for n in _notices(run) if "came back and adopted" in n]
    refused = False
    with Turn(url, str(first.root)) as older:
        older._journal._epoch = 1  # as the one that was killed, had it only been asleep
        try:
            older.beat()
        except FencedError:
            refused = True
    assert controller in own
    return [
        Figure("the stand-by answers after", answers_s, f"<= {TAKEN_OVER_S:g} s",
               holds=answers_s <= TAKEN_OVER_S, unit="s"),
        Figure("the run has a controller again after", controls_s, f"<= {CONTROLLED_S:g} s",
               holds=controls_s <= CONTROLLED_S, unit="s"),
        Figure("units and sources go on, adopted", adopted[-1] if adopted else "none", "some",
               holds=bool(adopted)),
        Figure("the older service is refused", "so" if refused else "not", "so", holds=refused),
        Figure("the same run", run.place.plan().name, f"= {plan.name}",
               holds=run.place.plan().name == plan.name),
    ]  # fmt: skip


def _epoch(run: Changed) -> int:
    with run.place.opened() as journal:
        claimed = journal.claimed()
    return 0 if claimed is None else claimed[0]


def _notices(run: Changed) -> list[str]:
    with run.place.opened() as journal:
        return [str(row["text"]) for row in journal.rows("notice")]


def _controls(pid: int) -> bool:
    """Whether a process is the run's watcher or its controller, and none of its units, hosts or sources."""
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return ("penstock.cli.main" in command and "run" in command) or "penstock.runs.service" in command
