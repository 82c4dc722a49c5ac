"""Several queries in one attached session: each with its own goal, backlog and fate."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.controller.status import QueryStatus
from penstock.errors import ConfigurationError
from penstock.machine.endpoint import token_file
from penstock.machine.processes import wait_until
from penstock.spark.session.backlog import Backlogs, Waiting
from penstock.spark.session.goals import Goal, Goals, read_goals
from penstock.spark.session.progress import Batch, SourceProgress, parse_progress
from penstock.spark.session.waiting import offsets_behind


def test_goals_bring_queries_to_one_scale() -> None:
    goals = read_goals(
        2.0, {"orders": "500 ms", "archive": {"slo": "1 min", "priority": 0}, "b": {"priority": 0.5}}
    )
    assert goals.own["orders"] == Goal(0.5, 1.0)
    assert goals.weight("orders") == 4.0, "0.5 s late there is as bad as 2 s elsewhere"
    assert goals.weight("archive") == 0.0, "best effort is no reason to grow"
    assert goals.weight("b") == 0.5
    assert goals.weight("any other") == 1.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"q": {"slow": "1 s"}}, "queries\\['q'\\]: 'slow'.*slo"),
        ({"q": "0 s"}, "above 0"),
        ({"q": {"priority": -1}}, "priority from 0"),
    ],
)
def test_wrong_goals_are_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        penstock.attach(None, queries=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "latest", "rows", "behind"),
    [
        ({"offset": 10}, {"offset": 30}, {"offset": 75}, 20, 45),
        ({"a": 0, "b": 5}, {"a": 3, "b": 6}, {"a": 4, "b": 9}, 4, 4),
        # Offsets that are no counts: two seconds went by, twenty records came.
        ({"at": 100}, {"at": 102}, {"at": 160}, 20, None),
        (None, {"offset": 30}, {"offset": 75}, 20, None),
    ],
)
def test_a_source_of_ones_own_counts_records_where_its_offsets_did(
    start: Any, end: Any, latest: Any, rows: int, behind: int | None
) -> None:
    assert offsets_behind(SourceProgress("PythonSource", rows, end, latest, start)) == behind


def event(number: int, second: int, rows: int, took_ms: int, **source: Any) -> dict[str, Any]:
    return {
        "id": "q", "batchId": number, "timestamp": f"2026-03-01T10:00:{second:02d}.000Z",
        "durationMs": {"triggerExecution": took_ms},
        "sources": [{"description": "TextSocketV2", "numInputRows": rows, **source}],
    }  # fmt: skip


def test_where_no_source_tells_a_batch_is_behind_by_what_came_while_it_took_too_long() -> None:
    backlogs = Backlogs()
    backlogs.finish(parse_progress(event(0, 0, 100, 4000)))
    backlogs.finish(parse_progress(event(1, 10, 500, 8000)))
    late = backlogs.counted({"q": 5.0})["q"]
    assert (late.records, late.told_by) == (150, "batch time")  # 50 a second, three seconds too long
    assert backlogs.counted({"q": 10.0})["q"].records == 0
    backlogs.finish(parse_progress(event(2, 20, 5, 100, metrics={"numFilesOutstanding": "8"})))
    assert (backlogs.counted({"q": 1.0})["q"].records, backlogs.counted({"q": 1.0})["q"].told_by) == (
        8,
        "source",
    )


def planned(number: int, second: int, took_ms: int, **sources: tuple[int, int | None, int]) -> Batch:
    """A batch of Kafka topics, of each: where it ended, what was newest as it was planned, rows.

    A source that does not tell what is newest tells no offsets at all.
    """
    told = event(number, second, 0, took_ms)
    told["sources"] = [
        {"description": topic, "numInputRows": rows}
        if newest is None
        else {
            "description": f"KafkaV2[Subscribe[{topic}]]", "numInputRows": rows,
            "endOffset": {topic: {"0": end}}, "latestOffset": {topic: {"0": newest}},
        }
        for topic, (end, newest, rows) in sources.items()
    ]  # fmt: skip
    return parse_progress(told)


def test_a_source_that_is_read_to_its_end_is_behind_by_what_came_while_a_batch_took_too_long() -> None:
    backlogs = Backlogs()
    backlogs.finish(planned(0, 0, 9000, orders=(100, 100, 100)))
    assert backlogs.counted({"q": 2.0})["q"] == Waiting(0, 0, "offsets"), "how fast they come is not known"
    backlogs.finish(planned(1, 10, 8000, orders=(600, 600, 500)))
    # All that was there was taken; 50 a second came for six seconds more than a batch may take.
    assert backlogs.counted({"q": 2.0})["q"] == Waiting(300, 0, "batch time")
    assert backlogs.counted({"q": 8.0})["q"] == Waiting(0, 0, "offsets")


def test_what_offsets_tell_counts_where_it_is_more_and_what_was_left_before_did_not_come_since() -> None:
    backlogs = Backlogs()
    backlogs.finish(planned(0, 0, 9000, orders=(100, 1100, 100)))
    backlogs.finish(planned(1, 10, 8000, orders=(600, 1200, 500)))
    assert backlogs.counted({"q": 2.0})["q"] == Waiting(600, 0, "offsets")
    # The last of the backlog was read, and nothing came: nothing waits, although it took long.
    backlogs.finish(planned(2, 20, 8000, orders=(1200, 1200, 600)))
    assert backlogs.counted({"q": 2.0})["q"] == Waiting(0, 0, "offsets")


def test_a_source_that_tells_nothing_counts_by_batch_time_beside_one_that_does() -> None:
    backlogs = Backlogs()
    backlogs.finish(planned(0, 0, 4000, orders=(100, 100, 100), socket=(0, None, 10)))
    backlogs.finish(planned(1, 10, 8000, orders=(200, 1200, 100), socket=(0, None, 400)))
    # A thousand by offsets; of the socket 40 a second, three seconds too long.
    assert backlogs.counted({"q": 5.0})["q"] == Waiting(1120, 0, "offsets, batch time")


class Heard(penstock.Listener):
    """Writes down the news."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self.ended = False

    def on_notice(self, text: str, status: Any) -> None:
        self.news.append(text)

    def on_end(self, status: Any) -> None:
        self.ended = True


@pytest.fixture
def started(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts queries by name; all are stopped afterwards."""
    running = []

    def start(name: str, batch: Any = None, stream: Any = None, **trigger: Any) -> Any:
        read = stream or spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = read.writeStream.queryName(name).option("checkpointLocation", str(tmp_path / f"c-{name}"))
        writer = writer.foreachBatch(batch) if batch is not None else writer.format("noop")
        running.append((writer.trigger(**trigger) if trigger else writer).start())
        return running[-1]

    yield start
    for query in running:
        with contextlib.suppress(Exception):
            query.stop()


def worst_s(handle: Any) -> float:
    measured = handle.status().units[0].measurement
    return 0.0 if measured is None else measured.duration_s or 0.0


@pytest.mark.spark
def test_each_query_has_its_own_goal_backlog_and_fate(spark: Any, started: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    for number in range(6):
        (tmp_path / "lines" / f"{number}.txt").write_text("line\n" * 10)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
    heard = Heard()
    handle = penstock.attach(
        spark, slo="30 s", queries={"files": {"slo": "10 ms"}, "late": {"priority": 0}}, interval="500 ms",
        advise_only=True, journal=tmp_path / "journal.db", metrics=0, listeners=[heard],
    )  # fmt: skip

    def query(name: str) -> QueryStatus | None:
        return next((q for q in handle.status().queries if q.name == name), None)

    def fail(batch: Any, number: int) -> None:
        # Not before it was looked at: what lives only between two looks is never seen (docs/attach.md).
        if query("fails") is not None:
            raise ValueError("a broken sink")

    try:
        started("files", stream=lines, processingTime="1 second")
        started("late")
        rows = spark.newSession().readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        elsewhere = started("elsewhere", stream=rows)
        fails = started("fails", batch=fail)
        once = started("once", stream=lines, availableNow=True)
        assert wait_until(lambda: (found := query("fails")) is not None and not found.active, 60), handle
        assert "a broken sink" in (query("fails") or QueryStatus("", "", 0)).problem  # type: ignore[operator]
        with contextlib.suppress(Exception):
            fails.awaitTermination(10)
        started("fails")
        assert wait_until(lambda: (found := query("fails")) is not None and found.active, 60), handle
        assert wait_until(lambda: (q := query("files")) is not None and q.processed >= 20, 60), handle
        files, late = query("files"), query("late")
        assert files is not None
        assert late is not None
        assert (files.slo_s, late.slo_s, late.priority) == (0.01, 30.0, 0.0)
        assert (files.told_by, late.told_by) == ("files", "batch time")
        other = query("elsewhere")
        assert other is not None, "queries of the application's other sessions are measured too"
        assert other.trigger == "as soon as it can"
        assert (files.trigger, late.trigger) == ("every 1 s", "as soon as it can")
        assert files.keeps is False
        assert once.awaitTermination(60)
        assert wait_until(lambda: (q := query("once")) is not None and not q.active, 30), handle
        done = query("once")
        assert done is not None
        assert (done.problem, done.trigger) == (None, "available now")
        for number in range(6, 30):  # one a second: it has something to do while it is looked at
            (tmp_path / "lines" / f"{number}.txt").write_text("line\n" * 10)
        assert wait_until(lambda: worst_s(handle) > 30.0, 30), "the worst query, on the session's scale"
        known = {"Authorization": f"Bearer {token_file().read_text()}"}
        request = urllib.request.Request(handle.status().metrics, headers=known)
        with urllib.request.urlopen(request, timeout=10) as answer:
            families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
        named = {sample.labels["query"] for sample in families["penstock_query_slo_seconds"].samples}
        assert named == {"files", "late", "elsewhere", "fails", "once"}
        html = handle._repr_html_()
        assert "every 1 s" in html
        assert "advising only" in html
        assert "query files: runs" in repr(handle)
        assert handle.status().service == "advice"
        for query_left in (*spark.streams.active, elsewhere):
            query_left.stop()
        ended = "every streaming query of the session has ended"
        assert wait_until(lambda: ended in heard.news, 30), heard.news
        told_s = handle.status().at_s
        assert wait_until(lambda: handle.status().at_s >= told_s + 2.0, 30), "four more ticks"
        assert heard.news.count(ended) == 1, "it is said once, not every tick"
        assert not [text for text in handle.status().decisions if "not known yet" in text]
    finally:
        handle.stop()
    assert heard.ended
    assert any("query fails failed: " in text and "a broken sink" in text for text in heard.news)
    assert any(text == "query fails was started again" for text in heard.news)
    assert handle.status().problem is None


def test_what_fails_inside_does_not_reach_the_job() -> None:
    class Strange:
        """A session of a kind nobody has seen."""

        streams = None

    handle = penstock.attach(Strange())  # type: ignore[arg-type]
    assert not handle.running
    assert handle.status().phase == "ended"
    assert handle.status().problem
    handle.stop()
    assert Goals(1.0).weight("x") == 1.0
