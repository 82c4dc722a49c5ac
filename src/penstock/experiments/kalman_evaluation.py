"""The runs of paper 001's evaluation and what they come to, as numbers.

The paper's nine configurations, the nine with the same actuator for every filter, and a few more that say
what the gaps of the printed filter, our rules and the actuator are each worth. Which claims hold is computed
here; how it is shown is the page's affair.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from penstock.experiments.kalman_model import Testbed
from penstock.experiments.kalman_paper import FILTERS, PAPER, TABLE_2_DOWN, TABLE_2_UP
from penstock.experiments.kalman_runs import (
    WORKLOADS,
    Configuration,
    SeedResult,
    Trail,
    Training,
    run_configuration,
    run_side_by_side,
    train,
)
from penstock.report.figures import Figure
from penstock.topology.model import Choice

PROCESSES = 2
PAPER_RULES, SAME_ACTUATOR = "paper's rules", "same actuator"
GAPS_CLOSED, AS_PRINTED = "kalman, gaps closed only", "kalman, as printed"
GAUSSIAN_MIDDLE = "gaussian, aiming at the middle"

NEAR_RATIO = 0.3
"""How far into the band the same actuator moves: near the threshold that was crossed. See the design note."""

DRAIN_S = 120.0
"""How long full instances may be put down to a backlog. What comes in over T s while instances are missing
is worked off in T·ρ/(1 − ρ) s at utilisation ρ: a start of 20 s and instances that take 25 s leave T = 45 s,
which at ρ = 0.7 takes 105 s. At 60 s the rule ended before the backlog of one start in twenty was gone."""

METRICS: Mapping[str, tuple[str, Callable[[SeedResult], float]]] = {
    "VM time": ("h", lambda result: result.run.vm_h),
    "scaling events": ("", lambda result: float(result.events)),
    "image processing time": ("s", lambda result: result.run.image_s),
    "query processing time": ("s", lambda result: result.run.query_s),
    "SLA violations": ("", lambda result: float(result.run.violations)),
}
"""The rows of Tables 3 to 5 with their units."""

SENSITIVITY_S = 1350.0
"""Runs of the sensitivity table are half as long: there are 21 times as many of them."""
RECOVERY_S = 60.0
RECOVERY_RATIO = 0.05
RECOVERY_MEAN_S = 5.0
"""Estimate and truth are compared by means over so long: one half second's count of images is no truth."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What the break-even is computed from; put in your own."""

    vm_hour: float = 0.0612
    """A VM hour; the paper's price of one core hour."""
    violation: float = 0.0001
    """One image or query beyond its SLA."""
    currency: str = "USD"


Key = tuple[str, str, str]
"""Rules, workload and label of a configuration."""
Results = dict[Key, list[SeedResult]]
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything the runs came to."""

    seeds: int
    training: Training
    results: Results
    trails: Mapping[Key, Trail]
    """What the first seed of each configuration did over time."""
    starts: Mapping[str, Trail]
    """What each seed's start under full load did over time."""
    recovery_s: Sequence[float]
    """For each seed, when the estimate was for good near the truth."""
    sensitivity: Mapping[Pair, float]
    """SLA violations by both thresholds."""
    nine_s: float
    """How long the nine configurations of the paper took."""


def kalman_choice(training: Training, **changes: object) -> Choice:
    """The Kalman filter as trained, with the rules that go beyond the paper."""
    return Choice(
        "kalman",
        {
            "noise_std": (training.cpu_std, training.memory_std),
            "sensitivity": training.sensitivity,
            "adaptive_ratio": 0.1,
            "drain_s": DRAIN_S,
            **changes,
        },
    )


def configurations(training: Training) -> list[Configuration]:
    """The paper's nine cells, the nine with the same actuator, then the Kalman filter without our rules
    and as printed, and the Gaussian filter with the actuator that suits it better."""
    single, multi = Choice("utilisation", {"step": "single"}), Choice("utilisation", {"step": "multi"})
    same = Choice("utilisation", {"step": "multi", "certainty_sigma": 1.0, "inset_ratio": NEAR_RATIO})
    middle = Choice("utilisation", {"step": "multi", "certainty_sigma": 1.0})
    chosen = {"none": Choice("none"), "gaussian": Choice("gaussian"), "kalman": kalman_choice(training)}
    plain = kalman_choice(training, adaptive_ratio=0.0, drain_s=0.0)
    printed = kalman_choice(training, adaptive_ratio=0.0, drain_s=0.0, as_printed=True)
    found = []
    for workload in WORKLOADS:
        for name in FILTERS:
            policy = multi if name == "kalman" else single
            found.append(Configuration(workload, chosen[name], policy, PAPER_RULES, name))
    for workload in WORKLOADS:
        for name in FILTERS:
            found.append(Configuration(workload, chosen[name], same, SAME_ACTUATOR, name))
    for workload in WORKLOADS:
        found.append(Configuration(workload, plain, multi, PAPER_RULES, GAPS_CLOSED))
        found.append(Configuration(workload, printed, multi, PAPER_RULES, AS_PRINTED))
        found.append(Configuration(workload, chosen["gaussian"], middle, SAME_ACTUATOR, GAUSSIAN_MIDDLE))
    return found


def evaluate(seeds: int, bed: Testbed, progress: Callable[[str], None]) -> Evaluation:
    """All runs, on two processes; the paper's nine configurations come first and are timed."""
    training = train()
    cells = configurations(training)
    short = replace(bed, duration_s=min(bed.duration_s, SENSITIVITY_S))
    results: dict[Key, list[SeedResult]] = {}
    trails: dict[Key, Trail] = {}
    parts: list[dict[Pair, float]] = []
    starts: dict[str, Trail] = {}
    begun_s, nine_s, nine = time.perf_counter(), 0.0, len(WORKLOADS) * len(FILTERS)
    with ProcessPoolExecutor(PROCESSES, initializer=_collect_seldom) as pool:
        jobs: dict[Future[object], tuple[str, Callable[[object], None]]] = {}

        def submit(said: str, keep: Callable[..., None], call: Callable[..., object], *given: object) -> None:
            jobs[pool.submit(call, *given)] = said, keep

        def kept(key: Key) -> Callable[..., None]:
            def keep(found: tuple[list[SeedResult], Trail]) -> None:
                results[key], trails[key] = found

            return keep

        for cell in cells:
            key = (cell.rules, cell.workload, cell.label)
            submit(f"{', '.join(key)}, {seeds} seeds", kept(key), run_configuration, cell, seeds, bed)
        submit(f"a start under full load, {seeds} seeds", starts.update, start_trails, training, seeds)
        for workload in WORKLOADS:
            for name in FILTERS:
                submit(
                    f"thresholds, {workload}, {name}", parts.append,
                    _sensitivity_part, workload, name, training, short,
                )  # fmt: skip
        first = set(list(jobs)[:nine])
        progress(f"0 of {len(jobs)} jobs")
        for number, job in enumerate(as_completed(jobs), start=1):
            said, keep = jobs[job]
            keep(job.result())
            first.discard(job)
            if not first and not nine_s:
                nine_s = time.perf_counter() - begun_s
            progress(f"{number} of {len(jobs)} jobs: {said}")
    order = [(cell.rules, cell.workload, cell.label) for cell in cells]
    return Evaluation(
        seeds,
        training,
        {key: results[key] for key in order},
        trails,
        starts,
        [settled_s(trail) for trail in starts.values()],
        {pair: fmean(part[pair] for part in parts) for pair in parts[0]},
        nine_s,
    )


def _collect_seldom() -> None:
    """Runs make millions of short-lived readings and no cycles: looking for cycles is wasted time."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


# --- further runs ---


def start_trails(training: Training, seeds: int) -> dict[str, Trail]:
    """What each seed does when it starts with one instance under Square's upper level."""
    cell = Configuration("Full load", kalman_choice(training), Choice("utilisation", {"step": "multi"}))
    bed = replace(Testbed(), duration_s=2 * RECOVERY_S)
    cells = {f"seed{seed:02d}": (cell, seed) for seed in range(seeds)}
    return run_side_by_side(cells, bed, trails=seeds)[1]


def settled_s(trail: Trail) -> float:
    """When the estimate is for good within 5 points of the truth: the work that arrives over capacity."""
    error = start_error(trail)
    last = np.flatnonzero(np.abs(error) > RECOVERY_RATIO)
    shown = trail.at_s[len(trail.at_s) - len(error) :]
    return trail.at_s[0] if len(last) == 0 else float(shown[min(last[-1] + 1, len(shown) - 1)])


def start_error(trail: Trail) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Estimate less truth, as running means; shorter than the trail by the first mean's length less one."""
    width = round(RECOVERY_MEAN_S / (trail.at_s[1] - trail.at_s[0]))
    error = np.array(trail.estimated) - np.array(trail.demand)
    return np.convolve(error, np.ones(width) / width, mode="valid")


def _sensitivity_part(workload: str, name: str, training: Training, bed: Testbed) -> dict[Pair, float]:
    """SLA violations of one workload and filter for every pair of thresholds, side by side."""
    cells = {}
    for down in TABLE_2_DOWN:
        for up in TABLE_2_UP:
            if down < up:
                step = "multi" if name == "kalman" else "single"
                policy = Choice("utilisation", {"step": step, "down_ratio": down, "up_ratio": up})
                chosen = kalman_choice(training) if name == "kalman" else Choice(name)
                unit = f"d{down * 100:.0f}u{up * 100:.0f}"
                cells[unit] = ((down, up), (Configuration(workload, chosen, policy), 0))
    results, _ = run_side_by_side({unit: cell for unit, (_, cell) in cells.items()}, bed)
    return {cells[unit][0]: float(result.run.violations) for unit, result in results.items()}


# --- figures ---


def values_of(results: Iterable[SeedResult], metric: str) -> list[float]:
    """A metric of every seed."""
    return [METRICS[metric][1](result) for result in results]


def _change(ours: Sequence[SeedResult], theirs: Sequence[SeedResult], metric: str) -> float:
    """How much the mean changes, in per cent."""
    return _per_cent(fmean(values_of(ours, metric)), fmean(values_of(theirs, metric)))


def _per_cent(own: float, other: float) -> float:
    """By how much own differs from other; 0 where both are 0."""
    if other == 0:
        return 0.0 if own == 0 else math.inf
    return 100.0 * (own / other - 1.0)


def _worst_change(ours: Sequence[SeedResult], theirs: Sequence[SeedResult], metric: str) -> float:
    """The largest change of any seed, in per cent."""
    pairs = zip(values_of(ours, metric), values_of(theirs, metric), strict=True)
    return max(_per_cent(own, other) for own, other in pairs)


def _published_change(workload: str, metric: str, other: str) -> float:
    published = PAPER[workload][metric]
    return round(_per_cent(published[2], published[FILTERS.index(other)]), 1)


def figures_of(evaluation: Evaluation) -> list[Figure]:
    """The claims with their bars, then every value of the tables."""
    return [*_verdicts(evaluation), *_table_figures(evaluation.results)]


def _verdicts(evaluation: Evaluation) -> list[Figure]:
    results, seeds = evaluation.results, evaluation.seeds
    figures = []

    def at_most(name: str, value: float, limit: float, unit: str, paper: float | None = None) -> None:
        figures.append(Figure(name, value, f"<= {limit:g} {unit}".rstrip(), paper, value <= limit, unit))

    for workload in ("Pyramid", "Square"):
        for other in ("gaussian", "none"):
            theirs = results[PAPER_RULES, workload, other]
            paper = _published_change(workload, "scaling events", other)
            at_most(
                f"{PAPER_RULES}, {workload}: events of kalman against {other}, worst of {seeds} seeds",
                _worst_change(results[PAPER_RULES, workload, "kalman"], theirs, "scaling events"),
                -80.0, "%", paper,
            )  # fmt: skip
            for label in (GAPS_CLOSED, AS_PRINTED):
                figures.append(
                    Figure(
                        f"{PAPER_RULES}, {workload}: events of {label} against {other}, worst seed",
                        _worst_change(results[PAPER_RULES, workload, label], theirs, "scaling events"),
                        paper=paper,
                        unit="%",
                    )
                )
    for metric in ("SLA violations", "image processing time", "query processing time"):
        for other in ("gaussian", "none"):
            ours, theirs = (results[PAPER_RULES, "Square", name] for name in ("kalman", other))
            at_most(
                f"{PAPER_RULES}, Square: {metric} of kalman against {other}",
                _change(ours, theirs, metric), 0.0, "%", _published_change("Square", metric, other),
            )  # fmt: skip
    for workload, limit in (("Pyramid", -50.0), ("Square", -30.0)):
        ours = results[SAME_ACTUATOR, workload, "kalman"]
        for other in ("gaussian", GAUSSIAN_MIDDLE):
            theirs = results[SAME_ACTUATOR, workload, other]
            for metric, bar in (("scaling events", limit), ("SLA violations", 0.0), ("VM time", 5.0)):
                at_most(
                    f"{SAME_ACTUATOR}, {workload}: {metric} of kalman against {other}",
                    _change(ours, theirs, metric), bar, "%",
                )  # fmt: skip
    within = f"start under full load: estimate within {RECOVERY_RATIO * 100:g} points of the truth"
    at_most(f"{within}, slowest of {seeds} seeds", max(evaluation.recovery_s), RECOVERY_S, "s")
    figures.append(Figure(f"{within}, mean of {seeds} seeds", fmean(evaluation.recovery_s), unit="s"))
    at_most(f"nine configurations × {seeds} seeds on {PROCESSES} processes", evaluation.nine_s, 120.0, "s")
    return figures


def _table_figures(results: Results) -> list[Figure]:
    figures = []
    for (rules, workload, label), found in results.items():
        for metric, (unit, _) in METRICS.items():
            paper = None
            if rules == PAPER_RULES and label in FILTERS:
                paper = PAPER[workload][metric][FILTERS.index(label)]
            mean = fmean(values_of(found, metric))
            figures.append(Figure(f"{rules}, {workload}, {label}: {metric}", mean, paper=paper, unit=unit))
    return figures


# --- money ---


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What one filter costs and saves against another, a run."""

    more_h: float
    """VM hours more."""
    fewer: float
    """SLA violations fewer."""
    violation_price: float | None
    """The price of one violation from which on it pays; None where it pays at any price or at none."""
    pays: str
    saved: float
    """At the user's prices."""


def break_even(ours: Sequence[SeedResult], theirs: Sequence[SeedResult], prices: Prices) -> BreakEven:
    """In absolute figures: VM hours more, times their price, against violations fewer, times theirs."""
    more_h = fmean(values_of(ours, "VM time")) - fmean(values_of(theirs, "VM time"))
    fewer = fmean(values_of(theirs, "SLA violations")) - fmean(values_of(ours, "SLA violations"))
    limit = abs(more_h * prices.vm_hour / fewer) if fewer else math.inf
    money = f"{limit:.3g} {prices.currency}".rstrip()
    price = None
    if more_h <= 0 <= fewer:
        pays = "at any price"
    elif more_h >= 0 >= fewer:
        pays = "never"
    elif fewer > 0:
        price, pays = limit, f"from {money} a violation on"
    else:
        pays = f"up to {money} a violation"
    return BreakEven(more_h, fewer, price, pays, fewer * prices.violation - more_h * prices.vm_hour)
