"""`penstock run examples/quickstart/shop.yaml` at another site: same orders, same results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.channels.sinks import read_results
from penstock.errors import ClusterError
from penstock.runs.assembly import load
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice, Site

LONGEST_S = 420.0
"""Some times what it takes on two cores of which others use one."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart"


@dataclass(frozen=True, slots=True)
class Sold:
    """What a run of the shop came to."""

    spent: dict[str, tuple[int, float]]
    """Orders and money of each customer, at the end."""
    records_in: int
    most_instances: int
    """Most executors of the unit that prices, as its journal says."""
    cost: str
    took_s: float


def sell(folder: Path, site: Site | None = None, *, hold_s: float = 8.0) -> Sold:
    """Run the shop at a site (None: on the local cluster it brings up itself), with shorter steps.

    ClusterError with what was printed where it does not end well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topology = load(EXAMPLE / "shop.yaml")
    parameters = dict(topology.sources[0].workload.parameters) if topology.sources[0].workload else {}
    source = replace(topology.sources[0], workload=Choice("stepwise", {**parameters, "hold_s": hold_s}))
    topology = replace(topology, sources=(source,), sites=topology.sites if site is None else (site,))
    file, out = folder / "shop.yaml", folder / "run"
    file.write_text(dump_topology(topology))
    (folder / "shop.py").write_text((EXAMPLE / "shop.py").read_text())
    command = [
        sys.executable, "-m", "penstock.cli.main", "run", str(file), "--out", str(out),
        "--duration", f"{3 * hold_s:g} s",
    ]  # fmt: skip
    began_s = time.monotonic()
    log = folder / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        code = process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"penstock run was not done after {LONGEST_S:g} s") from None
    finally:
        # Told to end it stops its drivers; killed, it would leave them.
        if process.poll() is None:
            process.terminate()
            process.wait(60)
    if code != 0:
        raise ClusterError(f"penstock run ended with {code}:\n{log.read_text(errors='replace')[-3000:]}")
    result = json.loads((out / "result.json").read_text())
    return Sold(
        final(read_results(out / "results" / "spent")),
        result["records_in"],
        _most_instances(out),
        str(result["resource_cost"]),
        time.monotonic() - began_s,
    )


def final(records: list[dict[str, Any]]) -> dict[str, tuple[int, float]]:
    """The last word on each customer: the one that counts most orders."""
    found: dict[str, tuple[int, float]] = {}
    for record in records:
        said = (int(record["orders"]), float(record["spent"]))
        found[record["customer"]] = max(found.get(record["customer"], said), said)
    return found


def _most_instances(out: Path) -> int:
    from penstock.controller.journal import Journal
    from penstock.runs.folder import RunFolder

    place = RunFolder(out)
    with Journal(place.journal, place.plan().name) as journal:
        rows = [row for row in journal.rows("observation", ("unit", "running")) if row["unit"] == "pricing"]
    return max((int(row["running"] or 0) for row in rows), default=0)
