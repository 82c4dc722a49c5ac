"""A restarted controller's filters start again, say so in the journal, and hold their units meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import VirtualClock
from penstock.controller.journal import Journal
from penstock.controller.loop import Controller, Tick
from penstock.experiments.kalman_model import Testbed, topology_of
from penstock.experiments.kalman_plane import TestbedPlane
from penstock.topology.model import Choice, Unit
from penstock.workload.patterns import Constant

BED = replace(Testbed(), duration_s=200.0)
NOISE = {"noise_std": (0.12, 0.004), "sensitivity": ((0.0, 0.22), (0.0, 0.0))}


def a_unit(filter_: Choice) -> Unit:
    return Unit("work", ("work",), policy=Choice("utilisation"), filter=filter_, max_instances=32)


@pytest.mark.parametrize(
    ("filter_", "held_s"),
    [(Choice("kalman", NOISE), 20.0), (Choice("gaussian"), 0.0)],
    ids=("kalman", "gaussian"),
)
def test_after_a_restart_the_filter_starts_again_and_the_journal_says_so(
    tmp_path: Path, filter_: Choice, held_s: float
) -> None:
    topology = topology_of([a_unit(filter_)], BED)
    plane, clock = TestbedPlane({"work": (Constant(level_per_s=5.0), 1)}, BED), VirtualClock()
    with Journal(tmp_path / "journal.db", "run") as journal:
        first = Controller(topology, plane.ground, clock, journal)
        first.run(60.0)
    before = len(first.fleet.deployment().of_unit("work"))
    assert before > 1  # the first controller did scale

    with Journal(tmp_path / "journal.db", "run") as journal:
        again = Controller(topology, plane.ground, clock, journal)
        clock.wait_until(60.5)
        held: list[float] = []

        def note(tick: Tick) -> None:
            if any(v.action.reason == "the filter is not trusted yet" for v in tick.verdicts):
                held.append(tick.at_s)

        again.run(100.0, note)
        notices = [(row["at_s"], row["text"]) for row in journal.rows("notice") if "filter" in row["text"]]
    started = [at_s for at_s, text in notices if "starts without memory" in text]
    assert started == [0.5, 60.5]
    assert max(held, default=60.5) - 60.5 == pytest.approx(held_s - 0.5 if held_s else 0.0)
    trusted = [at_s for at_s, text in notices if "trusted from now on" in text]
    assert trusted == ([20.5, 80.5] if held_s else [])
