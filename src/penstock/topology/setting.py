"""Single values of a topology by their path in its file, such as `units.pricing.policy.up_queue`.

A path is the keys of the file with dots between them; a number stands for a place in a list. Whether a value
is right, and whether there is such a key at all, is for the reader of the file to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from penstock.errors import Mistake, TopologyError
from penstock.topology.file import dump_topology
from penstock.topology.model import Topology

_LONGEST_PATH = 200
"""Characters of a path that are told where it leads nowhere."""


def with_values(topology: Topology, values: Mapping[str, Any]) -> str:
    """The text of a topology's file with other values; TopologyError lists every path that leads nowhere."""
    document = yaml.safe_load(dump_topology(topology))
    written = document.get("units", {})
    document["units"] = {u.name: written.get(u.name, {"operators": [u.name]}) for u in topology.units}
    mistakes = []
    for path, value in values.items():
        parts = path.split(".")
        if not all(parts) or not _set(document, parts, value):
            mistakes.append(
                Mistake(f"{path[:_LONGEST_PATH]}: expected keys of a topology file with dots between them")
            )
    if mistakes:
        raise TopologyError(mistakes)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _set(place: Any, parts: list[str], value: Any) -> bool:
    """Set a value below a place of the document; whether the path led to one."""
    if isinstance(place, list):
        if not re.fullmatch("[0-9]{1,9}", parts[0]) or int(parts[0]) >= len(place):
            return False
        key: Any = int(parts[0])
        rest = parts[1:]
    else:
        # A name may have dots: the longest one that is there is meant.
        tried = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
        key = next((name for name in tried if name in place), parts[0])
        rest = parts[1 + key.count(".") :]
        place.setdefault(key, {})
    if not rest:
        place[key] = value
        return True
    if isinstance(place[key], str):
        place[key] = {"name": place[key]}  # a choice without parameters yet
    return isinstance(place[key], (dict, list)) and _set(place[key], rest, value)
