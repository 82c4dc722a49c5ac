"""`make clouds`: every provider against the contract in full, and a large fleet at a slow, failing API.

Figures go to build/clouds.json, by the contract of build/bench.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from rich.console import Console

from benchmarks import slow_cloud
from penstock.report.figures import Figure, print_figures, write_figures

RESULT = Path("build") / "clouds.json"
SUITE = "tests/providers/test_clouds.py"
RIG = "tests/rig"


def contract() -> list[Figure]:
    """The contract suite over every cloud: scenarios that hold and that do not, by cloud."""
    cases = _ran(SUITE)
    ran: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for case in cases:
        name = case.get("name") or ""
        cloud = name.partition("[")[2].rstrip("]").split("-")[0]
        if not cloud:
            continue
        ran[cloud] += 1
        failed[cloud] += any(case.find(kind) is not None for kind in ("failure", "error"))
        skipped[cloud] += case.find("skipped") is not None
    return [
        Figure(
            f"{cloud}: contract scenarios that hold, of {ran[cloud] - skipped[cloud]}"
            + (f" ({skipped[cloud]} left out)" if skipped[cloud] else ""),
            ran[cloud] - failed[cloud] - skipped[cloud],
            "all",
            holds=failed[cloud] == 0 and ran[cloud] > skipped[cloud],
        )
        for cloud in ran
    ]


def on_rig() -> list[Figure]:
    """Providers against real hosts: the rig itself, `ssh` over real sshds, `aws` from lease to bill."""
    ran: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for case in _ran(RIG):
        part = (case.get("classname") or "").rpartition(".")[2].removeprefix("test_")
        ran[part] += 1
        failed[part] += any(case.find(kind) is not None for kind in ("failure", "error"))
        left_out[part] += case.find("skipped") is not None
    return [
        Figure(
            f"rig, {part}: tests that hold, of {ran[part]}",
            ran[part] - failed[part] - left_out[part],
            "all, none left out",
            holds=failed[part] == left_out[part] == 0,
        )
        for part in ran
    ]


def _ran(tests: str) -> list[ElementTree.Element]:
    """Every test of a file or folder, run in full, as pytest reports it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PENSTOCK_CLOUDS": "full"}
        subprocess.run([*command, f"--junitxml={report}", tests], check=False, env=environment)
        return list(ElementTree.parse(report).getroot().iter("testcase"))


def main() -> int:
    """Measure and write; a figure that falls short is shown as such."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    found: list[Figure] = []
    for name, measure in (("contract", contract), ("rig", on_rig), ("slow cloud", slow_cloud.figures)):
        began_s = time.perf_counter()
        console.print(f"measuring {name} …")
        figures = measure()
        print_figures(figures, f"{name}, {time.perf_counter() - began_s:.0f} s", console)
        found += figures
        write_figures(found, RESULT)
    console.print(f"written to {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
