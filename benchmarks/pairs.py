"""Two ways of doing the same work, compared by interleaved pairs, so that the machine's mood does not decide.

Both sides are warmed up, then run in turns; which one goes first changes from pair to pair, so that a machine
that gets slower or a Java that gets faster favours neither. A balanced pair runs each side twice, one
around the other (a b b a), for a machine whose speed drifts within a pair as well.
The answer is the median of the pairs' ratios.
The processor time of this process and its descendants stands beside it: that hardly moves when others take
the processors, so the two ratios differ where a pair was disturbed. The one rule by which a pair is left
out: others had more than `DISTURBED_RATIO` of the machine's processors during one of its runs. It is run
again then, a bounded number of times; where fewer than `FEWEST` undisturbed ones come together, all pairs
are shown and no bar is judged by them.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psutil

from penstock.report.figures import Figure
from penstock.spark.session.readings import process_trees, tree_usage

DISTURBED_RATIO = 0.10
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run took."""

    wall_s: float
    cpu_s: float
    """Processor time of this process and of all its descendants."""
    others_ratio: float
    """Share of the machine's processors that everybody else (also the host's other guests) had meanwhile."""


class Stopwatch:
    """Takes the three times of one run; `spent` is there once the run has ended."""

    spent: Spent


@contextlib.contextmanager
def watched() -> Iterator[Stopwatch]:
    """Measure what happens inside the block."""
    watch = Stopwatch()
    own_s, all_s, began_s = _own_cpu_s(), _machine_cpu_s(), time.perf_counter()
    yield watch
    wall_s = time.perf_counter() - began_s
    cpu_s = _own_cpu_s() - own_s
    others_s = max(0.0, _machine_cpu_s() - all_s - cpu_s)
    watch.spent = Spent(wall_s, cpu_s, others_s / (wall_s * (psutil.cpu_count() or 1)))


def _own_cpu_s() -> float:
    own = psutil.Process().pid
    return tree_usage(process_trees([own])[own])[0]


def job_cpu_s(application: str) -> float:
    """Processor time of a Spark application: its driver, which is this process, and its executors."""
    roots = [psutil.Process().pid]
    for process in psutil.process_iter(["cmdline"]):
        if application in (process.info["cmdline"] or ()):
            roots.append(process.pid)
    trees = process_trees(roots)
    members = {process.pid: process for tree in trees.values() for process in tree}
    # Master and worker are children of this process too, but not of the job.
    daemons = ("org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker")
    own = []
    for process in members.values():
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if not set(daemons) & set(process.cmdline()):
                own.append(process)
    return tree_usage(own)[0]


def _machine_cpu_s() -> float:
    """Processor time the machine has worked since it started, whoever for; a guest's is within its user's."""
    times = psutil.cpu_times()
    waited = {"idle", "iowait", "guest", "guest_nice"}
    return float(sum(getattr(times, name) for name in times._fields if name not in waited))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one side: the value that is compared, the less the better, and what it took."""

    value: float
    spent: Spent


def together(one: Run, other: Run) -> Run:
    """Two runs of one side as one: the mean of their values, the sum of what they took."""
    a, b = one.spent, other.spent
    wall_s = a.wall_s + b.wall_s
    others = (a.others_ratio * a.wall_s + b.others_ratio * b.wall_s) / wall_s
    return Run((one.value + other.value) / 2, Spent(wall_s, a.cpu_s + b.cpu_s, others))


Side = Callable[[str], Run]
"""Runs one side once, given a name no other run has, and says what it came to."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A run of each side, one right after the other."""

    first: Run
    second: Run

    @property
    def ratio(self) -> float:
        """The first side's value over the second's: above 1 where the second is better."""
        return self.first.value / self.second.value

    @property
    def cpu_ratio(self) -> float:
        """The same of their processor times."""
        return self.first.spent.cpu_s / self.second.spent.cpu_s

    @property
    def others_ratio(self) -> float:
        """The share others had, at the worse of the two runs."""
        return max(self.first.spent.others_ratio, self.second.spent.others_ratio)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the pairs came to."""

    pairs: tuple[Pair, ...]
    wanted: int

    @property
    def undisturbed(self) -> tuple[Pair, ...]:
        """The pairs during which others had little of the machine."""
        return tuple(pair for pair in self.pairs if pair.others_ratio <= DISTURBED_RATIO)

    @property
    def judged(self) -> bool:
        """Whether enough pairs were undisturbed for a verdict."""
        return len(self.undisturbed) >= min(FEWEST, self.wanted)

    @property
    def counted(self) -> tuple[Pair, ...]:
        """The pairs the figures are of: the undisturbed ones, where there are enough."""
        return self.undisturbed if self.judged else self.pairs

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return statistics.median(pair.ratio for pair in self.counted)

    def median(self, of: Callable[[Pair], Run]) -> float:
        """The median value of one side."""
        return statistics.median(of(pair).value for pair in self.counted)

    def words(self) -> str:
        """Which pairs were counted and how far apart they are."""
        ratios = [pair.ratio for pair in self.counted]
        text = f"median of {len(ratios)} pairs, {min(ratios):.3f} to {max(ratios):.3f}"
        left_out = len(self.pairs) - len(self.counted)
        if left_out:
            return f"{text}, {left_out} disturbed left out"
        return text if self.judged else f"{text}, too disturbed by others for a verdict"

    def cpu_figure(self, what: str) -> Figure:
        """The same comparison by processor time, which others on the machine hardly move."""
        ratios = [pair.cpu_ratio for pair in self.counted]
        spread = f"(median of {len(ratios)} pairs, {min(ratios):.3f} to {max(ratios):.3f})"
        return Figure(f"{what}, by processor time", statistics.median(ratios), unit=spread)


def compare(
    what: str,
    names: Sequence[str],
    first: Side,
    second: Side,
    *,
    pairs: int,
    warm_ups: int,
    limit_s: float,
    balanced: bool = False,
) -> Comparison:
    """Warm both sides up, then run pairs until so many are undisturbed, twice as many are run, or time is up.

    `FEWEST` are run however long it takes; progress goes to stderr.
    """
    began_s = time.perf_counter()

    def say(text: str) -> None:
        print(f"{what}: {text}", file=sys.stderr, flush=True)

    for number in range(1, warm_ups + 1):
        for name, side in zip(names, (first, second), strict=True):
            say(f"warm-up {number} of {warm_ups}: {name} {side(f'warm-up-{number}').spent.wall_s:.2f} s")
    done: list[Pair] = []
    while True:
        number = len(done) + 1
        outer, inner = (first, second) if number % 2 else (second, first)
        if balanced:
            begins, second_run = outer(f"{number}-1"), inner(f"{number}-2")
            third_run, ends = inner(f"{number}-3"), outer(f"{number}-4")
            ran = together(begins, ends), together(second_run, third_run)
        else:
            ran = outer(f"{number}"), inner(f"{number}")
        one, other = ran if number % 2 else ran[::-1]
        done.append(Pair(one, other))
        comparison = Comparison(tuple(done), pairs)
        say(
            f"pair {number} of {pairs}: {_told(names[0], one)}; {_told(names[1], other)}; {_ratios(done[-1])}"
        )
        late = time.perf_counter() - began_s > limit_s
        enough = len(comparison.undisturbed) >= pairs or number >= 2 * pairs
        if enough or (late and number >= min(FEWEST, pairs)):
            say(f"{comparison.ratio:.3f} ({comparison.words()})")
            return comparison


def _told(name: str, run: Run) -> str:
    spent = run.spent
    return f"{name} {run.value:.3f} s (wall {spent.wall_s:.2f} s, processors {spent.cpu_s:.2f} s)"


def _ratios(pair: Pair) -> str:
    disturbed = ", disturbed" if pair.others_ratio > DISTURBED_RATIO else ""
    return (
        f"ratio {pair.ratio:.3f}, by processor time {pair.cpu_ratio:.3f}, "
        f"others had {pair.others_ratio:.0%} of the machine{disturbed}"
    )
