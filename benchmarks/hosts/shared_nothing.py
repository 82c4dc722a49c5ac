"""The quickstart and the factory on hosts that share no disk: one host is killed, one cut off for a minute.

Orders and sensors come from Kafka, a Kafka channel is between the units, checkpoints are on HDFS; broker and
file system are on a host of their own. Workers are leased as instances of a cloud and join by user data.
What comes out is held against the truth, record by record.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.channels.sinks import read_results
from penstock.errors import ClusterError
from penstock.report.figures import Figure
from penstock.runs.assembly import load
from penstock.topology.model import Source, Topology

from ..clusters.shop import final
from .bench import ROOT, Bench, awaited, bench, small
from .limits import seen

LOG = logging.getLogger(__name__)

SIZES = {"t3.small": (1.0, 2600)}
CUT_S = 60.0
FIRST_S, ALL_S = 600.0, 900.0
LEVELS_PER_S, HOLD_S = (10, 20, 10), 70.0


def figures(*names: str) -> list[Figure]:
    """Both examples, or those that are named."""
    found = []
    for name, measure in (("quickstart", quickstart), ("factory", factory)):
        if not names or name in names:
            found += measure()
    return found


def quickstart() -> list[Figure]:
    """Orders of 100 customers; the last word on each is compared with its arithmetic."""
    with bench(SIZES) as made:
        made.feed("shop", only_topics=True)
        example = load(ROOT / "examples" / "quickstart" / "shop.yaml")
        topology = on_hosts(made, example, ("orders",), "pricing", most_a_batch=2000, remembered="30 min")
        with made.running(topology) as place:
            results = place("results/spent")

            def counted() -> int:
                return sum(orders for orders, _ in final(_read(results)).values())

            awaited(made, lambda: _all_run(place("status.json")), FIRST_S, "all units")
            made.feed("shop", levels_per_s=LEVELS_PER_S, hold_s=HOLD_S)
            awaited(made, lambda: counted() > 0, FIRST_S, "the first order")
            told = hurt(made)
            awaited(made, lambda: made.fed() is not None, ALL_S, "the last order")
            orders = (made.fed() or {})["orders"]
            took_s = awaited(made, lambda: counted() >= orders, ALL_S, f"all {orders} orders")
            spent = final(_read(results))
        truth = _truth(orders)
        right = spent == truth
        LOG.info("every customer's orders are %s", "right" if right else "wrong")
        return [
            Figure(
                "quickstart on hosts without a shared disk, one killed, one cut off: customers right, of 100",
                sum(spent.get(customer) == said for customer, said in truth.items()), "100", holds=right,
            ),
            Figure("… orders counted", sum(n for n, _ in spent.values()), f"= {orders}", holds=right),
            Figure("… after the last order, all were counted within", took_s, unit="s"),
            *told(),
        ]  # fmt: skip


def factory() -> list[Figure]:
    """Machines whose pictures are read; every value, warning and report is compared with the truth.

    Its functions take a record once by themselves, so the channel remembers none.
    """
    sys.path.insert(0, str(ROOT / "examples"))
    demo, feed = import_module("factory.demo"), import_module("factory.feed")
    sources = tuple(feed.PER_MINUTE)

    with bench(SIZES) as made:
        made.feed("factory", only_topics=True)
        settings = {
            "spark.factory.reportEvery": str(demo.REPORT_EVERY),
            "spark.factory.bothLooks": "false",
            "spark.sql.shuffle.partitions": "1",
        }
        example = load(ROOT / "examples" / "factory" / "factory.yaml")
        topology = on_hosts(made, example, sources, "read", settings)
        shape = feed.Load(machines=(2, 3, 2), hold_s=70.0, rate_factor=0.05)
        inbox = made.code / "inbox"
        with made.running(topology, FACTORY_INBOX=str(inbox)) as place:
            values = place("results/values")
            awaited(made, lambda: _all_run(place("status.json")), FIRST_S, "all units")
            made.feed("factory", load=asdict(shape))
            awaited(made, lambda: _read(values), FIRST_S, "the first value")
            told = hurt(made)
            awaited(made, lambda: made.fed() is not None, ALL_S, "the sensors' end")
            emitted = (made.fed() or {})["production"]

            # What a comparison with the truth needs of a run, seen from outside of its host.
            seen = SimpleNamespace(
                load=shape,
                sources=sources,
                inbox=made.control.file(inbox),
                folders=SimpleNamespace(results=place("results")),
                emissions=lambda: emitted,
            )

            def compared() -> Any:
                return demo.reconcile(seen)

            with contextlib.suppress(ClusterError):
                awaited(made, lambda: compared().complete, ALL_S, "all values")
            outcome = compared()
            LOG.info("compared with the truth: %s", outcome)
        return [
            Figure(
                f"factory on hosts without a shared disk, one killed, one cut off: {what}", found,
                f"= {expected}", holds=found == expected,
            )
            for what, expected, found in outcome.rows
        ] + [
            Figure("… values that differ from the truth", outcome.wrong, "0", holds=outcome.wrong == 0),
            *told(),
        ]  # fmt: skip


def on_hosts(
    made: Bench,
    topology: Topology,
    sources: tuple[str, ...],
    busiest: str,
    settings: dict[str, str] | None = None,
    *,
    most_a_batch: int = 200,
    remembered: str | None = None,
) -> Topology:
    """An example with its sources on Kafka and its units at the cloud; the busiest one has two instances."""
    made.put(
        "broker.json",
        json.dumps(
            {
                "bootstrap": made.stored["bootstrap"],
                "client": made.stored["client"],
                "most_a_batch": most_a_batch,
            }
        ),
    )
    return replace(
        topology,
        sources=tuple(
            replace(source, function=f"reading:{source.name}", workload=None, share=Source("s").share)
            for source in topology.sources
            if source.name in sources
        ),
        channels=(made.channel(remembered),),
        sites=(made.site(small(), max_hosts=6, settings=settings),),
        units=tuple(
            replace(unit, min_instances=2, initial_instances=2) if unit.name == busiest else unit
            for unit in topology.units
        ),
    )


def hurt(made: Bench) -> Callable[[], list[Figure]]:
    """Kill one host that works and cut another one off for a minute; what became of the hosts, at the end."""
    before = made.instances()
    if len(before) < 2:
        raise ClusterError(f"expected two hosts or more, got {len(before)}:\n{made.said()}")
    killed, cut = before[0], before[1]
    LOG.info("killing %s of %s", killed, before)
    made.rig.kill(killed)
    began_s = time.monotonic()
    awaited(made, lambda: _replaced(made, before, 1), FIRST_S, "another host for the one that was killed")
    replaced_s = time.monotonic() - began_s
    LOG.info("cutting off %s", cut)
    made.rig.cut(cut)
    began_s = time.monotonic()
    while time.monotonic() - began_s < CUT_S:
        time.sleep(1.0)
    with contextlib.suppress(ClusterError):
        made.rig.heal(cut)  # its instance may be gone: who was lost is given back

    def told() -> list[Figure]:
        recorded = made.recorded()
        left = [one for one in recorded if one["state"] not in ("terminated", "shutting-down")]
        leased = len({one["tags"].get("penstock-host") for one in recorded})
        return [
            Figure("… a host that was killed was replaced after", replaced_s, unit="s"),
            Figure("… hosts leased in all", leased),
            Figure("… instances left at the end", len(left), "0", holds=not left),
        ]

    return told


def _replaced(made: Bench, before: list[str], lost: int) -> bool:
    now = made.instances()
    return len([name for name in now if name not in before]) >= lost


def _all_run(file: Path) -> bool:
    status = seen(file)
    return status is not None and all(unit.running >= unit.least for unit in status.units)


def _read(folder: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        return read_results(folder)
    return []


def _truth(orders: int) -> dict[str, tuple[int, float]]:
    """What every customer has ordered and spent, by arithmetic."""
    found: dict[str, tuple[int, float]] = {}
    for number in range(orders):
        customer = f"customer-{number % 100}"
        count, spent = found.get(customer, (0, 0.0))
        found[customer] = (count + 1, spent + 1.0 + (number % 97) * 0.5)
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for figure in figures(*sys.argv[1:]):
        print(figure)
