"""Paper 002's figures as a page: Table 1, the pyramid, the day, the analysis of atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from penstock.experiments.levels_molecules import ATOMS, PAPER, UNITS, Needed
from penstock.experiments.levels_topology import SCALE
from penstock.report.figures import Figure
from penstock.report.page import Page

if TYPE_CHECKING:
    from penstock.experiments.levels import Held, Ran


def write_page(
    path: Path,
    tried: Sequence[Held],
    runs: Mapping[str, Ran],
    figures: Sequence[Figure],
    answers: Sequence[Needed] = (),
) -> Path:
    """Write the page."""
    page = Page(
        "Multi-level elasticity", "paper 002 on the simulator, by this code's benchmark, map and policy"
    )
    page.table(
        "Figures",
        ["figure", "here", "bar", "paper", "holds"],
        [[f.name, f.here, f.bar or "", "" if f.paper is None else f.paper, f.holds] for f in figures],
    )
    page.table(
        "Table 1",
        ["load /s", "parser by host", "health at its load", "one step above"],
        [
            [
                f"{each.configuration.from_per_s * SCALE:,.0f} – {each.configuration.to_per_s * SCALE:,.0f}",
                each.configuration.described(("parser",)),
                f"{each.health:.2f}",
                "" if each.above is None else f"{each.above:.2f}",
            ]
            for each in tried
        ],
    )
    for name, run in runs.items():
        _run(page, name, run)
    if answers:
        _molecules(page, answers)
    return page.write(path)


def _molecules(page: Page, answers: Sequence[Needed]) -> None:
    """Figure 11: sources and instances over iterations a second, the paper's beside them."""
    figure = go.Figure()
    rates = [answer.iterations_per_s for answer in answers]
    for place, name in enumerate(("sources", *UNITS)):
        here = [answer.instances.get(name, answer.sources) for answer in answers]
        figure.add_scatter(x=rates, y=here, name=name)
        told = {rate: numbers[place] for rate, numbers in PAPER.items() if numbers[place] is not None}
        figure.add_scatter(x=list(told), y=list(told.values()), name=f"{name}, paper", mode="markers")
    figure.update_xaxes(title=f"iterations a second of {ATOMS:,} atoms").update_yaxes(title="instances")
    page.plot(
        "Figure 11", figure, "An instance is one slot, as in the paper; sources are processes of their own."
    )


def _run(page: Page, name: str, run: Ran) -> None:
    figure = go.Figure()
    minutes = [span.to_s / 60 for span in run.series]
    figure.add_scatter(x=minutes, y=[span.load_per_s * SCALE for span in run.series], name="load /s")
    slots = [sum(sum(layout.get("parser", ())) for layout in span.hosts) for span in run.series]
    extra = {"yaxis": "y2", "line_shape": "hv"}
    figure.add_scatter(x=minutes, y=slots, name="parser slots", **extra)
    figure.add_scatter(x=minutes, y=[len(span.hosts) for span in run.series], name="hosts", **extra)
    health = [span.health.get("parser") for span in run.series]
    figure.add_scatter(x=minutes, y=health, name="parser health", line_dash="dot", yaxis="y2")
    figure.update_layout(
        yaxis={"title": "packets a second", "rangemode": "tozero"},
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "title": "slots, hosts, health",
            "rangemode": "tozero",
            "dtick": 1,
        },
    )
    figure.update_xaxes(title="minutes")
    page.plot(
        name,
        figure,
        f"{run.late:,} late records, lowest health of a step {run.least_health:.2f}, "
        f"{run.result.host_s / 3600:.2f} host-hours.",
    )
