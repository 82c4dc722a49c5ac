"""A disk that is full: what is said, what waits, and that nothing is lost or doubled once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.channels.sinks import read_results
from penstock.machine.processes import wait_until
from penstock.runs.in_one_session import LocalRun

from .conftest import one_operator, put

pytestmark = pytest.mark.spark


@pytest.fixture
def small_disk(tmp_path):
    """A disk of four MiB, mounted for this test."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs Linux and its superuser")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as ballast:
        for size in (65_536, 512, 1):
            try:
                while ballast.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_a_full_disk_is_told_records_wait_and_come_out_once_when_there_is_room(spark, small_disk, tmp_path):
    # Records come in on a disk with room; checkpoint and results are on the small one.
    (tmp_path / "sources").mkdir()
    (small_disk / "sources").symlink_to(tmp_path / "sources")
    put(small_disk, range(20))
    run = LocalRun(spark, one_operator(), small_disk)
    run.start()
    try:
        run.process_all()
        assert len(read_results(small_disk / "results" / "out")) == 20

        fill(small_disk / "ballast")
        put(small_disk, range(20, 50), batch_id=1)

        def told() -> bool:
            run.check()
            return any("the disk is full: records wait" in notice for notice in run.notices)

        assert wait_until(told, 60, poll_s=0.5), run.notices
        assert len(read_results(small_disk / "results" / "out")) == 20

        (small_disk / "ballast").unlink()
        run.check()
        run.process_all()
    finally:
        run.stop()

    ids = sorted(record["record_id"] for record in read_results(small_disk / "results" / "out"))
    assert ids == [f"r{n:06d}" for n in range(50)]
