"""The word count on a local cluster under a load of 1×, 4× and 1×: watch executors come and go.

    python examples/attach/demo.py

Takes about two minutes (`--phase 20` for a shorter run) and leaves nothing behind but the journal.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import word_count

import penstock
from penstock.machine.java import find_java
from penstock.machine.processes import exit_on_sigterm
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.settings import end_session, prepare_environment
from penstock.spark.training import ensure_archive

LINE = "the quick brown fox jumps over the lazy dog"
WORDS = len(LINE.split())


class Feeder(threading.Thread):
    """Writes two files of lines a second, as many lines as the load says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.lines_per_s = 0
        self.written = 0
        self.ending = threading.Event()

    def run(self) -> None:
        """Write until told to end; a file appears whole or not at all."""
        number = 0
        while not self.ending.wait(0.5):
            count = self.lines_per_s // 2
            if count:
                hidden = self.folder / f".{number}.part"
                hidden.write_text(f"{LINE}\n" * count)
                hidden.rename(self.folder / f"{number:06d}.txt")
                self.written += count
                number += 1


def main() -> None:
    """Bring the cluster up, run the three phases, wait for the backlog, check the counts."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--phase", type=float, default=40.0, help="seconds of each phase")
    options.add_argument("--policy", default="rate")
    options.add_argument("--most", type=int, default=4, help="most executors")
    options.add_argument("--journal", type=Path, default=None)
    options.add_argument("--summary", type=Path, default=None, help="write a JSON summary here")
    chosen = options.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    exit_on_sigterm()
    ensure_archive()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-attach-") as temporary,
        LocalCluster(2, cores=2) as cluster,
    ):
        folder = Path(temporary)
        lines = folder / "lines"
        lines.mkdir()
        prepare_environment(find_java(), cluster.master_url)
        # The cluster lets in who knows its secret: a plain session reads it from this folder.
        os.environ["SPARK_CONF_DIR"] = str(cluster.conf)
        spark = word_count.session(cluster.master_url)
        spark.sparkContext.setLogLevel("ERROR")
        # The functions live in a module here, not in the main script: executors need the file.
        spark.sparkContext.addPyFile(word_count.__file__)
        # Shorter phases need a quicker eye; a real job would be looked at every 15 s.
        quick_s = chosen.phase / 8
        parameters = {"calm_s": 4 * quick_s, "average_s": 3 * quick_s} if chosen.policy == "rate" else {}
        handle = penstock.attach(
            spark,
            slo="2 s",
            policy=chosen.policy,
            max_instances=chosen.most,
            interval=f"{quick_s:g} s",
            hold_backlog=400,
            parameters=parameters,
            journal=chosen.journal,
        )
        feeder = Feeder(lines)
        feeder.start()
        try:
            query = word_count.start(spark, str(lines), str(folder / "checkpoint"))
            summary = run(spark, handle, feeder, query, chosen.phase, quick_s)
        finally:
            feeder.ending.set()
            handle.stop()
            end_session()
    if chosen.summary is not None:
        chosen.summary.write_text(json.dumps(summary))
    print(f"most executors {summary['most']}, at the end {summary['last']}; journal: {handle.journal}")


def run(spark: Any, handle: Any, feeder: Feeder, query: Any, phase_s: float, look_s: float) -> dict[str, Any]:
    """The three phases, then the backlog; what was seen."""
    most, told, rows = 0, 0, Rows(query)
    # The first batch starts Python workers and compiles: the load begins when it is done.
    feeder.lines_per_s = 20
    began_s = time.monotonic()
    while query.isActive and rows.read() == 0 and time.monotonic() - began_s < 240:
        time.sleep(0.5)
        if feeder.written:
            feeder.lines_per_s = 0
    print(f"first batch after {time.monotonic() - began_s:.0f} s", flush=True)
    for load, lines_per_s in (("1×", 80), ("4×", 320), ("1×", 80)):
        feeder.lines_per_s = lines_per_s
        until_s = time.monotonic() + phase_s
        while time.monotonic() < until_s:
            time.sleep(look_s)
            rows.read()
            most = max(most, running(handle))
            told = tell(load, lines_per_s, handle, told)
    feeder.lines_per_s = 0
    # Quiet: the backlog is worked off and executors above the least retire.
    deadline_s = time.monotonic() + 200
    while query.isActive and time.monotonic() < deadline_s:
        time.sleep(look_s)
        most = max(most, running(handle))
        told = tell("0", 0, handle, told)
        # A batch whose executors retire reads some of its lines again, so there may be more; words tell.
        fewer = running(handle) < max(2, most)
        if fewer and rows.read() >= feeder.written and counted(spark) == WORDS * feeder.written:
            break
    words = counted(spark)
    status = handle.status()
    print(f"{feeder.written} lines written, {words} words counted")
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return {
        "written": feeder.written,
        "words": words,
        "most": most,
        "last": running(handle),
        "reason": status.reason,
        "decisions": list(status.decisions),
    }


class Rows:
    """How many lines a query has taken in, by its progress: to ask for the result is a job each time."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._of_batch: dict[int, int] = {}

    def read(self) -> int:
        """All lines so far."""
        for event in self._query.recentProgress:
            # An idle query reports its last batch again, without rows.
            number, rows = event["batchId"], event["numInputRows"]
            self._of_batch[number] = max(rows, self._of_batch.get(number, 0))
        return sum(self._of_batch.values())


def counted(spark: Any) -> int:
    """Words counted so far."""
    return int(spark.sql("select coalesce(sum(count), 0) as n from word_counts").first()["n"])


def running(handle: Any) -> int:
    """Executors that run, as of the last tick."""
    return sum(unit.running for unit in handle.status().units)


def tell(load: str, lines_per_s: int, handle: Any, told: int) -> int:
    """Print one line of the present state and every new decision that changed something."""
    status = handle.status()
    unit = status.units[0] if status.units else None
    seen = None if unit is None else unit.measurement
    duration = "–" if seen is None or seen.duration_s is None else f"{seen.duration_s:.1f} s"
    waiting = 0 if seen is None else seen.waiting
    print(
        f"load {load:>2} ({lines_per_s:3d} lines/s)  executors {running(handle)} of "
        f"{0 if unit is None else unit.instances}  "
        f"waiting {waiting:5d}  duration {duration}",
        flush=True,
    )
    changes = [text for text in status.decisions if not text.startswith("hold") and "(not done" not in text]
    for text in changes[told:]:
        print(f"    {text}", flush=True)
    return len(changes)


if __name__ == "__main__":
    main()
