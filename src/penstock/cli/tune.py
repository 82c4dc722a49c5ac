"""`penstock tune`: the cheapest policy that keeps what is asked, found by simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

import plotly.graph_objects as go
import typer
import yaml
from rich.table import Table

from penstock.cli.choices import new_folder, read_share, read_span
from penstock.cli.console import console as open_console
from penstock.cli.extent import refuse_endless
from penstock.errors import ConfigurationError
from penstock.experiments.twin import opened, recorded, topology_of_run
from penstock.report.page import Page
from penstock.runs.assembly import budgeting_for, load, with_choices
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, Topology

CANDIDATES: tuple[Choice, ...] = (
    *(Choice("auto", {"keep": keep}) for keep in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    *(
        Choice("rate", {"target_ratio": target, "tolerance_ratio": tolerance})
        for target in (0.7, 0.8, 0.9)
        for tolerance in (0.05, 0.1)
    ),
    *(Choice("queueing", {"quantile": quantile}) for quantile in (0.95, 0.99, 0.999)),
    *(Choice("btu", {"scaling_threshold": waiting}) for waiting in (10, 50)),
    *(Choice("threshold", {"up_queue": waiting}) for waiting in (10, 50)),
)
"""What is tried, and `auto` with the share that is asked for."""
MOST_SEEDS = 200
"""Seeds of a search, each of which simulates every candidate."""
HOPELESS = 0.03
"""A candidate that keeps this much less than asked over the first seed is not tried with the others."""
HELD_OUT = 1000
"""Seeds from here on check what the search chose, and are never searched with."""
OTHER_SEEDS = "with seeds that were not searched with"
LEAST_KEEP = 0.5
"""No policy is asked to keep less."""
ELSEWHERE = (
    "# a unit that names a policy of its own keeps that: write these lines there too, or take its own out"
)
"""What stands below the lines to paste, and may be pasted with them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate, with what it came to."""

    choice: Choice
    cost: float
    kept: float
    rescales: float
    stopped_early: bool = False

    @property
    def name(self) -> str:
        """The candidate as the command line writes it."""
        parameters = ",".join(f"{key}={value}" for key, value in self.choice.parameters.items())
        return f"{self.choice.name}:{parameters}" if parameters else self.choice.name


def tune(
    target: Annotated[Path, typer.Argument(help="A topology file, or a run's folder or journal.")],
    keep: Annotated[str, typer.Option(help="The share of records that must keep the SLO.")] = "99%",
    duration: Annotated[str, typer.Option(help="How long to simulate a topology file.")] = "120 min",
    seeds: Annotated[int, typer.Option(help="Seeds to search with, and as many to check with.")] = 2,
    topology: Annotated[
        Path | None, typer.Option(help="A run's topology, where its folder has none.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 means one for each core.", min=0, max=256)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the page.")] = None,
) -> None:
    """Search policies and parameters by simulation; gives the frontier and the lines to paste."""
    share = read_share(keep, "--keep")
    if not 1 <= seeds <= MOST_SEEDS:
        raise ConfigurationError(f"expected from 1 to {MOST_SEEDS} seeds, got {seeds}")
    if target.suffix in (".yaml", ".yml"):
        subject, length_s, steady = load(target), read_span(duration, "--duration"), False
    else:
        with opened(target) as book:
            run = recorded(book, topology_of_run(target, topology))
        subject, length_s, steady = run.topology, run.duration_s, run.steady
    refuse_endless(subject, length_s)
    tried = candidates_for(share)
    trials = searched(subject, length_s, share, range(1, seeds + 1), jobs, tried, steady=steady)
    held_out = range(HELD_OUT, HELD_OUT + seeds)

    def again(choice: Choice) -> Trial:
        return searched(subject, length_s, 0.0, held_out, jobs, (choice,), steady=steady)[0]

    checks = checked(trials, share, again)
    console = open_console()
    console.print(_table(subject, trials, checks, share))
    for line in told(checks, share):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(lines_of(chosen_of(checks, share).choice), markup=False)
    console.print(ELSEWHERE, soft_wrap=True, highlight=False, markup=False)
    folder = new_folder(out, f"tune-{subject.name}")
    console.print(f"report: {_write(folder, subject, trials, checks, share)}")


def candidates_for(share: float) -> tuple[Choice, ...]:
    """What is tried where this share is asked for: also `auto` told just that."""
    asked = Choice("auto", {"keep": share})
    known = {choice.parameters.get("keep") for choice in CANDIDATES}
    return CANDIDATES if share in known or share < LEAST_KEEP else (asked, *CANDIDATES)


def searched(
    topology: Topology,
    length_s: float,
    keep: float,
    seeds: Sequence[int],
    jobs: int = 0,
    candidates: Sequence[Choice] = CANDIDATES,
    *,
    steady: bool = False,
) -> list[Trial]:
    """Every candidate simulated: all with the first seed, those that are not hopeless with the others.

    `steady` is for the load of a real run, as `Recorded` says it.
    """
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        first = list(pool.map(_trial, [(topology, c, seeds[0], length_s, steady) for c in candidates]))
        hopeful = [trial for trial in first if trial.kept >= keep - HOPELESS]
        others = [(topology, t.choice, seed, length_s, steady) for t in hopeful for seed in seeds[1:]]
        more = list(pool.map(_trial, others))
    found = [replace(trial, stopped_early=trial.kept < keep - HOPELESS) for trial in first]
    return [
        trial if trial.stopped_early else _mean([trial, *(t for t in more if t.choice == trial.choice)])
        for trial in found
    ]


def best_of(trials: Sequence[Trial], keep: float) -> Trial:
    """The cheapest that keeps what is asked; where none does, the one that keeps most."""
    keeping = [trial for trial in trials if trial.kept >= keep]
    return min(keeping, key=lambda t: t.cost) if keeping else max(trials, key=lambda t: t.kept)


def checked(trials: Sequence[Trial], keep: float, again: Callable[[Choice], Trial]) -> list[Trial]:
    """What came of those that kept what is asked with other seeds: the cheapest first, until one keeps it.

    Where none kept it the one that kept most is tried.
    """
    keeping = sorted((trial for trial in trials if trial.kept >= keep), key=lambda t: t.cost)
    found: list[Trial] = []
    for trial in keeping or [best_of(trials, keep)]:
        found.append(again(trial.choice))
        if found[-1].kept >= keep:
            break
    return found


def chosen_of(checks: Sequence[Trial], keep: float) -> Trial:
    """The last that was checked where it kept what is asked; where none did, the one that kept most."""
    return checks[-1] if checks[-1].kept >= keep else max(checks, key=lambda t: t.kept)


def told(checks: Sequence[Trial], keep: float) -> list[str]:
    """What the check came to, in sentences."""
    chosen = chosen_of(checks, keep)
    lines = [
        f"{trial.name} kept {trial.kept:.2%} {OTHER_SEEDS}: below the {keep:.2%} asked"
        for trial in checks
        if trial.kept < keep and trial is not chosen
    ]
    kept = f"{chosen.name} kept {chosen.kept:.2%} at cost {chosen.cost:.5g} {OTHER_SEEDS}"
    if chosen.kept >= keep:
        return [*lines, kept]
    return [*lines, kept, f"no candidate keeps the {keep:.2%} asked; this one is nearest"]


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Those that no other beats in both cost and what is kept, the cheapest first."""
    found: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (t.cost, -t.kept)):
        if not found or trial.kept > found[-1].kept:
            found.append(trial)
    return found


def lines_of(choice: Choice) -> str:
    """A choice as the lines of a topology file."""
    policy = (
        {"policy": {"name": choice.name, **choice.parameters}}
        if choice.parameters
        else {"policy": choice.name}
    )
    return yaml.safe_dump(policy, sort_keys=False).rstrip()


def _trial(task: tuple[Topology, Choice, int, float, bool]) -> Trial:
    topology, choice, seed, length_s, steady = task
    tried = with_choices(topology, policy=choice)
    settings = SimulationSettings(seed=seed, steady_service=steady)
    result = simulate(tried, settings, duration_s=length_s, budgeting=budgeting_for(tried))
    return Trial(choice, float(result.resource_cost), result.compliance.ratio("real_time"), result.rescales)


def _mean(trials: Sequence[Trial]) -> Trial:
    return Trial(
        trials[0].choice,
        fmean(t.cost for t in trials),
        fmean(t.kept for t in trials),
        fmean(t.rescales for t in trials),
    )


def _rows(trials: Sequence[Trial], checks: Sequence[Trial], keep: float) -> list[list[str]]:
    best, chosen = frontier(trials), chosen_of(checks, keep)
    marks = {trial.name: "below with other seeds" for trial in checks if trial.kept < keep}
    marks[chosen.name] = "chosen" if chosen.kept >= keep else "nearest"
    return [
        [
            t.name, f"{t.cost:.5g}", f"{t.kept:.2%}", f"{t.rescales:.0f}",
            marks.get(t.name, "stopped early" if t.stopped_early else "best" if t in best else ""),
        ]
        for t in sorted(trials, key=lambda t: t.cost)
    ]  # fmt: skip


COLUMNS = ("policy", "cost", "kept", "rescales", "")


def _table(topology: Topology, trials: Sequence[Trial], checks: Sequence[Trial], keep: float) -> Table:
    table = Table(title=f"{topology.name}: {len(trials)} candidates", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number in (0, 4) else "right")
    for row in _rows(trials, checks, keep):
        table.add_row(*row)
    return table


def _write(
    folder: Path, topology: Topology, trials: Sequence[Trial], checks: Sequence[Trial], keep: float
) -> Path:
    chosen = chosen_of(checks, keep)
    said = "chosen" if chosen.kept >= keep else "none keeps what is asked; nearest"
    page = Page(f"{topology.name}: tuned", f"{said}: {chosen.name}")
    page.text("What was asked for", told(checks, keep))
    page.table("Candidates", COLUMNS, _rows(trials, checks, keep), left=1)
    figure = go.Figure()
    figure.add_scatter(
        x=[t.cost for t in trials], y=[100 * t.kept for t in trials], mode="markers",
        text=[t.name for t in trials], name="candidates",
    )  # fmt: skip
    best = frontier(trials)
    figure.add_scatter(
        x=[t.cost for t in best], y=[100 * t.kept for t in best], name="frontier", line_shape="hv"
    )
    figure.update_xaxes(title="cost").update_yaxes(title="% of records within the SLO")
    page.plot("Cost against compliance", figure, "Up and to the left is better.", height=420)
    return page.write(folder / "report.html")
