"""The claims of paper 000 held against our runs: which hold, which do not, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from penstock.experiments.btu_paper import PAPER
from penstock.experiments.btu_runs import BTUS_MIN, POLICIES, Cell, Outcome
from penstock.monitoring.sla import LEVELS
from penstock.report.figures import Figure

LEVEL_NAMES = {"real_time": "real-time", "near_real_time": "near real-time", "relaxed": "relaxed"}


def mean_of(outcomes: Mapping[Cell, Sequence[Outcome]], cell: Cell, what: str) -> float:
    """The mean of a row of the tables over the seeds of a cell."""
    return fmean(value_of(outcome, what) for outcome in outcomes[cell])


def value_of(outcome: Outcome, what: str) -> float:
    """A row of the tables for one run: a compliance, a cost or a count."""
    if what in outcome.compliance:
        return outcome.compliance[what]
    if what == "resource":
        return outcome.resource_cost
    if what.endswith(" cost"):
        return outcome.total_cost[what.removesuffix(" cost")]
    return outcome.counts[what]


def wins(outcomes: Mapping[Cell, Sequence[Outcome]]) -> dict[str, tuple[int, int]]:
    """For each claim, in how many of how many cells `btu` is better than `threshold`."""
    found_patterns = list(dict.fromkeys(cell.pattern for cell in outcomes))

    def better(what: str, btu_min: int, pattern: str, more: bool) -> bool:
        ours = mean_of(outcomes, Cell(pattern, "btu", btu_min), what)
        theirs = mean_of(outcomes, Cell(pattern, "threshold", btu_min), what)
        return ours > theirs if more else ours < theirs

    compliance = [better(level, b, p, True) for p in found_patterns for b in BTUS_MIN for level in LEVELS]
    resource = {b: [better("resource", b, p, False) for p in found_patterns] for b in BTUS_MIN}
    exempt = [better("real_time cost", 10, p, False) for p in found_patterns]
    total = [
        better(f"{level} cost", b, p, False)
        for p in found_patterns
        for b in BTUS_MIN
        for level in LEVELS
        if not (b == 10 and level == "real_time")
    ]
    return {
        "compliance": (sum(compliance), len(compliance)),
        "total": (sum(total), len(total)),
        "total BTU10 real-time": (sum(exempt), len(exempt)),
        **{f"resource BTU{b}": (sum(won), len(won)) for b, won in resource.items()},
    }


def figures_of(
    outcomes: Mapping[Cell, Sequence[Outcome]], bounds: Mapping[tuple[str, int], float]
) -> list[Figure]:
    """The claims of the paper with what they came to here."""
    won = wins(outcomes)
    figures = [
        _share("compliance: btu above threshold", won["compliance"], "36/36"),
        _share("resource cost at BTU60: btu below threshold", won["resource BTU60"], "4/4"),
        _share("total cost, all but BTU10 real-time: btu below threshold", won["total"], "32/32"),
        _share(
            "total cost, BTU10 real-time: btu below threshold", won["total BTU10 real-time"], "1/4", False
        ),
        _share("resource cost at BTU30: btu below threshold", won["resource BTU30"], "0/4", False),
        _share("resource cost at BTU10: btu below threshold", won["resource BTU10"], "0/4", False),
    ]
    shown = list(dict.fromkeys(cell.pattern for cell in outcomes))
    for policy, at in (("btu", 0), ("threshold", 3)):
        for level, name in LEVEL_NAMES.items():
            for b_index, btu_min in enumerate(BTUS_MIN if policy == "btu" else BTUS_MIN[:1]):
                label = f"{name} compliance, {policy}" + (f" BTU{btu_min}" if policy == "btu" else "")
                here = fmean(mean_of(outcomes, Cell(p, policy, btu_min), level) for p in shown)
                paper = fmean(PAPER[p][level][at + b_index] for p in shown)
                figures.append(Figure(label, round(here, 3), paper=round(paper, 3)))
    for btu_min in BTUS_MIN:
        for policy in POLICIES:
            ratio = fmean(
                mean_of(outcomes, Cell(p, policy, btu_min), "resource") / bounds[p, btu_min] for p in shown
            )
            figures.append(Figure(f"resource cost / clairvoyant, {policy} BTU{btu_min}", round(ratio, 3)))
    return figures


def _share(name: str, won: tuple[int, int], paper: str, is_bar: bool = True) -> Figure:
    wanted = f"{won[1]} of {won[1]}"
    return Figure(
        name,
        f"{won[0]} of {won[1]}",
        bar=wanted if is_bar else None,
        paper=paper,
        holds=won[0] == won[1] if is_bar else None,
    )


def verdict(outcomes: Mapping[Cell, Sequence[Outcome]]) -> list[str]:
    """Which of the paper's claims hold here, which do not, and why."""
    won = wins(outcomes)
    shown = list(dict.fromkeys(cell.pattern for cell in outcomes))

    def mean(policy: str, btu_min: int, what: str) -> float:
        return fmean(mean_of(outcomes, Cell(p, policy, btu_min), what) for p in shown)

    def yes(holding: bool) -> str:
        return "holds" if holding else "does not hold"

    def holds(count: tuple[int, int]) -> str:
        return "holds" if count[0] == count[1] else "does not hold everywhere"

    scalings = {
        b: mean("btu", b, "upscalings") + mean("btu", b, "downscalings") + mean("btu", b, "migrations")
        for b in BTUS_MIN
    }
    baseline = mean("threshold", 60, "upscalings") + mean("threshold", 60, "downscalings")
    spread = max(
        max(mean_of(outcomes, Cell(p, "btu", b), level) for p in shown)
        - min(mean_of(outcomes, Cell(p, "btu", b), level) for p in shown)
        for b in BTUS_MIN
        for level in LEVELS
    )
    cheaper = [b for b in (10, 30) if won[f"resource BTU{b}"][0] > 0]
    lines = [
        f"Better compliance in every cell: {holds(won['compliance'])} "
        f"({won['compliance'][0]} of {won['compliance'][1]}).",
        f"Lower resource cost at BTU60: {holds(won['resource BTU60'])} "
        f"({won['resource BTU60'][0]} of {won['resource BTU60'][1]}).",
        f"Lower total cost in all but BTU10 real-time: {holds(won['total'])} "
        f"({won['total'][0]} of {won['total'][1]}); at BTU10 real-time it is lower in "
        f"{won['total BTU10 real-time'][0]} of {won['total BTU10 real-time'][1]} patterns.",
        f"Fewer scalings than the baseline: {yes(max(scalings.values()) < baseline)} "
        f"({', '.join(f'BTU{b} {scalings[b]:.0f}' for b in BTUS_MIN)}, baseline {baseline:.0f} a run).",
        f"Compliance alike over the patterns, within 3 points: {yes(spread <= 0.03)} "
        f"(up to {spread * 100:.0f} points apart). The patterns differ most in how fast they climb at the "
        "start, when every unit has one instance and grows by one a minute.",
    ]
    if cheaper:
        lines.append(
            "Higher resource cost at BTU10 and BTU30: does not hold (lower in "
            + " and ".join(
                f"{won[f'resource BTU{b}'][0]} of {won[f'resource BTU{b}'][1]} patterns at BTU{b}"
                for b in cheaper
            )
            + "). A unit that needs room takes it from a unit with an empty queue before a host is leased, "
            "so fewer hosts are leased here than in the paper's runs."
        )
    return lines
