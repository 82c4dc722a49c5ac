"""`python -m benchmarks.attach_memory --minutes 60`: whether an attached session's memory stays flat.

A session with one executor and two light queries is attached to, with a turn of the loop every two seconds,
so that an hour has as many as five with the default. Looked at: this process, in which the loop runs; Java's
heap after a collection, where what a loop holds on to in Spark would show; and the journal, which grows by
design. The last tenth of the time is compared with the tenth behind the first.
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

RESULT = Path("build") / "attach-memory.json"
EVERY_S = 15.0
FLAT = 1.1
"""Up to this ratio memory counts as flat: allocators keep what they had at their busiest."""


def main() -> int:
    """Attach, look every few seconds, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attach_memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    exit_on_sigterm()
    ensure_archive()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        try:
            found = measured(Path(temporary), 60 * given.minutes)
        finally:
            end_session()
    write_figures(found, RESULT)
    print_figures(found, f"attached for {given.minutes:g} minutes")
    return 0


def measured(folder: Path, seconds: float) -> list[Figure]:
    """Be attached for so long; what grew."""
    spark = start_session("memory", "local-cluster[1,1,1024]", log_level="OFF")
    journal = folder / "journal.db"
    samples: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        for number in range(2):
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
            writer = stream.writeStream.format("noop").trigger(processingTime="5 seconds")
            place = f"{folder}/checkpoint-{number}"
            query = writer.queryName(f"q{number}").option("checkpointLocation", place).start()
            stack.callback(query.stop)
        handle = stack.enter_context(
            penstock.attach(spark, max_instances=1, interval="2 s", journal=journal, name="memory")
        )
        wait_until(lambda: len(handle.status().queries) == 2, 120)
        own, began_s, cpu_s = psutil.Process(), time.monotonic(), psutil.Process().cpu_times()
        while time.monotonic() - began_s < seconds:
            time.sleep(EVERY_S)
            samples.append(_sample(spark, own, journal))
        spent_s = time.monotonic() - began_s
        status, after = handle.status(), own.cpu_times()
    share = (after.user + after.system - cpu_s.user - cpu_s.system) / spent_s
    alive = status.problem is None and all(query.processed for query in status.queries)
    found = [
        Figure("attached for", spent_s / 60, ">= 60 min", holds=spent_s >= 3600, unit="min"),
        Figure("attached and measuring at the end", str(alive).lower(), "true", holds=alive),
        Figure("this process's share of a core", share * 100, unit="%"),
    ]
    tenth = max(1, len(samples) // 10)
    for name in samples[-1]:
        before = statistics.median(sample[name] for sample in samples[tenth : 2 * tenth])
        last = statistics.median(sample[name] for sample in samples[-tenth:])
        flat = None if "journal" in name else last / before <= FLAT
        bar = None if "journal" in name else f"<= {FLAT}"
        found.append(Figure(f"{name}: last tenth to second", last / before, bar, holds=flat))
        found.append(Figure(f"{name} at the end", last))
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
        "the journal, KiB": sum(f.stat().st_size for f in journal.parent.glob("journal.db*")) / 1024,
    }


if __name__ == "__main__":
    sys.exit(main())
