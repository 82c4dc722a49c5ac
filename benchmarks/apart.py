"""`make apart`: the taxi fleet over three sites of the rig, each with its own run, service and master.

Delays between sites are real. While positions are sent, the city is cut off for two minutes, its service is
killed, and so is the cloud's broker; meanwhile the topology is changed at the private site. The city must go
on with what it has, records must wait where they are, and in the end every ride must be reported as the batch
does, all sites must run the same revision, and there must be one bill.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.api.client import Service
from penstock.channels.kafka_access import CLIENT_FILE
from penstock.channels.sinks import read_results
from penstock.errors import PenstockError
from penstock.machine.processes import wait_until
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig, RigHost
from penstock.runs.assembly import load
from penstock.spark.training import ensure_archive
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Topology

HERE = Path(__file__).resolve().parents[1]
EXAMPLE = HERE / "examples" / "taxi"
RESULT = Path("build") / "apart.json"
LINKS = {("city", "cloud"): 20.0, ("city", "private"): 30.0, ("cloud", "private"): 40.0}
"""One-way delays in milliseconds."""
SITES = ("city", "cloud", "private")
BROKERS = ("cloud", "private")
ROOT = "/srv/penstock"
"""Where everything of a site lies, on the disk of its host."""
CUT_S = 120.0
MINUTES = 4.0
"""How long positions are sent once a ride was reported."""
PATIENCE_S = 600.0
"""Far beyond what anything takes, for machines that do much else."""
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Apart:
    """Three hosts, one a site: broker, service, master, workers, drivers and controller are on it."""

    def __init__(self, rig: Rig, kept: Path) -> None:
        self.rig, self.kept = rig, kept
        self.hosts: dict[str, RigHost] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "PYTHONPATH": str(HERE / "src"), "JDK_JAVA_OPTIONS": FAST}

    def penstock(self, site: str, *arguments: str) -> None:
        """Run a command of Penstock's on a site's host to its end."""
        command = [sys.executable, "-m", "penstock.cli.main", *arguments]
        done = self.hosts[site].run(*command, environment=self.environment, timeout_s=PATIENCE_S)
        if done.returncode != 0:
            raise PenstockError(f"{site}: {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def up(self) -> None:
        """Hosts, links, brokers and services."""
        for site in SITES:
            found = self.rig.host(f"{site}-1", site, disk_mib=4096)
            assert found is not None
            self.hosts[site] = found
        for (one, other), delay_ms in LINKS.items():
            self.rig.link(one, other, delay_ms=delay_ms)
        for site in BROKERS:
            self.broker(site)
        for site in SITES:
            for broker in BROKERS:
                self.write(
                    site, f"/etc/penstock/{broker}.properties", self.read(broker, f"broker/{CLIENT_FILE}")
                )
            self.write(site, f"{ROOT}/runs/token", f"token-of-{site}")
            for other in SITES:
                if other != site:
                    known = {"url": f"http://{self.hosts[other].address}:8765/"}
                    self.write(site, f"{ROOT}/peers/{other}/service.json", json.dumps(known))
                    self.write(site, f"{ROOT}/peers/{other}/token", f"token-of-{other}")
        for site in SITES:
            self.serve(site)

    def broker(self, site: str) -> None:
        """Start a site's broker, or start it again."""
        at = ("--address", self.hosts[site].address, "--port", "9092")
        self.penstock(site, "broker", "up", "--folder", f"{ROOT}/broker", *at)

    def serve(self, site: str) -> None:
        """Start a site's service, or start it again."""
        peers = [part for o in SITES if o != site for part in ("--peer", f"{ROOT}/peers/{o}")]
        command = [sys.executable, "-m", "penstock.cli.main", "serve", f"{ROOT}/runs", *peers]
        self.running[site] = self.hosts[site].start(
            *command, "--host", self.hosts[site].address, "--port", "8765",
            log=self.kept / f"service-{site}.log", environment=self.environment,
        )  # fmt: skip
        if not wait_until(lambda: self.ask(site, "/runs") is not None, PATIENCE_S):
            raise PenstockError(f"the service of {site} did not come up; see {self.kept}")

    def service(self, site: str) -> Service:
        """A site's service, for whoever is in its network."""
        return Service(f"http://{self.hosts[site].address}:8765/", f"token-of-{site}")

    def ask(self, site: str, path: str) -> Any:
        """What a site's service answers; None where it does not."""
        try:
            with self.hosts[site].inside():
                return self.service(site).get(path)
        except PenstockError:
            return None

    def tell(self, site: str, path: str, body: object) -> Any:
        """Have a site's service do something."""
        with self.hosts[site].inside():
            return self.service(site).post(path, body, answer_s=180.0)

    def write(self, site: str, path: str, text: str) -> None:
        """Write a file on a site's disk."""
        file = self.hosts[site].file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, site: str, path: str) -> str:
        """Read a file of a site."""
        return self.hosts[site].file(f"{ROOT}/{path}").read_text()

    def results(self, site: str, sink: str) -> list[dict[str, Any]]:
        """What a site's sink has written."""
        return read_results(self.hosts[site].file(f"{ROOT}/runs/taxi/results/{sink}"))

    def kill(self, site: str, what: str) -> None:
        """Kill the processes of a site's host whose command has these words, and nothing else."""
        for folder in self.hosts[site].file("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if what in command:
                    self.hosts[site].run("kill", "-9", folder.name)

    def keep(self) -> list[Path]:
        """Copy what the runs leave off the hosts' disks."""
        found = []
        for site in SITES:
            target = self.kept / site
            shutil.rmtree(target, ignore_errors=True)
            source = self.hosts[site].file(f"{ROOT}/runs/taxi")
            shutil.copytree(
                source, target, ignore=shutil.ignore_patterns("clusters", "cluster", "checkpoint")
            )
            found.append(target)
        return found


def topology_at(apart: Apart) -> Topology:
    """The example with the brokers' addresses."""
    topology = load(EXAMPLE / "apart.yaml")
    text = dump_topology(topology)
    for site in BROKERS:
        text = text.replace(f"{site}:9092", f"{apart.hosts[site].address}:9092")
    return parse_topology(text)


def run(kept: Path, minutes: float, cut: bool, say: Callable[[str], None]) -> list[Figure]:
    """The whole of it; figures with what they must be."""
    ensure_archive()
    began_s = time.monotonic()

    def told(text: str) -> None:
        say(f"{time.monotonic() - began_s:5.0f} s {text}")

    with Rig(SITES) as rig:
        apart = Apart(rig, kept)
        apart.up()
        told("three sites are up, with brokers and services")
        topology = topology_at(apart)
        for site in SITES:
            wish: dict[str, Any] = {"name": "taxi", "topology": dump_topology(topology), "site": site}
            wish["code"] = str(EXAMPLE)
            apart.tell(site, "/runs", wish)
        try:
            return _observed(apart, topology, minutes, cut, told)
        finally:
            for site in SITES:
                _stop(apart, site)
            apart.keep()


def _observed(
    apart: Apart, topology: Topology, minutes: float, cut: bool, told: Callable[[str], None]
) -> list[Figure]:
    if not wait_until(lambda: bool(apart.results("private", "reports")), PATIENCE_S, poll_s=1.0):
        raise PenstockError(f"no ride was reported within {PATIENCE_S:g} s; see {apart.kept}")
    told("the first ride was reported at the private site")
    reported_s = time.monotonic()
    figures = _cut_off(apart, topology, told) if cut else []
    time.sleep(max(0.0, 60 * minutes - (time.monotonic() - reported_s)))
    apart.tell("city", "/runs/taxi/commands", {"kind": "finish", "reason": "enough was sent"})
    ended = wait_until(lambda: _phase(apart, "city") == "ended", PATIENCE_S, poll_s=1.0)
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
    for site in SITES:
        _stop(apart, site)
    wait_until(lambda: all(_phase(apart, site) == "ended" for site in SITES), 120.0, poll_s=1.0)
    folders = apart.keep()
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


def _cut_off(apart: Apart, topology: Topology, told: Callable[[str], None]) -> list[Figure]:
    """Two minutes without the city; its service and the cloud's broker are killed meanwhile."""
    before = {
        "outside": len(apart.results("city", "outside")),
        "reports": len(apart.results("private", "reports")),
    }
    apart.rig.cut("city")
    cut_s = time.monotonic()
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
    time.sleep(max(0.0, CUT_S - (time.monotonic() - cut_s)))
    during = len(apart.results("city", "outside")) - before["outside"]
    own = json.loads(apart.read("city", "runs/taxi/plan.json"))["revision"]
    waiting = _waiting(apart, "city", "sending")
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
    return [
        Figure(
            "city cut off for",
            round(healed_s - cut_s, 1),
            ">= 120 s",
            holds=healed_s - cut_s >= 119,
            unit="s",
        ),
        Figure("results of the city's monitor meanwhile", during, "> 0", holds=during > 0),
        Figure("positions that waited in the city", waiting, "> 0", holds=waiting > 0),
        Figure("the city's revision meanwhile", own, "= 1", holds=own == 1),
        Figure(
            "all sites run the change after",
            round(agreed_s, 1),
            "by themselves",
            holds=agreed(),
            unit="s",
        ),
    ]


def _waiting(apart: Apart, site: str, unit: str) -> int:
    status = json.loads(apart.read(site, "runs/taxi/status.json"))
    measured = next(one["measurement"] for one in status["units"] if one["name"] == unit)
    return 0 if measured is None else int(measured["waiting"]) + int(measured["in_service"])


def _phase(apart: Apart, site: str) -> str:
    for run in apart.ask(site, "/runs") or ():
        if run["name"] == "taxi":
            return str(run["phase"])
    return "unknown"


def _stop(apart: Apart, site: str) -> None:
    try:
        if _phase(apart, site) not in ("ended", "unknown"):
            apart.tell(site, "/runs/taxi/commands", {"kind": "stop", "reason": "enough was seen"})
    except PenstockError as error:
        print(f"{site} could not be stopped: {error}", file=sys.stderr)


def _bill(folders: list[Path]) -> dict[str, str]:
    """One bill over the runs of all sites, by site."""
    from penstock.controller.billing import Bill, bill_of
    from penstock.experiments.twin import opened

    found = Bill(())
    for folder in folders:
        with opened(folder) as journal:
            found = found.with_more(bill_of(journal, None))
    return {key[0]: str(cost) for key, cost in found.by("site").items()}


def _hosts_of(folder: Path) -> list[str]:
    """The units that ever had an instance in a run."""
    from penstock.experiments.twin import opened

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
