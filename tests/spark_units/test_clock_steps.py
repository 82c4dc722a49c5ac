"""A unit's driver while somebody sets the machine's clock: what it measures goes by the run's clock."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from faults.ground import make_clock

from penstock.channels.batches import publish
from penstock.clock import WallClock
from penstock.fleet.ports import Wanted
from penstock.machine.processes import wait_until
from penstock.monitoring import Measurement
from penstock.spark.training import ensure_archive
from penstock.spark.unit.heartbeat import Beat, HeartbeatServer
from penstock.spark.unit.specification import UnitSpecification, topology_text

from .conftest import HERE, one_operator

HOUR_S = 3600.0
LONGEST_S = 120.0
"""No record waits for longer here, whatever else the machine does."""


class Machine:
    """A run's folder, the clock of the run, and a machine whose time of day can be set."""

    def __init__(self, folder: Path, step: Path) -> None:
        self.clock = WallClock()
        self.measured: list[Measurement] = []
        self.wanted = Wanted()
        self._folder, self._step, self._step_s, self._batches = folder, step, 0.0, 0

    def set(self, step_s: float) -> None:
        self._step_s = step_s
        with self._step.open("r+b") as file:
            file.write(struct.pack("<q", int(step_s * 1e9)))

    def specification(self, unit: str, attempt: int) -> UnitSpecification:
        return UnitSpecification(
            "run", unit, attempt, 1, topology_text(one_operator()), "local[1]", str(self._folder),
            self.wanted, code=str(HERE), anchor_s=self.clock.anchor_s,
        )  # fmt: skip

    def hear(self, beat: Beat) -> Wanted:
        if beat.report.measurement is not None:
            self.measured.append(replace(beat.report.measurement, at_s=beat.report.at_s))
        return self.wanted

    def feed(self) -> None:
        """Some records as a feeder writes them: from the run's present, in a file with the time of day."""
        now_s = self.clock.now_s()
        of = datetime.fromtimestamp(now_s, timezone.utc).isoformat(timespec="microseconds")
        target = self._folder / "sources" / "numbers" / "unit"
        writing = target.parent / f"_writing-{self._batches}"
        writing.mkdir(parents=True)
        ids = [f"r{self._batches}-{number}" for number in range(5)]
        lines = [json.dumps({"record_id": name, "source_time": of, "number": 1}) for name in ids]
        file = writing / "records.json"
        file.write_text("\n".join(lines) + "\n")
        # The kernel's own clock is not set here.
        os.utime(file, (now_s + self._step_s, now_s + self._step_s))
        publish(writing, [file], len(lines), [target], self._batches)
        self._batches += 1

    def measures(self, times: int) -> bool:
        """Whether so many more measurements with finished records come in."""
        wanted = len(self._finished()) + times

        def came() -> bool:
            self.feed()
            return len(self._finished()) >= wanted

        return wait_until(came, LONGEST_S, poll_s=0.5)

    def _finished(self) -> list[Measurement]:
        return [measured for measured in self.measured if measured.processed]


@pytest.mark.spark
def test_a_step_of_the_clock_changes_no_interval_no_duration_and_no_latency(tmp_path: Path) -> None:
    clock = make_clock(tmp_path)
    if isinstance(clock, str):
        pytest.skip(clock)
    ensure_archive()
    library, step = clock
    machine = Machine(tmp_path, step)
    server = HeartbeatServer(tmp_path, machine.hear, machine.specification)
    server.start()
    command = [sys.executable, "-m", "penstock.spark.unit.driver", str(tmp_path), "unit", "1"]
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAULTS_CLOCK": str(step)}
    log = (tmp_path / "driver.log").open("wb")
    driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for step_s in (0.0, HOUR_S, -HOUR_S, -HOUR_S + 5.0):
            machine.set(step_s)
            assert machine.measures(3), (tmp_path / "driver.log").read_text()[-2000:]
        machine.wanted = Wanted(stop=True)
        assert driver.wait(LONGEST_S) == 0
    finally:
        driver.kill()
        driver.wait()
        log.close()
        server.stop()
    now_s = machine.clock.now_s()
    for measured in machine.measured:
        assert 0.0 < measured.interval_s < LONGEST_S
        assert now_s - 4 * LONGEST_S < measured.at_s <= now_s
        if measured.processed:
            assert measured.duration_s is not None
            assert measured.latency_s is not None
            assert 0.0 <= measured.duration_s <= measured.latency_s + 0.1
            assert measured.latency_s < LONGEST_S
