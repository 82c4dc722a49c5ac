"""`penstock calibrate`: measure the noise of this machine's readings under a steady load.

Paper 001 takes R from a load that does not change, so that all variance is the measurement's. Here one
process keeps one core busy for a fixed share of every short period while another reads its CPU and memory
at the monitoring interval, just as instances are read in a run. Other programs disturb it: calibrate on a
machine that is otherwise quiet.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import typer

from penstock.cli.console import console as open_console
from penstock.errors import ConfigurationError
from penstock.filters.calibration import Calibration

PERIOD_S = 0.02
"""The load works and rests within periods this long: short against any monitoring interval."""
SETTLE_S = 1.0
"""Readings of the first moments are left out: the load's process is still starting."""

BUSY_RATIO = 0.1
"""A mean reading further off than this means that the load did not get the CPU it asked for."""


def _hold_load(load_ratio: float) -> None:
    """Work for a share of every period, for ever."""
    while True:
        begun = time.perf_counter()
        while time.perf_counter() - begun < load_ratio * PERIOD_S:
            pass
        time.sleep(max(0.0, PERIOD_S - (time.perf_counter() - begun)))


def measured(load_ratio: float, interval_s: float, readings: int) -> Calibration:
    """Hold a load and read it so many times; what the readings' spread gives."""
    load = multiprocessing.get_context("spawn").Process(target=_hold_load, args=(load_ratio,), daemon=True)
    load.start()
    try:
        process = psutil.Process(load.pid)
        time.sleep(SETTLE_S)
        process.cpu_percent(None)
        memory = psutil.virtual_memory().total
        found = np.empty((readings, 2))
        for row in range(readings):
            time.sleep(interval_s)
            found[row] = process.cpu_percent(None) / 100.0, process.memory_info().rss / memory
    except psutil.NoSuchProcess:
        raise ConfigurationError(
            "the load's process ended before it was measured; is there a limit on processes?"
        ) from None
    finally:
        load.terminate()
        load.join()
    return Calibration.of(("cpu", "memory"), found, interval_s, load_ratio)


def calibrate(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("calibration.json"),
    load: Annotated[float, typer.Option(help="CPU load to hold, as a ratio of one core.")] = 0.6,
    interval_s: Annotated[
        float, typer.Option(help="Seconds between readings, as in the runs to come.")
    ] = 0.5,
    readings: Annotated[int, typer.Option(help="How many readings to take.")] = 60,
) -> None:
    """Measure R, the noise of CPU and memory readings, for the filter `kalman`."""
    if not 0 < load < 1:
        raise ConfigurationError(f"expected a load between 0 and 1, got {load:g}")
    if interval_s <= 0 or readings < 3:
        raise ConfigurationError(
            f"expected an interval above 0 s and at least 3 readings, got {interval_s:g} s and {readings}"
        )
    console = open_console()
    with console.status(f"holding a load of {load:.0%} for {SETTLE_S + interval_s * readings:.0f} s"):
        found = measured(load, interval_s, readings)
    found.write(out)
    for row, name in enumerate(found.metrics):
        console.print(
            f"{name}: mean {found.mean[row]:.4f}, noise (√R) {found.covariance[row][row] ** 0.5:.5f}"
        )
    if abs(found.mean[0] - load) > BUSY_RATIO:
        console.print(
            f"[yellow]warning:[/] a load of {load:.0%} read as {found.mean[0]:.0%}: other programs took the "
            "rest, so this is their noise too; calibrate again on a quiet machine"
        )
    console.print(f"written to {out}; use it with `filter: {{name: kalman, calibration: {out}}}`")
