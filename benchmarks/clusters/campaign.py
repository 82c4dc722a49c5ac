"""One streaming job on one cluster under a load of 1 x, 4 x, 1 x, with an executor killed and a node lost.

Everything it says is counted in that run: executors as Spark lists them, ids in the files that came out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import ClusterError
from penstock.machine.processes import ChildProcesses, log_tail, wait_until
from penstock.report.figures import Figure
from penstock.spark.checkpoints import SinkLog
from penstock.spark.managers.registry import make_manager
from penstock.topology.model import Site

from .stream import Job

PATIENCE_S = 240.0
"""Far beyond what anything here takes, for machines that do much else at the same time."""
BACK_S = 60.0
"""After a node was lost, as many executors as before are to be there within this time."""


class Cluster(Protocol):
    """An existing cluster, with what a test may do to it."""

    def site(self, storage: Path) -> Site:
        """The cluster as a topology names it; `storage` is a folder all its machines share."""
        ...

    def kill_executor(self) -> int | None:
        """Kill one executor, as a fault would; its pid, None where there is none."""
        ...

    def lose_node(self) -> str | None:
        """Lose a node with executors on it; its name, None where there is none."""
        ...

    def remains(self) -> list[str]:
        """What applications have left behind."""
        ...


class Look(NamedTuple):
    """What the job saw of itself at an instant."""

    at_s: float
    """Seconds since the feed began."""
    factor: float
    """On the load."""
    executors: int
    wanted: int | None = None
    """Executors the policy wanted; None where that is not told."""


@dataclass(slots=True)
class Outcome:
    """What a run of the job came to."""

    session_s: float = 0.0
    looks: list[Look] = field(default_factory=list)
    last: int = 0
    """Executors when the feed ended, while the load was 1 x again."""
    killed: int | None = None
    lost: str | None = None
    lost_s: float | None = None
    """When the node was lost, in seconds since the feed began."""
    written: int = 0
    out: int = 0
    doubled: int = 0
    missing: int = 0
    remains: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def most(self, factor: float) -> int:
        """Most executors while the load had this factor."""
        return max((look.executors for look in self.looks if look.factor == factor), default=0)

    @property
    def first(self) -> int:
        """Executors as the feed began."""
        return self.looks[0].executors if self.looks else 0

    @property
    def held(self) -> int:
        """Executors as the node was lost; of more than were wanted, those that were wanted."""
        before = [look for look in self.looks if self.lost_s is not None and look.at_s <= self.lost_s]
        return min(before[-1].executors, before[-1].wanted or before[-1].executors) if before else 0

    @property
    def back_s(self) -> float | None:
        """How long after the node was lost as many executors were there again; None where they were not.

        Who wants fewer before that does not get as many back.
        """
        missed = False
        for look in self._after_loss():
            missed = missed or look.executors < self.held
            if missed and look.executors >= self.held:
                return look.at_s - (self.lost_s or 0.0)
            if self._wants_fewer(look):
                return None
        return None

    @property
    def fewer_wanted_s(self) -> float | None:
        """How long after the node was lost fewer executors were wanted than were held; None where never."""
        found = (look.at_s - (self.lost_s or 0.0) for look in self._after_loss() if self._wants_fewer(look))
        return next(found, None)

    def _after_loss(self) -> list[Look]:
        return [look for look in self.looks if self.lost_s is not None and look.at_s > self.lost_s]

    def _wants_fewer(self, look: Look) -> bool:
        return look.wanted is not None and look.wanted < self.held

    @property
    def executor_minutes(self) -> float:
        """Executors over time, until the end."""
        pairs = zip(self.looks, self.looks[1:], strict=False)
        return sum((after.at_s - before.at_s) * before.executors for before, after in pairs) / 60


def run(cluster: Cluster, name: str, folder: Path, **options: Any) -> Outcome:
    """Put the job on a cluster and see it through; ClusterError where it does not come to an end."""
    site = cluster.site(folder)
    manager = make_manager(site)
    manager.require()
    job = Job(
        name, manager.master_url, str(folder), {**manager.settings(), **site.settings},
        dict(manager.environment()), **options,
    )  # fmt: skip
    outcome, began_s = Outcome(), time.monotonic()
    children = ChildProcesses(f"clusters {folder}")
    log = folder / "job.log"
    try:
        command = [sys.executable, "-m", "benchmarks.clusters.stream", str(job.write())]
        children.start("job", command, log=log, environment={**os.environ})
        _follow(cluster, job, outcome, lambda: children.alive("job"), log)
        job.end.touch()
        wait_until(lambda: not children.alive("job"), PATIENCE_S)
    finally:
        children.stop_all(5.0)
    outcome.took_s = time.monotonic() - began_s
    _count(job, outcome)
    wait_until(lambda: not cluster.remains(), 30.0)
    outcome.remains = cluster.remains()
    return outcome


def _follow(cluster: Cluster, job: Job, outcome: Outcome, alive: Any, log: Path) -> None:
    """Watch the job go through its phases, and do to its cluster what shall be done under load."""
    deadline_s = time.monotonic() + sum(seconds for _, seconds in job.phases) + 2 * PATIENCE_S
    total = 0
    while time.monotonic() < deadline_s:
        if not alive():
            raise ClusterError(f"the job on {job.master} ended by itself:\n{log_tail(log)}")
        lines = _seen(job)
        if lines:
            began_s = lines[0]["at_s"]
            outcome.session_s = lines[0].get("session_s", 0.0)
            outcome.looks = [
                Look(x["at_s"] - began_s, x["factor"], len(x["executors"]), x.get("wanted")) for x in lines
            ]
            now = lines[-1]
            if now["factor"] > 1.0 and len(now["executors"]) >= 2:
                if outcome.killed is None:
                    outcome.killed = cluster.kill_executor()
                elif outcome.lost is None and now["at_s"] - began_s > _middle_s(job):
                    outcome.lost = cluster.lose_node()
                    outcome.lost_s = now["at_s"] - began_s
            total = now["written"]
            over = now["at_s"] - began_s > sum(seconds for _, seconds in job.phases)
            if over and len(now["executors"]) < outcome.most(4.0):
                job.enough.touch()
            if job.enough.exists() and not now["feeds"]:
                outcome.last = outcome.last or len(now["executors"])
                if sum(len(ids) for ids in _results(job)) >= total:
                    return
        time.sleep(0.5)
    raise ClusterError(
        f"the job on {job.master} did not come to its end: {total} records written, "
        f"{sum(len(ids) for ids in _results(job))} came out, last seen {outcome.looks[-3:]}"
    )


def _middle_s(job: Job) -> float:
    """The middle of the second phase, in seconds since the feed began."""
    return job.phases[0][1] + job.phases[1][1] / 2


def _seen(job: Job) -> list[dict[str, Any]]:
    try:
        text = job.seen.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _results(job: Job) -> list[list[str]]:
    """The ids of each file that Spark's sink has committed, but for notes it is just putting together."""
    log = SinkLog(job.output)
    files = {file for number in log.numbers_from(0) for file in log.files(number)}
    return [file.read_text().split() for file in sorted(files) if file.exists()]


def _count(job: Job, outcome: Outcome) -> None:
    outcome.written = max((line["written"] for line in _seen(job)), default=0)
    ids = Counter(int(number) for part in _results(job) for number in part)
    outcome.out = sum(ids.values())
    outcome.doubled = sum(count - 1 for count in ids.values())
    outcome.missing = len(set(range(outcome.written)) - set(ids))


def replaced(cluster: str, outcome: Outcome) -> Figure:
    """How soon a lost node's executors were replaced; no verdict where the policy wanted fewer before."""
    name, bar = f"{cluster}: as many executors again after a lost node", f"<= {BACK_S:g} s"
    back_s, fewer_s = outcome.back_s, outcome.fewer_wanted_s
    if back_s is not None:
        return Figure(name, back_s, bar, holds=back_s <= BACK_S, unit="s")
    if fewer_s is not None and fewer_s <= BACK_S:
        return Figure(name, f"fewer than {outcome.held} were wanted after {fewer_s:.0f} s", bar)
    return Figure(name, "not before the end", bar, holds=False)


def figures(cluster: str, outcome: Outcome, most: int) -> list[Figure]:
    """What a run shows, beside what it must."""
    peak, same = outcome.most(4.0), outcome.missing == 0 and outcome.doubled == 0
    return [
        Figure(f"{cluster}: session and first executor", outcome.session_s, unit="s"),
        Figure(f"{cluster}: executors at 1 x", outcome.first),
        Figure(
            f"{cluster}: most executors at 4 x", peak, f"more than {outcome.first}, at most {most}",
            holds=outcome.first < peak <= most,
        ),
        Figure(
            f"{cluster}: executors after 1 x again", outcome.last, f"fewer than {peak}",
            holds=outcome.last < peak,
        ),
        Figure(
            f"{cluster}: ids in", outcome.written, f"= ids out, here {outcome.out}",
            holds=same and outcome.out == outcome.written > 0,
        ),
        Figure(
            f"{cluster}: an executor killed under load", str(outcome.killed is not None), "True",
            holds=outcome.killed is not None,
        ),
        Figure(
            f"{cluster}: a node lost under load", outcome.lost or "none", "one",
            holds=outcome.lost is not None,
        ),
        replaced(cluster, outcome),
        Figure(f"{cluster}: executor minutes", outcome.executor_minutes),
        Figure(
            f"{cluster}: left behind", ", ".join(outcome.remains) or "nothing", "nothing",
            holds=not outcome.remains,
        ),
        Figure(f"{cluster}: whole run", outcome.took_s, unit="s"),
    ]  # fmt: skip
