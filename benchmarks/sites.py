"""`make sites`: topologies that change while they run, services that take over, requests nobody thought of.

Parts, each of which takes minutes and can be run alone (`--part`); build/sites.json has the newest figures of
each. `light`, `units` and `wiring` make changes of every kind by the API under load, while hosts come and go,
and take each back, on a host of the rig where there can be one. `moved` has a unit go between two sites of
the rig with a run each. `crash` kills a controller amid a change and has a change rolled back. `pair` kills
the service that serves. `requests` asks the API 5,000 times what schemathesis thinks of. `apart` is
`make apart`: the taxi fleet over three sites of the rig, one of them cut off.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import apart, moved, taking_over
from benchmarks.beside import mistakes, outsiders
from benchmarks.changing import changed
from benchmarks.kinds import KINDS, LIGHT, MOVES, UNITS, WIRING
from penstock.errors import PenstockError
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.rig.availability import unavailable

RESULT = Path("build") / "sites.json"
REQUESTS = 5000
Say = Callable[[str], None]


def requests(folder: Path, say: Say) -> list[Figure]:
    """The API under requests nobody thought of."""
    test = "tests/api/test_requests_nobody_thought_of.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "1500",
        test,
    ]
    file = folder / "asked.json"
    # Some ways in take nothing, and so have few different requests: the others are asked more often.
    asked_for = str(REQUESTS * 11 // 10)
    environment = {**os.environ, "PENSTOCK_REQUESTS": asked_for, "PENSTOCK_REQUESTS_TO": str(file)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    right = done.returncode == 0
    told = "none" if right else done.stdout[-300:]
    asked = json.loads(file.read_text()) if file.is_file() else {}
    counts = [
        Figure(f"requests {how}", float(count), f">= {REQUESTS}", holds=count >= REQUESTS)
        for how, count in asked.items()
    ]
    name = "requests answered by a 5xx, heard without a token, or refused without a reason"
    return [*counts, Figure(name, told, "none", holds=right)]


def over_the_rig(folder: Path, say: Say) -> list[Figure]:
    """The taxi fleet over three sites of the rig, where there can be one."""
    if why := unavailable():
        return [Figure("could not be measured", why, holds=False)]
    return apart.run(folder, apart.MINUTES, True, say)


PARTS: dict[str, Callable[[Path, Say], list[Figure]]] = {
    "light": lambda folder, say: changed(
        list(LIGHT), folder, say, lambda run: [*outsiders(run), *mistakes(run)]
    ),
    "units": lambda folder, say: changed([*UNITS, *MOVES], folder, say),
    "wiring": lambda folder, say: changed(list(WIRING), folder, say),
    "moved": moved.between_runs,
    "crash": taking_over.crashes,
    "pair": taking_over.pair,
    "requests": requests,
    "apart": over_the_rig,
}


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, unless something went wrong in it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-sites-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def known(parts: list[str]) -> list[Figure]:
    """The figures of other parts that were written before."""
    try:
        earlier = [Figure(**figure) for figure in json.loads(RESULT.read_text())]
    except (OSError, ValueError, TypeError):
        return []
    return [figure for figure in earlier if figure.name.partition(":")[0] in set(PARTS) - set(parts)]


def main() -> int:
    """Run the parts that are wanted; a figure that falls short is shown as such and fails nothing."""
    parser = argparse.ArgumentParser(prog="make sites", description=__doc__)
    parser.add_argument("--part", default="", help="parts, separated by commas: " + ", ".join(PARTS))
    parser.add_argument(
        "--only", default="", help="kinds of change, separated by commas: " + ", ".join(KINDS)
    )
    given = parser.parse_args()
    kinds = [name.strip() for name in given.only.split(",") if name.strip()]
    wanted = [name.strip() for name in given.part.split(",") if name.strip()] or list(PARTS)
    parts = dict(PARTS)
    if kinds:
        wanted, parts = ["some"], {"some": lambda folder, say: changed(kinds, folder, say)}
    unknown = sorted(set(wanted) - set(parts)) + sorted(set(kinds) - set(KINDS))
    if unknown:
        print(f"unknown: {', '.join(unknown)}", file=sys.stderr)
        return 2
    exit_on_sigterm()
    console, began_s = Console(width=None if sys.stdout.isatty() else 150), time.perf_counter()
    found: list[Figure] = []
    for part in wanted:
        console.print(f"{part} …")
        try:
            with temporary_folder() as folder:
                new = parts[part](folder, console.print)
        except PenstockError as error:
            new = [Figure("could not be measured", str(error), holds=False)]
        found += [replace(figure, name=f"{part}: {figure.name}") for figure in new]
        write_figures([*known(wanted), *found], RESULT)
    print_figures(found, f"sites that change while they run, {time.perf_counter() - began_s:.0f} s", console)
    console.print(f"written to {RESULT} ({os.cpu_count()} cores)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
