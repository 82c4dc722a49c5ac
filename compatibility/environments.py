"""Interpreters and environments: one for each Python, and each Spark once, since it is the same for all.

An environment has Penstock as it would be installed, without Spark. Spark is a folder beside it that a run
puts in front, so that five Sparks and four Pythons need nine installations and not twenty.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("build") / "compatibility"
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
BESIDE = ("pandas>=2.2,<3", "pyarrow>=18", "setuptools")
"""What a job of pyspark's usually has: Penstock needs none of it."""


class NotToBeHadError(Exception):
    """An interpreter or a Spark cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Spark:
    """One version of Spark, installed in a folder."""

    folder: Path
    version: str
    pythons: tuple[str, ...]
    """The versions of Python it says it runs on."""


def interpreter(version: str) -> Path:
    """A Python of this version: the running one, the PATH's, pyenv's or uv's."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return Path(sys.executable)
    found = shutil.which(f"python{version}")
    candidates = [Path(found)] if found else []
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    if (uv := shutil.which("uv")) is not None:
        told = subprocess.run(
            [uv, "python", "find", "--no-python-downloads", version],
            capture_output=True,
            text=True,
            check=False,
        )
        candidates += [Path(told.stdout.strip())] if told.returncode == 0 else []
    for candidate in candidates:
        tried = subprocess.run(
            [candidate, "-c", "import sqlite3, ssl, zlib"], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return candidate
    raise NotToBeHadError(f"there is no Python {version} here")


def environment(version: str, wheel: Path) -> Path:
    """The Python of an environment with Penstock from this wheel, made where it is missing."""
    folder = FOLDER / f"python-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        _run([interpreter(version), "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, *BESIDE])
    else:
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "--force-reinstall", "--no-deps", wheel])  # fmt: skip
    return python.absolute()


def wheel() -> Path:
    """Penstock's wheel, built of the sources as they are."""
    place = FOLDER / "wheel"
    shutil.rmtree(place, ignore_errors=True)
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
          "--wheel-dir", place, "."])  # fmt: skip
    return next(place.glob("*.whl"))


def spark(minor: str) -> Spark:
    """The newest Spark of a minor version, installed where it is missing (300 to 450 MB)."""
    folder = FOLDER / f"spark-{minor}"
    if not (folder / "pyspark" / "version.py").exists():
        partial = FOLDER / f".spark-{minor}"
        shutil.rmtree(partial, ignore_errors=True)
        upper = f"{minor.split('.')[0]}.{int(minor.split('.')[1]) + 1}"
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
              partial, f"pyspark>={minor},<{upper}", "--ignore-requires-python"])  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    told = next(folder.glob("pyspark-*.dist-info")) / "METADATA"
    text = told.read_text()
    pythons = tuple(re.findall(r"^Classifier: Programming Language :: Python :: (3\.\d+)$", text, re.M))
    found = re.search(r"^Version: (.+)$", text, re.M)
    return Spark(folder.absolute(), found[1] if found else minor, pythons)


def changed_by_installing(python: Path, wheel: Path, spark: Spark) -> list[str]:
    """What `pip install penstock` would change of what an older environment has already."""
    place = FOLDER / "beside"
    if not (place / "bin" / "python").exists():
        _run([python, "-m", "venv", place])
        own = place / "bin" / "python"
        old = ("py4j==0.10.9.7", "pandas==2.0.3", "numpy==1.26.4", "pyarrow==14.0.2")
        _run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *old])
    own = place / "bin" / "python"
    packages = next((place / "lib").glob("python*")) / "site-packages"
    (packages / "spark.pth").write_text(f"{spark.folder}\n")
    before = set(_told([own, "-m", "pip", "freeze", "--path", packages]).splitlines())
    plan = _told([own, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", wheel])
    installed = [item["metadata"]["name"] for item in json.loads(plan)["install"]]
    had = {line.split("==")[0].lower() for line in before}
    return sorted(name for name in installed if name.lower() in had or name.lower() == "pyspark")


def _run(command: list[str | Path]) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise NotToBeHadError(f"{' '.join(map(str, command[:6]))} …: {told[-1] if told else 'failed'}")


def _told(command: list[str | Path]) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
