"""The driver process of one unit: one session, one streaming query, one heartbeat.

Started by the plane as `python -m penstock.spark.unit.driver RUN_FOLDER UNIT ATTEMPT`. It asks the controller
what to run, goes on from its checkpoint whenever it is started again, obeys what answers its heartbeats, and
leaves with code 3 where starting again would not help (an operator throws and shall stop the unit), and with
code 4 where another attempt at its unit has taken its place. Told to drain, it finishes all there is to read,
notes that down in its folder and leaves: its checkpoint then ends with a finished batch. Attempt 0 is one
that is prepared for its unit's next version (`preparing`) and gets its number when it takes over.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.channels.registry import jars_of
from penstock.clock import StepsBack, TimesOfDay, WallClock
from penstock.errors import ClusterError, ConfigurationError, PenstockError
from penstock.fleet.deployment import InstanceState
from penstock.fleet.ports import SeenInstance, UnitReport
from penstock.fleet.units import UnitState
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.priority import go_first_again, let_others_go_first
from penstock.machine.secrets import log_redacted, redacted
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.executors import ExecutorControl, scalability
from penstock.spark.gateway.session import warn_less
from penstock.spark.gateway.slots import ExecutorSlots
from penstock.spark.gateway.warming import warm
from penstock.spark.object_store import store_settings
from penstock.spark.settings import ExecutorShape, start_session
from penstock.spark.unit.faults import OperatorError, Skipped, Waiting, decide
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.heartbeat import HEARTBEAT_S, HeartbeatClient, SupersededError
from penstock.spark.unit.meter import UnitMeter
from penstock.spark.unit.newcomers import Newcomers
from penstock.spark.unit.pieces import PIECES, cut_into, pieces
from penstock.spark.unit.preparing import await_turn, prepare
from penstock.spark.unit.query import UnitQuery
from penstock.spark.unit.specification import UnitSpecification
from penstock.topology.model import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.gateway.executors import Executor

LOG = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_USELESS = 3
"""Exit code that says: do not start me again."""
EXIT_SUPERSEDED = 4
"""Exit code that says: another attempt at this unit runs."""

DRAINED = "drained"
"""The file in a unit's folder that says which attempt finished all there was and left, as it was told to."""

LONGEST_PAUSE_S = 10.0
"""How long a unit waits at most before it tries again."""
LONGEST_MEASURING_S = 5.0
"""Spark keeps its last 400 progress events: half a minute of the quickest batches."""
WAIT_FOR_CONTROLLER_S = 60.0
LOOK_S = 0.2
"""How often it is looked whether something else is wanted of a query that runs."""


def executor_shape(topology: Topology, unit: str) -> ExecutorShape:
    """The size of a unit's executors: what the planner places is what Spark starts."""
    shape = topology.unit_shape(unit)
    return ExecutorShape(int(shape.cores), shape.memory_mib)


def unit_settings(topology: Topology, unit: str, user: Mapping[str, str]) -> dict[str, str]:
    """Spark settings of a unit's session on top of the general ones; the user's win."""
    found = topology.unit_by_name[unit]
    slots = max(1, found.slots)
    shape = executor_shape(topology, unit)
    settings = {
        "spark.task.cpus": str(max(1, shape.cores // slots)),
        # Parquet notes least and greatest value of these only: a batch's name says from when its records are.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Files are small: without a cost of opening they are put together until there are so many tasks.
        "spark.sql.files.openCostInBytes": "0",
        PIECES: pieces(found.initial_instances, slots),
        # A backlog of many batch folders is listed by the driver, not by a Spark job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # Executors are retired and lost on purpose here: that is no reason to fail a query.
        "spark.task.maxFailures": "8",
        "spark.shuffle.io.maxRetries": "1",
    }
    settings |= user
    if found.shards is not None:  # a unit's own word counts more than one for all units
        settings["spark.sql.shuffle.partitions"] = str(found.shards)
    return settings


def start_unit_session(specification: UnitSpecification, topology: Topology) -> SparkSession:
    """The session of a unit's application, with the topology's code and what its channels need."""
    unit = specification.unit
    settings = unit_settings(topology, unit, specification.settings)
    settings |= store_settings(specification.storage, settings)
    if jars := jars_of(topology):
        given = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*([given] if given else []), *(str(jar) for jar in jars)])
    spark = start_session(
        f"{specification.run}/{unit}",
        specification.master,
        executor=executor_shape(topology, unit),
        initial_executors=specification.wanted.target,
        settings=settings,
        checkpoints_on_local_disk=specification.storage is None,
    )
    warn_less(spark)
    if specification.code is not None:
        place = private_folder(RunFolders(Path(specification.folder)).unit(unit) / "code")
        ship_code(spark, Path(specification.code), place)
    return spark


def ship_code(spark: SparkSession, folder: Path, place: Path) -> None:
    """Send the Python modules of a folder to every executor, now and later; nothing to install there.

    They are packed in `place`, which must stay for as long as the session lives.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).parts
            if not any(part.startswith((".", "__pycache__")) or part == "site-packages" for part in parts):
                archive.write(file, str(Path(*parts)))
    packed = place / "penstock_code.zip"
    written(packed, content.getvalue(), mode=PRIVATE)
    spark.sparkContext.addPyFile(str(packed))


class UnitDriver:
    """Runs one unit until it is told to stop."""

    def __init__(self, specification: UnitSpecification, client: HeartbeatClient) -> None:
        self.specification = specification
        self.topology = specification.read_topology()
        self.unit = specification.unit
        self.folders = RunFolders(Path(specification.folder))
        self._client = client
        self._wanted = specification.wanted
        self._clock = WallClock(specification.anchor_s)
        self._state = UnitState.SUBMITTED
        self._notices: list[str] = []
        self._problem: str | None = None
        """Why it has failed."""
        self._told: dict[str, str | None] = {}
        self._waiting = Waiting()
        self._newcomers: Newcomers | None = None
        self._superseded = False
        self._drained = False
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def ready(self, spark: SparkSession) -> int | None:
        """Make ready to take the unit over, and wait until it is so; an exit code where it never is."""
        executors = ExecutorControl(spark)
        if scalability(spark).possible:
            executors.take_over()
        found = prepare(spark, executors, self.specification)
        if found.problem is not None:
            LOG.error("%s", found.problem)
            return EXIT_USELESS
        try:
            self.specification = await_turn(self._client)
        except PenstockError as error:
            LOG.warning("%s; this one was not needed", error)
            return EXIT_SUPERSEDED
        go_first_again()
        self._wanted = self.specification.wanted
        return None

    @property
    def _over(self) -> bool:
        if self.folders.is_superseded(self.unit, self.specification.attempt) and not self._superseded:
            LOG.error("another attempt at unit %s runs; this one ends", self.unit)
            self._superseded = True
        return self._wanted.stop or self._superseded

    def run(self) -> int:
        """Start session and query, obey, and end; gives back the process's exit code."""
        spark = start_unit_session(self.specification, self.topology)
        useless = self.ready(spark) if self.specification.prepare else None
        if useless is not None:
            with contextlib.suppress(Exception):
                spark.stop()
            return useless
        skipped = Skipped(self.folders.dead_letters(self.unit))
        finished = Checkpoint(self.folders.checkpoint(self.unit)).finished()
        query = UnitQuery(
            spark, self.topology, self.unit, self.folders, self.specification.bootstrap,
            skipped.ids(finished), self.specification.storage, self.specification.attempt,
        )  # fmt: skip
        executors = ExecutorControl(spark)
        heart = threading.Thread(target=self._beat, args=(spark, executors, query), daemon=True)
        heart.start()
        code = EXIT_FAILED
        try:
            code = self._serve(query, skipped)
        except PenstockError as error:
            self._problem = redacted(str(error))
            self._say(UnitState.FAILED)
            LOG.error("%s", error)
            code = EXIT_USELESS
        finally:
            self._ended.set()
            heart.join(2 * HEARTBEAT_S + 3)
            with contextlib.suppress(Exception):
                query.clean()
            if self._drained and not self._superseded:
                # From here on nothing of the unit is touched: whoever waits for it need not wait for Java.
                mark = str(self.specification.attempt)
                written(self.folders.unit(self.unit) / DRAINED, mark, durable=True)
            with contextlib.suppress(Exception):
                spark.stop()
        return EXIT_SUPERSEDED if self._superseded else code

    def _serve(self, query: UnitQuery, skipped: Skipped) -> int:
        attempt, last_failed_batch = 0, -1
        steps = StepsBack()
        proven_s = time.monotonic() + self.specification.on_trial_s
        while not self._over:
            running = None
            try:
                draining = self._wanted.drain
                running = query.start(drain=draining)
                self._say(UnitState.RUNNING, *(f"unit {self.unit}: {told}" for told in query.mended()))
                while not self._over and self._wanted.drain is draining:
                    if running.awaitTermination(LOOK_S):
                        self._drained = draining
                        break
                    if back_s := steps.since_last_s():
                        # Spark's trigger and Kafka's clients wait by the time of day: an hour back, an hour
                        # more. A query that starts anew does not.
                        told = f"the clock was set back by {back_s:.0f} s; its query starts anew"
                        self._say(UnitState.RUNNING, f"unit {self.unit}: {told}")
                        break
                running.stop()
                if self._drained:
                    query.publish_all()
                    self.folders.note_reached(self.unit, query.reached())
                    return EXIT_STOPPED
                query.stop_publishing()
            except (ConfigurationError, OperatorError):
                raise
            except SupersededError:
                continue  # and so it is over
            except ClusterError as error:
                self._drained = False
                # A broker that does not answer: the unit waits for it, and so do its records.
                self._say(UnitState.RUNNING, self._waiting.said(f"unit {self.unit}: {error}"))
                self._ended.wait(LONGEST_PAUSE_S)
            except Exception as error:
                if self._over:
                    break
                batch = int(((running.lastProgress if running else None) or {}).get("batchId", 0))
                attempt = attempt + 1 if batch == last_failed_batch else 0
                last_failed_batch = batch
                on_trial = time.monotonic() < proven_s
                told = f"unit {self.unit}: {decide(query, error, attempt, skipped, on_trial=on_trial)}"
                self._say(UnitState.RUNNING, self._waiting.said(told))
                # A broker or a disk that is away gets a moment; what waits is kept by the source.
                self._ended.wait(min(LONGEST_PAUSE_S, 0.5 * 2**attempt))
        self._say(UnitState.STOPPED)
        return EXIT_STOPPED

    def _say(self, state: UnitState, *notices: str | None) -> None:
        with self._lock:
            self._state = state
            for notice in map(redacted, filter(None, notices)):
                self._notices.append(notice)
                LOG.warning("%s", notice)

    def _beat(self, spark: SparkSession, executors: ExecutorControl, query: UnitQuery) -> None:
        meter = UnitMeter(spark, executors, query, TimesOfDay(self._clock))
        every_s = measuring_s(self.topology)
        measured_s = -every_s
        scalable = scalability(spark).possible
        if scalable:
            executors.take_over()
            # Asking Spark for executors waits for the master's answer, long where it hangs; reports do not.
            slots = ExecutorSlots(spark)
            executors.further_cores = slots.cores
            self._newcomers = Newcomers(lambda executor: warm(spark, executor))
            threading.Thread(target=self._obey, args=(spark, executors, slots), daemon=True).start()
        cleaned_s = time.monotonic()
        while True:
            ended = self._ended.is_set()
            started_s = time.monotonic()
            try:
                due = started_s >= measured_s + every_s - HEARTBEAT_S / 2
                measured_s = started_s if due else measured_s
                self._one_beat(spark, executors, meter, due or ended)
                if time.monotonic() - cleaned_s > 3 * HEARTBEAT_S:
                    query.clean()
                    cleaned_s = time.monotonic()
                    self._tell_problems(query)
            except SupersededError as error:
                LOG.error("%s; this one ends", error)
                self._superseded = True
                return
            except Exception as error:
                if not ended:
                    LOG.warning("a heartbeat failed: %s", error)
            if ended:
                return
            self._ended.wait(max(0.1, HEARTBEAT_S - (time.monotonic() - started_s)))

    def _tell_problems(self, query: UnitQuery) -> None:
        """Say what cannot be published or cleaned away, once for as long as it stays the same."""
        problems = {
            "results cannot be published": query.publishing_problem,
            "what was read cannot be cleaned away": query.cleaning_problem,
            "its shards": query.sharding_problem,
        }
        for what, problem in problems.items():
            if problem is not None and self._told.get(what) != problem:
                self._say(self._state, f"unit {self.unit}: {what}: {problem}")
            self._told[what] = problem

    def _obey(self, spark: SparkSession, executors: ExecutorControl, slots: ExecutorSlots) -> None:
        """Bring the executors to what is wanted, once a second; what fails is tried again."""
        while not self._ended.wait(HEARTBEAT_S):
            wanted = self._wanted
            if wanted.stop:
                continue
            try:
                if executors.target != wanted.target:
                    executors.set_target(wanted.target)
                if wanted.retire or wanted.kill:
                    alive = {executor.id for executor in executors.executors()}
                    executors.retire([name for name in (*wanted.retire, *wanted.kill) if name in alive])
                    hurried = [name for name in wanted.kill if name in alive]
                    if hurried:
                        executors.kill(hurried)
                executors.tick()
                self._resize(executors, slots)
                if PIECES not in self.specification.settings:
                    own = max(1, self.topology.unit_by_name[self.unit].slots)
                    cut_into(spark, pieces(wanted.target, own, wanted.slots))
            except Exception as error:
                if not self._ended.is_set():
                    LOG.warning("the executors could not be brought to what is wanted yet: %s", error)

    def _resize(self, executors: ExecutorControl, slots: ExecutorSlots) -> None:
        """Give every executor the slots it shall have, in place."""
        own, wanted = max(1, self.topology.unit_by_name[self.unit].slots), self._wanted.slots
        if wanted or slots.given:
            present = frozenset(executor.id for executor in executors.present())
            cores = executor_shape(self.topology, self.unit).cores // own
            slots.bring_to({name: n - own for name, n in wanted.items()}, present, max(1, cores))

    def _one_beat(self, spark: SparkSession, executors: ExecutorControl, meter: UnitMeter, due: bool) -> None:
        measurement = meter.measure(self._clock.now_s()) if due else None
        present = meter.meter.executors if due else executors.present()
        retiring = executors.retiring
        with self._lock:
            notices, self._notices = tuple(self._notices), []
            state = self._state
        report = UnitReport(
            self.unit,
            self._clock.now_s(),
            state,
            str(spark.sparkContext.applicationId),
            self._seen(present, retiring, meter.meter.since_s),
            measurement,
            notices,
            self._problem,
        )
        wanted = self._client.send(report)
        if wanted is None:
            with self._lock:
                self._notices = [*notices, *self._notices][-20:]
        else:
            self._wanted = wanted

    def _seen(
        self, present: tuple[Executor, ...], retiring: frozenset[str], since_s: Callable[[Executor], float]
    ) -> tuple[SeenInstance, ...]:
        starting = self._newcomers.starting(present, retiring) if self._newcomers is not None else ()
        states = dict.fromkeys(starting, InstanceState.STARTING)
        states |= dict.fromkeys(retiring, InstanceState.RETIRING)
        return tuple(
            SeenInstance(
                executor.id, states.get(executor.id, InstanceState.RUNNING), executor.host, since_s(executor)
            )
            for executor in present
        )


def measuring_s(topology: Topology) -> float:
    """How often a driver measures: a few times in an interval of the loop, and no oftener than heard."""
    return max(HEARTBEAT_S, min(LONGEST_MEASURING_S, topology.loop.monitoring_s / 3))


def main(arguments: list[str] | None = None) -> int:
    """Run the unit named on the command line."""
    from penstock.machine.processes import exit_on_sigterm

    folder, unit, attempt = (arguments or sys.argv[1:])[:3]
    log_redacted()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    exit_on_sigterm()
    client = HeartbeatClient(Path(folder), unit, int(attempt))
    try:
        specification = client.specification(_giving_up_after(WAIT_FOR_CONTROLLER_S))
    except SupersededError as error:
        LOG.error("%s; this one ends", error)
        return EXIT_SUPERSEDED
    if specification.prepare:
        let_others_go_first()  # before Java starts: it inherits that
    os.environ.update(specification.environment)
    if specification.code is not None:
        sys.path.insert(0, specification.code)
        # Spark starts Python workers beside the driver too (transformWithState); they look here.
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [specification.code, given]))
    return UnitDriver(specification, client).run()


def _giving_up_after(limit_s: float) -> Callable[[float], bool]:
    """Waits a moment, and says whether the whole time is over."""
    deadline_s = time.monotonic() + limit_s

    def wait(pause_s: float) -> bool:
        time.sleep(pause_s)
        return time.monotonic() >= deadline_s

    return wait


if __name__ == "__main__":
    sys.exit(main())
