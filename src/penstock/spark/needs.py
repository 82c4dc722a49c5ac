"""What `penstock run` needs of the Spark that is installed.

It is looked for in Spark's files, so no Spark code runs, and no version number is asked.
"""

from __future__ import annotations

import functools
import zipfile
from importlib.util import find_spec
from pathlib import Path

from penstock.spark.access import FILTER
from penstock.spark.installation import spark_home, spark_jars, spark_version
from penstock.spark.settings import FAST_CHECKPOINTS

CLASSES = (FILTER, FAST_CHECKPOINTS)
"""Classes of Spark's that a unit's session and a cluster of ours are told to use, by name."""
READS_SCHEMAS = "StructType.fromDDL"
"""How the schema of a channel is read; a method of PySpark's."""


def lacking_to_run() -> str | None:
    """What units need and the installed Spark lacks, in words; None where it lacks nothing.

    ClusterError where there is no Spark.
    """
    version = spark_version()
    jars = [jar for jar in spark_jars() if jar.name.startswith(("spark-core_", "spark-sql_"))]
    present = frozenset[str]().union(*map(_classes, jars))
    lacking = [name for name in CLASSES if name not in present]
    if not all(f"def {READS_SCHEMAS.split('.')[1]}(" in types.read_text() for types in _types()):
        lacking.append(READS_SCHEMAS)
    if not lacking:
        return None
    return (
        f"`penstock run` needs what this Spark, {version}, does not have: {', '.join(lacking)}. "
        "Install a newer one with `pip install --upgrade pyspark`. `penstock.attach` works without"
    )


def _types() -> list[Path]:
    """PySpark's types: of the package that is imported, and of the one that SPARK_HOME brings along."""
    spec = find_spec("pyspark")
    homes = [spark_home() / "python" / "pyspark", spark_home()]
    if spec is not None and spec.origin is not None:
        homes.append(Path(spec.origin).parent)
    return [file for home in homes if (file := home / "sql" / "types.py").exists()]


@functools.cache
def _classes(jar: Path) -> frozenset[str]:
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
    return frozenset(name.removesuffix(".class").replace("/", ".") for name in names)
