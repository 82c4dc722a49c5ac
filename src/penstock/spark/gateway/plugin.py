"""A Spark plugin that starts Penstock beside a driver: for jobs in Java or Scala, and for Connect servers.

The plugin is some lines of Java (`AttachPlugin.java`), for Spark takes nothing else. They are compiled on
this machine, against the Spark that is here, by the compiler that every Spark has for its generated code:
there is neither a jar for each version nor a JDK to install. The plugin starts a Python process and hands it
the driver's gateway.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.machine.files import written
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.spark.installation import least_java_version, spark_home, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLUGIN = "penstock.AttachPlugin"
"""What `spark.plugins` has to say."""
SOURCE = Path(__file__).with_name("AttachPlugin.java")
SESSION_CLASSES = ("org.apache.spark.sql.classic.SparkSession", "org.apache.spark.sql.SparkSession")
"""Who knows the session of an application: in Spark 4, and before."""
LOOK_AGAIN_S = 0.5


def plugin_jar() -> Path:
    """The plugin's jar for the installed Spark, made where it is not there yet (seconds)."""
    text = SOURCE.read_text()
    mark = hashlib.sha256(f"{spark_version()}\n{text}".encode()).hexdigest()[:12]
    jar = cache_folder("plugins") / f"penstock-attach-{spark_version()}-{mark}.jar"
    if not jar.exists():
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, code in compiled(text).items():
                archive.writestr(f"{name.replace('.', '/')}.class", code)
        written(jar, content.getvalue())
    return jar


def compiled(source: str) -> dict[str, bytes]:
    """Java classes by name, compiled with the installed Spark's own compiler; ClusterError tells mistakes."""
    from py4j.java_gateway import JavaGateway
    from py4j.protocol import Py4JError

    java = find_java(least_version=least_java_version())
    jars = spark_home() / "jars"
    try:
        [py4j] = jars.glob("py4j-*.jar")
        gateway = JavaGateway.launch_gateway(
            jarpath=str(py4j), classpath=f"{jars}/*", die_on_exit=True, enable_auth=True,
            java_path=str(java.executable), javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        )  # fmt: skip
    except (ValueError, OSError, Py4JError) as error:
        raise ClusterError(f"the plugin could not be compiled with the Spark in {jars}: {error}") from None
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source)
        return {str(name): bytes(code) for name, code in dict(compiler.getBytecodes()).items()}
    except Py4JError as error:
        raise ClusterError(f"the plugin could not be compiled with the Spark in {jars}: {error}") from None
    finally:
        gateway.shutdown()


def driver_session(over: Callable[[], bool]) -> SparkSession | None:
    """The session of the driver that the plugin started this process beside; None where `over` comes first.

    Waits until the job has made one: who makes the first session chooses its settings, and that is the job.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        raise ClusterError(
            f"this is started by Spark, with spark.plugins={PLUGIN}; see `penstock attach --help`"
        )
    gateway = launch_gateway()
    while not over():
        session = _default_session(gateway)
        if session is not None:
            java_context = gateway.jvm.JavaSparkContext(session.sparkContext())
            conf = SparkConf(_jvm=gateway.jvm, _jconf=java_context.getConf())
            context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
            return SparkSession(context, session)
        time.sleep(LOOK_AGAIN_S)
    return None


def _default_session(gateway: Any) -> Any | None:
    from py4j.java_gateway import JavaClass

    for name in SESSION_CLASSES:
        known = getattr(gateway.jvm, name)
        if isinstance(known, JavaClass):
            found = known.getDefaultSession()
            return found.get() if found.isDefined() else None
    return None
