"""Folders of batches: what their writer looks at, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.channels import batches
from penstock.channels.batches import batches_in, has_batch, link_into


def a_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.json"
    file.write_text(f'{{"record_id": "{name}"}}\n')
    return file


def test_a_writer_lists_no_results_again_that_it_wrote_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    list_folder = os.listdir

    def noted(folder: Path) -> list[str]:
        listed.append(str(folder))
        return list_folder(folder)

    monkeypatch.setattr(batches.os, "listdir", noted)
    results = tmp_path / "results"
    for number in range(5):
        link_into([a_file(tmp_path, f"r{number}")], 1, [results], number, "me")
        link_into([a_file(tmp_path, f"r{number}")], 1, [results], number, "me")

    assert len(listed) <= 2  # as its first batch found the folder empty
    assert [batch.batch_id for batch in batches_in(results)] == list(range(5))


def test_a_batch_that_somebody_else_put_there_meanwhile_is_left_alone(tmp_path: Path) -> None:
    results = tmp_path / "results"
    link_into([a_file(tmp_path, "mine")], 1, [results], 0, "me")
    (results / "batch-000000001-7r-1f").mkdir()  # by an earlier attempt that was slow

    link_into([a_file(tmp_path, "again")], 1, [results], 1, "me")
    link_into([a_file(tmp_path, "next")], 1, [results], 2, "me")

    assert [(batch.batch_id, batch.records) for batch in batches_in(results)] == [(0, 1), (1, 7), (2, 1)]
    assert has_batch(results, 2)
