"""`python -m faults.watcher ARGUMENTS.json`: what `penstock run` is, with arguments out of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.machine.processes import interrupt_on_signals
from penstock.runs.service import run_topology
from penstock.topology.file import parse_topology


def main() -> int:
    """Run the topology the file holds until told to stop."""
    interrupt_on_signals()
    given = json.loads(Path(sys.argv[1]).read_text())
    given["topology"] = parse_topology(given["topology"])
    given["folder"], given["code"] = Path(given["folder"]), Path(given["code"])
    try:
        run_topology(**given)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
