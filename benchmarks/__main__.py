"""`python -m benchmarks [--only core,spark.throughput] [--quick]`: measure, print, write build/bench.json."""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import time
from pathlib import Path

from rich.console import Console

from penstock.errors import PenstockError
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import Figure, print_figures, write_figures

AREAS: dict[str, tuple[str, ...]] = {
    "core": ("benchmarks.core",),
    "filters": ("benchmarks.filters",),
    "budgets": ("benchmarks.budgets",),
    "policies": ("benchmarks.policies",),
    "planning": ("benchmarks.planning",),
    "spark": ("benchmarks.spark", "benchmarks.spark_units"),
    "attach": ("benchmarks.attach", "benchmarks.attach_sides"),
    "cells": ("benchmarks.cells",),
    "attach.cost": ("benchmarks.attach",),
    "attach.sides": ("benchmarks.attach_sides",),
    "attach.memory": ("benchmarks.attach_memory",),
    "spark.throughput": ("benchmarks.spark_units:throughput",),
    "spark.latency": ("benchmarks.spark_units:latency",),
    "spark.hops": ("benchmarks.spark_units:hops",),
}
"""Areas by name, with the modules that measure them; with a dot, parts of others or what takes an hour."""
SHORTER = ("benchmarks.planning", "benchmarks.attach_memory")
"""Modules that have a shorter form, for a look; its figures are no answer to the bars."""
RESULT = Path("build") / "bench.json"


def main() -> int:
    """Measure the wanted areas; a figure that falls short is shown as such and fails nothing."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help="areas, separated by commas: " + ", ".join(AREAS))
    parser.add_argument("--quick", action="store_true", help="the shorter form of: planning, attach.memory")
    arguments = parser.parse_args()
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()]
    wanted = wanted or [name for name in AREAS if "." not in name]
    unknown = sorted(set(wanted) - set(AREAS))
    if unknown:
        print(f"unknown area {', '.join(unknown)}; known: {', '.join(AREAS)}", file=sys.stderr)
        return 2
    exit_on_sigterm()  # what a benchmark started ends with it
    console = Console(width=None if sys.stdout.isatty() else 150)
    found: list[Figure] = []
    for area in wanted:
        for module in AREAS[area]:
            began_s = time.perf_counter()
            console.print(f"measuring {module} …")
            try:
                name, _, part = module.partition(":")
                measure = functools.partial(importlib.import_module(name).figures, *filter(None, [part]))
                figures = measure(quick=True) if arguments.quick and module in SHORTER else measure()
            except PenstockError as error:
                # One area out of reach (no Java, no Maven) must not hide the others.
                figures = [Figure(f"{module} could not be measured", str(error), holds=False)]
            print_figures(figures, f"{module}, {time.perf_counter() - began_s:.0f} s", console)
            found += figures
            write_figures(found, RESULT)
    console.print(
        f"{sum(f.holds is True for f in found)} bars reached, {sum(f.holds is False for f in found)} not"
    )
    console.print(f"written to {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
