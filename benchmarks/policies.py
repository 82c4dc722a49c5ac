"""Policies: the claims of papers 000 and 003, the click stream's bar, and how fast `rate` converges."""

from __future__ import annotations

import time

from penstock.experiments import btu_claims, btu_runs, pesp, rate
from penstock.experiments.recordings import Recordings, find_recordings
from penstock.report.figures import Figure

SEEDS = 3


def figures() -> list[Figure]:
    """Every claim about policies, computed now."""
    recordings = find_recordings()
    return _btu(recordings) + _pesp(recordings) + rate.figures_of(1, _silent, recordings)


def _btu(recordings: Recordings) -> list[Figure]:
    began_s = time.perf_counter()
    outcomes = btu_runs.outcomes_of(SEEDS, _silent, recordings)
    took_s = time.perf_counter() - began_s
    runs = sum(len(found) for found in outcomes.values())
    minutes = runs * btu_runs.DURATION_S / 60
    return [
        *btu_claims.figures_of(outcomes, btu_runs.clairvoyant_bounds(recordings))[:6],
        Figure(f"the {runs}-run experiment", round(took_s, 1), "< 40 s on two cores", None, took_s < 40, "s"),
        Figure("simulated minutes per second", round(minutes / took_s)),
    ]


def _pesp(recordings: Recordings) -> list[Figure]:
    rides, _ = pesp.rides_at_hand(recordings)
    return pesp.figures_of(pesp.outcomes_of(SEEDS, _silent, rides))[:3]


def _silent(_: str) -> None:
    """Progress nobody looks at."""
