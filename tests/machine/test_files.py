"""Files appear by a rename: whole, or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.machine.files import written
from penstock.machine.folders import cache_folder, private_folder


@pytest.mark.parametrize("content", ["words: ä\n", b"\x00bytes"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_file_has_its_new_content_and_nothing_is_left_beside_it(
    tmp_path: Path, content: str | bytes, durable: bool
) -> None:
    place = tmp_path / "file.json"
    written(place, "old")
    written(place, content, durable=durable)
    assert place.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file.json"]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "file.json"
    written(place, "old")
    blocked = tmp_path / "folder"
    blocked.mkdir()
    (blocked / "something").touch()
    with pytest.raises(OSError, match="folder"):
        written(blocked, "a file cannot take a folder's place")
    with pytest.raises(UnicodeEncodeError):
        written(place, "half a \ud800 character")
    assert place.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["file.json", "folder"]


def test_a_reader_sees_one_whole_content_or_another(tmp_path: Path) -> None:
    place = tmp_path / "file"
    contents = {letter * 100_000 for letter in "abc"}
    written(place, min(contents))
    ended = threading.Event()

    def write() -> None:
        for _ in range(100):
            for content in contents:
                written(place, content)
        ended.set()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen = set()
    while not ended.is_set():
        seen.add(place.read_text())
    for writer in writers:
        writer.join()
    assert seen <= contents
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_are_as_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        written(tmp_path / "usual", "")
        written(tmp_path / "private", "", mode=0o600)
        written(tmp_path / "program", "", mode=0o755)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"usual": 0o640, "private": 0o600, "program": 0o755}


def test_the_cache_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    folder = cache_folder("jars", "more")
    assert folder == tmp_path / "cache" / "jars" / "more"
    assert all(stat.S_IMODE(f.stat().st_mode) == 0o700 for f in (folder, *folder.parents[:2]))


def test_an_open_folder_is_closed_but_not_one_the_user_chose_as_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    (shared / "jars").mkdir(parents=True)
    for folder in (shared, shared / "jars"):
        folder.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_CACHE", str(shared))
    cache_folder("jars")
    assert [stat.S_IMODE(f.stat().st_mode) for f in (shared, shared / "jars")] == [0o755, 0o700]
    assert private_folder(shared) == shared
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
