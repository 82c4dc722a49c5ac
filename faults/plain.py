"""Plain Spark beside it: the same work by hand, with a supervisor that starts again whatever has died.

`python -m faults.plain` measures how long the job needs from a fault to processing again, and writes it to
build/faults/plain.json. A supervisor of this kind sees that a process is gone, not that it hangs. A job that
went on and then stopped for good has not survived: it is started anew for the next fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from faults.ground import HERE, RATE_PER_S, SETTINGS
from faults.kinds import LONG_S, SHORT_S, newest
from penstock.channels.batches import batches_in, last_batch
from penstock.machine.processes import exit_on_sigterm, wait_until
from penstock.spark.checkpoints import Checkpoint, SinkLog
from penstock.spark.launching import spark_class, spark_environment, spark_java
from penstock.spark.managers.standalone import MASTER_CLASS, WORKER_CLASS

FILE = "plain.json"
WAIT_S = 120.0
KEPT_BATCHES = 1000
"""What stays of the source, some minutes of it: more than is ever read again."""
ROLES = ("executor", "worker", "driver", "driver's Java", "master", "feeder")


KINDS = (
    *(f"kill {role}" for role in ROLES),
    *(f"freeze {role} {how}" for how in ("short", "long") for role in ROLES),
    "torn offsets",
)


def known(build: Path) -> dict[str, str]:
    """The times of plain Spark on this machine by kind, in words; those not measured are said to be."""
    found = {kind: _told(kind, times_s) for kind, times_s in measured(build).items()}
    return {**dict.fromkeys(KINDS, "not measured"), **found}


def measured(build: Path) -> dict[str, list[float | None]]:
    """Seconds to processing again, by kind; None where it did not within the limit."""
    try:
        found: dict[str, list[float | None]] = json.loads((build / "faults" / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found


class Supervised:
    """Master, worker, driver and feeder of the job, each started again where it died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.source = folder / "source" / "unit"
        self.out = folder / "out"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        java = spark_java()
        port, web = _free_port(), _free_port()
        self._master = f"spark://127.0.0.1:{port}"
        here = {"SPARK_LOCAL_IP": "127.0.0.1"}
        master = spark_class(
            java, MASTER_CLASS, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)
        )
        worker = spark_class(
            java, WORKER_CLASS, "--host", "127.0.0.1", "--cores", "2", "--memory", "2048m",
            "--webui-port", "0", "--work-dir", str(folder / "work"), self._master,
        )  # fmt: skip
        job = [sys.executable, "-m", "faults.plain_job", self._master, str(self.source), str(folder)]
        feeder = folder / "feeder.json"
        workload = {"name": "constant", "parameters": {"level_per_s": RATE_PER_S}}
        feeder.write_text(
            json.dumps(
                {
                    "source": "numbers", "workload": workload, "schema": "number long",
                    "folders": [str(self.source)], "started_s": time.time() + 1.0, "duration_s": None,
                }
            )
        )  # fmt: skip
        path = os.pathsep.join(filter(None, [str(HERE / "job"), os.environ.get("PYTHONPATH")]))
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {
            "master": (master[0], {**master[1], **here}),
            "worker": (worker[0], {**worker[1], **here}),
            "driver": (job, {**os.environ, **spark_environment(java), **here, "PYTHONPATH": path}),
            "feeder": ([sys.executable, "-m", "penstock.channels.feeder", str(feeder)], dict(os.environ)),
        }
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _supervise(self) -> None:
        while not self._stop.wait(0.5):
            for name, (command, environment) in self._commands.items():
                process = self._processes.get(name)
                if process is None or process.poll() is not None:
                    if process is not None and name == "driver":
                        self._end_job()
                    with (self.folder / f"{name}.log").open("ab") as log:
                        self._processes[name] = subprocess.Popen(
                            command, stdout=log, stderr=log, env=environment, start_new_session=True
                        )

    def _end_job(self) -> None:
        """What a dead driver left: two must not write one checkpoint."""
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if "SparkSubmit" in line and str(self.folder) in line:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def pid(self, role: str) -> int | None:
        """The process of a role."""
        if role == "executor":
            return next(iter(self._below("worker", "--executor-id")), None)
        if role == "driver's Java":
            return next(iter(self._below("driver", "SparkSubmit")), None)
        return self._processes[role].pid

    def _below(self, name: str, word: str) -> list[int]:
        found = []
        with contextlib.suppress(psutil.Error, KeyError):
            for child in psutil.Process(self._processes[name].pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any(word in part for part in child.cmdline()):
                        found.append(child.pid)
        return found

    def greatest(self) -> int:
        """The greatest number that has come out, by the sink's own log."""
        log = SinkLog(self.out)
        greatest = -1
        for number in reversed(log.numbers_from(0)[-3:]):
            for file in log.files(number)[-4:]:
                with contextlib.suppress(OSError, ValueError):
                    lines = file.read_text().splitlines()
                    greatest = max([greatest, *(int(json.loads(line)["number"]) for line in lines)])
        return greatest

    def goes_on(self, behind: int, limit_s: float) -> bool:
        """Whether a record behind a number came out in time."""
        return wait_until(lambda: self.greatest() > behind, limit_s, poll_s=0.2)

    def fed(self) -> int:
        """How many records were written."""
        return round((last_batch(self.source) + 1) * 0.1 * RATE_PER_S)

    def tidy(self) -> None:
        """Remove what was read long ago, as a cleaner would: a source's folder does not grow for ever."""
        for batch in batches_in(self.source)[:-KEPT_BATCHES]:
            shutil.rmtree(batch.path, ignore_errors=True)

    def stop(self) -> None:
        """End everything."""
        self._stop.set()
        self._thread.join()
        for process in self._processes.values():
            with contextlib.suppress(psutil.Error):
                whole = psutil.Process(process.pid)
                for each in [*whole.children(recursive=True), whole]:
                    with contextlib.suppress(psutil.Error, OSError):
                        each.kill()
        for process in self._processes.values():
            process.wait()


def measure(job: Supervised, kind: str, say: Callable[[str], None]) -> float | None:
    """Seconds from a fault to processing again; None where it did not within the limit."""
    word, _, rest = kind.partition(" ")
    role = "driver's Java" if word == "torn" else rest.removesuffix(" short").removesuffix(" long")
    pid = job.pid(role)
    if pid is None:
        return None
    process = psutil.Process(pid)
    before = max(job.fed(), job.greatest()) + 2
    began_s = time.monotonic()
    if word == "kill":
        os.kill(pid, signal.SIGKILL)
    elif word == "torn":
        # In the midst of a batch, as a power cut would.
        checkpoint = Checkpoint(job.folder / "checkpoint")
        wait_until(lambda: checkpoint.unfinished() is not None, 10, poll_s=0.005)
        process.kill()
        process.wait(10)
        file = newest(checkpoint.folder / rest)
        os.truncate(file, file.stat().st_size // 2)
    else:
        process.suspend()
        hold_s = LONG_S if rest.endswith("long") else SHORT_S
        early = job.goes_on(before, hold_s)
        after_s = time.monotonic() - began_s
        wait_until(lambda: time.monotonic() - began_s >= SHORT_S, SHORT_S)
        with contextlib.suppress(psutil.Error):
            process.resume()
        if early:
            say(f"{kind}: {after_s:.1f} s")
            return after_s
    healed = job.goes_on(before, WAIT_S)
    after_s = time.monotonic() - began_s
    say(f"{kind}: {after_s:.1f} s" if healed else f"{kind}: not within {WAIT_S:g} s")
    return after_s if healed else None


def main() -> int:
    """Measure every kind some times."""
    parser = argparse.ArgumentParser(prog="python -m faults.plain", description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--times", type=int, default=3, help="how often each kind is done")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no fault after so long")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="keep what was measured before")
    given = parser.parse_args()
    exit_on_sigterm()
    until_s = time.monotonic() + 60 * given.minutes
    found = measured(given.build) if given.go_on else {}
    file = given.build / "faults" / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    # What an earlier measurement said must not stand for this one, should it come to nothing.
    file.write_text(json.dumps(found, indent=1))
    wanted = sorted(KINDS * given.times, key=lambda kind: len(found.get(kind, [])))
    with tempfile.TemporaryDirectory(prefix="penstock-plain-") as folder:
        job: Supervised | None = None
        try:
            for number, kind in enumerate(wanted):
                if time.monotonic() > until_s or len(found.get(kind, [])) >= given.times:
                    continue
                if job is None:
                    job = Supervised(Path(folder) / str(number))
                    if not job.goes_on(0, WAIT_S):
                        print("plain Spark did not start", (job.folder / "driver.log").read_text()[-2000:])
                        return 1
                after_s = measure(job, kind, _say)
                if not job.goes_on(max(job.fed(), job.greatest()) + 6, WAIT_S):
                    _say(f"{kind}: nothing comes out any more")
                    job.stop()
                    job, after_s = None, None
                else:
                    job.tidy()
                found.setdefault(kind, []).append(after_s)
                file.write_text(json.dumps(found, indent=1))
        finally:
            if job is not None:
                job.stop()
    print(f"written to {file}; Spark's own limits as in the campaign: {SETTINGS['spark.network.timeout']}")
    return 0


def _told(kind: str, times_s: list[float | None]) -> str:
    healed = [time_s for time_s in times_s if time_s is not None]
    if not healed:
        return "not survived"
    median_s = statistics.median(healed)
    if kind.endswith("long") and median_s >= LONG_S:
        return f"not before it woke after {LONG_S:g} s (n={len(healed)})"
    return f"{median_s:.1f} s (n={len(healed)} of {len(times_s)})"


def _say(text: str) -> None:
    print(text, flush=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
