"""`make bench ONLY=attach.memory`: whether an attached session's memory stays flat over an hour.

A session with one executor and ten light queries is attached to, with a turn of the loop every two seconds,
so that an hour has as many as five with the default. Looked at: this process, in which the loop runs; Java's
heap after a collection, where what a loop holds on to in Spark would show; and the journal, which grows by
design. The last tenth of the time is compared with the tenth behind the first.
`python -m benchmarks.attach_memory --minutes 10` takes less time, and is no answer to the bars.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import penstock
from penstock.machine.processes import exit_on_sigterm, wait_until
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.spark.settings import end_session, start_session
from penstock.spark.training import ensure_archive

RESULT = Path("build") / "bench.json"
QUERIES = 10
WHOLE_S = 3600.0
QUICK_S = 120.0
EVERY_S = 15.0
JOURNAL = "the journal, KiB"
FLAT = 1.1
"""Up to this ratio memory counts as flat: allocators keep what they had at their busiest."""


def figures(*, quick: bool = False) -> list[Figure]:
    """An hour of it; where it is to be quick, two minutes, which say nothing of the bars."""
    return attached_for(QUICK_S if quick else WHOLE_S)


def main() -> int:
    """Attach for so many minutes and compare; figures stand where `make bench` writes them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attach_memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=WHOLE_S / 60)
    given = parser.parse_args()
    exit_on_sigterm()
    found = attached_for(60 * given.minutes)
    write_figures(found, RESULT)
    print_figures(found, f"attached for {given.minutes:g} minutes")
    return 0


def attached_for(seconds: float) -> list[Figure]:
    """Be attached for so long; what grew."""
    ensure_archive()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        try:
            return _measured(Path(temporary), seconds)
        finally:
            end_session()


def _measured(folder: Path, seconds: float) -> list[Figure]:
    spark = start_session("memory", "local-cluster[1,1,1024]", log_level="OFF")
    journal = folder / "journal.db"
    samples: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        for number in range(QUERIES):
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
            writer = stream.writeStream.format("noop").trigger(processingTime="5 seconds")
            place = f"{folder}/checkpoint-{number}"
            query = writer.queryName(f"q{number}").option("checkpointLocation", place).start()
            stack.callback(query.stop)
        handle = stack.enter_context(
            penstock.attach(spark, max_instances=1, interval="2 s", journal=journal, name="memory")
        )
        wait_until(lambda: len(handle.status().queries) == QUERIES, 120)
        own, began_s, cpu_s = psutil.Process(), time.monotonic(), psutil.Process().cpu_times()
        while time.monotonic() - began_s < seconds:
            time.sleep(EVERY_S)
            samples.append(_sample(spark, own, journal))
        spent_s = time.monotonic() - began_s
        status, after = handle.status(), own.cpu_times()
    share = (after.user + after.system - cpu_s.user - cpu_s.system) / spent_s
    measured = len([query for query in status.queries if query.processed])
    alive = status.problem is None and measured == QUERIES
    return [
        Figure("attached for", spent_s / 60, ">= 60 min", holds=spent_s >= WHOLE_S, unit="min"),
        Figure("attached, queries measured at the end", float(measured), f"{QUERIES}", holds=alive),
        Figure("attached, this process's share of a core", share * 100, unit="%"),
        *grown(samples, spent_s),
    ]


def grown(samples: list[dict[str, float]], spent_s: float) -> list[Figure]:
    """The last tenth of the samples beside the tenth behind the first; no verdict on less than an hour."""
    found = []
    tenth = max(1, len(samples) // 10)
    for name in samples[-1]:
        before = statistics.median(sample[name] for sample in samples[tenth : 2 * tenth])
        last = statistics.median(sample[name] for sample in samples[-tenth:])
        bar = None if name == JOURNAL else f"<= {FLAT}"
        flat = last / before <= FLAT if bar is not None and spent_s >= WHOLE_S else None
        found.append(Figure(f"attached, {name}: last tenth to second", last / before, bar, holds=flat))
        found.append(Figure(f"attached, {name} at the end", last))
    return found


def _sample(spark: Any, own: psutil.Process, journal: Path) -> dict[str, float]:
    gc.collect()
    java = spark.sparkContext._jvm.java.lang
    java.System.gc()
    heap = java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    return {
        "memory of the driver's Python, MiB": own.memory_info().rss / 2**20,
        "heap of the driver's Java after a collection, MiB": int(heap) / 2**20,
        "threads of the driver's Python": float(own.num_threads()),
        JOURNAL: sum(f.stat().st_size for f in journal.parent.glob("journal.db*")) / 1024,
    }


if __name__ == "__main__":
    sys.exit(main())
