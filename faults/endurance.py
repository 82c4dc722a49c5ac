"""`python -m faults.endurance --minutes 120`: what grows while a run goes on, in build/endurance.json.

Batches and turns of the loop follow each other as fast as they can, so that hours hold as many as weeks do.
What is looked at after the first tenth is compared with the last tenth; a ratio of one is flat.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from faults.campaign import START_S, whole_within
from faults.ground import SILENCE_S, UNITS, Ground
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.spark.checkpoints import Checkpoint
from penstock.topology.model import LoopSettings

LOOP = LoopSettings(monitoring_s=0.2, provisioning_s=1.0, silence_s=SILENCE_S)
EVERY_S = 5.0
FLAT = 1.25
"""Below this ratio a quantity counts as flat: Java's heap breathes by more than a tenth."""
MONTH_BATCHES = 30 * 86_400 // 10
"""Batches of one unit in a month of one every ten seconds."""


def sample(ground: Ground) -> dict[str, float]:
    """What there is now of everything that must not grow."""
    found: dict[str, float] = {}
    who = {"controller": ground.pid("controller"), **{f"driver {u}": ground.pid(u) for u in UNITS}}
    who |= {f"Java of driver {u}": ground.java_of(u) for u in UNITS}
    for name, pid in who.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid or -1))
            found[f"memory of {name}, MiB"] = process.memory_info().rss / 2**20
            found[f"open files of {name}"] = process.num_fds()
            found[f"threads of {name}"] = process.num_threads()
    journal = sum(f.stat().st_size for f in ground.folder.glob("journal.sqlite*"))
    total = results = files = 0
    for folder, _, names in os.walk(ground.folder):
        for name in names:
            with contextlib.suppress(OSError):
                size = os.stat(f"{folder}/{name}").st_size
                total += size
                files += 1
                results += size if "/results" in folder else 0
    found["disk of the journal, KiB"] = journal / 1024
    # Results are what the user keeps: they grow by design.
    found["disk of the run without journal and results, KiB"] = (total - results - journal) / 1024
    return found


def figures(samples: Sequence[dict[str, float]], minutes: float, batches: int, ticks: int) -> list[Figure]:
    """Ratios of the last tenth to the tenth behind the first."""
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    found = [
        Figure("minutes", minutes, ">= 120", holds=minutes >= 119.5),
        Figure("batches of all units", batches, f">= {MONTH_BATCHES} (a month's, one in ten seconds)",
               holds=batches >= MONTH_BATCHES),
        Figure("turns of the loop", ticks),
    ]  # fmt: skip
    for name in samples[-1]:
        first, last = ([s[name] for s in part if name in s] for part in (early, late))
        if first and last:
            before, after = statistics.median(first), statistics.median(last)
            ratio = after / before if before else float(after > 0) + 1
            found.append(Figure(f"{name}: last tenth to second", ratio, f"<= {FLAT}", holds=ratio <= FLAT))
            found.append(Figure(f"{name} at the end", after))
    return found


def main() -> int:
    """Run, look every few seconds, compare."""
    parser = argparse.ArgumentParser(prog="python -m faults.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--channel", choices=("files", "kafka"), default="files")
    parser.add_argument("--build", type=Path, default=Path("build"))
    given = parser.parse_args()
    exit_on_sigterm()
    root = Path(tempfile.mkdtemp(prefix="penstock-endurance-"))
    ground = Ground(root / "run", given.channel, f"endurance-{os.getpid()}", loop=LOOP)
    samples: list[dict[str, float]] = []
    try:
        ground.start()
        if not whole_within(ground, START_S):
            print(f"the run did not start: {ground.what_is_wrong()}", file=sys.stderr)
            return 1
        began_s = time.monotonic()
        while time.monotonic() - began_s < 60 * given.minutes:
            ground.results.look()
            ground.results.seen.clear()
            samples.append(sample(ground))
            time.sleep(EVERY_S)
        minutes = (time.monotonic() - began_s) / 60
        batches = sum(Checkpoint(ground.folder / "units" / u / "checkpoint").finished() + 1 for u in UNITS)
        ticks = ground.newest("tick")
        ground.stop()
    finally:
        ground.close()
        shutil.rmtree(root, ignore_errors=True)
    found = figures(samples, minutes, batches, ticks)
    write_figures(found, given.build / "endurance.json")
    (given.build / "faults").mkdir(exist_ok=True)
    (given.build / "faults" / "endurance-samples.json").write_text(json.dumps(samples))
    print_figures(found, f"endurance, {minutes:.0f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
