"""What a power cut tore in a checkpoint: mended where nothing is out yet, told where something is."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigurationError
from penstock.spark.mending import mend

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path):
    """Batches 0 and 1 are started, 0 is finished."""
    for batch in (0, 1):
        put(tmp_path / "offsets" / str(batch), f'v1\n{META}\n{{"logOffset":{batch}}}')
        put(tmp_path / "sources" / "0" / str(batch), f'v1\n{{"path":"a","timestamp":1,"batchId":{batch}}}')
    put(tmp_path / "commits" / "0", 'v1\n{"nextBatchWatermarkMs":0}')
    return tmp_path


def put(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def tear(file, keep):
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])


def never(batch):
    return False


def test_a_whole_checkpoint_is_left_alone(checkpoint):
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}

    assert mend(checkpoint, never) == []
    assert {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()} == before


def test_what_a_kafka_source_began_with_is_whole(checkpoint):
    for number in ("0", "1"):
        (checkpoint / "sources" / "0" / number).unlink()
    put(checkpoint / "sources" / "0" / "0", '\0v1\n{"topic":{"0":0,"1":0}}')
    put(checkpoint / "commits" / "1", 'v1\n{"nextBatchWatermarkMs":0}')

    assert mend(checkpoint, lambda batch: True) == []


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.9])
def test_what_a_kafka_source_began_with_is_made_anew_once_a_batch_is_finished(checkpoint, keep):
    began = checkpoint / "sources" / "0" / "0"
    (checkpoint / "sources" / "0" / "1").unlink()
    put(began, '\0v1\n{"topic":{"0":0,"1":0}}')
    for batch in (0, 1):
        put(checkpoint / "offsets" / str(batch), f'v1\n{META}\n{{"topic":{{"0":{batch + 3},"1":4}}}}')

    tear(began, keep)
    (told,) = mend(checkpoint, lambda batch: True)
    assert "what input 0 began with was torn" in told
    assert began.read_text() == '\0v1\n{"topic":{"0":3,"1":4}}', "where batch 0 ended: 1 is not finished"
    assert mend(checkpoint, lambda batch: True) == []


def test_what_a_kafka_source_began_with_is_no_guess_while_the_first_batch_goes_on(checkpoint):
    began = checkpoint / "sources" / "0" / "0"
    for file in ("sources/0/1", "offsets/1", "commits/0"):
        (checkpoint / file).unlink()
    put(began, '\0v1\n{"topic":{"0":0,"1":0}}')
    put(checkpoint / "offsets" / "0", f'v1\n{META}\n{{"topic":{{"0":3,"1":4}}}}')

    tear(began, 0.9)
    with pytest.raises(ConfigurationError, match="torn at sources/0/0"):
        mend(checkpoint, lambda batch: True)


def test_what_a_file_source_began_with_is_not_made_out_of_offsets(checkpoint):
    for file in ("sources/0/1", "offsets/1"):
        (checkpoint / file).unlink()
    tear(checkpoint / "sources" / "0" / "0", 0.9)
    with pytest.raises(ConfigurationError, match="torn at sources/0/0"):
        mend(checkpoint, lambda batch: True)


def test_a_checkpoint_that_does_not_exist_is_whole(tmp_path):
    assert mend(tmp_path / "none", never) == []


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_torn_mark_of_a_finished_batch_lets_it_be_finished_again(checkpoint, keep):
    tear(checkpoint / "commits" / "0", keep)
    (checkpoint / "offsets" / "1").unlink()
    (checkpoint / "sources" / "0" / "1").unlink()

    assert mend(checkpoint, lambda batch: True) != []
    assert not (checkpoint / "commits" / "0").exists()
    assert (checkpoint / "offsets" / "0").exists()


@pytest.mark.parametrize("torn", ["offsets/1", "sources/0/1"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_torn_batch_without_results_is_planned_anew(checkpoint, torn, keep):
    tear(checkpoint / torn, keep)

    assert "planned anew" in mend(checkpoint, never)[0]
    assert not (checkpoint / torn).exists()
    assert not (checkpoint / "offsets" / "1").exists()
    assert (checkpoint / "offsets" / "0").exists()


@pytest.mark.parametrize("torn", ["offsets/1", "sources/0/1"])
def test_a_torn_batch_whose_results_are_out_waits_for_a_person(checkpoint, torn):
    tear(checkpoint / torn, 0.5)

    with pytest.raises(ConfigurationError, match="torn at"):
        mend(checkpoint, lambda batch: True)
    assert (checkpoint / torn).exists()
