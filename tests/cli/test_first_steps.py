"""The first ten minutes: a project that runs at once, a machine that is checked, a page that is served."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from penstock.cli import doctor
from penstock.cli.compare import compare
from penstock.cli.doctor import findings_here
from penstock.controller.journal import Journal
from penstock.runs.assembly import load
from penstock.runs.run import require_runnable
from penstock.simulator import simulate
from penstock.spark.needs import CLASSES, lacking_to_run
from tests.cli.test_commands import SMALLEST, penstock


def test_a_new_project_is_right_and_runs_on_the_simulator(tmp_path: Path) -> None:
    said = penstock("new", "first", folder=tmp_path)
    assert "penstock run first.yaml" in said
    folder = tmp_path / "first"
    assert {path.name for path in folder.iterdir()} == {"first.yaml", "job.py", "test_job.py", "README.md"}
    assert not [path for path in folder.iterdir() if "NAME" in path.read_text()]
    assert "right" in penstock("check", "first.yaml", folder=folder)
    require_runnable(load(folder / "first.yaml"))
    penstock("simulate", "first.yaml", "--duration", "10 min", "--out", "run", folder=folder)
    assert "is there already" in penstock("new", "first", folder=tmp_path, expect=1)
    assert "expected a name" in penstock("new", "../out", folder=tmp_path, expect=1)


def test_a_new_project_and_a_comparison_begin_with_auto(tmp_path: Path) -> None:
    """It keeps on the simulator what the project's own test asks for, and grows for its load."""
    penstock("new", "first", folder=tmp_path)
    topology = load(tmp_path / "first" / "first.yaml")
    assert {unit.policy.name for unit in topology.units} == {"auto"}
    with Journal("sqlite://", "first", buffered=True) as journal:
        result = simulate(topology, duration_s=1800.0, journal=journal)
        running = [row["running"] for row in journal.rows("observation") if row["unit"] == "work"]
    assert result.compliance.ratio("real_time") > 0.95
    assert max(running) >= 2
    assert inspect.signature(compare).parameters["policies"].default.split(",")[0] == "auto"


@pytest.mark.spark
def test_the_tests_of_a_new_project_pass(tmp_path: Path) -> None:
    penstock("new", "first", folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "first",
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_doctor_finds_this_machine_fit(tmp_path: Path) -> None:
    said = penstock("doctor", "--offline", folder=tmp_path, expect=(0, 1))
    for what in ("Java", "free memory", "ports on loopback", "runs folder", "cache", "Spark"):
        assert what in said


def test_the_doctor_says_what_to_do_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 2**60)
    monkeypatch.setenv("PENSTOCK_JAVA", str(tmp_path / "no-java"))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {one.what: one for one in findings_here(tmp_path / "gone", offline=True)}
    assert not found["free memory"].fine
    assert "close what you can" in found["free memory"].do
    assert not found["runs folder"].fine
    assert all(one.do for one in found.values() if not one.fine)


def test_the_doctor_tells_of_a_repository_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_MAVEN", "http://127.0.0.1:1/none")
    maven = list(findings_here(tmp_path))[-1]
    assert maven.what == "Maven repository"
    assert not maven.fine
    assert not maven.needed
    assert "PENSTOCK_MAVEN" in maven.do


def a_spark(home: Path, classes: tuple[str, ...], method: str) -> Path:
    """A Spark of a number, with these classes and this method of `StructType` in its Python half."""
    for folder in (home / "jars", home / "python" / "pyspark" / "sql"):
        folder.mkdir(parents=True)
    for name in ("core", "sql"):
        with zipfile.ZipFile(home / "jars" / f"spark-{name}_2.12-3.5.9.jar", "w") as jar:
            for known in (*classes, "org.apache.spark.SparkConf"):
                jar.writestr(known.replace(".", "/") + ".class", b"\xca\xfe\xba\xbe\x00\x00\x00\x34")
    (home / "python" / "pyspark" / "sql" / "types.py").write_text(f"    def {method}(cls, ddl): ...\n")
    return home


def test_what_a_spark_lacks_for_runs_is_told_by_name_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("new", "first", folder=tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(a_spark(tmp_path / "spark", CLASSES[:1], "fromJson")))
    said = " ".join(
        penstock("run", "first.yaml", folder=tmp_path / "first", expect=1, own_process=True).split()
    )
    assert f"this Spark, 3.5.9, does not have: {CLASSES[1]}, StructType.fromDDL." in said
    assert CLASSES[0] not in said
    assert "`penstock.attach` works without" in said
    assert not (tmp_path / "first" / "runs").exists()
    (spark,) = [finding for finding in findings_here(tmp_path) if finding.what == "Spark"]
    assert "StructType.fromDDL" in spark.do


def test_a_spark_that_has_what_runs_need_is_not_refused_for_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lacking_to_run() is None
    monkeypatch.setenv("SPARK_HOME", str(a_spark(tmp_path / "spark", CLASSES, "fromDDL")))
    assert lacking_to_run() is None


def test_the_page_of_a_run_is_served_until_it_is_told_to_end(tmp_path: Path) -> None:
    penstock("simulate", SMALLEST, "--duration", "5 min", "--out", "run", folder=tmp_path)
    served = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "page", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert served.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", served.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(address[0].partition("#")[0], timeout=10) as answer:
            assert b"Penstock" in answer.read()
    finally:
        served.send_signal(signal.SIGTERM)
        assert served.wait(20) == 0
    assert "expected a run's folder" in penstock("page", "nowhere", folder=tmp_path, expect=1)
