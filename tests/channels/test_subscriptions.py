"""Subscribers from outside: they come and go while a stream is written, and what they did not read waits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.channels.batches import batches_in, begin_behind, hand_over, publish
from penstock.channels.publishing import Publisher
from penstock.channels.subscriptions import (
    PREFIX,
    Terms,
    publish_to_subscribers,
    subscribe,
    subscription,
    subscriptions,
    unsubscribe,
)
from penstock.errors import ConfigurationError
from penstock.topology.validation import bad_name


def write(stream: Path, batch_id: int, numbers: range, writer: str = "me") -> None:
    """One batch of a stream that nobody but subscribers reads."""
    file = stream.parent / f"part-{batch_id}.json"
    file.write_text("".join(json.dumps({"record_id": f"r{n}"}) + "\n" for n in numbers))
    publish_to_subscribers(stream, [file], len(numbers), batch_id, writer)


def ids(records: list[dict[str, object]]) -> list[int]:
    return [int(str(record["record_id"])[1:]) for record in records]


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    folder = tmp_path / "channels" / "files" / "read"
    folder.mkdir(parents=True)
    return folder


def test_a_subscriber_reads_from_its_next_batch_on_and_each_at_its_own_pace(stream: Path) -> None:
    write(stream, 0, range(5))
    first = subscribe(stream, Terms("first"))
    write(stream, 1, range(5, 10))
    second = subscribe(stream, Terms("second"))
    write(stream, 2, range(10, 15))
    assert ids(first.read()[0]) == list(range(5, 15))
    assert ids(second.read()[0]) == list(range(10, 15))
    records, number = first.read(5)
    assert ids(records) == list(range(5, 10)), "whole batches, as many as fit"
    assert ids(first.read(5)[0]) == ids(records), "until they are done they come again"
    assert first.done(number) == 5
    assert ids(first.read(5)[0]) == list(range(10, 15))
    assert second.standing().waiting == 5


def test_what_an_absent_subscriber_did_not_read_waits_within_its_bound_and_the_rest_is_counted(
    stream: Path,
) -> None:
    absent = subscribe(stream, Terms("absent", most_records=20))
    for batch_id in range(10):
        write(stream, batch_id, range(10 * batch_id, 10 * batch_id + 10))
    assert ids(absent.read()[0]) == list(range(80, 100))
    assert (absent.standing().waiting, absent.standing().dropped) == (20, 80)
    files = sum(len(found) for _, _, found in os.walk(absent.folder))
    assert files < 6, "what was dropped is gone from the disk"


def test_a_batch_written_again_after_a_crash_comes_once_also_where_all_was_read(stream: Path) -> None:
    reader = subscribe(stream, Terms("reader"))
    write(stream, 7, range(3))
    reader.done(reader.read()[1])
    write(stream, 7, range(3))
    assert reader.read() == ([], -1)
    write(stream, 8, range(3, 6))
    assert ids(reader.read()[0]) == [3, 4, 5]


def test_whoever_leaves_gets_nothing_more_and_leaves_nothing_behind(stream: Path) -> None:
    subscribe(stream, Terms("brief"))
    write(stream, 0, range(3))
    assert unsubscribe(stream, "brief")
    assert not unsubscribe(stream, "brief")
    write(stream, 1, range(3, 6))
    assert list(subscriptions(stream)) == []
    assert list(stream.iterdir()) == []
    assert subscription(stream, "brief") is None


def test_one_whose_folder_is_another_writers_holds_up_nobody_until_it_is_handed_over(stream: Path) -> None:
    old, new = subscribe(stream, Terms("old")), None
    write(stream, 4, range(3), writer="the version before")
    new = subscribe(stream, Terms("new"))
    write(stream, 0, range(3, 6), writer="the next version")
    assert ids(old.read()[0]) == [0, 1, 2]
    assert ids(new.read()[0]) == [3, 4, 5]
    hand_over(old.folder, "the next version", next_batch=1)
    write(stream, 1, range(6, 9), writer="the next version")
    assert ids(old.read()[0]) == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("name", ["", "../up", "a b", "-x", "x" * 65])
def test_a_name_that_is_none_is_refused(stream: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a name"):
        subscribe(stream, Terms(name))
    assert subscription(stream, name) is None


def test_no_unit_can_have_the_name_of_a_subscribers_folder() -> None:
    assert bad_name(f"{PREFIX}reader") is not None


def test_the_publisher_of_sparks_sink_serves_subscribers_beside_units(tmp_path: Path, stream: Path) -> None:
    staging, unit = tmp_path / "staging", stream / "unit"
    log = staging / "_spark_metadata"
    log.mkdir(parents=True)
    reader = subscribe(stream, Terms("reader"))
    publisher = Publisher(staging, [unit], "json", "me", stream=stream)
    file = staging / "part-0.json"
    file.write_text('{"record_id": "r1"}\n')
    (log / "0").write_text("v1\n" + json.dumps({"path": str(file), "size": 1, "action": "add"}))
    assert publisher.publish() == 1
    assert ids(reader.read()[0]) == [1]
    assert [batch.records for batch in batches_in(unit)] == [1]


def test_a_further_reader_of_a_source_begins_where_the_others_are(tmp_path: Path) -> None:
    known, new = tmp_path / "known", tmp_path / "new"
    for number in range(4):
        if number == 3:
            begin_behind(new, 2)
            begin_behind(new, 2)
        written = tmp_path / "_writing"
        written.mkdir()
        (written / "records.json").write_text('{"record_id": "r"}\n')
        folders = [known] if number < 3 else [known, new]
        publish(written, [written / "records.json"], 1, folders, number)
    assert [batch.batch_id for batch in batches_in(known)] == [0, 1, 2, 3]
    assert [(batch.batch_id, batch.records) for batch in batches_in(new)] == [(2, 0), (3, 1)]
