"""A unit's results where the clock is set a day ahead of the times that files have: none is forgotten."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from faults.ground import make_clock

from penstock.channels.sinks import read_results
from penstock.spark.training import ensure_archive

BATCHES = 12
"""The tenth of them repeats in Spark's log what the nine before had, with what it has itself."""
AHEAD_S = 86_400
JOB = """
import sys
from pathlib import Path
from penstock.channels.publishing import FolderWriter, Publisher
from penstock.spark.settings import end_session, start_session

folder = Path(sys.argv[1])
spark = start_session("ahead", "local[1]", log_level="ERROR")
lines = spark.readStream.option("maxFilesPerTrigger", 1).schema("record_id string")
records = lines.json(str(folder / "given"))
records = records.selectExpr("record_id", "timestamp '2026-01-01 00:00:00' as source_time")
publisher = Publisher(folder / "staging", [folder / "out"], "json", "me")
writer = FolderWriter(records, "json", publisher)
writer.start()
sink = writer.writer().option("checkpointLocation", str(folder / "checkpoint"))
query = sink.trigger(availableNow=True).start()
query.awaitTermination()
writer.stop()
end_session()
"""


@pytest.mark.spark
def test_a_clock_that_is_set_forward_makes_sparks_sink_forget_nothing(tmp_path: Path) -> None:
    clock = make_clock(tmp_path)
    if isinstance(clock, str):
        pytest.skip(clock)
    ensure_archive()
    library, step = clock
    step.write_bytes(struct.pack("<q", AHEAD_S * 10**9))
    (tmp_path / "given").mkdir()
    for number in range(BATCHES):
        (tmp_path / "given" / f"{number:03d}.json").write_text(f'{{"record_id": "r{number:02d}"}}\n')
    (tmp_path / "job.py").write_text(JOB)
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAULTS_CLOCK": str(step)}
    command = [sys.executable, str(tmp_path / "job.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [record["record_id"] for record in read_results(tmp_path / "out")]
    assert sorted(found) == [f"r{number:02d}" for number in range(BATCHES)]
