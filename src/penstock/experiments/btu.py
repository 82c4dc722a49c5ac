"""The evaluation of paper 000: leasing by billing time unit against a threshold baseline.

Four arrival patterns × three billing time units × two policies × some seeds on the factory topology.
It ends in the analogues of Tables 3 to 6 with the paper's values beside ours, the plots of Figures 8 to
11, and a verdict on the paper's claims, every number of it computed in this run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.experiments.btu_claims import figures_of, verdict
from penstock.experiments.btu_page import tables_as_text, write_page
from penstock.experiments.btu_runs import clairvoyant_bounds, drawn_walks, outcomes_of
from penstock.experiments.recordings import Recordings, left_out
from penstock.report.figures import Figure, write_figures


def run(seeds: int, out: Path, progress: Callable[[str], None], recordings: Recordings) -> list[Figure]:
    """The whole evaluation; tables.md, verdict.txt, report.html and summary.json are written to `out`."""
    outcomes = outcomes_of(seeds, progress, recordings)
    bounds = clairvoyant_bounds(recordings)
    figures = [*figures_of(outcomes, bounds), *left_out(drawn_walks(recordings))]
    walks = walks_played(recordings)
    out.mkdir(parents=True, exist_ok=True)
    write_figures(figures, out / "summary.json")
    (out / "tables.md").write_text(tables_as_text(outcomes, bounds))
    (out / "verdict.txt").write_text("\n".join([*verdict(outcomes), walks]) + "\n")
    write_page(out / "report.html", outcomes, bounds, figures, seeds, walks)
    return figures


def walks_played(recordings: Recordings) -> str:
    """Which random walks the patterns are, in words."""
    drawn = [f"{recording.file} is absent, {text}" for recording, text in drawn_walks(recordings).items()]
    return f"Walks: {'; '.join(drawn)}." if drawn else "The random walks are the published ones."
