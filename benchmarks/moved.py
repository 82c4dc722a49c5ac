"""A unit goes from one site's run to another's and back, over two sites of the rig, under load.

Each site has a host with its service, its run, its master and its controller; streams go over Kafka with TLS.
First the unit's site is made too small for it, so that it goes by itself; then it is told to go. Each time it
is sent back. Records that go in are held against those that come out at either site, and a unit that nobody
touches must be no later than usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.changing import CALM_S, PATIENCE_S, RUN, WARM_S, Changed, came_out, measured, on_the_rig
from benchmarks.kinds import CODE, FIRST, MOVES
from benchmarks.rigged import ROOT, Api, Sites, client_file
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology
from penstock.topology.model import Channel, Choice, Topology

DELAY_MS = 20.0
"""One way between the two sites."""
HERE, THERE = "here", "there"
NAME, (UNIT, _) = next(iter(MOVES.items()))
TIMES = 2
"""How often the unit is told to go, and sent back."""


def between_runs(folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Move a unit between two runs of the rig, by command and because its site is full, and measure."""
    if why := unavailable():
        return [Figure("could not be measured", why, holds=False)]
    ensure_archive()  # once, and not on every host
    with Rig((HERE, THERE)) as rig:
        sites = Sites(rig, folder, RUN, {(HERE, THERE): DELAY_MS}, (THERE,))
        sites.up()
        for site in sites.names:
            sites.write(site, f"{ROOT}/code/work.py", CODE)
        topology = over_kafka(FIRST, f"{sites.hosts[THERE].address}:9092")
        sites.begin(dump_topology(topology), f"{ROOT}/code", sites.names)
        try:
            return _observed(sites, topology, say)
        finally:
            sites.stop()
            sites.keep()


def over_kafka(topology: Topology, bootstrap: str) -> Topology:
    """A topology whose streams both sites reach."""
    options = {"bootstrap": bootstrap, "client_file": client_file(THERE), "partitions": 2}
    return replace(topology, channels=(Channel("wan", "kafka", options),))


def crowded(topology: Topology) -> Topology:
    """A topology whose unit wants one host more than its first site has."""
    units = (
        replace(u, policy=Choice("fixed", {"instances": 2}), max_instances=2) if u.name == UNIT else u
        for u in topology.units
    )
    here, *others = topology.sites
    return replace(topology, units=tuple(units), sites=(replace(here, max_hosts=3), *others))


def _observed(sites: Sites, topology: Topology, say: Callable[[str], None]) -> list[Figure]:
    here, there = sites.api(HERE), sites.api(THERE)
    run = Changed(here, there)
    run.begun()
    time.sleep(WARM_S + CALM_S)  # what is usual is measured before anything changes
    calm_s = time.time()
    by_itself = _by_itself(run, topology, there)
    say(f"by itself, for its site was full: {run.made[1].took_s:.0f} s")
    for _ in range(TIMES):
        run.move(NAME, UNIT, THERE)
        run.drain_a_host()
        run.undo(NAME, there)
        say(f"{NAME}: {run.made[-2].took_s:.0f} s, taken back in {run.made[-1].took_s:.0f} s")
    run.finish()
    records = run.place.result()
    assert records is not None

    def all_came() -> bool:
        return all(came_out(run.results(sink))[0] >= records.records_in for sink in ("out", "seen"))

    wait_until(all_came, PATIENCE_S, poll_s=1.0)
    sites.stop()
    wait_until(lambda: all(sites.phase(site) == "ended" for site in sites.names), PATIENCE_S, poll_s=1.0)
    plans = [place.plan() for place in run.places]
    agree = len({(plan.revision, plan.topology, plan.places[UNIT]) for plan in plans}) == 1
    return [
        on_the_rig(here),
        *measured(run, calm_s),
        *by_itself,
        Figure("times it went between the runs", plans[0].handed[UNIT].number, f"= {2 * TIMES + 2}",
               holds=plans[0].handed[UNIT].number == 2 * TIMES + 2),
        Figure("both sites have one version at the end", "so" if agree else str(plans), "so", holds=agree),
    ]  # fmt: skip


def _by_itself(run: Changed, topology: Topology, there: Api) -> list[Figure]:
    """Make the unit's site too small for it: it goes to the other one, and nobody tells it to."""
    asked_s, before = time.time(), run.attempts()
    run.apply("site too small", crowded(topology))
    run.wait(lambda: all(p.plan().places[UNIT] == THERE for p in run.places), "it went by itself")
    run.settled("unit moved by itself", asked_s, before)
    _, notices = run.service.ask(f"/runs/{run.name}/journal/notice")
    said = [row["text"] for row in notices["rows"] if "has had no host for it" in row["text"]]
    run.undo("unit moved by itself", there)
    run.apply("site too small, taken back", topology)
    return [Figure("why it went by itself", said[-1] if said else "nobody said", "said", holds=bool(said))]
