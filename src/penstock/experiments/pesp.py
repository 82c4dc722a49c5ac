"""The evaluation of paper 003: elastic, over- and under-provisioning of the taxi topology.

It ends in the analogue of Table III with the paper's values beside ours, the plots of Figures 4 and 5,
and a verdict on the paper's claims, every number of it computed in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.experiments.recordings import TAXIS, Recording, Recordings, left_out
from penstock.experiments.taxi_rides import (
    LOCATIONS,
    OVER,
    REPLAY_S,
    RIDES,
    SERVICE_S,
    SETTLE_S,
    UNDER,
    Rides,
    drawn_rides,
    recorded_rides,
    taxi_topology,
)
from penstock.report.figures import Figure, write_figures
from penstock.report.page import Page
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice

SLA_S = 60.0
"""A report is due so long after the last position of its ride."""
DRAWN_SEED = 3
"""The seed of the drawn rides, where no recorded day is at hand."""
PROCESSES = 2
SETUPS = ("elastic", "over", "under")

PAPER: Mapping[str, tuple[float, float, float]] = {
    # Table III for elastic, over, under. Its "SLA adherence 28 %" is the share of delays (21 of 75).
    "cost (node-minutes)": (2160.66, 2664.0, 1856.0),
    "makespan (s)": (6653.0, 6655.0, 6975.0),
    "report duration (s)": (77.0, 35.0, 355.0),
    "delays": (21.0, 0.0, 75.0),
    "adherence (%)": (72.0, 100.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to."""

    setup: str
    seed: int
    node_minutes: float
    makespan_s: float
    report_s: float
    delays: int
    series: Mapping[str, tuple[float, ...]]
    """Over time: minutes, rate, nodes in all, nodes and queue of `speed`."""

    def row(self) -> dict[str, float]:
        """The run's column of Table III."""
        return {
            "cost (node-minutes)": self.node_minutes,
            "makespan (s)": self.makespan_s,
            "report duration (s)": self.report_s,
            "delays": float(self.delays),
            "adherence (%)": 100.0 * (1 - self.delays / RIDES),
        }


def rides_at_hand(recordings: Recordings) -> tuple[Rides, dict[Recording, str]]:
    """Recorded rides where the file is at hand, else drawn ones; and what was left out for them."""
    path = recordings.find(TAXIS)
    if path is None:
        return drawn_rides(DRAWN_SEED), {TAXIS: f"{RIDES} rides drawn with seed {DRAWN_SEED} instead"}
    return recorded_rides(path), {}


def run(
    seeds: int,
    out: Path,
    progress: Callable[[str], None],
    recordings: Recordings,
    on: str = "simulator",
    setups: Sequence[str] = SETUPS,
) -> list[Figure]:
    """The whole evaluation; tables.md, verdict.txt, report.html and summary.json are written to `out`.

    With `on` "spark" these `setups` of Table III are run in small on real Spark besides; their table is in
    small.md.
    """
    if unknown := sorted(set(setups) - set(SETUPS)):
        raise ConfigurationError(f"expected setups out of {', '.join(SETUPS)}, got {', '.join(unknown)}")
    rides, drawn = rides_at_hand(recordings)
    outcomes = outcomes_of(seeds, progress, rides)
    figures = [*figures_of(outcomes), *left_out(drawn)]
    played = _played(rides, drawn)
    out.mkdir(parents=True, exist_ok=True)
    if on == "spark":
        from penstock.experiments import pesp_spark  # it needs Spark, the rest does not

        figures += pesp_spark.figures_of(pesp_spark.run(rides, out, progress, setups, recordings))
    write_figures(figures, out / "summary.json")
    (out / "tables.md").write_text(_as_text(outcomes, rides))
    (out / "verdict.txt").write_text("\n".join([*verdict(outcomes), played]) + "\n")
    _write_page(out / "report.html", outcomes, figures, rides, seeds)
    return figures


def _played(rides: Rides, drawn: Mapping[Recording, str]) -> str:
    """Which rides were played; for drawn ones whether they are steep enough for the paper's claims."""
    if not drawn:
        return f"Rides: {rides.origin}."
    peak_per_s, can_per_s = max(rides.levels_per_s()), UNDER["speed"] / SERVICE_S["speed"]
    return (
        f"Rides: {rides.origin}, for {TAXIS.file} is absent. At their peak {peak_per_s:.1f} positions "
        f"a second come and under-provisioning can do {can_per_s:.1f}: beyond that its reports come late."
    )


def outcomes_of(seeds: int, progress: Callable[[str], None], rides: Rides) -> dict[str, list[Outcome]]:
    """Every setup run with every seed, on two cores."""
    tasks = [(setup, seed, rides) for setup in SETUPS for seed in range(1, seeds + 1)]
    found: dict[str, list[Outcome]] = {setup: [] for setup in SETUPS}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, outcome in enumerate(pool.map(_run_one, tasks), 1):
            found[outcome.setup].append(outcome)
            progress(f"{number} of {len(tasks)} runs: {outcome.setup}, seed {outcome.seed}")
    return found


def _run_one(task: tuple[str, int, Rides]) -> Outcome:
    setup, seed, rides = task
    policy, nodes = {
        "elastic": (Choice("pesp"), None),
        "over": (Choice("fixed"), OVER),
        "under": (Choice("fixed"), UNDER),
    }[setup]
    topology = taxi_topology(rides, policy, nodes)
    settings = SimulationSettings(seed=seed, process="poisson")
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(topology, settings, duration_s=REPLAY_S + SETTLE_S, journal=journal)
        observations = journal.rows("observation")
    return _outcome(setup, seed, rides, observations)


def _outcome(setup: str, seed: int, rides: Rides, observations: Sequence[Mapping[str, Any]]) -> Outcome:
    by_unit: dict[str, list[Mapping[str, Any]]] = {}
    for row in observations:
        by_unit.setdefault(row["unit"], []).append(row)
    durations = report_durations_s(rides.ends_s, by_unit["average_speed"], by_unit["analysis"])
    makespan_s = max(end_s + duration for end_s, duration in zip(rides.ends_s, durations, strict=True))
    times = [row["at_s"] for row in by_unit["speed"]]
    nodes = np.sum([[row["instances"] or 0 for row in rows] for rows in by_unit.values()], axis=0)
    widths = np.clip(np.minimum(times, makespan_s) - np.array([0.0, *times[:-1]]), 0.0, None)
    return Outcome(
        setup,
        seed,
        float(np.sum(nodes * widths) / 60.0),
        makespan_s,
        fmean(durations),
        sum(duration > SLA_S for duration in durations),
        {
            "minutes": tuple(at_s / 60 for at_s in times),
            "rate": tuple(row["arrived"] / row["interval_s"] for row in by_unit["speed"]),
            "nodes": tuple(float(n) for n in nodes),
            "speed nodes": tuple(float(row["instances"] or 0) for row in by_unit["speed"]),
            "speed waiting": tuple(float(row["waiting"]) for row in by_unit["speed"]),
        },
    )


def report_durations_s(
    ends_s: Sequence[float],
    last_stage: Sequence[Mapping[str, Any]],
    analysis: Sequence[Mapping[str, Any]],
) -> list[float]:
    """For each ride, the time from its last position until its report.

    The age at which positions leave the last stage, as a function of when they were sent, gives the time
    of the position; the analysis adds what it took for the reports of that time.
    """
    sent = [(row["at_s"] - row["latency_s"], row["latency_s"]) for row in last_stage if row["latency_s"]]
    sent.sort()
    ages = np.interp(ends_s, [s for s, _ in sent], [age for _, age in sent])
    made = [(row["at_s"], row["duration_s"]) for row in analysis if row["duration_s"] is not None]
    done = np.asarray(ends_s) + ages
    analysed = np.interp(done, [at for at, _ in made], [d for _, d in made]) if made else np.zeros(len(done))
    return [float(age + work) for age, work in zip(ages, analysed, strict=True)]


# -- the claims ----------------------------------------------------------------------------------


def mean_of(outcomes: Mapping[str, Sequence[Outcome]], setup: str, what: str) -> float:
    """The mean of a row of Table III over the seeds."""
    return fmean(outcome.row()[what] for outcome in outcomes[setup])


def figures_of(outcomes: Mapping[str, Sequence[Outcome]]) -> list[Figure]:
    """The claims of the paper with what they came to here."""

    def mean(setup: str, what: str) -> float:
        return mean_of(outcomes, setup, what)

    saved = 1 - mean("elastic", "cost (node-minutes)") / mean("over", "cost (node-minutes)")
    longer = mean("elastic", "makespan (s)") / mean("over", "makespan (s)") - 1
    slower = mean("under", "report duration (s)") / mean("elastic", "report duration (s)")
    figures = [
        Figure(
            "elastic cheaper than over-provisioning by",
            round(100 * saved, 1),
            ">= 15 %",
            18.9,
            saved >= 0.15,
            "%",
        ),
        Figure(
            "elastic makespan off over-provisioning's by",
            round(100 * longer, 2),
            "<= 1 %",
            -0.03,
            abs(longer) <= 0.01,
            "%",
        ),
        Figure("report duration, under-provisioning / elastic", round(slower, 2), ">= 5", 4.6, slower >= 5),
    ]
    for number, setup in enumerate(SETUPS):
        for what, values in PAPER.items():
            figures.append(Figure(f"{what}, {setup}", round(mean(setup, what), 1), paper=values[number]))
    return figures


def verdict(outcomes: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Which of the paper's claims hold here, which do not, and why."""
    saved, longer, slower = figures_of(outcomes)[:3]

    def mean(setup: str, what: str) -> float:
        return mean_of(outcomes, setup, what)

    def word(holds: bool | None) -> str:
        return "holds" if holds else "does not hold"

    delays = mean("elastic", "delays")
    stretched = mean("under", "makespan (s)") / mean("over", "makespan (s)") - 1
    return [
        f"Elastic provisioning is cheaper at the same makespan: {word(saved.holds and longer.holds)} "
        f"({saved.here} % cheaper, makespan {longer.here:+} %; the paper 18.9 % and -0.03 %).",
        f"Under-provisioning makes reports much later: {word(slower.holds)} ({slower.here} times elastic's "
        f"duration; the paper 4.6 times, {mean('under', 'report duration (s)'):.0f} s here).",
        f"Under-provisioning stretches the makespan by 5 %: {word(stretched >= 0.03)} "
        f"({100 * stretched:+.1f} %). It does so only where the replay ends before the backlog is gone.",
        f"Elastic provisioning delays some reports: {word(delays > 0)} ({delays:.0f} of {RIDES}, 21 in the "
        "paper). It grows by one node a minute once a queue has formed; a report is late where its ride "
        "ends during such a climb. The paper's adherence of 28 % is the share of delays, it is 72 %.",
    ]


# -- tables and plots ----------------------------------------------------------------------------


def table_of(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[list[str], list[list[str]]]:
    """Table III: ours (σ) | the paper's."""
    rows = []
    for what, paper in PAPER.items():
        row = [what]
        for number, setup in enumerate(SETUPS):
            values = [outcome.row()[what] for outcome in outcomes[setup]]
            row.append(f"{fmean(values):.1f} (σ {pstdev(values):.1f}) | {paper[number]:g}")
        rows.append(row)
    return ["", *SETUPS], rows


def _as_text(outcomes: Mapping[str, Sequence[Outcome]], rides: Rides) -> str:
    columns, rows = table_of(outcomes)
    lines = [
        "# The taxi topology: ours (σ over the seeds) / the paper's",
        "",
        f"{rides.origin}; {LOCATIONS} positions within {REPLAY_S / 60:g} minutes; "
        f"service times {', '.join(f'{name} {s:g} s' for name, s in SERVICE_S.items())}",
        "",
        "## Table III",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + " --- |" * len(columns),
        *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows),
        "",
        "## Verdict",
        "",
        *(f"- {line}" for line in verdict(outcomes)),
    ]
    return "\n".join(lines) + "\n"


def _write_page(
    path: Path,
    outcomes: Mapping[str, Sequence[Outcome]],
    figures: Sequence[Figure],
    rides: Rides,
    seeds: int,
) -> None:
    page = Page("Elastic, over- and under-provisioning", f"paper 003: {rides.origin}, {seeds} seeds")
    page.text("Verdict", verdict(outcomes))
    page.table(
        "Claims",
        ("claim", "here", "bar", "paper", "holds"),
        [
            (f.name, str(f.here), f.bar or "", "" if f.paper is None else str(f.paper), f.holds)
            for f in figures
        ],
    )
    columns, rows = table_of(outcomes)
    page.table("Table III", columns, rows, "Ours (σ over the seeds) | the paper's.")
    total = make_subplots(specs=[[{"secondary_y": True}]])
    for setup in SETUPS:
        series = outcomes[setup][0].series
        total.add_scatter(
            x=series["minutes"], y=series["nodes"], name=f"nodes, {setup}", line={"shape": "hv"}
        )
    series = outcomes["elastic"][0].series
    total.add_scatter(
        x=series["minutes"], y=series["rate"], name="positions a second", secondary_y=True,
        line={"color": "#999999"},
    )  # fmt: skip
    _titled(total, "nodes", "positions a second")
    page.plot("Figure 4: nodes of all operators", total, "The first seed's runs.", height=420)
    speed = make_subplots(specs=[[{"secondary_y": True}]])
    speed.add_scatter(
        x=series["minutes"], y=series["speed nodes"], name="nodes of speed", line={"shape": "hv"}
    )
    speed.add_scatter(
        x=series["minutes"], y=series["speed waiting"], name="waiting for speed", secondary_y=True
    )
    speed.add_scatter(x=series["minutes"], y=series["rate"], name="positions a second", secondary_y=False)
    _titled(speed, "nodes, positions a second", "waiting positions")
    page.plot("Figure 5: the operator speed, elastic", speed, "The first seed's run.", height=420)
    page.write(path)


def _titled(figure: go.Figure, first: str, second: str) -> None:
    figure.update_xaxes(title="minutes")
    figure.update_yaxes(title=first, secondary_y=False, rangemode="tozero")
    figure.update_yaxes(title=second, secondary_y=True, rangemode="tozero")
