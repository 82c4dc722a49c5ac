"""Policies: the claims of papers 000 and 003, the click stream's bar, and how fast `rate` converges."""

from __future__ import annotations

import time

from penstock.experiments import btu, pesp
from penstock.experiments.ads_clicks import FILE, ads_figures
from penstock.experiments.shared_data import shared_file
from penstock.experiments.step_load import steps_to_converge
from penstock.report.figures import Figure

SEEDS = 3


def figures() -> list[Figure]:
    """Every claim about policies, computed now."""
    found = _btu() + _pesp()
    steps = steps_to_converge()
    found.append(
        Figure("rate: decisions to converge on a step load", steps, "<= 3, 1 wanted", holds=steps <= 3)
    )
    path = shared_file(FILE)
    if path is None:
        found.append(Figure("ads clicks", f"not measured: {FILE} is not at hand"))
    else:
        found += ads_figures(path)
    return found


def _btu() -> list[Figure]:
    began_s = time.perf_counter()
    outcomes = btu.outcomes_of(SEEDS, lambda _: None)
    took_s = time.perf_counter() - began_s
    runs = sum(len(found) for found in outcomes.values())
    minutes = runs * btu.DURATION_S / 60
    return [
        *btu.figures_of(outcomes, btu.clairvoyant_bounds())[:6],
        Figure(f"the {runs}-run experiment", round(took_s, 1), "< 40 s on two cores", None, took_s < 40, "s"),
        Figure("simulated minutes per second", round(minutes / took_s)),
    ]


def _pesp() -> list[Figure]:
    return pesp.figures_of(pesp.outcomes_of(SEEDS, lambda _: None, pesp.rides_at_hand()))[:3]
