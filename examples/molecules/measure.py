"""What one source sends and what one or two slots of each unit take, on real Spark: `measure.py FILE`.

Paper 002's Figure 11 says how many instances an analysis needs. `penstock experiment levels --on spark` calls
this and goes on from here on the simulator. A unit's query reads what lies there already, so that it always
has more to do; its first micro-batch, which starts Python, does not count. Progress is printed line by line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import yaml
from atoms.dynamics import BLOCK, VARIABLE, Recorded, lammps_is_there, record, write
from atoms.injection import health_of, spread_over
from atoms.source import Sending

from penstock.channels.batches import publish
from penstock.channels.feeder import as_text
from penstock.runs.assembly import load as load_file
from penstock.spark.settings import end_session, start_session
from penstock.spark.unit.driver import unit_settings
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.pieces import PIECES, pieces
from penstock.spark.unit.plan import generated_sources
from penstock.spark.unit.query import UnitQuery
from penstock.topology.model import Topology

SIZES = (4000, 32000, 256000)
FILES, A_FILE = 200, 8
"""Files that lie there, and records of each; a micro-batch takes fifty files."""
SKIPPED = 1
"""Micro-batches that do not count."""
TOO_MUCH_PER_S = 20_000.0
"""More than any source sends: its health then says what it does send."""


def main(file: Path) -> None:
    """Measure and write the file."""
    sizes = SIZES if lammps_is_there() else SIZES[:1]
    topology = spread_over(load_file(HERE / "molecules.yaml"), 1, TOO_MUCH_PER_S)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="molecules-") as place:
        recordings = {atoms: record(atoms, 8) for atoms in sizes}
        for atoms, frames in recordings.items():
            os.environ[VARIABLE] = str(write(frames, Path(place) / f"{atoms}.npz"))
            sent = health_of(topology) * TOO_MUCH_PER_S
            print(f"{atoms} atoms: a source sends {sent:.0f} blocks a second", flush=True)
            found.append({"atoms": atoms, "by": frames.by, "source_per_s": round(sent, 1)})
        for slots in (1, 2):
            # As a unit's driver starts it, with tasks for the slots there are.
            settings = unit_settings(topology, topology.units[0].name, {PIECES: pieces(1, slots)})
            spark = start_session(
                "molecules-measure", f"local[{slots}]", settings=settings, log_level="ERROR"
            )
            for size, frames in zip(found, recordings.values(), strict=True):
                folders = RunFolders(Path(place) / f"{size['atoms']}-{slots}")
                _lay(folders, topology, frames)
                for unit in topology.units:
                    taken = _capacity(spark, topology, unit.name, folders)
                    size.setdefault(f"{unit.name}_per_s", []).append(round(taken, 1))
                    what = f"{size['atoms']} atoms, {unit.name}, {slots} slots"
                    print(f"{what}: {taken:.0f} blocks a second", flush=True)
            end_session()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({"block_atoms": BLOCK, "sizes": found}, sort_keys=False))


def _lay(folders: RunFolders, topology: Topology, frames: Recorded) -> None:
    """Records of the only source, ahead of whoever reads them."""
    sending = Sending(frames, 0, 1)
    (source,) = topology.sources
    streams = [folders.sources / source.name / unit for unit in generated_sources(topology)[source.name]]
    for number in range(FILES):
        records = sending.columns(number * A_FILE, [0.0] * A_FILE)
        lines = [
            json.dumps(
                {
                    "record_id": f"a-{number}-{k}",
                    "source_time": "2026-01-01T00:00:00.000000+00:00",
                    **columns,
                },
                default=as_text,
            )
            for k, columns in enumerate(records)
        ]
        writing = folders.sources / f"_writing-{number}"
        writing.mkdir(parents=True)
        (writing / "records.json").write_text("\n".join(lines) + "\n")
        publish(writing, [writing / "records.json"], len(lines), streams, number)


def _capacity(spark: Any, topology: Topology, unit: str, folders: RunFolders) -> float:
    """Records a second that a unit's query takes of what lies there."""
    running = UnitQuery(spark, topology, unit, folders).start()
    running.processAllAvailable()
    batches = [event for event in running.recentProgress if event["numInputRows"]][SKIPPED:]
    running.stop()
    work_s = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
    return sum(batch["numInputRows"] for batch in batches) / work_s


if __name__ == "__main__":
    main(Path(sys.argv[1]))
