"""The page over long and large runs, measured by the browser itself; `make page` prints the figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.page.server import PageServer
from penstock.page.shown import Shown
from penstock.runs.assembly import load
from tests.page.runs import EXAMPLES, PacedSimulation, a_finished_run, many_units

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PENSTOCK_LARGE_PAGE" not in os.environ, reason="takes minutes: make page"),
]
Open = Callable[..., Any]


def test_a_day_of_nine_units_opens_in_two_seconds(tmp_path: Path, open_page: Open) -> None:
    run = a_finished_run(tmp_path / "day", minutes=24 * 60, topology=load(EXAMPLES / "factory_model.yaml"))
    with PageServer([Shown(run)]) as server:
        before = time.monotonic()
        page = open_page(server.address)
        took_s = time.monotonic() - before
        points = page.evaluate(
            "Object.values(window.penstock.film.seen).reduce((n, s) => n + s.at.length, 0)"
        )
        page.context.close()
    print(f"\na journal of 24 h with nine units, {points} observations: open after {took_s:.2f} s (bar: 2 s)")
    assert points > 50_000
    assert took_s < 2.0


def test_a_thousand_units_are_updated_every_second_with_little_work(
    tmp_path: Path, open_page: Open, keep: Callable[[Any, str], None]
) -> None:
    with (
        PacedSimulation(tmp_path / "run", many_units(1000), ticks=100_000, pace_s=0.7) as simulation,
        PageServer([Shown(simulation.folder.root)]) as server,
    ):
        page = open_page(server.address)
        page.evaluate("window.updates = 0; const app = window.penstock, own = app.refresh.bind(app);"
                      "app.refresh = () => { own(); window.updates += 1; }")  # fmt: skip
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def busy_s() -> tuple[float, float]:
            found = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
            return found["Timestamp"], found["TaskDuration"]

        page.wait_for_timeout(3000)
        (start_s, before_s), first, ticks = busy_s(), page.evaluate("window.updates"), simulation.done
        page.wait_for_timeout(20_000)
        (end_s, after_s), last, done = busy_s(), page.evaluate("window.updates"), simulation.done
        keep(page, "thousand")
        page.context.close()
    rate, share = (last - first) / (end_s - start_s), (after_s - before_s) / (end_s - start_s)
    print(
        f"\n1,000 units: {rate:.2f} updates a second of {(done - ticks) / (end_s - start_s):.2f} ticks, "
        f"main thread {share:.1%} (bars: 1 a second, 30 %)"
    )
    assert share < 0.30
    assert rate >= 0.95 * min(1.0, (done - ticks) / (end_s - start_s))
