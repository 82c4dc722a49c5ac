"""Paper 001 on real Spark: the cell laboratory under three workloads and three filters.

Each run is a run of `examples/cells` with real executors, whose CPU and memory are read and filtered. It ends
in the analogues of Tables 3 to 5 with their spread, the break-even in money, and what the simulator, given
the profile of one run, says of the others. Runs take minutes each: fewer and shorter ones are options.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from penstock.controller.journal import Journal
from penstock.controller.warm_start import warm_started
from penstock.errors import ClusterError, ConfigurationError, PenstockError, told
from penstock.experiments.cells_page import figures_of, write_page
from penstock.experiments.cells_rows import (
    MEGAPIXELS,
    ROW,
    WORKLOADS,
    Failed,
    Finished,
    Row,
    require_same,
    write_rows,
)
from penstock.experiments.kalman_evaluation import Prices
from penstock.experiments.kalman_paper import FILTERS
from penstock.experiments.kalman_runs import LabLike
from penstock.experiments.within import host_time_s, scaling_events
from penstock.filters.calibration import Calibration
from penstock.machine.locks import Lock
from penstock.report.figures import Figure, write_figures
from penstock.runs.folder import RunFolder
from penstock.runs.profile import PROFILE, Profile, simulated_twin
from penstock.spark.training import ensure_archive
from penstock.topology.model import Choice, Topology
from penstock.workload.registry import make_workload

LOG = logging.getLogger(__name__)

MINUTES = 3.5
MOST_PER_S = 24.0
"""Images a second at the top: 0.75 to 0.85 of a core of work with pictures of this size. One executor of one
core does not keep up with it, and two cores still have room for Spark's own work."""
LEAD_IN_S, LEAD_IN_PER_S = 30.0, MOST_PER_S / 12
"""A run begins with so long of so many images a second, which counts nowhere: the first micro-batches compile
and load, and what waits for them is no filter's doing."""
STEP_S = 5.0
"""Length of the steps the laboratory's trace is followed by."""
PRICES = Prices(vm_hour=0.0408)
"""Today's price of a VM with one core and 4 GiB: EC2's m7g.medium, Linux, us-east-1, on demand, half of the
0.0816 USD/h that m7g.large was listed at in June 2026. The paper reckons with 0.0612 (`Prices`). `--vm-price`
takes another, and `penstock prices` asks the providers' lists."""
CALIBRATION_S, SETTLING_S = 90.0, 35.0
"""How long a load is held to calibrate the filter, and how much of it is left out: Spark compiles, and Python
workers are born with the first micro-batches."""
POLICY = {
    "none": Choice("utilisation", {"step": "single"}),
    "gaussian": Choice("utilisation", {"step": "single"}),
    "kalman": Choice("utilisation", {"step": "multi"}),
}
"""The paper's rules: only the Kalman filter's estimate says how many instances are missing."""
KALMAN = {"noise_ceiling": 1e-4, "drain_s": 60.0}
"""Q is the spread of an executor's first readings, and those are of a start: Java compiles, Python loads.
That is no noise of the load, and without a ceiling the filter follows every reading for good. Full executors
that work off what came in while one started are no reason to start a further one."""

SCALED = "see"
"""The unit that scales."""
MEMORY_DECIDES_RATIO = 0.31
"""From here on memory keeps two instances where CPU would do with one: `multi` aims at the middle of its
band, and half of that is 0.3125."""
QUERIES = "queries"
"""The source the twin does without."""
IMAGE_S = 5.0
"""What an image may take (paper 001, section 3.2)."""
DRAIN_S = 120.0
"""How long the twin goes on after its last image."""


def run(
    seeds: int,
    out: Path,
    progress: Callable[[str], None],
    prices: Prices | None = None,
    minutes: float = MINUTES,
    workloads: Sequence[str] = WORKLOADS,
    filters: Sequence[str] = FILTERS,
    calibration: Path | None = None,
    warm: bool = False,
) -> list[Figure]:
    """Run everything, write tables, a page and summary.json to a folder, and return the figures.

    Runs that have finished in this folder with the same settings are taken as they are.

    `kalman` has the R of a calibration file; without one it is measured first, on an executor under a load
    that does not change. `warm` lets a run begin with the mean number of instances of the one before it with
    the same workload and filter.
    """
    for given, known in ((workloads, WORKLOADS), (filters, FILTERS)):
        if unknown := [name for name in given if name not in known]:
            raise ConfigurationError(f"expected some of {', '.join(known)}, got {', '.join(unknown)}")
    if minutes <= 0:
        raise ConfigurationError(f"expected runs of more than 0 minutes, got {minutes:g}")
    if calibration is not None:
        Calibration.read(calibration)  # a wrong file is told before anything runs
    laboratory = _laboratory()
    cells = in_turns(workloads, filters, seeds)
    out.mkdir(parents=True, exist_ok=True)
    ensure_archive()  # or the first run alone would start without it
    with Lock(out / "experiment.lock", f"the experiment in {out}"):
        return Series(laboratory, out, minutes, prices or PRICES, calibration, warm).run(cells, progress)


Cell = tuple[str, str, int]
"""Workload, filter and seed of a run."""


def in_turns(workloads: Sequence[str], filters: Sequence[str], seeds: int) -> list[Cell]:
    """All runs of an experiment. With each seed another filter is the first: what a machine does beside them
    changes over hours, and would be taken for the filter's doing."""
    found = []
    for seed in range(1, seeds + 1):
        shift = (seed - 1) % len(filters) if filters else 0
        order = (*filters[shift:], *filters[:shift])
        found += [(workload, name, seed) for workload in workloads for name in order]
    return found


class Series:
    """The runs of an experiment in its folder. Those that have finished stay, and only the others are run."""

    def __init__(
        self,
        laboratory: Any,
        out: Path,
        minutes: float,
        prices: Prices,
        calibration: Path | None = None,
        warm: bool = False,
    ) -> None:
        self._laboratory = laboratory
        self._out = out
        self._minutes = minutes
        self._prices = prices
        self._warm = warm
        measured = out / "calibration.json"
        self._calibration = measured if calibration is None and measured.exists() else calibration
        self._finished: dict[Cell, Finished] = {}
        self._failed: list[Failed] = []

    def run(self, cells: Sequence[Cell], progress: Callable[[str], None]) -> list[Figure]:
        """Run what has not finished yet, and tell of all runs in the folder, after each of them.

        A run that fails is noted; after an interrupt no further one is begun.
        """
        self._take_up()
        wanted = len({*cells, *self._finished})
        figures: list[Figure] = []
        try:
            if self._calibration is None and any(name == "kalman" for _, name, _ in cells):
                progress("measuring the noise of an executor's readings")
                self._calibration = _calibrated(self._laboratory, self._out)
            figures = self._told(wanted)
            for number, cell in enumerate(cells):
                if cell not in self._finished:
                    progress(f"{number} of {len(cells)} runs: {cell[0]}, {cell[1]}, seed {cell[2]}")
                    self._try(cell)
                    figures = self._told(wanted)
        except KeyboardInterrupt:
            LOG.warning("interrupted: the same command goes on where this one was")
            figures = self._told(wanted)
        return figures

    def _try(self, cell: Cell) -> None:
        """Run one; where it fails the next may not."""
        name = self._folder(*cell).name
        try:
            topology, row = self._run_one(cell)
        except PenstockError as error:
            self._note(name, error)
            return
        first = next((key for key, found in self._finished.items() if found.gave_profile), None)
        twin = None
        if first is not None:
            try:
                profile = Profile.read(self._folder(*first) / PROFILE)
                twin = simulated_row(*cell, topology, profile, LEAD_IN_S)
            except PenstockError as error:
                self._note(f"the twin of {name}", error)
        found = Finished(self._settings(*cell[:2]), row, twin, first is None)
        found.write(self._folder(*cell))
        self._finished[cell] = found

    def _note(self, name: str, error: PenstockError) -> None:
        LOG.warning("%s failed: %s", name, error)
        self._failed.append(Failed(name, told(str(error))))

    def _take_up(self) -> None:
        """What has finished in this folder; ConfigurationError where it was made with other settings."""
        for file in sorted((self._out / "runs").glob(f"*/{ROW}")):
            found = Finished.read(file)
            require_same(self._settings(found.row.workload, found.row.filter), found.settings, file.parent)
            self._finished[found.row.workload, found.row.filter, found.row.seed] = found

    def _settings(self, workload: str, name: str) -> dict[str, Any]:
        """What runs of a kind have in common."""
        chosen, load = filter_of(name, self._calibration), load_parameters(workload, self._minutes * 60)
        parameters = dict(chosen.parameters)
        if "calibration" in parameters:
            # What it says, for the same file may lie elsewhere.
            parameters["calibration"] = Calibration.read(Path(parameters["calibration"])).covariance
        return {
            "minutes": self._minutes,
            "megapixels": MEGAPIXELS,
            "lead-in [s]": LEAD_IN_S,
            "load": {"name": load.name, **load.parameters},
            "filter": {"name": name, **parameters},
            "policy": {"name": POLICY[name].name, **POLICY[name].parameters},
            "warm start": self._warm,
        }

    def _folder(self, workload: str, name: str, seed: int) -> Path:
        return self._out / "runs" / f"{workload.lower()}-{name}-{seed}"

    def _run_one(self, cell: Cell) -> tuple[Topology, Row]:
        workload, name, seed = cell
        folder, duration_s = self._folder(*cell), self._minutes * 60
        choice = led_in(load_parameters(workload, duration_s), duration_s)
        load = _load(choice.name, choice.parameters, LEAD_IN_S + duration_s, seed, LEAD_IN_S)
        topology = self._laboratory.topology_of(
            load, filter=filter_of(name, self._calibration), policy=POLICY[name]
        )
        before = (workload, name, seed - 1)
        if self._warm and before in self._finished:
            topology = begun(topology, self._folder(*before))
        _remove(folder)
        outcome = self._laboratory.run_laboratory(topology, load, folder, album=_album(self._out, seed))
        _require_whole(outcome)
        row = _row(workload, name, seed, outcome)
        LOG.info("%s: memory %.2f in the mean", folder.name, row.memory_ratio)
        if row.memory_ratio >= MEMORY_DECIDES_RATIO:
            LOG.warning(
                "%s: memory read %.2f in the mean: from %.2f on it is memory that keeps instances, not CPU",
                folder.name, row.memory_ratio, MEMORY_DECIDES_RATIO,
            )  # fmt: skip
        return topology, row

    def _told(self, wanted: int) -> list[Figure]:
        """Tables, page and figures of all runs so far."""
        rows = [
            row for found in self._finished.values() for row in (found.row, found.twin) if row is not None
        ]
        if rows:
            write_rows(self._out / "runs.csv", rows)
        figures = figures_of(rows, self._prices, wanted)
        write_page(self._out / "cells.html", rows, figures, self._failed)
        write_figures(figures, self._out / "summary.json")
        return figures


def _require_whole(outcome: Any) -> None:
    """KeyboardInterrupt where a run was interrupted: it ended in order, but it is no run of its length."""
    if outcome.interrupted:
        raise KeyboardInterrupt


def _remove(folder: Path) -> None:
    """Remove what is left of a run that did not finish: its feed has ended, and its state is half of one."""
    if folder.exists():
        if RunFolder(folder.resolve()).lock().in_use():
            raise ClusterError(f"the run in {folder} goes on; stop it first")
        shutil.rmtree(folder)


def load_parameters(workload: str, duration_s: float, most_per_s: float = MOST_PER_S) -> Choice:
    """One of the paper's workloads for a run of this length, with so many images a second at the top."""
    if workload == "Pyramid":
        step = most_per_s / 4
        return Choice(
            "pyramid",
            {"low_per_s": 0.0, "high_per_s": most_per_s, "step_per_s": step, "hold_s": duration_s / 16},
        )
    if workload == "Square":
        low = most_per_s / 65
        return Choice("square", {"low_per_s": low, "high_per_s": most_per_s, "hold_s": duration_s / 6})
    trace = LabLike()
    curve, steps = trace.curve, max(1, round(duration_s / STEP_S))
    edges = [trace.length_s * step / steps for step in range(steps + 1)]
    due = [float(curve.records(edge)) for edge in edges]
    means = [(later - before) * steps / trace.length_s for before, later in pairwise(due)]
    top = max(means)
    levels = tuple(mean * most_per_s / top for mean in means)
    return Choice("stepwise", {"levels_per_s": levels, "hold_s": duration_s / steps})


def led_in(choice: Choice, duration_s: float) -> Choice:
    """A workload of this length behind a lead-in, in steps of a second."""
    edges_s = np.arange(math.ceil(duration_s) + 1.0)
    rates = np.diff(make_workload(choice).curve.records(edges_s)).tolist()
    levels = (*[LEAD_IN_PER_S] * round(LEAD_IN_S), *rates)
    return Choice("stepwise", {"levels_per_s": levels, "hold_s": 1.0})


def _laboratory() -> Any:
    """The example's module; ConfigurationError where there is no checkout with it, or no OpenCV."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        examples = root / "examples"
        if (examples / "cells" / "laboratory.py").is_file():
            if str(examples) not in sys.path:
                sys.path.insert(0, str(examples))
            break
    else:
        raise ConfigurationError(
            "the experiment runs examples/cells, which is in Penstock's repository and not in its package; "
            "run it from a checkout"
        )
    if importlib.util.find_spec("cv2") is None:
        raise ConfigurationError(
            "the experiment needs opencv-python; install it with `pip install 'penstock[examples]'`"
        )
    return importlib.import_module("cells.laboratory")


def filter_of(name: str, calibration: Path | None) -> Choice:
    """A filter of the comparison; `kalman` with the R of a calibration."""
    if name != "kalman":
        return Choice(name)
    given = {} if calibration is None else {"calibration": str(calibration.resolve())}
    return Choice(name, {**KALMAN, **given})


def _calibrated(laboratory: Any, out: Path) -> Path:
    """Hold a load that one executor can do for a while, and write what its readings' spread gives."""
    folder = out / "runs" / "calibration"
    _remove(folder)
    load = _load("constant", {"level_per_s": MOST_PER_S / 2}, CALIBRATION_S, 0)
    topology = laboratory.topology_of(load, filter=Choice("none"), policy=Choice("fixed"))
    outcome = laboratory.run_laboratory(topology, load, folder, album=_album(out, 0))
    _require_whole(outcome)
    file = out / "calibration.json"
    calibration_of(outcome.moments, topology.units[0].name, topology.loop.monitoring_s).write(file)
    return file


def calibration_of(moments: Sequence[Any], unit: str, interval_s: float) -> Calibration:
    """R by the readings of a unit under a load that does not change, once it has settled."""
    steady = [m for m in moments if m.unit == unit and SETTLING_S <= m.at_s <= CALIBRATION_S]
    values = [(m.raw_cpu, m.memory) for m in steady if None not in (m.raw_cpu, m.memory)]
    load_ratio = fmean(cpu for cpu, _ in values) if values else 0.0
    return Calibration.of(("cpu", "memory"), np.array(values), interval_s, load_ratio)


def _load(
    workload: str, parameters: Mapping[str, Any], duration_s: float, seed: int, lead_in_s: float = 0.0
) -> Any:
    load = importlib.import_module("cells.feed").Load
    return load(workload, dict(parameters), duration_s, 100, seed, MEGAPIXELS, lead_in_s=lead_in_s)


def _album(out: Path, seed: int) -> Path:
    return out / "albums" / str(seed)


def begun(topology: Topology, before: Path) -> Topology:
    """The topology that begins as the run before was on average."""
    return warm_started(topology, before, time.time())


def _row(workload: str, name: str, seed: int, outcome: Any) -> Row:
    durations = outcome.check.durations
    return Row(
        workload, name, seed, "spark", outcome.vm_h, float(outcome.events),
        durations["image"].mean_s, durations["query"].mean_s,
        float(outcome.check.broken("image")), float(outcome.check.broken("query")),
        outcome.check.right, memory_of(outcome.moments),
    )  # fmt: skip


def memory_of(moments: Sequence[Any]) -> float:
    """The mean memory reading of the unit that scales; NaN where nothing was read."""
    return fmean([m.memory for m in moments if m.unit == SCALED and m.memory is not None] or [math.nan])


def simulated_row(
    workload: str, name: str, seed: int, topology: Topology, profile: Profile, lead_in_s: float = 0.0
) -> Row:
    """The twin of a run, by the profile of another, over the time in which images are sent.

    The simulator does not tell records by their source, so the twin has images alone, and so has what is
    compared with it. The first `lead_in_s` of them count nowhere.
    """
    if profile.feed_s is None:
        raise ConfigurationError("expected a profile that tells how long the sources sent")
    images = of_images(topology)
    begin_s, end_s = profile.feed_start_s, profile.feed_start_s + profile.feed_s
    with Journal("sqlite://", "twin", buffered=True) as journal:
        twin = simulated_twin(images, replace(profile, duration_s=end_s + DRAIN_S), seed, journal, IMAGE_S)
        events = scaling_events(journal, begin_s + lead_in_s, end_s)
        vm_h = host_time_s(journal, begin_s + lead_in_s, end_s) / 3600
    # What has not left by then is late, too.
    late = (twin.late or 0) + twin.records_in - twin.records_out
    count, sum_s = twin.end_to_end.count, twin.end_to_end.count * twin.end_to_end.mean_s
    if lead_in_s > 0:
        # The simulator adds up all images. Those of the lead-in do as they do where no others follow.
        first = replace(profile, feed_s=lead_in_s, duration_s=begin_s + lead_in_s + DRAIN_S)
        warming = simulated_twin(images, first, seed, None, IMAGE_S)
        late -= (warming.late or 0) + warming.records_in - warming.records_out
        count -= warming.end_to_end.count
        sum_s -= warming.end_to_end.count * warming.end_to_end.mean_s
    return Row(
        workload, name, seed, "simulated", vm_h, float(events), sum_s / count if count > 0 else math.nan,
        math.nan, float(max(0, late)), math.nan, True,
    )  # fmt: skip


def of_images(topology: Topology) -> Topology:
    """The laboratory without its queries."""
    return replace(
        topology,
        sources=tuple(source for source in topology.sources if source.name != QUERIES),
        operators=tuple(
            replace(operator, inputs=tuple(name for name in operator.inputs if name != QUERIES))
            for operator in topology.operators
        ),
    )
