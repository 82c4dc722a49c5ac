"""Beyond the papers: how the `rate` policy does on a load that jumps and on a recorded click stream.

DS2's claim is that it finds the right number of instances in one step, three at worst; the click stream
asks how far below the cost of a static setup it stays while latencies are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.experiments.ads_clicks import ads_figures
from penstock.experiments.recordings import CLICKS, Recordings, left_out
from penstock.experiments.step_load import steps_to_converge
from penstock.report.figures import Figure, write_figures


def run(seeds: int, out: Path, progress: Callable[[str], None], recordings: Recordings) -> list[Figure]:
    """Both loads; summary.json is written to `out`."""
    figures = figures_of(seeds, progress, recordings)
    write_figures(figures, out / "summary.json")
    return figures


def figures_of(seeds: int, progress: Callable[[str], None], recordings: Recordings) -> list[Figure]:
    """The step load with every seed; the click stream once, for it takes minutes, where it is at hand."""
    slowest = 0
    for seed in range(1, seeds + 1):
        progress(f"step load: seed {seed} of {seeds}")
        slowest = max(slowest, steps_to_converge(seed=seed))
    figures = [
        Figure("rate: decisions to converge on a step load", slowest, "<= 3, 1 wanted", holds=slowest <= 3)
    ]
    path = recordings.find(CLICKS)
    if path is None:
        return figures + left_out({CLICKS: "the click stream was not played"})
    return figures + ads_figures(path, progress=progress)
