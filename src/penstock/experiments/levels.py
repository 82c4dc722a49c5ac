"""Paper 002: multi-level elasticity. Table 1, Figures 9 to 11, and what levels save.

All on the simulator, with this code's own benchmark, map and policy. Recorded loads are played where found.
Figure 11 begins with what was measured on Spark, or is measured there now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.experiments.levels_molecules import figure_11, measure_on_spark, measured, molecule_figures
from penstock.experiments.levels_page import write_page
from penstock.experiments.levels_recorded import recorded_figures
from penstock.experiments.levels_topology import (
    DAY,
    HOUR_S,
    PEAK_PER_S,
    SCALE,
    STEP_PER_S,
    detection,
    pyramid,
    stairs,
)
from penstock.experiments.recordings import CLICKS, MESSAGES, Recordings, left_out
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.levels.day import DailyLoad
from penstock.levels.platform import HOST, LEVELS, Level, PlatformProfile, default_profile
from penstock.report.figures import Figure, write_figures
from penstock.simulator import SimulationSettings, simulate
from penstock.studies.benchmark import Benchmarked, Plan, benchmark_simulated, held
from penstock.studies.layouts import Record, Span
from penstock.topology.model import Choice, Topology

PAPER_TABLE = "(1,1) to 4000, (1,2) to 12000, (1,2)+(1,1) to 14000, (1,2)+(1,2) to 16000"
SPARE = 0.1
"""Share of load that configurations are chosen for beyond what is seen or due."""
HOLD_S = 240.0
"""How long a load of the pyramid is held, in place of the paper's 2 min: hosts take one to start."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One simulated run and what happened in each of its steps."""

    result: RunResult
    steps: tuple[Span, ...]
    series: tuple[Span, ...]
    """Every half minute."""
    most_hosts: int

    @property
    def least_health(self) -> float:
        """The lowest health of a unit over any step."""
        return min(step.least_health for step in self.steps)

    @property
    def late(self) -> int:
        """Records that took longer than the SLO."""
        return self.result.compliance.delayed("real_time")


def run(
    seeds: int,
    out: Path,
    progress: Callable[[str], None],
    recordings: Recordings,
    on: str = "simulator",
) -> list[Figure]:
    """Everything; tables and plots are written to `out`. `on` spark measures for Figure 11 there first."""
    progress("1 of 9 benchmarking: Table 1")
    found = table_1(progress)
    file = found.map.write(out / "map.yaml")
    tried = holding(found.map, out, progress)
    figures = table_figures(tried)
    runs = elastic_runs(found.map, file, out, seeds, progress)
    figures += run_figures(runs)
    for recording in (CLICKS, MESSAGES):
        path = recordings.find(recording)
        if path is None:
            figures += left_out({recording: "this recorded load was not played"})
        else:
            progress(f"8 of 9 recorded load: {recording.file}")
            figures += recorded_figures(recording, path, out)
    figures += level_figures(default_profile())
    atoms = measure_on_spark(out, progress) if on == "spark" else measured()
    answers = figure_11(atoms, progress)
    figures += molecule_figures(atoms, answers)
    write_figures(figures, out / "summary.json")
    write_page(out / "levels.html", tried, runs, figures, answers)
    return figures


# -- Table 1 -------------------------------------------------------------------------------------


def table_1(progress: Callable[[str], None], hold_s: float = 480.0) -> Benchmarked:
    """The configuration map of the detection topology, in the paper's loads divided by the scale."""
    plan = Plan(STEP_PER_S / SCALE, PEAK_PER_S / SCALE, STEP_PER_S / SCALE, hold_s)
    return benchmark_simulated(detection(Choice("levels")), plan, lambda text: None)


@dataclass(frozen=True, slots=True)
class Held:
    """A configuration that was held at a load, without any scaling."""

    configuration: Configuration
    health: float
    """The lowest at its own load."""
    above: float | None
    """The lowest one step above it, where the next configuration takes over; None for the largest one."""


def holding(known: ConfigurationMap, out: Path, progress: Callable[[str], None]) -> list[Held]:
    """Each configuration of a map at its own load, and one step above."""
    progress("2 of 9 holding each configuration at its load and one step above")
    topology = detection(Choice("levels"))
    last = len(known.configurations) - 1

    def least(name: str, configuration: Configuration, per_s: float) -> float:
        return held(topology, configuration, per_s, 400.0, out / f"{name}.yaml").least_health

    return [
        Held(
            c,
            least(f"held-{place}", c, c.to_per_s),
            least(f"above-{place}", c, c.to_per_s + STEP_PER_S / SCALE) if place < last else None,
        )
        for place, c in enumerate(known.configurations)
    ]


def table_figures(tried: Sequence[Held]) -> list[Figure]:
    """Table 1 here, and whether each configuration is right for its load and for no more."""
    healthy = min(each.health for each in tried)
    congested = max(each.above for each in tried if each.above is not None)
    told = "; ".join(
        f"to {each.configuration.to_per_s * SCALE:,.0f}/s: {each.configuration.described(('parser',))}"
        for each in tried
    )
    hosts = len(tried[-1].configuration.hosts)
    return [
        Figure("Table 1: configurations by load", told, paper=PAPER_TABLE),
        Figure("hosts at the peak", hosts, "2", 2, holds=hosts == 2),
        Figure(
            "lowest health at a configuration's own load", healthy, ">= 0.9", holds=healthy >= 0.9,
        ),
        Figure(
            "highest health one step above (next configuration needed)", congested, "< 0.9",
            holds=congested < 0.9,
        ),
    ]  # fmt: skip


# -- Figures 9 and 10 ----------------------------------------------------------------------------


def elastic_runs(
    known: ConfigurationMap, file: Path, out: Path, seeds: int, progress: Callable[[str], None]
) -> dict[str, Ran]:
    """The pyramid and the day, reactive, proactive and with hosts as the only level."""
    day = DailyLoad(tuple(rate / SCALE for rate in DAY), HOUR_S * len(DAY))
    day_file = day.write(out / "day.yaml")
    hosts_only = _hosts_only(default_profile()).write(out / "hosts-only.yaml")
    by_map = {"map": str(file), "spare_ratio": SPARE, "keep_paid": False}
    loads, length_s = pyramid(HOLD_S)
    hours_s = HOUR_S * len(DAY)
    plans: Mapping[str, tuple[dict[str, object], tuple[float, ...], float, float]] = {
        "pyramid, reactive": (by_map, loads, HOLD_S, length_s),
        "day, reactive": (by_map, DAY, HOUR_S, hours_s),
        "day, proactive": ({**by_map, "day": str(day_file)}, DAY, HOUR_S, hours_s),
        "pyramid, hosts only": ({**by_map, "platform": str(hosts_only)}, loads, HOLD_S, length_s),
        "day, hosts only": (
            {**by_map, "day": str(day_file), "platform": str(hosts_only)}, DAY, HOUR_S, hours_s
        ),
    }  # fmt: skip
    found = {}
    for number, (name, (parameters, steps, hold_s, until_s)) in enumerate(plans.items(), 3):
        progress(f"{number} of 9 {name}")
        topology = detection(Choice("levels", parameters), stairs(tuple(steps), hold_s))
        found[name] = ran(topology, until_s, hold_s)
    return found


def ran(topology: Topology, until_s: float, hold_s: float, seed: int = 1) -> Ran:
    """Simulate, and read what happened in each step; the first one begins when its hosts are up."""
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=seed), duration_s=until_s, journal=journal)
        record = Record(topology, journal)
        number = round(until_s / hold_s)
        steps = tuple(record.span(max(120.0, k * hold_s), (k + 1) * hold_s) for k in range(number))
        series = tuple(record.span(at_s - 30.0, at_s) for at_s in _every(30.0, until_s))
        return Ran(result, steps, series, max(len(span.hosts) for span in series))


def run_figures(runs: Mapping[str, Ran]) -> list[Figure]:
    """What the runs show beside what they must."""
    reactive, proactive = runs["day, reactive"], runs["day, proactive"]
    hosts_only, up_down = runs["day, hosts only"], runs["pyramid, reactive"]
    saved = 1 - proactive.result.host_s / hosts_only.result.host_s
    peak = [span.hosts for span in runs["pyramid, hosts only"].series]
    return [
        Figure("Figure 9: lowest health of a load of the pyramid", up_down.least_health, ">= 0.9",
               holds=up_down.least_health >= 0.9),
        Figure("Figure 9: hosts at the end, of the most there were", f"{len(up_down.series[-1].hosts)} of "
               f"{up_down.most_hosts}", "given back", holds=len(up_down.series[-1].hosts) == 1),
        Figure("Figure 10: lowest health of an hour, proactive", proactive.least_health, ">= 0.95", 1.0,
               holds=proactive.least_health >= 0.95),
        Figure("Figure 10: late records, proactive", proactive.late, f"< {reactive.late} (reactive)",
               holds=proactive.late < reactive.late),
        Figure("hosts at the peak, levels", up_down.most_hosts, "", 2),
        Figure("hosts at the peak, hosts only", max(len(hosts) for hosts in peak), "", 4),
        Figure("host-hours over the day, levels", proactive.result.host_s / 3600, unit="h"),
        Figure("host-hours over the day, hosts only", hosts_only.result.host_s / 3600, unit="h"),
        Figure("host-hours saved by levels", saved, "> 0", holds=saved > 0),
    ]  # fmt: skip


def level_figures(profile: PlatformProfile) -> list[Figure]:
    """What a slot, an instance and a host cost by the platform's profile, as the study measured it."""
    figures = [
        Figure(f"{name}: memory, time to serve", f"{level.memory_mib} MiB, {level.start_s:g} s")
        for name in LEVELS
        for level in (profile.levels[name],)
    ]
    slot, instance, host = (profile.levels[name] for name in LEVELS)
    ordered = all(_less(a, b) for a, b in ((slot, instance), (instance, host)))
    return [
        *figures,
        Figure("a slot costs less than an instance, that less than a host", str(ordered), "True",
               holds=ordered),
    ]  # fmt: skip


def _less(one: Level, other: Level) -> bool:
    return one.memory_mib < other.memory_mib and one.start_s < other.start_s


def _hosts_only(profile: PlatformProfile) -> PlatformProfile:
    """A platform on which neither slots nor further instances on a host help: hosts alone."""
    useless = Level(0.0, 0, 0.0)
    levels = {name: profile.levels[name] if name == HOST else useless for name in LEVELS}
    return replace(profile, platform="hosts as the only level", levels=levels)


def _every(step_s: float, until_s: float) -> list[float]:
    return [step_s * k for k in range(1, int(until_s / step_s) + 1)]
