"""`make apart`: the taxi fleet over three sites of the rig, each with its own run, service and master.

Delays between sites are real. While positions are sent, the city is cut off for two minutes, its service and
its run's controller are killed, and so is the cloud's broker; meanwhile the topology is changed at the
private site. The city must go on with what it has, its instances coming and going with the load, and its
controller must come back by itself; records must wait where they are, and in the end every ride must be
reported as the batch does, all sites must run the same revision, and there must be one bill.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.rigged import HERE, PATIENCE_S, ROOT, Sites
from penstock.controller.billing import Bill, bill_of
from penstock.errors import PenstockError
from penstock.experiments.twin import opened
from penstock.fleet.actions import StartInstance, StopInstance
from penstock.fleet.deployment import InstanceState
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.runs.assembly import load
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Choice, Topology

EXAMPLE = HERE / "examples" / "taxi"
RESULT = Path("build") / "apart.json"
LINKS = {("city", "cloud"): 20.0, ("city", "private"): 30.0, ("cloud", "private"): 40.0}
"""One-way delays in milliseconds."""
SITES = ("city", "cloud", "private")
BROKERS = ("cloud", "private")
LOAD = Choice("square", {"low_per_s": 4.0, "high_per_s": 36.0, "hold_s": 25.0})
"""Positions come by turns seldom and often, so that there is something to scale for at any time."""
SCALED: dict[str, Any] = {"policy": Choice("threshold", {"up_queue": 30, "down_queue": 15}), "trigger_s": 3.0}
"""How the city's monitor scales: in a batch's time a dozen positions come at the least, a hundred at most."""
CUT_S = 120.0
MINUTES = 4.0
"""How long positions are sent once a ride was reported."""


def topology_at(sites: Sites) -> Topology:
    """The example with the brokers' addresses, a load that changes, and a monitor that scales with it."""
    topology = load(EXAMPLE / "apart.yaml")
    (taxis,) = topology.sources
    topology = replace(
        topology,
        sources=(replace(taxis, workload=LOAD),),
        units=tuple(replace(u, **SCALED) if u.name == "monitor" else u for u in topology.units),
    )
    text = dump_topology(topology)
    for site in BROKERS:
        text = text.replace(f"{site}:9092", f"{sites.hosts[site].address}:9092")
    return parse_topology(text)


def run(kept: Path, minutes: float, cut: bool, say: Callable[[str], None]) -> list[Figure]:
    """The whole of it; figures with what they must be."""
    ensure_archive()
    began_s = time.monotonic()

    def told(text: str) -> None:
        say(f"{time.monotonic() - began_s:5.0f} s {text}")

    with Rig(SITES) as rig:
        apart = Sites(rig, kept, "taxi", LINKS, BROKERS)
        apart.up()
        told("three sites are up, with brokers and services")
        topology = topology_at(apart)
        apart.begin(dump_topology(topology), str(EXAMPLE), SITES)
        try:
            return _observed(apart, topology, minutes, cut, told)
        finally:
            apart.stop()
            apart.keep()


def _observed(
    apart: Sites, topology: Topology, minutes: float, cut: bool, told: Callable[[str], None]
) -> list[Figure]:
    if not wait_until(lambda: bool(apart.results("private", "reports")), PATIENCE_S, poll_s=1.0):
        raise PenstockError(f"no ride was reported within {PATIENCE_S:g} s; see {apart.kept}")
    told("the first ride was reported at the private site")
    reported_s = time.monotonic()
    figures, away_s = _cut_off(apart, topology, told) if cut else ([], None)
    time.sleep(max(0.0, 60 * minutes - (time.monotonic() - reported_s)))
    apart.command("city", "finish", "enough was sent")
    ended = wait_until(lambda: apart.phase("city") == "ended", PATIENCE_S, poll_s=1.0)
    if not ended:
        raise PenstockError(f"the city's run did not end within {PATIENCE_S:g} s; see {apart.kept}")
    told("the city's run has ended by itself")
    sys.path.insert(0, str(EXAMPLE))
    reports = importlib.import_module("cabs.batch").reports
    rides = importlib.import_module("cabs.rides")
    result = json.loads(apart.read("city", "runs/taxi/result.json"))
    wanted = reports(itertools.islice(rides.sent(rides.tracks()[0]), int(result["records_in"])))

    def found() -> dict[str, tuple[float, float]]:
        rows = apart.results("private", "reports")
        return {row["ride"]: (row["average_kmh"], row["distance_km"]) for row in rows}

    wait_until(lambda: len(found()) >= len(wanted), PATIENCE_S, poll_s=1.0)
    right = sum(found().get(ride) == report for ride, report in wanted.items())
    rows = apart.results("private", "reports")
    told(f"{right} of {len(wanted)} rides are reported as the batch does")
    apart.stop()
    wait_until(lambda: all(apart.phase(site) == "ended" for site in SITES), 120.0, poll_s=1.0)
    folders = apart.keep()
    if away_s is not None:
        figures += _scaled(folders[SITES.index("city")], *away_s)
    bill = _bill(folders)
    total = sum((float(cost) for cost in bill.values()), 0.0)
    parts = [float(json.loads((folder / "result.json").read_text())["resource_cost"]) for folder in folders]
    executors = {site: _hosts_of(folder) for site, folder in zip(SITES, folders, strict=True)}
    return [
        Figure("positions sent", int(result["records_in"])),
        Figure("rides reported as the batch does", right, f"= {len(wanted)}", holds=right == len(wanted) > 0),
        Figure("reports written twice", len(rows) - len(found()), "= 0", holds=len(rows) == len(found())),
        Figure("units at the private site", ", ".join(executors["private"]), "analysis alone",
               holds=executors["private"] == ["analysis"]),
        *figures,
        Figure("bill over all sites", round(total, 6), f"= {sum(parts):.6f}, the sites' own",
               holds=abs(total - sum(parts)) < 1e-6, unit="EUR"),
        *(Figure(f"bill of {site}", round(float(cost), 6), unit="EUR") for site, cost in bill.items()),
    ]  # fmt: skip


def _cut_off(
    apart: Sites, topology: Topology, told: Callable[[str], None]
) -> tuple[list[Figure], tuple[float, float]]:
    """Two minutes without the city; its service and controller and the cloud's broker are killed meanwhile.

    What was seen of it, and from when until when it was so, in seconds since 1970.
    """
    before = {
        "outside": len(apart.results("city", "outside")),
        "reports": len(apart.results("private", "reports")),
    }
    apart.rig.cut("city")
    cut_s, from_s = time.monotonic(), time.time()
    told("the city is cut off")
    apart.kill("city", "penstock.cli.main serve")
    apart.kill("cloud", "kafka.Kafka")
    told("the city's service and the cloud's broker are killed")
    slower = replace(topology, loop=replace(topology.loop, cooldown_s=12.0))
    change = {"topology": dump_topology(slower), "reason": "while the city is away"}
    revision = apart.tell("private", "/runs/taxi/apply", change)["revision"]
    time.sleep(max(0.0, CUT_S / 4 - (time.monotonic() - cut_s)))
    apart.broker("cloud")
    told("the cloud's broker is started again")
    time.sleep(max(0.0, CUT_S / 2 - (time.monotonic() - cut_s)))
    back_s = _controller_killed(apart, "city", cut_s + CUT_S)
    told(f"the city's controller was killed, and came back after {back_s:.0f} s")
    time.sleep(max(0.0, CUT_S - (time.monotonic() - cut_s)))
    during = len(apart.results("city", "outside")) - before["outside"]
    own = json.loads(apart.read("city", "runs/taxi/plan.json"))["revision"]
    waiting = _waiting(apart, "city", "sending")
    until_s = time.time()
    apart.rig.heal("city")
    healed_s = time.monotonic()
    apart.serve("city")
    told(f"the city is back after {healed_s - cut_s:.0f} s; {waiting} positions waited there")

    def agreed() -> bool:
        return all(
            json.loads(apart.read(site, "runs/taxi/plan.json"))["revision"] == revision for site in SITES
        )

    wait_until(agreed, PATIENCE_S, poll_s=1.0)
    agreed_s = time.monotonic() - healed_s
    told(f"all sites run revision {revision}" if agreed() else "the sites do not agree")
    figures = [
        Figure(
            "city cut off for",
            round(healed_s - cut_s, 1),
            ">= 120 s",
            holds=healed_s - cut_s >= 119,
            unit="s",
        ),
        Figure("results of the city's monitor meanwhile", during),
        Figure("positions that waited in the city", waiting, "> 0", holds=waiting > 0),
        Figure("the city's revision meanwhile", own, "= 1", holds=own == 1),
        Figure(
            "all sites run the change after",
            round(agreed_s, 1),
            "by themselves",
            holds=agreed(),
            unit="s",
        ),
        Figure(
            "the city's controller, killed meanwhile, is back after",
            round(back_s, 1) if math.isfinite(back_s) else "not while it was cut off",
            "by itself",
            holds=math.isfinite(back_s),
            unit="s",
        ),
    ]
    return figures, (from_s, until_s)


def _controller_killed(apart: Sites, site: str, until_s: float) -> float:
    """Kill the controller of a site's run; after how long another one decides there, endless where none does.

    It is waited for until an instant of the monotonic clock, while the site is cut off.
    """
    victim, status = apart.controller(site), apart.hosts[site].file(f"{ROOT}/runs/taxi/status.json")
    killed_s, killed_at_s = time.monotonic(), time.time()
    if victim is None:
        raise PenstockError(f"the run at {site} has no controller")
    apart.kill_process(site, victim)

    def is_back() -> bool:
        return apart.controller(site) not in (None, victim) and status.stat().st_mtime > killed_at_s

    back = wait_until(is_back, max(0.0, until_s - killed_s), poll_s=0.2)
    return time.monotonic() - killed_s if back else math.inf


def _scaled(folder: Path, from_s: float, until_s: float) -> list[Figure]:
    """What a run's monitor did while its site was cut off, and how often it got an instance more or less."""
    with opened(folder) as journal:
        seen = journal.rows("observation", ("at_s", "unit", "processed"))
        actions = journal.rows("action", ("at_s", "kind", "unit", "status"))
        lives = journal.rows("life", ("at_s", "what", "state", "payload"))
    done = [a["kind"] for a in actions if from_s < a["at_s"] < until_s and a["status"] == "enacted"
            and a["unit"] == "monitor"]  # fmt: skip
    ran = sum(
        row["what"] == "instance"
        and row["state"] == str(InstanceState.RUNNING)
        and from_s < row["at_s"] < until_s
        and json.loads(row["payload"])["unit"] == "monitor"
        for row in lives
    )
    dealt = sum(
        row["processed"] for row in seen if row["unit"] == "monitor" and from_s < row["at_s"] < until_s
    )
    more, less = done.count(StartInstance.kind), done.count(StopInstance.kind)
    return [
        Figure("positions the city's monitor dealt with meanwhile", dealt, "> 0", holds=dealt > 0),
        Figure("instances of the monitor asked for meanwhile, by load", more, ">= 1", holds=more >= 1),
        Figure("… of which came to run meanwhile", ran, ">= 1", holds=ran >= 1),
        Figure("… and let go of meanwhile", less, ">= 1", holds=less >= 1),
    ]


def _waiting(apart: Sites, site: str, unit: str) -> int:
    status = json.loads(apart.read(site, "runs/taxi/status.json"))
    measured = next(one["measurement"] for one in status["units"] if one["name"] == unit)
    return 0 if measured is None else int(measured["waiting"]) + int(measured["in_service"])


def _bill(folders: list[Path]) -> dict[str, str]:
    """One bill over the runs of all sites, by site."""
    found = Bill(())
    for folder in folders:
        with opened(folder) as journal:
            found = found.with_more(bill_of(journal, None))
    return {key[0]: str(cost) for key, cost in found.by("site").items()}


def _hosts_of(folder: Path) -> list[str]:
    """The units that ever had an instance in a run."""
    with opened(folder) as journal:
        lives = [json.loads(row["payload"]) for row in journal.rows("life") if row["what"] == "instance"]
    return sorted({str(life["unit"]) for life in lives})


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="how long positions are sent once a ride was reported"
    )
    parser.add_argument("--no-cut", action="store_true", help="leave the sites joined")
    parser.add_argument(
        "--kept", type=Path, default=Path("build") / "apart", help="where logs and journals go"
    )
    given = parser.parse_args()
    reason = unavailable()
    if reason is not None:
        print(f"left out: {reason}")
        return 0
    given.kept.mkdir(parents=True, exist_ok=True)
    try:
        figures = run(
            given.kept.resolve(), given.minutes, not given.no_cut, lambda text: print(text, flush=True)
        )
    except PenstockError as error:
        print(f"could not be measured: {error}", file=sys.stderr)
        return 1
    print_figures(figures, "the taxi fleet over three sites of the rig")
    write_figures(figures, RESULT)
    return 0 if all(figure.holds is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
