"""`python -m faults.endurance --minutes 120`: what grows while a run goes on, in build/endurance.json.

Two hours hold as many batches of the first unit as a month does at one a minute: 43,200, six a second.
The journal keeps the last twelfth of the time in full, as it keeps a month of a year's. What is there after
the first tenth is compared with the last tenth; a ratio of one is flat.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from faults.campaign import START_S, whole_within
from faults.ground import UNITS, Ground, topology
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.spark.checkpoints import Checkpoint
from penstock.topology.model import LoopSettings, Topology

RATE_PER_S = 10.0
"""One record a tick of the feeder, each a file of its own: there is something new for every batch."""
TRIGGER_S = (0.1, 2.0)
"""Of the units: the first makes ten batches a second at the most, the second reads some of them at once."""
EVERY_S = 10.0
FLAT = 1.25
"""Below this ratio a quantity counts as flat: Java's heap breathes by more than a tenth."""
COLLECTED_AT = (0.15, 0.95)
"""At which shares of the time Java is told to collect: what it keeps is compared, not what it may free."""
COLLECTIONS, COLLECTED_EVERY_S = 4, 2.0
"""How often what it keeps is counted, and how far from each other."""
MONTH_BATCHES = 30 * 24 * 60
"""Batches of one unit in a month of one a minute."""


def topology_for(channel: str, minutes: float) -> Topology:
    """The campaign's topology with short batches; the journal is thinned behind a tenth of the time."""
    loop = LoopSettings(monitoring_s=1.0, provisioning_s=2.0, journal_s=max(60.0, 60 * minutes / 12))
    return topology(channel, loop, RATE_PER_S, TRIGGER_S)


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
    total = files = 0
    parts: Counter[str] = Counter()
    for folder, below, names in os.walk(ground.folder):
        if folder == str(ground.folder):
            # Results are what the user keeps: they grow by design.
            below[:] = [name for name in below if name != "results"]
        for name in names:
            with contextlib.suppress(OSError):
                size = os.stat(f"{folder}/{name}").st_size
                total += size
                files += 1
                parts[_part(os.path.relpath(f"{folder}/{name}", ground.folder))] += size
    found["disk of the journal, KiB"] = journal / 1024
    found["disk of the run without journal and results, KiB"] = (total - journal) / 1024
    found["files of the run without results"] = files
    return found | {f"{PART}{name}": size / 1024 for name, size in parts.items()}


def heaps_after_collection(ground: Ground) -> dict[str, float]:
    """What each driver's Java keeps, by its own count of what is reachable; none without `jcmd`.

    What is used of a heap after a collection says less: batches go on and fill it again meanwhile. Spark
    takes away what it has broadcast once a collection has shown that nobody needs it any more: so the least
    of some counts is taken.
    """
    found: dict[str, float] = {}
    for unit in UNITS if shutil.which("jcmd") is not None else ():
        counts = []
        for _ in range(COLLECTIONS):
            command = ["jcmd", str(ground.java_of(unit) or -1), "GC.class_histogram"]
            told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
            counts.append(reachable_mib(told))
            time.sleep(COLLECTED_EVERY_S)
        if known := [count for count in counts if count is not None]:
            found[f"reachable objects of Java of driver {unit}, MiB"] = min(known)
    return found


def reachable_mib(told: str) -> float | None:
    """The sum in what `jcmd … GC.class_histogram` tells; None where it tells none."""
    total = re.search(r"^Total\s+\d+\s+(\d+)\s*$", told, re.MULTILINE)
    return None if total is None else int(total[1]) / 2**20


PART = "KiB of "
"""What the names of parts of a run's folder begin with in the samples; they are no figures of their own."""


def _part(path: str) -> str:
    """The part of a run's folder that a file belongs to: what grew is found by it."""
    return "/".join(re.sub(r"\d+", "#", part) for part in path.split("/")[:5])


def processor_s(ground: Ground) -> float:
    """Processor time that the run's living processes took."""
    found = 0.0
    for process in ground.left():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def figures(
    samples: Sequence[dict[str, float]], minutes: float, batches: Sequence[int], ticks: int
) -> list[Figure]:
    """Ratios of the last tenth to the tenth behind the first."""
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    found = [
        Figure("minutes", minutes, ">= 120", holds=minutes >= 119.5),
        Figure("batches of the first unit", batches[0], f">= {MONTH_BATCHES} (a month's, one a minute)",
               holds=batches[0] >= MONTH_BATCHES),
        Figure("batches of the second unit", batches[1]),
        Figure("turns of the loop", ticks),
    ]  # fmt: skip
    names = dict.fromkeys(name for one in samples for name in one if not name.startswith(PART))
    for name in names:
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
    run = topology_for(given.channel, given.minutes)
    ground = Ground(root / "run", given.channel, f"endurance-{os.getpid()}", run=run, settings={})
    samples: list[dict[str, float]] = []
    kept = given.build / "faults" / "endurance-samples.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        ground.start()
        if not whole_within(ground, START_S):
            print(f"the run did not start: {ground.what_is_wrong()}", file=sys.stderr)
            return 1
        began_s, taken_s = time.monotonic(), processor_s(ground)
        to_collect = [share * 60 * given.minutes for share in COLLECTED_AT]
        while time.monotonic() - began_s < 60 * given.minutes:
            samples.append(sample(ground))
            if to_collect and time.monotonic() - began_s >= to_collect[0]:
                samples[-1] |= heaps_after_collection(ground)
                del to_collect[0]
            kept.write_text(json.dumps(samples))
            time.sleep(EVERY_S)
        minutes = (time.monotonic() - began_s) / 60
        cores = (processor_s(ground) - taken_s) / (60 * minutes)
        batches = [Checkpoint(ground.folder / "units" / u / "checkpoint").finished() + 1 for u in UNITS]
        ticks = ground.newest("tick")
        ground.stop()
    finally:
        ground.close()
        shutil.rmtree(root, ignore_errors=True)
    found = [*figures(samples, minutes, batches, ticks), Figure("processor cores taken", cores)]
    write_figures(found, given.build / "endurance.json")
    print_figures(found, f"endurance, {minutes:.0f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
