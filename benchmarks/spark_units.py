"""Units beside hand-written jobs: what composing costs, and what a hop between units costs.

Everything runs in one local session in turns, with the same source files, the same operators and JSON
results; how pairs are compared is said in `benchmarks.pairs`. A record's latency is the time its result
was committed (Spark's note of the file, or the rename of a unit's batch) minus its source time.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyspark

from benchmarks.pairs import Run, Side, compare, watched
from penstock.channels.batches import TIMESTAMP_FORMAT, publish
from penstock.channels.broker import Broker
from penstock.channels.files import FilesChannel
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.channels.schemas import carried_schema
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.report.figures import Figure
from penstock.runs.in_one_session import LocalRun
from penstock.spark.settings import end_session, start_session
from penstock.spark.training import ensure_archive
from penstock.topology.model import Channel, Choice, Operator, Sink, Source, Topology, Unit

PAIRS = 5
WARM_UPS = 3
"""Runs of each side that do not count: Java still compiles in the second."""
TURNS = 3
"""Pairs of latencies, and turns of hops: each takes a quarter of a minute a side."""
THROUGHPUT_LIMIT_S = 200.0
LATENCY_LIMIT_S = 120.0
"""No more than the fewest pairs are run once so long has passed."""
FILES = 160
"""Enough for some seconds a run, two of each side a pair: a machine's speed drifts by a third in minutes. A
start takes a tenth of a second, and is told beside it."""
RECORDS_A_FILE = 10_000
FILES_A_BATCH = 8
RATE_PER_S = 500
LATENCY_S = 12.0
WARM_UP_S = 4.0
SCHEMA = "number long, name string"
FEEDER = "benchmark-feeder"
FILES_CHANNEL = Channel("files")


# --- the operators, the same for both ----------------------------------------------------------------------


def weigh(records: Any) -> Any:
    """A projection with some arithmetic and text."""
    from pyspark.sql import functions as sql

    weight = sql.sqrt(sql.col("number") * 3 + 1) + sql.length("name")
    return records.withColumn("weight", weight).withColumn("name", sql.upper("name"))


def heavy(records: Any) -> Any:
    """A filter."""
    return records.filter("weight > 10 OR number % 10 < 9")


def figures(part: str | None = None) -> list[Figure]:
    """Every claim about units that needs no cluster; or a part of them: throughput, latency, hops."""
    ensure_archive()
    end_session()
    settings, kafka = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "100000"}, True
    try:
        jars = connector_jars(cache_folder("jars"), pyspark.__version__)
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    except ClusterError:
        kafka = False
    spark = start_session("benchmark-units", "local[2]", settings=settings, log_level="ERROR")
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-"))
    try:
        parts: dict[str, Callable[[Any, Path], list[Figure]]] = {
            "throughput": throughput,
            "latency": latency,
            "hops": functools.partial(hops, kafka=kafka),
        }
        wanted = parts if part is None else [part]
        return [figure for name in wanted for figure in parts[name](spark, folder / name)]
    finally:
        end_session()
        shutil.rmtree(folder, ignore_errors=True)


# --- throughput --------------------------------------------------------------------------------------------


def throughput(spark: Any, folder: Path) -> list[Figure]:
    """Records a second through the same operators, hand-written and as a one-unit topology.

    From before the start of the query until every result is there for a reader.
    """
    data = folder / "data"
    for number in range(FILES):
        _put(data, _lines(number * RECORDS_A_FILE, RECORDS_A_FILE, time.time()), number)
    starts_s: dict[str, list[float]] = {"hand-written": [], "unit": []}

    def side(kind: str, start: Starter) -> Side:
        def run(name: str) -> Run:
            place = folder / f"{kind}-{name}"
            # The very same files for every run: a unit may delete its links, not the data.
            shutil.copytree(data, place / "sources" / "numbers" / "all", copy_function=os.link)
            # What the run before left in memory is not this one's to clean up.
            spark.sparkContext._jvm.System.gc()
            with watched() as watch:
                began_s = time.perf_counter()
                job = start(spark, place)
                starts_s[kind].append(time.perf_counter() - began_s)
                job.drain()
            job.stop()
            shutil.rmtree(place)
            return Run(watch.spent.wall_s, watch.spent)

        return run

    found = compare(
        "throughput",
        tuple(starts_s),
        side("hand-written", _hand_written),
        side("unit", _one_unit),
        pairs=PAIRS,
        warm_ups=WARM_UPS,
        limit_s=THROUGHPUT_LIMIT_S,
        balanced=True,
    )
    records, what = FILES * RECORDS_A_FILE, "one-unit topology, throughput against hand-written"
    return [
        Figure("hand-written job, throughput", records / found.median(lambda p: p.first), unit="records/s"),
        Figure("one-unit topology, throughput", records / found.median(lambda p: p.second), unit="records/s"),
        Figure(
            what,
            found.ratio,
            ">= 0.95",
            holds=found.ratio >= 0.95 if found.judged else None,
            unit=f"({found.words()})",
        ),
        found.cpu_figure(what),
        *(
            Figure(f"{kind} job, until its start returns", statistics.median(seconds[WARM_UPS:]), unit="s")
            for kind, seconds in starts_s.items()
        ),
    ]


# --- latency -----------------------------------------------------------------------------------------------


def latency(spark: Any, folder: Path) -> list[Figure]:
    """p99 latency of the same operators at a steady rate, hand-written and as a unit."""

    def side(kind: str, start: Starter) -> Side:
        def run(name: str) -> Run:
            with watched() as watch:
                ages_s = _ages(spark, folder / f"{kind}-{name}", start)
            return Run(float(np.percentile(ages_s, 99)), watch.spent)

        return run

    # Measured alone, the first pair is of a cold Java; every run leaves its first seconds out besides.
    found = compare(
        "p99 latency",
        ("hand-written", "unit"),
        side("hand-written", _hand_written),
        side("unit", _one_unit),
        pairs=TURNS,
        warm_ups=1,
        limit_s=LATENCY_LIMIT_S,
    )
    ratio, what = 1 / found.ratio, "one-unit topology, p99 against hand-written"
    return [
        Figure("hand-written job, p99 latency", found.median(lambda p: p.first) * 1000, unit="ms"),
        Figure("one-unit topology, p99 latency", found.median(lambda p: p.second) * 1000, unit="ms"),
        Figure(
            what,
            ratio,
            "<= 1.05",
            holds=ratio <= 1.05 if found.judged else None,
            unit=f"(its inverse: {found.words()})",
        ),
    ]


def hops(spark: Any, folder: Path, kafka: bool) -> list[Figure]:
    """Mean latency of two operators fused, and with a hop between them, by kind of channel."""
    fused: list[float] = []
    hop: dict[str, list[float]] = {"files": []}
    broker = None
    if kafka:
        with suppress(ClusterError):
            broker = Broker(folder / "broker", find_java().executable, broker_jars(cache_folder("jars")))
            broker.start()
            hop["kafka"] = []
    try:
        for turn in range(TURNS):
            fused += _ages(spark, folder / f"fused-{turn}", _one_unit)
            for kind, ages_s in hop.items():
                record = broker.record() if kind == "kafka" and broker is not None else None
                address = None if record is None else record.bootstrap
                start = functools.partial(_two_units, kind=kind, bootstrap=address)
                ages_s += _ages(spark, folder / f"{kind}-{turn}", start)
    finally:
        if broker is not None:
            broker.stop()
    fused_ms = statistics.mean(fused) * 1000
    found = [Figure("two operators fused, mean latency", fused_ms, unit="ms")]
    for kind in ("files", "kafka"):
        if kind in hop:
            cost_ms = statistics.mean(hop[kind]) * 1000 - fused_ms
            found.append(Figure(f"a hop through {kind}, mean cost", cost_ms, unit="ms"))
        else:
            found.append(Figure(f"a hop through {kind}, mean cost", "Maven Central is out of reach"))
    return found


@contextmanager
def fed(place: Path) -> Iterator[None]:
    """Records at a steady rate into a job's source, ten files a second."""
    stop = threading.Event()

    def feed() -> None:
        number, batch = 0, 0
        began_s = time.time()
        while not stop.wait(max(0.0, began_s + batch * 0.1 - time.time())):
            count = RATE_PER_S // 10
            _put(place / "sources" / "numbers" / "all", _lines(number, count, time.time()), batch)
            number += count
            batch += 1

    feeder = threading.Thread(target=feed, daemon=True, name=FEEDER)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


def _ages(spark: Any, place: Path, start: Starter) -> list[float]:
    """Ages of the records when their results were finished, in seconds, without the warm-up."""
    (place / "sources" / "numbers" / "all").mkdir(parents=True, exist_ok=True)
    job = start(spark, place)
    began_s = time.time()
    with fed(place):
        time.sleep(WARM_UP_S + LATENCY_S)
    job.drain()
    job.stop()
    ages_s = []
    committed_s = _committed_s(job.results / "_spark_metadata")
    for file in job.results.rglob("*.json"):
        if file.parent.name.startswith("batch-"):
            # A unit's results are there once their folder is renamed into place.
            done_s = file.parent.stat().st_ctime
        else:
            done_s = committed_s[file.name]
        for line in file.read_text().splitlines():
            sent_s = datetime.fromisoformat(json.loads(line)["source_time"]).timestamp()
            if sent_s > began_s + WARM_UP_S:
                ages_s.append(done_s - sent_s)
    shutil.rmtree(place)
    return ages_s


def _committed_s(log: Path) -> dict[str, float]:
    """When Spark's file sink committed each file: before that a reader must not take it for a result."""
    found: dict[str, float] = {}
    for note in log.glob("[0-9]*"):
        at_s = note.stat().st_mtime
        for line in note.read_text().splitlines()[1:]:
            name = Path(json.loads(line)["path"]).name
            found[name] = min(at_s, found.get(name, at_s))
    return found


# --- the jobs ----------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A job under way: how to wait until it is done with what there is, how to end it, where results are."""

    drain: Callable[[], None]
    stop: Callable[[], None]
    results: Path


Starter = Callable[[Any, Path], Job]
"""Starts a job in a session, in a folder of its own."""


def _hand_written(spark: Any, place: Path) -> Job:
    """What one would write without Penstock: Spark's own file source and sink around the operators."""
    records = (
        spark.readStream.format("json")
        .schema(carried_schema(SCHEMA, "numbers"))
        .option("timestampFormat", TIMESTAMP_FORMAT)
        .option("maxFilesPerTrigger", FILES_A_BATCH)
        .load(f"{place / 'sources' / 'numbers' / 'all'}/batch-*")
    )
    query = (
        heavy(weigh(records))
        .writeStream.format("json")
        .option("path", str(place / "results"))
        .option("timestampFormat", TIMESTAMP_FORMAT)
        .option("checkpointLocation", str(place / "checkpoint"))
        .start()
    )
    return Job(query.processAllAvailable, query.stop, place / "results")


def topology(units: tuple[Unit, ...], channel: Channel = FILES_CHANNEL) -> Topology:
    """Both operators, cut into units."""
    columns = "number long, name string, weight double"
    return Topology(
        "benchmark",
        (Source("numbers", workload=Choice("constant"), schema=SCHEMA),),
        (
            Operator("weigh", ("numbers",), f"{__name__}:weigh", schema=columns),
            Operator("heavy", ("weigh",), f"{__name__}:heavy"),
        ),
        (Sink("out", ("heavy",), "jsonl:out"),),
        units,
        channels=(channel,),
    )


def _one_unit(spark: Any, place: Path) -> Job:
    return _started(spark, place, topology((Unit("all", ("weigh", "heavy")),)))


def _two_units(spark: Any, place: Path, kind: str, bootstrap: str | None) -> Job:
    # One topic for each turn: a broker keeps what the turn before has sent.
    options = {"prefix": f"benchmark-{place.name}", "partitions": 2} if kind == "kafka" else {}
    units = (Unit("all", ("weigh",)), Unit("second", ("heavy",)))
    return _started(spark, place, topology(units, Channel(kind, kind, options)), bootstrap)


def _started(spark: Any, place: Path, whole: Topology, bootstrap: str | None = None) -> Job:
    run = LocalRun(spark, whole, place, bootstrap)
    for query in run.queries.values():
        feeds = query.channel(None)
        assert isinstance(feeds, FilesChannel)
        feeds.options = replace(feeds.options, max_files_per_batch=FILES_A_BATCH)
    run.start()
    return Job(run.process_all, run.stop, place / "results")


def _lines(first: int, count: int, now_s: float) -> list[str]:
    sent = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="microseconds")
    return [
        f'{{"record_id": "n-{n:09d}", "source_time": "{sent}", "number": {n}, "name": "name-{n % 100}"}}'
        for n in range(first, first + count)
    ]


def _put(folder: Path, lines: list[str], batch_id: int) -> None:
    written = folder.parent / f"_writing-{batch_id}"
    written.mkdir(parents=True, exist_ok=True)
    file = written / "records.json"
    file.write_text("\n".join(lines) + "\n")
    publish(written, [file], len(lines), [folder], batch_id)
