"""A host's limit is real: a unit that wants more CPU than its host has is at 100 % of it, and grows.

The unit needs 0.6 cores. Its hosts have half a core each, by their control group, and are leased as such.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path

from penstock.controller.status import Status
from penstock.plain import from_json
from penstock.report.figures import Figure
from penstock.topology.file import parse_topology

from .bench import awaited, bench, small

SIZES = {"t3.nano": (0.5, 2600)}
TOPOLOGY = """
name: limits
sources: {ticks: {function: "busy:ticks"}}
operators: {work: {inputs: ticks, function: "busy:work", slo: 10 s}}
units: {work: {operators: work, max_instances: 3}}
policy: {name: utilisation, up_ratio: 0.9, down_ratio: 0.3, step: single}
loop: {monitoring: 3 s, provisioning: 9 s, cooldown: 20 s}
"""
UP_S, GROWN_S = 600.0, 600.0
"""Much more than it takes, also on a machine that has other things to do."""


def figures() -> list[Figure]:
    """Run it until it has grown."""
    with bench(SIZES, stores=False) as made:
        site = made.site(small("t3.nano"), max_hosts=3)
        topology = replace(parse_topology(TOPOLOGY), sites=(site,))
        alone: list[float] = []
        with made.running(topology) as place:

            def grown() -> bool:
                status = seen(place("status.json"))
                if status is None:
                    return False
                (unit,) = status.units
                if unit.running == 1 and unit.instances == 1 and unit.cpu_ratio is not None:
                    alone.append(unit.cpu_ratio)
                return unit.running >= 2

            awaited(made, lambda: grown() or alone, UP_S, "the first reading")
            grown_s = awaited(made, grown, GROWN_S, "a second instance")
    highest = max(alone, default=0.0)
    return [
        Figure("a unit that wants 0.6 cores on a host of 0.5: CPU of its one instance, of that host",
               highest * 100, "100 %, within 5", holds=highest >= 0.95, unit="%"),
        Figure("… until a second instance served", grown_s, unit="s"),
    ]  # fmt: skip


def seen(file: Path) -> Status | None:
    """What a run says of itself; None while it says nothing."""
    with contextlib.suppress(OSError, ValueError):
        return from_json(Status, file.read_text())
    return None


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for figure in figures():
        print(figure)
