"""A checkpoint made to fit other inputs: offsets, logs and what was dropped of them go where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.evolution import begin, fit

A, B, C = (f"FileSource[/run/channels/files/{name}/unit/batch-*]" for name in "abc")


def a_checkpoint(folder: Path, places: list[str], batches: int = 3, unfinished: bool = False) -> Path:
    """What Spark and a unit leave after some micro-batches over some folders."""
    checkpoint = folder / "checkpoint"
    unique = list(dict.fromkeys(places))
    for name in ("offsets", "commits", *(f"sources/{index}" for index in range(len(unique)))):
        (checkpoint / name).mkdir(parents=True)
    for number in range(batches):
        lines = [json.dumps({"logOffset": 100 * unique.index(place) + number}) for place in places]
        (checkpoint / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
        (checkpoint / "offsets" / f".{number}.crc").write_text("a checksum")
        if not unfinished or number < batches - 1:
            (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for index, place in enumerate(unique):
        (checkpoint / "sources" / str(index) / "0").write_text(f"v1\n{place}")
        (checkpoint / f"penstock-dropped-{index}.json").write_text(json.dumps({"until": index, "records": 1}))
    Checkpoint(checkpoint).note_places(places)
    return checkpoint


def offsets(checkpoint: Path, number: int) -> list[int | None]:
    return [None if each is None else each["logOffset"] for each in Checkpoint(checkpoint).offsets(number)]


def nothing(_: int) -> bool:
    return False


def test_sources_that_stay_keep_their_place_and_new_ones_begin_at_their_beginning(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, [A, B])
    assert fit(checkpoint, [C, B, A], nothing)
    assert offsets(checkpoint, 2) == [None, 102, 2]
    assert offsets(checkpoint, 1) == [None, 101, 1], "Spark looks at the one before, too"
    logs = {p.name: (p / "0").read_text().splitlines()[1] for p in (checkpoint / "sources").iterdir()}
    assert logs == {"1": B, "2": A}
    dropped = {file.name: json.loads(file.read_text())["until"] for file in checkpoint.glob("*dropped*")}
    assert dropped == {"penstock-dropped-1.json": 1, "penstock-dropped-2.json": 0}
    assert not (checkpoint / "offsets" / ".2.crc").exists(), "no checksum of what it was"
    assert Checkpoint(checkpoint).finished() == 2


def test_a_further_place_over_the_same_source_shares_its_log(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, [A])
    assert fit(checkpoint, [A, A], nothing)
    assert offsets(checkpoint, 2) == [2, 2]
    assert sorted(entry.name for entry in (checkpoint / "sources").iterdir()) == ["0"]
    Checkpoint(checkpoint).note_places([A, A])
    assert fit(checkpoint, [A], nothing)
    assert offsets(checkpoint, 2) == [2]


def test_it_is_done_once_also_where_the_process_died_before_the_places_were_noted(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, [A, B])
    assert fit(checkpoint, [B, A], nothing)
    assert not fit(checkpoint, [B, A], nothing), "though what is noted beside it is of before"
    assert offsets(checkpoint, 2) == [102, 2]


def test_a_process_that_died_between_two_renames_finds_the_checkpoint_again(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, [A, B])
    checkpoint.rename(tmp_path / "checkpoint-before")
    (tmp_path / "checkpoint-fitting").mkdir()
    assert fit(checkpoint, [B], nothing)
    assert offsets(checkpoint, 2) == [102]
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir()) == ["checkpoint"]


def test_an_unfinished_batch_is_planned_anew_unless_some_of_it_is_out(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, [A, B], unfinished=True)
    with pytest.raises(ConfigurationError, match="ends with batch 2, whose results are out in part"):
        fit(checkpoint, [B], lambda batch: batch == 2)
    assert offsets(checkpoint, 2) == [2, 102], "nothing was touched"
    assert fit(checkpoint, [B], nothing)
    assert (Checkpoint(checkpoint).started(), offsets(checkpoint, 1)) == (1, [101])


def test_sources_whose_names_do_not_tell_them_apart_are_left_alone(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, ["kafka", A])
    assert not fit(checkpoint, [A], nothing)
    assert not fit(checkpoint, [A, "kafka"], nothing)
    assert offsets(checkpoint, 2) == [0 + 2, 102]


TOPICS = ["kafka[run.bus.read]", "kafka[run.bus.keep]"]


def began(checkpoint: Path) -> dict[str, object]:
    """What each source of a checkpoint began with, as Spark reads it."""
    found = {}
    for log in sorted((checkpoint / "sources").iterdir()):
        zero, version, offsets = (log / "0").read_bytes().partition(b"v1\n")
        assert (zero, version) == (b"\0", b"v1\n")
        found[log.name] = json.loads(offsets)
    return found


def test_a_topic_that_is_new_to_a_query_begins_where_it_is_told_to(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    begin(checkpoint, TOPICS, {TOPICS[1]: {"0": 5, "1": 7}})
    assert began(checkpoint) == {"1": {"run.bus.keep": {"0": 5, "1": 7}}}


def test_a_topic_that_a_query_has_read_goes_on_where_it_was_wherever_it_stands(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, TOPICS[:1])
    line = json.dumps({"run.bus.read": {"0": 3, "1": 4}})
    (checkpoint / "offsets" / "2").write_text(f"v1\n{{}}\n{line}")
    assert fit(checkpoint, TOPICS[::-1], nothing)
    begin(checkpoint, TOPICS[::-1], {topic: {"0": 5, "1": 7} for topic in TOPICS})
    assert Checkpoint(checkpoint).offsets(2) == [None, {"run.bus.read": {"0": 3, "1": 4}}]
    assert (checkpoint / "sources" / "1" / "0").read_text() == f"v1\n{TOPICS[0]}", "as it was"
    assert json.loads((checkpoint / "sources" / "0" / "0").read_bytes()[4:]) == {
        "run.bus.keep": {"0": 5, "1": 7}
    }


def test_what_never_ran_needs_no_fitting(tmp_path: Path) -> None:
    assert not fit(tmp_path / "checkpoint", [A], nothing)
