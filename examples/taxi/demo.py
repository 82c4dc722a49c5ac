"""The demo: a taxi fleet over three sites on one machine, every ride's report held against the batch.

`python examples/taxi/demo.py`: positions are sent for some minutes. How fast and how far each ride was is
worked out in the stream and again in plain loops over the same positions. Both must be equal for every ride
that was over.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import typer
from cabs.rides import sent, tracks

from penstock.channels.sinks import read_results
from penstock.cli.console import console as make_console
from penstock.cli.main import told_in_words
from penstock.controller.journal import Journal
from penstock.errors import ClusterError
from penstock.quantities import format_duration
from penstock.report.terminal import ProgressLines
from penstock.runs.assembly import load
from penstock.runs.folder import RunFolder
from penstock.runs.service import run_topology


def demo(
    minutes: Annotated[float, typer.Option(help="How long positions are sent.")] = 2.0,
    out: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Report every ride in a stream, and compare with the batch."""
    console, topology = make_console(), load(HERE / "taxi.yaml")
    track, origin = tracks()
    folder = (out / f"taxi-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    console.print(f"Folder: {folder}", soft_wrap=True, highlight=False)
    console.print(f"{format_duration(minutes * 60)} of {origin}")
    watch = ProgressLines(console, minutes * 60)
    result = run_topology(topology, folder, duration_s=minutes * 60, code=HERE, watch=watch)
    from cabs.batch import reports

    wanted = reports(itertools.islice(sent(track), result.records_in))
    rows = read_results(folder / "results" / "reports")
    found = {row["ride"]: (row["average_kmh"], row["distance_km"]) for row in rows}
    console.print(
        f"{result.records_in:,} positions, {len(wanted)} rides over; the stream reports {len(found)}, "
        f"{sum(found.get(ride) == report for ride, report in wanted.items())} equal the batch in every number"
    )
    places = sites_of(folder, "analysis")
    console.print(f"analysis ran at: {', '.join(sorted(places))}")
    if places != {"private"}:
        raise ClusterError("analysis may be at the private site alone")
    if found != wanted or len(rows) != len(found):
        raise ClusterError("the stream's reports are not those of the batch")


def sites_of(folder: Path, unit: str) -> set[str]:
    """The sites of all hosts that instances of a unit were ever meant for or on."""
    with Journal(RunFolder(folder).journal, RunFolder(folder).plan().name) as journal:
        lives = [json.loads(row["payload"]) for row in journal.rows("life") if row["what"] == "instance"]
        hosts = {life.get("host") for life in lives if life["unit"] == unit}
        return {lease.site for lease in journal.leases() if lease.host in hosts}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with told_in_words():
        typer.run(demo)
