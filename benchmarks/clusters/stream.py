"""The streaming job that is put on every cluster: numbered records in files, each worked on for a while.

`python -m benchmarks.clusters.stream SPECIFICATION.json` is the job's driver: a session at the master it is
told, one query, and `penstock.attach`. It writes what it sees beside its output, and ends when told to.
Records come at 1 x, 4 x and 1 x the rate, the last until it is told that it is enough. The work is a wait, so
that cores of the machine do not decide.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.machine.files import written

BATCH_S = 0.5
"""How often the feed writes a file."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the job is told."""

    name: str
    master: str
    folder: str
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    rate_per_s: float = 15.0
    """Records a second at 1 x."""
    work_s: float = 0.04
    """How long one record keeps a slot: at 1 x one slot is busy for six tenths of the time."""
    phases: tuple[tuple[float, float], ...] = ((1.0, 20.0), (4.0, 60.0), (1.0, 40.0))
    """(factor on the rate, seconds)."""
    most: int = 6
    interval_s: float = 2.0
    """A minute here stands for five with the default of 10 s."""
    policy: str = "auto"

    @property
    def numbers(self) -> Path:
        """Where records come from."""
        return Path(self.folder) / "numbers"

    @property
    def output(self) -> Path:
        """Where results go."""
        return Path(self.folder) / "results"

    @property
    def seen(self) -> Path:
        """What the job sees of itself, one line of JSON a second."""
        return Path(self.folder) / "seen.jsonl"

    @property
    def enough(self) -> Path:
        """A file that tells the feed to end; the last phase goes on until then."""
        return Path(self.folder) / "enough"

    @property
    def end(self) -> Path:
        """A file that tells the job to end."""
        return Path(self.folder) / "end"

    def write(self) -> Path:
        """Write it down for the job's process."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        file = Path(self.folder) / "job.json"
        written(file, json.dumps(asdict(self)))
        return file

    @staticmethod
    def read(path: Path) -> Job:
        """The job that was written down."""
        found = json.loads(path.read_text())
        found["phases"] = tuple((factor, seconds) for factor, seconds in found["phases"])
        return Job(**found)


class Feed(threading.Thread):
    """Writes numbered records at the job's pace; `written` says how many so far."""

    def __init__(self, job: Job) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.written = 0
        self.factor = 0.0

    def run(self) -> None:
        """Go through the phases."""
        file, due = 0, 0.0
        last = len(self._job.phases) - 1
        for number, (factor, seconds) in enumerate(self._job.phases):
            self.factor = factor
            until_s = time.monotonic() + seconds
            next_s = time.monotonic()
            while next_s < until_s or (number == last and not self._job.enough.exists()):
                time.sleep(max(0.0, next_s - time.monotonic()))
                due += factor * self._job.rate_per_s * BATCH_S
                count = int(due)
                due -= count
                # Of one size, as records are: what waits in files is told by their bytes.
                lines = "".join(f"{number:07d}\n" for number in range(self.written, self.written + count))
                part = self._job.numbers / f".{file:06d}.part"
                part.write_text(lines)
                part.rename(self._job.numbers / f"{file:06d}.txt")
                self.written += count
                file += 1
                next_s += BATCH_S


def main() -> int:
    """Run the job until it is told to end, or until everything came out."""
    job = Job.read(Path(sys.argv[1]))
    os.environ.update(job.environment)
    import penstock
    from penstock.spark.gateway.executors import ExecutorControl
    from penstock.spark.settings import end_session, start_session

    job.numbers.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    spark = start_session(job.name, job.master, initial_executors=1, settings=job.settings, log_level="ERROR")
    handle = penstock.attach(
        spark,
        slo="3 s",
        policy=job.policy,
        max_instances=job.most,
        interval=job.interval_s,
        journal=Path(job.folder) / "journal.db",
        name="stream",
    )
    _start_query(spark, job)
    control = ExecutorControl(spark)
    feed = Feed(job)
    with job.seen.open("a") as seen:

        def say(**more: Any) -> None:
            present = control.executors()
            line = {
                "at_s": time.time(),
                "executors": [[executor.id, executor.host] for executor in present],
                "written": feed.written,
                "factor": feed.factor,
                "feeds": feed.is_alive(),
                **more,
            }
            seen.write(json.dumps(line) + "\n")
            seen.flush()

        while not control.executors() and time.monotonic() - began_s < 180:
            time.sleep(0.2)
        say(session_s=time.monotonic() - began_s, reason=handle.status().reason)
        feed.start()
        while not job.end.exists():
            time.sleep(1.0)
            status = handle.status()
            unit = status.units[0] if status.units else None
            waiting = unit.measurement.waiting if unit is not None and unit.measurement is not None else None
            say(waiting=waiting, wanted=unit.instances if unit is not None else None, problem=status.problem)
        say(decisions=list(handle.status().decisions))
    end_session()
    return 0


def _start_query(spark: Any, job: Job) -> Any:
    """The query: as a person would write it who knows nothing of Penstock."""
    work_s = job.work_s

    def work(parts: Any) -> Any:
        for part in parts:
            time.sleep(work_s * len(part))
            yield part

    numbers = spark.readStream.option("maxFilesPerTrigger", 8).text(f"file://{job.numbers}")
    spread = numbers.repartition(job.most)
    worked = spread.mapInPandas(work, "value string")
    return (
        worked.writeStream.format("text")
        .option("checkpointLocation", f"file://{job.folder}/checkpoint")
        .option("path", f"file://{job.output}")
        .start()
    )


if __name__ == "__main__":
    sys.exit(main())
