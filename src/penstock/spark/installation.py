"""The Spark that is installed here: where it is, what it is made of, what it needs.

Everything is read from its files, so no Spark code runs and pyspark is not imported.
"""

from __future__ import annotations

import functools
import os
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ClusterError


def spark_home() -> Path:
    """Where Spark's scripts and jars are: SPARK_HOME where that is set, else inside the pyspark package."""
    chosen = os.environ.get("SPARK_HOME")
    if chosen:
        return Path(chosen)
    # Finds the package without importing it: no Spark code runs yet.
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("Spark is not installed: install it with `pip install 'penstock[spark]'`")
    return Path(spec.origin).parent


def spark_jars() -> list[Path]:
    """Spark's own jars, by name."""
    return sorted((spark_home() / "jars").glob("*.jar"))


def spark_version() -> str:
    """Spark's version, such as `4.3.0`, from the name of its core jar."""
    return _core_jar()[1]


def scala_version() -> str:
    """The version of Scala that Spark was built with, such as `2.13`: it is part of other jars' names."""
    return _core_jar()[0]


def least_java_version() -> int:
    """The oldest Java that can load Spark's classes, such as 17: a class file says what it was made for."""
    return _class_version(_core_path())


def maven_repository() -> str:
    """The address jars are fetched from: PENSTOCK_MAVEN, else the one that Spark itself resolves from."""
    return (os.environ.get("PENSTOCK_MAVEN") or _repository_in(spark_home() / "jars")).rstrip("/")


def _core_path() -> Path:
    jars = spark_home() / "jars"
    found = sorted(jars.glob("spark-core_*.jar"))
    if not found:
        raise ClusterError(
            f"expected Spark's jars in {jars}, found no spark-core there; does SPARK_HOME name a Spark, or "
            "is pyspark-client installed, which has none?"
        )
    return found[0]


def _core_jar() -> tuple[str, str]:
    path = _core_path()
    match = re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", path.name)
    if match is None:
        raise ClusterError(f"expected a name such as spark-core_2.13-4.3.0.jar, got {path.name}")
    return match[1], match[2]


@functools.cache
def _class_version(jar: Path) -> int:
    with zipfile.ZipFile(jar) as archive, archive.open("org/apache/spark/SparkConf.class") as code:
        header = code.read(8)
    # Bytes 6 and 7 of a class file are its major version: 52 for Java 8, 61 for Java 17.
    return int.from_bytes(header[6:8], "big") - 44


@functools.cache
def _repository_in(jars: Path) -> str:
    """The address that the Ivy among these jars was built with."""
    for jar in sorted(jars.glob("ivy-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            code = archive.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class")
        found = re.search(rb"https://[!-~]+/maven2/", code)
        if found is not None:
            return found[0].decode()
    raise ClusterError(
        f"no Maven repository is known: Spark's Ivy is not in {jars}; set PENSTOCK_MAVEN to one"
    )
