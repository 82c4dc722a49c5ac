"""Spot hosts end to end: the cloud gives one notice in its metadata, and it is emptied and replaced in time.

Two spot hosts are leased, because they are cheaper. One is told, as EC2 tells it, that it is taken away in
two minutes, and so is the listing; the fleet starts another before that one goes.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from decimal import Decimal

from penstock.report.figures import Figure
from penstock.rig.cloud import tell
from penstock.topology.file import parse_topology

from .bench import awaited, bench, small
from .limits import seen

SIZES = {"t3.small": (1.0, 2600)}
TOPOLOGY = """
name: spot
sources: {ticks: {function: "busy:ticks"}}
operators: {pass_on: {inputs: ticks, function: "busy:pass_on", slo: 10 s}}
units: {pass_on: {operators: pass_on, min_instances: 2, initial_instances: 2, max_instances: 2}}
policy: fixed
loop: {monitoring: 2 s, provisioning: 4 s}
"""
NOTICE_S = 120.0
UP_S = 600.0
"""Much more than it takes, also on a machine that has other things to do."""


def figures() -> list[Figure]:
    """Lease spot hosts, give one notice, and see what becomes of it."""
    cheap = small("cheap", price_per_btu=Decimal("0.007"), type="t3.small", spot=True)
    with bench(SIZES, stores=False) as made:
        topology = replace(parse_topology(TOPOLOGY), sites=(made.site(small(), cheap, max_hosts=4),))
        with made.running(topology) as place:

            def serving() -> int:
                status = seen(place("status.json"))
                return status.units[0].running if status is not None else 0

            awaited(made, lambda: serving() == 2, UP_S, "two instances")
            before = made.instances()
            status = seen(place("status.json"))
            cheap_ones = len([host for host in status.hosts if host.flavour == cheap.name]) if status else 0
            least: list[int] = []
            again_s: list[float] = []
            with made.control.inside():
                tell(made.cloud.url, interrupt={before[0]: NOTICE_S})
            told_s = time.monotonic()

            def whole() -> bool:
                """Whether as many serve as before; when that came to be again is noted."""
                least.append(serving())
                if min(least) < 2 <= least[-1]:
                    again_s.append(time.monotonic() - told_s)
                return least[-1] >= 2

            def left() -> bool:
                whole()
                return before[0] not in made.instances()

            awaited(made, left, NOTICE_S + 60.0, "the end of the host that was given notice")
            gone_s = time.monotonic() - told_s
            awaited(made, lambda: whole() and len(made.instances()) == 2, UP_S, "its replacement")
            said = place("status.json").read_text()
        remains = [one for one in made.recorded() if one["state"] not in ("terminated", "shutting-down")]
    return [
        Figure("spot: hosts leased as spot, of 2", cheap_ones, "2", holds=cheap_ones == 2),
        Figure("… told of in the run: its provider takes it away", "yes" if "takes it away" in said else "no",
               "yes", holds="takes it away" in said),
        Figure("… given back after notice", gone_s, f"before it is taken, {NOTICE_S:.0f} s",
               holds=gone_s < NOTICE_S, unit="s"),
        Figure("… fewest instances that served meanwhile, of 2", min(least), "2", holds=min(least) == 2),
        Figure("… and after so long again as many as before", again_s[0] if again_s else 0.0, unit="s"),
        Figure("… instances left at the end", len(remains), "0", holds=not remains),
    ]  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for figure in figures():
        print(figure)
