"""Hadoop's daemons by their main classes, from Maven's jars: nothing is installed, all is on loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.machine.folders import cache_folder
from penstock.machine.maven import fetch, pinned
from penstock.machine.processes import ChildProcesses
from penstock.spark.installation import maven_repository, spark_jars
from penstock.spark.launching import spark_java

JARS = pinned("""
org.apache.hadoop
  hadoop-client-minicluster:3.5.0 06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
org.bouncycastle
  bcprov-jdk18on:1.82 14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce
  bcpkix-jdk18on:1.82 bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63
  bcutil-jdk18on:1.82 4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d
""")
"""The daemons' classes, and what they sign tokens with; all else of Hadoop is among Spark's own jars."""
BESIDE = ("hadoop-client-", "slf4j-api", "log4j-", "jcl-over", "jul-to", "commons-logging")
"""Spark's jars that the daemons need too."""
FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Executors live for minutes here: the optimising compiler would be done when nobody needs it any more."""
FLAGS = ("-Xmx256m", "-Djava.net.preferIPv4Stack=true", *FAST)
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def daemon_jars() -> list[Path]:
    """The jars of the daemons, fetched where not there yet; ClusterError where they cannot be had."""
    beside = [jar for jar in spark_jars() if jar.name.startswith(BESIDE)]
    return [*fetch(cache_folder("jars"), JARS, maven_repository()), *beside]


def start_daemon(
    children: ChildProcesses, name: str, main_class: str, *arguments: str, conf: Path, folder: Path
) -> None:
    """Start a daemon that reads `conf`; its log is below `folder`, under its name."""
    java, temporary = spark_java(), folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(str(part) for part in (conf, *daemon_jars()))
    logging = f"-Dlog4j2.configurationFile={(conf / 'log4j2.properties').as_uri()}"
    flags = (*FLAGS, f"-Djava.io.tmpdir={temporary}", logging)
    environment = {
        **os.environ,
        **java.environment(),
        "HADOOP_CONF_DIR": str(conf),
        "USER": os.environ.get("USER", "penstock"),
    }
    children.start(
        name,
        [str(java.executable), *flags, "-cp", path, main_class, *arguments],
        log=folder / f"{name}.log",
        environment=environment,
        folder=temporary,
    )


def write_conf(conf: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write Hadoop's configuration files, and how much daemons log."""
    conf.mkdir(parents=True, exist_ok=True)
    for file, settings in files.items():
        lines = [
            f"  <property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        ]
        (conf / file).write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
    (conf / "log4j2.properties").write_text(LOGGING)
