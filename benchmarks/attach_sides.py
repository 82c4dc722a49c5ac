"""What attaching saves: beside no scaling at peak size, and beside Spark's own dynamic allocation.

A job under loads of the same size: one that jumps from 1× to 4× and back (Square), one that rises and falls
within two minutes (Pyramid), and one that does so within four, after two minutes in which everybody can
learn what an executor does (hill); each three times on the same cluster with the same bounds, four to nine
minutes a time. A decision every two seconds in place of every ten makes a minute here stand for five. The
SLO leaves the time to start an executor, which no one who follows a load can do without.

There are two jobs. `asking` has every line looked up by a service: its executors wait, as if each had a core
of its own. `counting` is the word count of `examples/attach`, with state and twelve tasks a batch. Where
a machine has fewer cores than executors, it measures the machine, so it is run only where it is named.
`python -m benchmarks.attach_sides asking pyramid attach` runs one job, load and side, and reckons with the
last runs of the others.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import penstock
from penstock.controller import Journal
from penstock.machine.processes import exit_on_sigterm, wait_until
from penstock.report.figures import Figure, print_figures
from penstock.spark.gateway.executors import ExecutorControl
from penstock.spark.launching import spark_java
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.settings import end_session, prepare_environment
from penstock.spark.training import ensure_archive

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "attach"))

import demo
import word_count

RESULT = Path("build") / "attach-sides.json"
JOURNALS = Path("build") / "attach-sides"
"""The journal of each side, for `penstock explain`."""
SIDES = ("at peak size", "dynamic allocation", "attach")
MOST = 4
SLO_S = 10.0
INTERVAL_S = 2.0
ASKED_S = 0.005
"""How long the service that `asking` asks takes for a line: 0.4 of a slot at 1×, 1.6 at 4×, and what a batch
costs besides. (With 8 ms two executors did 1× and four 4×, so there was little to save.)"""
BEHIND_S = 2.0
"""A job that has so much of its load before it keeps up with it."""
LOADS = {
    "square": ((80, 60.0), (320, 60.0), (80, 90.0)),
    "pyramid": (
        (80, 30.0),
        *((80 + 30 * step, 7.5) for step in range(1, 9)),
        *((80 + 30 * step, 7.5) for step in range(7, -1, -1)),
        (80, 60.0),
    ),
    "hill": (
        (80, 120.0),
        *((80 + 30 * step, 15.0) for step in range(1, 9)),
        *((80 + 30 * step, 15.0) for step in range(7, -1, -1)),
        (80, 150.0),
    ),
}
"""Lines a second, and for how many seconds."""


@dataclass(frozen=True, slots=True)
class Job:
    """A streaming job that reads lines from a folder."""

    start: Callable[[Any, str, str], Any]
    """Of a session, the folder of the lines and that of the checkpoint: the query."""
    lines_out: Callable[[Any], float]
    """Lines that came out, all of the session's time."""


def ask(spark: Any, folder: str, checkpoint: str) -> Any:
    """Have every line looked up by a service that takes its time, and keep the answers."""
    asked_s = ASKED_S

    def answers(parts: Any) -> Any:
        for part in parts:
            time.sleep(asked_s * len(part))
            yield part.assign(value=part["value"].str.len().astype(str))

    # As many tasks as there may ever be executors, twice: they need not end all at once.
    lines = spark.readStream.option("maxFilesPerTrigger", 20).text(folder).repartition(2 * MOST)
    writer = lines.mapInPandas(answers, "value string").writeStream.format("memory").queryName("answers")
    return writer.option("checkpointLocation", checkpoint).start()


def count(spark: Any, folder: str, checkpoint: str) -> Any:
    """The word count of `examples/attach`."""
    importlib.reload(word_count)  # a function that was registered belongs to one driver
    spark.sparkContext.addPyFile(word_count.__file__)
    return word_count.start(spark, folder, checkpoint)


JOBS = {
    "asking": Job(ask, lambda spark: float(spark.sql("select count(*) from answers").first()[0])),
    "counting": Job(count, lambda spark: demo.counted(spark) / demo.WORDS),
}


@dataclass(frozen=True, slots=True)
class Side:
    """What one way of scaling came to."""

    executor_minutes: float
    kept_ratio: float
    """Share of the lines that were counted within the SLO."""
    rescales: int
    lines: int
    lines_out: float
    line_by_line: bool = False
    """Whether lines were counted one by one; else all lines of a measurement count by its mean duration."""


def figures() -> list[Figure]:
    """All three sides of the first job under each load, one after the other."""
    ensure_archive()
    return [
        figure
        for load in LOADS
        for figure in compared(load, {name: one_side("asking", load, name) for name in SIDES})
    ]


def compared(load: str, sides: dict[str, Side]) -> list[Figure]:
    """Each side under a load, and ours beside dynamic allocation's where both were run."""
    found = []
    for name, side in sides.items():
        whole = side.lines_out == side.lines
        found += [
            Figure(f"{load}, {name}: executor-minutes", side.executor_minutes, unit="min"),
            Figure(f"{load}, {name}: {_counted(side)}", side.kept_ratio * 100, unit="%"),
            Figure(f"{load}, {name}: changes of the number of executors", float(side.rescales)),
            Figure(f"{load}, {name}: every line came out once", str(whole).lower(), "true", holds=whole),
        ]
    ours, theirs = sides.get("attach"), sides.get("dynamic allocation")
    if ours is None or theirs is None:
        return found
    ratio = ours.executor_minutes / theirs.executor_minutes
    found.append(
        Figure(
            f"{load}, attach: executor-minutes, of dynamic allocation's", ratio, "<= 0.6", holds=ratio <= 0.6
        )
    )
    if ours.line_by_line != theirs.line_by_line:
        return found  # two ways of counting say nothing of each other
    kept = (ours.kept_ratio - theirs.kept_ratio) * 100
    return [
        *found,
        Figure(
            f"{load}, attach: SLO kept, above dynamic allocation's",
            kept,
            ">= 0",
            holds=kept >= 0,
            unit="points",
        ),
    ]


def _counted(side: Side) -> str:
    """What is the share of a side that kept the SLO, in words."""
    if side.line_by_line:
        return f"lines within {SLO_S:g} s"
    return f"lines in measurements with a mean within {SLO_S:g} s"


def one_side(job: str, load: str, name: str) -> Side:
    """One run of a job under a load, on a cluster of its own."""
    print(f"side by side: {job}, {load}, {name}", file=sys.stderr, flush=True)
    with LocalCluster(2, cores=2, memory_mib=4096) as cluster:
        side = _run(job, load, name, cluster)
    print(f"side by side: {side}", file=sys.stderr, flush=True)
    return side


def _run(job: str, load: str, name: str, cluster: LocalCluster) -> Side:
    master = cluster.master_url
    # The cluster lets in who knows its secret: a plain session reads it from this folder.
    os.environ["SPARK_CONF_DIR"] = str(cluster.conf)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        folder = Path(temporary)
        (folder / "lines").mkdir()
        prepare_environment(spark_java(), master)
        spark = _session(name, master)
        feeder = demo.Feeder(folder / "lines")
        try:
            control = ExecutorControl(spark)
            handle = penstock.attach(
                spark, slo=SLO_S, max_instances=MOST, interval=INTERVAL_S, advise_only=name != "attach",
                journal=folder / "journal.db", name="job",
            )  # fmt: skip
            query = JOBS[job].start(spark, str(folder / "lines"), str(folder / "checkpoint"))
            rows = demo.Rows(query)
            _begin(feeder, rows, LOADS[load][0][0])
            executor_s, rescales, before = 0.0, 0, len(control.executors())
            since_s, last_s = time.time(), time.monotonic()
            for lines_per_s, seconds in LOADS[load]:
                feeder.lines_per_s = lines_per_s
                until_s = time.monotonic() + seconds
                while time.monotonic() < until_s:
                    time.sleep(0.5)
                    rows.read()
                    number, now_s = len(control.executors()), time.monotonic()
                    executor_s += number * (now_s - last_s)
                    rescales += number != before
                    before, last_s = number, now_s
            feeder.ending.set()
            feeder.join(5)
            query.processAllAvailable()
            lines_out = JOBS[job].lines_out(spark)
            handle.stop()
        finally:
            feeder.ending.set()
            end_session()
        kept, line_by_line = kept_since(folder / "journal.db", since_s)
        JOURNALS.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "journal.db", JOURNALS / f"{job}, {load}, {name}.db")
        return Side(executor_s / 60, kept, rescales, feeder.written, lines_out, line_by_line)


def _begin(feeder: demo.Feeder, rows: demo.Rows, lines_per_s: int) -> None:
    """Let the load be there as it is at first, until what waited for Spark's start is worked off."""
    feeder.lines_per_s = lines_per_s
    feeder.start()
    wait_until(lambda: rows.read() > 0, 240)
    wait_until(lambda: rows.read() >= feeder.written - BEHIND_S * lines_per_s, 240)


def _session(name: str, master: str) -> Any:
    """A session with the number of executors fixed, or left to Spark, within the same bounds."""
    from pyspark.sql import SparkSession

    dynamic = name != "at peak size"
    settings = {
        "spark.dynamicAllocation.enabled": str(dynamic).lower(),
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(MOST),
        "spark.decommission.enabled": "true",
        "spark.cores.max": str(MOST),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder: Any = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def kept_since(journal: Path, since_s: float) -> tuple[float, bool]:
    """Share of the records that kept the SLO from when the load began, and whether each was counted.

    A journal from before records were counted has means alone: all records of a measurement count by it.
    """
    with Journal(journal, run="job") as record:
        rows = [
            row for row in record.rows("observation")
            if row["processed"] and row["duration_s"] is not None and row["at_s"] > since_s
        ]  # fmt: skip
    total = sum(row["processed"] for row in rows)
    if not total:
        return 0.0, False
    if all(row["on_time"] is not None for row in rows):
        return sum(row["on_time"] for row in rows) / total, True
    return sum(row["processed"] for row in rows if row["duration_s"] <= SLO_S) / total, False


def main() -> int:
    """Run the jobs, loads and sides that are named, and compare with the others' last.

    Where no load or side is named, all of them; where no job is, the first.
    """
    unknown = sorted(set(sys.argv[1:]) - set(SIDES) - set(LOADS) - set(JOBS))
    if unknown:
        known_ones = ", ".join((*JOBS, *LOADS, *SIDES))
        print(f"unknown job, load or side {', '.join(unknown)}; known: {known_ones}", file=sys.stderr)
        return 2
    jobs = [job for job in JOBS if job in sys.argv[1:]] or ["asking"]
    loads = [load for load in LOADS if load in sys.argv[1:]] or list(LOADS)
    wanted = [name for name in SIDES if name in sys.argv[1:]] or list(SIDES)
    exit_on_sigterm()
    ensure_archive()
    try:
        known = json.loads(RESULT.read_text())
    except (OSError, ValueError):
        known = {}
    for job, load in ((job, load) for job in jobs for load in loads):
        earlier = known.setdefault(f"{job}, {load}", {})
        for name in wanted:
            earlier[name] = asdict(one_side(job, load, name))
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(known, indent=2) + "\n")
        found = {name: Side(**earlier[name]) for name in SIDES if name in earlier}
        print_figures(compared(load, found), f"side by side, {job}, {load}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
