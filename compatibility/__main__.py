"""`make compatibility`: the attach suite on every Spark and Python; a table and build/compatibility.json.

`ONLY=4.2,4.3:3.11` runs a part; the rest of the table is taken from the last run of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from compatibility import environments
from compatibility.environments import PYTHONS, SPARKS, NotToBeHadError, Spark
from penstock.machine.java import find_java
from penstock.report.figures import Figure, write_figures

RESULT = Path("build") / "compatibility.json"
CELLS = environments.FOLDER / "cells.json"
LIMIT_S = 420
CHECKS = (
    "acts", "grows", "shrinks", "measures files", "measures all", "own goals", "triggers",
    "failed query told", "python on executors", "ends with the session",
)  # fmt: skip
GUIDE = Path("docs") / "attach.md"
BEGIN, END = "<!-- made by make compatibility -->", "<!-- end -->"
NOT_SAID = "not among the Pythons this Spark names"


def main() -> int:
    """Run the wanted cells, print the table, write the figures; 1 where a cell failed."""
    parser = argparse.ArgumentParser(prog="make compatibility", description=__doc__)
    parser.add_argument("--only", default="", help="Spark, or Spark:Python, separated by commas")
    parser.add_argument("--say", action="store_true", help="run nothing, print the table of the last runs")
    parser.add_argument("--docs", action="store_true", help=f"put the table into {GUIDE} too")
    chosen = parser.parse_args()
    wanted = [word.strip() for word in chosen.only.split(",") if word.strip()]
    console = Console(width=None if sys.stdout.isatty() else 140)
    cells: dict[str, dict[str, Any]] = json.loads(CELLS.read_text()) if CELLS.exists() else {}
    environments.FOLDER.mkdir(parents=True, exist_ok=True)
    if not chosen.say:
        built = environments.wheel()
        for minor in SPARKS:
            for python in PYTHONS:
                name = f"{minor}:{python}"
                if wanted and not {minor, name} & set(wanted):
                    continue
                began_s = time.monotonic()
                cells[name] = _cell(minor, python, built)
                console.print(f"{name}: {_word(cells[name])}, {time.monotonic() - began_s:.0f} s")
                CELLS.write_text(json.dumps(cells, indent=2) + "\n")
        if not wanted or "beside" in wanted:
            cells["beside"] = _beside(built)
            CELLS.write_text(json.dumps(cells, indent=2) + "\n")
    _print(cells, console)
    figures = _figures(cells)
    write_figures(figures, RESULT)
    console.print(f"written to {RESULT}")
    if chosen.docs:
        before, _, rest = GUIDE.read_text().partition(BEGIN)
        GUIDE.write_text(f"{before}{BEGIN}\n{_markdown(cells)}\n{END}{rest.partition(END)[2]}")
    return 0 if all(figure.holds is not False for figure in figures) else 1


def _cell(minor: str, python: str, built: Path) -> dict[str, Any]:
    try:
        spark = environments.spark(minor)
        if python not in spark.pythons:
            return {"version": spark.version, "skipped": NOT_SAID}
        own = environments.environment(python, built)
    except NotToBeHadError as error:
        return {"skipped": str(error)}
    folder = Path(tempfile.mkdtemp(prefix="penstock-compatibility-"))
    try:
        return {"version": spark.version, **_run(own, spark, folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(python: Path, spark: Spark, folder: Path) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SPARK", "VIRTUAL"))
    }
    surroundings = {
        **kept,
        **find_java().environment(),
        "PYTHONPATH": str(spark.folder),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    script = Path(__file__).with_name("cell.py")
    process = subprocess.Popen(
        [python, script, folder], env=surroundings, cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        told, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        told, errors = "", f"not done within {LIMIT_S} s"
    finally:
        _end(process)
    lines = [line for line in told.splitlines() if line.startswith("{")]
    if not lines:
        last = [line for line in errors.splitlines() if line.strip()]
        return {"error": last[-1][:300] if last else f"ended with {process.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """The cell with all that it started: it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def _beside(built: Path) -> dict[str, Any]:
    try:
        spark = environments.spark(SPARKS[0])
        changed = environments.changed_by_installing(environments.interpreter("3.11"), built, spark)
    except (NotToBeHadError, subprocess.SubprocessError) as error:
        return {"skipped": str(error)}
    return {"changed": changed}


def _failed(cell: dict[str, Any]) -> list[str]:
    return [name for name in CHECKS if cell.get(name) is not True]


def _word(cell: dict[str, Any]) -> str:
    if "skipped" in cell:
        return "–" if cell["skipped"] == NOT_SAID else f"not run: {cell['skipped']}"
    if "error" in cell:
        return f"error: {cell['error']}"
    failed = _failed(cell)
    return (
        "yes" if not failed and cell.get("problem") is None else f"no: {', '.join(failed) or cell['problem']}"
    )


def _rows(cells: dict[str, dict[str, Any]]) -> list[list[str]]:
    """The table: a heading, then a row for each Spark."""
    rows = [["Spark", *(f"Python {python}" for python in PYTHONS), "lacks"]]
    for minor in SPARKS:
        row = [cells.get(f"{minor}:{python}", {"skipped": "not run yet"}) for python in PYTHONS]
        versions = {cell["version"] for cell in row if "version" in cell}
        lacks = sorted({text for cell in row for text in cell.get("lacks", ())})
        rows.append([", ".join(versions) or minor, *map(_word, row), ", ".join(lacks) or "nothing"])
    return rows


def _print(cells: dict[str, dict[str, Any]], console: Console) -> None:
    heading, *rows = _rows(cells)
    table = Table(*heading, title="attach, by Spark and Python (– where Spark does not name that Python)")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _markdown(cells: dict[str, dict[str, Any]]) -> str:
    heading, *rows = (f"| {' | '.join(row)} |" for row in _rows(cells))
    return "\n".join([heading, "|" + " --- |" * (len(PYTHONS) + 2), *rows])


def _figures(cells: dict[str, dict[str, Any]]) -> list[Figure]:
    found = []
    for minor in SPARKS:
        for python in PYTHONS:
            cell = cells.get(f"{minor}:{python}")
            if cell is None or cell.get("skipped") == NOT_SAID:
                continue
            name = f"attach on Spark {cell.get('version', minor)} with Python {cell.get('python', python)}"
            holds = None if "skipped" in cell else _word(cell) == "yes"
            found.append(Figure(name, _word(cell), bar=f"all of {len(CHECKS)} checks", holds=holds))
    beside = cells.get("beside")
    if beside is not None:
        changed = beside.get("changed")
        told = beside.get("skipped") or ", ".join(changed or ()) or "nothing"
        name = "changed by `pip install penstock` beside Spark 3.5, pandas 2.0, numpy 1.26, pyarrow 14"
        found.append(Figure(name, told, bar="nothing", holds=None if changed is None else not changed))
    return found


if __name__ == "__main__":
    sys.exit(main())
