"""`make clouds`: every provider against the contract in full, runs on hosts that are leased in the rig's
cloud, and a large fleet at a slow, failing API.

Figures go to build/clouds.json, by the contract of build/bench.json. ONLY=limits,spot and the like runs a
part; the figures of what is left out stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import slow_cloud
from benchmarks.hosts import limits, shared_nothing, spot
from penstock.errors import PenstockError
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.rig.availability import unavailable

RESULT = Path("build") / "clouds.json"
KEPT = Path("build") / "clouds-parts.json"
"""The figures by part, so that a part can be measured anew."""
SUITE = "tests/providers/test_clouds.py"
RIG = "tests/rig"
PARTS: dict[str, Callable[[], list[Figure]]] = {
    "contract": lambda: contract(),
    "rig": lambda: on_rig(),
    "limits": limits.figures,
    "spot": spot.figures,
    "quickstart": lambda: shared_nothing.figures("quickstart"),
    "factory": lambda: shared_nothing.figures("factory"),
    "slow-cloud": slow_cloud.figures,
}
NEED_RIG = ("rig", "limits", "spot", "quickstart", "factory")
FAILED = "could not be measured"


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; a figure that falls short is shown as such."""
    parser = argparse.ArgumentParser(description="Measure providers, and runs on leased hosts.")
    parser.add_argument("--only", help=f"parts, with commas: {', '.join(PARTS)}")
    chosen = parser.parse_args(arguments).only
    names = chosen.split(",") if chosen else list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(PARTS)}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    measured = _earlier()
    for name in names:
        began_s = time.perf_counter()
        console.print(f"measuring {name} …")
        measured[name] = _measured(name)
        print_figures(measured[name], f"{name}, {time.perf_counter() - began_s:.0f} s", console)
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(
            json.dumps({part: [asdict(f) for f in figures] for part, figures in measured.items()})
        )
        write_figures([figure for part in PARTS for figure in measured.get(part, ())], RESULT)
    console.print(f"written to {RESULT}")
    return 0


def _measured(name: str) -> list[Figure]:
    """A part's figures; what cannot be had or does not end well is one figure that says so."""
    reason = unavailable() if name in NEED_RIG else None
    if reason is not None:
        return [Figure(f"{name}: left out, {reason}", "")]
    try:
        return PARTS[name]()
    except PenstockError as error:
        print(error, file=sys.stderr)
        return [Figure(f"{name}: {FAILED}", str(error).splitlines()[0], "", holds=False)]


def _earlier() -> dict[str, list[Figure]]:
    """The figures of parts that were measured before."""
    try:
        known = json.loads(KEPT.read_text())
    except (OSError, ValueError):
        return {}
    return {
        part: [Figure(**figure) for figure in figures] for part, figures in known.items() if part in PARTS
    }


if __name__ == "__main__":
    sys.exit(main())
