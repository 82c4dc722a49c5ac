"""Where the time of a run goes: medians of micro-batches, and queries around a rescale."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

pytest.importorskip("cv2")

from cells.checking import Result
from cells.timing import Seen, parts_of, waits_around

from penstock.spark.session.progress import Batch
from penstock.spark.unit.batch_log import BatchLog
from penstock.spark.unit.folders import RunFolders


def test_parts_are_medians_and_the_longest_comes_first(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    BatchLog(folders.unit("remember")).add(
        Batch(
            "q", number, 0.0, whole_s, 10, None,
            {"triggerExecution": whole_s, "walCommit": 0.02, "addBatch": whole_s - 0.05},
            state_rows=5 * number, state_bytes=2**20 * number, state_s={"commit": 0.1},
        )
        for number, whole_s in enumerate((0.4, 9.0, 0.5), 1)
    )  # fmt: skip

    (found,) = parts_of(folders, ["see", "remember"])

    assert (found.unit, found.batches, found.rows, found.whole_s) == ("remember", 3, 10, 0.5)
    assert list(found.parts_s) == ["addBatch", "walCommit"]
    assert found.parts_s["addBatch"] == pytest.approx(0.45)
    assert (found.state_rows, found.state_mib, found.state_s) == (15, 3.0, {"commit": 0.1})


def a_query(due_s: float, took_s: float) -> Result:
    due = datetime.fromtimestamp(1000.0 + due_s, timezone.utc).isoformat()
    return Result(1000.0 + due_s + took_s, {"kind": "query", "source_time": due})


def test_the_longest_query_around_a_change_of_instances_is_told() -> None:
    counts = {"see": [0, 1, 1, 2, 2], "remember": [1, 1, 1, 1, 1]}
    seen = [Seen(10.0 * step, unit, n) for unit, found in counts.items() for step, n in enumerate(found)]
    results = [a_query(5.0, 9.0), a_query(29.0, 0.5), a_query(31.0, 2.5), a_query(60.0, 7.0)]

    (wait,) = waits_around(seen, results, 1000.0)

    assert (wait.at_s, wait.unit, wait.before, wait.after, wait.queries) == (30.0, "see", 1, 2, 2)
    assert wait.longest_s == pytest.approx(2.5)


def test_a_change_without_queries_around_it_tells_of_none() -> None:
    (wait,) = waits_around([Seen(0.0, "see", 2), Seen(1.0, "see", 1)], [], 1000.0)

    assert (wait.queries, wait.longest_s) == (0, None)
