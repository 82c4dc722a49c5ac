"""The driver process of one unit: one session, one streaming query, one heartbeat.

Started by the controller's side as `python -m penstock.spark.unit_driver RUN_FOLDER UNIT`. It goes on
from its checkpoint whenever it is started again, obeys the wanted state that answers its heartbeats, and
leaves with code 3 where starting again would not help (an operator throws and shall stop the unit).
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import pickle
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.channels.maven import connector_jars
from penstock.errors import ClusterError, ConfigurationError, PenstockError
from penstock.spark.executors import ExecutorControl, scalability
from penstock.spark.folders import cache_folder
from penstock.spark.heartbeat import HEARTBEAT_S, HeartbeatClient, ReportedExecutor, UnitReport, Wanted
from penstock.spark.settings import ExecutorShape, start_session
from penstock.spark.unit_faults import OperatorError, Skipped, decide
from penstock.spark.unit_meter import UnitMeter
from penstock.spark.unit_plan import RunFolders, UnitQuery
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_USELESS = 3
"""Exit code that says: do not start me again."""

LONGEST_PAUSE_S = 10.0
"""How long a unit waits at most before it tries again."""
SPECIFICATION = "run.pickle"
LONGEST_MEASURING_S = 5.0
"""Spark keeps its last 400 progress events: half a minute of the quickest batches."""
LEAST_HEAP_MIB = 512
"""Spark refuses executors with less than 450 MiB."""


@dataclass(frozen=True, slots=True)
class RunSpecification:
    """What every process of a run has to know; lies in the run's folder."""

    name: str
    topology: Topology
    master: str
    code: str | None = None
    """The folder whose Python modules the topology's functions are in; shipped to executors."""
    bootstrap: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """The user's own `spark.*` settings; they win."""

    def write(self, folder: Path) -> None:
        """Put it into the run's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{SPECIFICATION}.part"
        values = {**{name: getattr(self, name) for name in self.__slots__}, "settings": dict(self.settings)}
        temporary.write_bytes(pickle.dumps(values))
        temporary.replace(folder / SPECIFICATION)

    @staticmethod
    def read(folder: Path) -> RunSpecification:
        """The specification of a run's folder."""
        return RunSpecification(**pickle.loads((folder / SPECIFICATION).read_bytes()))


def executor_shape(topology: Topology, unit: str) -> ExecutorShape:
    """The size of a unit's executors: whole cores, and at least the memory Spark insists on."""
    cores = max(1, math.ceil(topology.unit_cores(unit)))
    return ExecutorShape(cores, max(LEAST_HEAP_MIB, topology.unit_memory_mib(unit)))


def unit_settings(topology: Topology, unit: str, user: Mapping[str, str]) -> dict[str, str]:
    """Spark settings of a unit's session on top of the general ones; the user's win."""
    found = topology.unit_by_name[unit]
    slots = max(1, found.slots)
    shape = executor_shape(topology, unit)
    most_slots = found.max_instances * slots
    settings = {
        "spark.task.cpus": str(max(1, shape.cores // slots)),
        # Parquet notes least and greatest value of these only: a batch's name says from when its records are.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Files are small: without a cost of opening each becomes a task, as long as slots may want one.
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": str(min(64, max(2, most_slots))),
        # A backlog of many batch folders is listed by the driver, not by a Spark job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # Executors are retired and lost on purpose here: that is no reason to fail a query.
        "spark.task.maxFailures": "8",
        "spark.shuffle.io.maxRetries": "1",
    }
    return {**settings, **user}


def start_unit_session(specification: RunSpecification, unit: str, initial: int) -> SparkSession:
    """The session of a unit's application, with the topology's code and what its channels need."""
    import pyspark

    topology = specification.topology
    settings = unit_settings(topology, unit, specification.settings)
    if any(channel.kind == "kafka" for channel in topology.channels):
        jars = connector_jars(cache_folder("jars"), pyspark.__version__)
        given = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*([given] if given else []), *(str(jar) for jar in jars)])
    spark = start_session(
        f"{specification.name}/{unit}",
        specification.master,
        executor=executor_shape(topology, unit),
        initial_executors=initial,
        settings=settings,
    )
    if specification.code is not None:
        ship_code(spark, Path(specification.code))
    return spark


def ship_code(spark: SparkSession, folder: Path) -> None:
    """Send the Python modules of a folder to every executor, now and later; nothing to install there."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).parts
            if not any(part.startswith((".", "__pycache__")) or part == "site-packages" for part in parts):
                archive.write(file, str(Path(*parts)))
    place = Path(tempfile.mkdtemp(prefix="penstock-code-")) / "penstock_code.zip"
    place.write_bytes(content.getvalue())
    spark.sparkContext.addPyFile(str(place))


class UnitDriver:
    """Runs one unit until it is told to stop."""

    def __init__(self, specification: RunSpecification, folder: Path, unit: str) -> None:
        self.specification = specification
        self.unit = unit
        self.folders = RunFolders(folder)
        self._client = HeartbeatClient(folder)
        self._wanted_file = wanted_file(self.folders, unit)
        self._wanted = read_wanted(self._wanted_file) or Wanted(
            specification.topology.unit_by_name[unit].initial_instances
        )
        self._state = "starting"
        self._notices: list[str] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def run(self) -> int:
        """Start session and query, obey, and end; gives back the process's exit code."""
        specification = self.specification
        spark = start_unit_session(specification, self.unit, self._wanted.target)
        skipped = Skipped(self.folders.dead_letters(self.unit))
        query = UnitQuery(
            spark, specification.topology, self.unit, self.folders, specification.bootstrap, skipped.ids()
        )
        executors = ExecutorControl(spark)
        heart = threading.Thread(target=self._beat, args=(spark, executors, query), daemon=True)
        heart.start()
        code = EXIT_FAILED
        try:
            code = self._serve(query, skipped)
        except PenstockError as error:
            self._say("failed", f"unit {self.unit} stopped: {error}")
            LOG.error("%s", error)
            code = EXIT_USELESS
        finally:
            self._ended.set()
            heart.join(2 * HEARTBEAT_S + 3)
            with contextlib.suppress(Exception):
                query.clean()
            with contextlib.suppress(Exception):
                spark.stop()
        return code

    def _serve(self, query: UnitQuery, skipped: Skipped) -> int:
        attempt, last_failed_batch = 0, -1
        while not self._wanted.stop:
            running = None
            try:
                running = query.start()
                self._say("running")
                while not self._wanted.stop:
                    if running.awaitTermination(0.5):
                        break
                if self._wanted.stop:
                    running.stop()
                    query.stop_publishing()
            except (ConfigurationError, OperatorError):
                raise
            except ClusterError as error:
                # A broker that does not answer: the unit waits for it, and so do its records.
                self._say("running", f"unit {self.unit}: {error}")
                self._ended.wait(LONGEST_PAUSE_S)
            except Exception as error:
                batch = int(((running.lastProgress if running else None) or {}).get("batchId", 0))
                attempt = attempt + 1 if batch == last_failed_batch else 0
                last_failed_batch = batch
                self._say("running", f"unit {self.unit}: {decide(query, error, attempt, skipped)}")
                # A broker or a disk that is away gets a moment; what waits is kept by the source.
                self._ended.wait(min(LONGEST_PAUSE_S, 0.5 * 2**attempt))
        self._say("stopped")
        return EXIT_STOPPED

    def _say(self, state: str, notice: str | None = None) -> None:
        with self._lock:
            self._state = state
            if notice is not None:
                self._notices.append(notice)
                LOG.warning("%s", notice)

    def _beat(self, spark: SparkSession, executors: ExecutorControl, query: UnitQuery) -> None:
        meter = UnitMeter(spark, executors, query)
        every_s = measuring_s(self.specification.topology)
        measured_s = -every_s
        scalable = scalability(spark).possible
        if scalable:
            executors.take_over()
        cleaned_s = time.monotonic()
        while True:
            ended = self._ended.is_set()
            started_s = time.monotonic()
            try:
                due = started_s >= measured_s + every_s - HEARTBEAT_S / 2
                measured_s = started_s if due else measured_s
                self._one_beat(spark, executors, meter, scalable, due or ended)
                if time.monotonic() - cleaned_s > 3 * HEARTBEAT_S:
                    query.clean()
                    cleaned_s = time.monotonic()
                    problem = query.publishing_problem
                    if problem is not None:
                        self._say(self._state, f"unit {self.unit}: results cannot be published: {problem}")
            except Exception as error:
                if not ended:
                    LOG.warning("a heartbeat failed: %s", error)
            if ended:
                return
            self._ended.wait(max(0.1, HEARTBEAT_S - (time.monotonic() - started_s)))

    def _one_beat(
        self, spark: SparkSession, executors: ExecutorControl, meter: UnitMeter, scalable: bool, due: bool
    ) -> None:
        measurement = meter.measure(time.time()) if due else None
        present = meter.meter.executors if due else executors.present()
        retiring = executors.retiring
        with self._lock:
            notices, self._notices = tuple(self._notices), []
            state = self._state
        report = UnitReport(
            self.unit,
            os.getpid(),
            str(spark.sparkContext.applicationId),
            state,
            tuple(ReportedExecutor(e.id, e.host, e.id in retiring) for e in present),
            measurement,
            notices,
            details=_plain(asdict(meter.meter.details)),
        )
        wanted = self._client.send(report)
        if wanted is None:
            with self._lock:
                self._notices = [*notices, *self._notices][-20:]
        elif wanted != self._wanted:
            self._wanted = wanted
            write_wanted(self._wanted_file, wanted)
        if scalable and not self._wanted.stop:
            if executors.target != self._wanted.target:
                executors.set_target(self._wanted.target)
            alive = {executor.id for executor in present}
            going = [name for name in self._wanted.retire if name in alive]
            if going:
                executors.retire(going)
            executors.tick()


def measuring_s(topology: Topology) -> float:
    """How often a driver measures: a few times in an interval of the loop, and no oftener than heard."""
    return max(HEARTBEAT_S, min(LONGEST_MEASURING_S, topology.loop.monitoring_s / 3))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def wanted_file(folders: RunFolders, unit: str) -> Path:
    """Where a unit's last wanted state is written down, for its driver's next start."""
    return folders.unit(unit) / "wanted.json"


def read_wanted(file: Path) -> Wanted | None:
    """The wanted state last written down; None where there is none."""
    try:
        return Wanted.from_json(file.read_text())
    except (OSError, ValueError, KeyError):
        return None


def write_wanted(file: Path, wanted: Wanted) -> None:
    """Write a wanted state down. Executor ids and the order to stop belong to one start of a driver."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_text(Wanted(wanted.target).to_json())
    temporary.replace(file)


def main(arguments: list[str] | None = None) -> int:
    """Run the unit named on the command line."""
    from penstock.spark.processes import exit_on_sigterm

    folder, unit = (arguments or sys.argv[1:])[:2]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    exit_on_sigterm()
    specification = RunSpecification.read(Path(folder))
    if specification.code is not None:
        sys.path.insert(0, specification.code)
        # Spark starts Python workers beside the driver too (transformWithState); they look here.
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [specification.code, given]))
    return UnitDriver(specification, Path(folder), unit).run()


if __name__ == "__main__":
    sys.exit(main())
