"""Sites of the rig to measure on: a host each, with the site's service, and a broker where one is wanted.

Everything of a site is on its host: broker, service, master, workers, drivers and controllers. Hosts reach
each other over links with real delays, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.api.client import Service
from penstock.channels.kafka_access import CLIENT_FILE
from penstock.channels.sinks import read_results
from penstock.errors import ClusterError, PenstockError
from penstock.machine.processes import wait_until
from penstock.rig.rig import Rig, RigHost

HERE = Path(__file__).resolve().parents[1]
ROOT = "/srv/penstock"
"""Where everything of a site lies, on the disk of its host."""
PORT = 8765
PATIENCE_S = 600.0
"""Far beyond what anything takes, for machines that do much else."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Many Javas start beside those that run: without this, on two cores, compiling takes most of them."""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(HERE / "src"),
    "PYTHONUNBUFFERED": "1",
    "JDK_JAVA_OPTIONS": LIGHT_JAVA,
}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Api:
    """The API of a service on this machine or on a host of the rig, and the command line beside it."""

    root: Path
    """The folder of its runs, as this machine sees it."""
    base: str = ""
    """Where it answers."""
    host: RigHost | None = None

    def ask(
        self, path: str, body: dict[str, Any] | None = None, method: str | None = None
    ) -> tuple[int, Any]:
        """A request; its status and what was answered."""
        token = (self.root / "token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}{path}", data, headers, method=method)
        with contextlib.nullcontext() if self.host is None else self.host.inside():
            try:
                with _DIRECT.open(request, timeout=PATIENCE_S) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

    def penstock(self, *arguments: str) -> str:
        """Run a command of Penstock's beside the service to its end; what it printed."""
        command = [sys.executable, "-m", "penstock.cli.main", *arguments]
        if self.host is None:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        else:
            done = self.host.run(*command, environment=ENVIRONMENT, timeout_s=PATIENCE_S)
        if done.returncode:
            raise ClusterError(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def seen(self, path: Path) -> str:
        """A path below the folder of the runs, as the service sees it."""
        return str(path) if self.host is None else f"{ROOT}/runs/{path.relative_to(self.root)}"


class Sites:
    """The sites of a rig, each with one run of the same name."""

    def __init__(
        self,
        rig: Rig,
        kept: Path,
        run: str,
        links: Mapping[tuple[str, str], float] | None = None,
        brokers: Sequence[str] = (),
    ) -> None:
        """`links` are one-way delays in milliseconds, `brokers` the sites that have one.

        Logs, and what `keep` copies off the hosts' disks, are in `kept`.
        """
        self.rig, self.kept, self.run = rig, kept, run
        self._links, self._brokers = links or {}, tuple(brokers)
        self.names = rig.sites
        self.hosts: dict[str, RigHost] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Hosts, links, brokers and services."""
        for site in self.names:
            found = self.rig.host(f"{site}-1", site, disk_mib=4096)
            assert found is not None
            self.hosts[site] = found
        for (one, other), delay_ms in self._links.items():
            self.rig.link(one, other, delay_ms=delay_ms)
        for site in self._brokers:
            self.broker(site)
        for site in self.names:
            for broker in self._brokers:
                self.write(site, client_file(broker), self.read(broker, f"broker/{CLIENT_FILE}"))
            self.write(site, f"{ROOT}/runs/token", f"token-of-{site}")
            for other in self.names:
                if other != site:
                    known = {"url": self._url(other)}
                    self.write(site, f"{ROOT}/peers/{other}/service.json", json.dumps(known))
                    self.write(site, f"{ROOT}/peers/{other}/token", f"token-of-{other}")
        for site in self.names:
            self.serve(site)

    def api(self, site: str) -> Api:
        """The API of a site's service."""
        host = self.hosts[site]
        return Api(host.file(f"{ROOT}/runs"), f"{self._url(site)}api/v1", host)

    def broker(self, site: str) -> None:
        """Start a site's broker, or start it again."""
        at = ("--address", self.hosts[site].address, "--port", "9092")
        self.api(site).penstock("broker", "up", "--folder", f"{ROOT}/broker", *at)

    def serve(self, site: str) -> None:
        """Start a site's service, or start it again."""
        peers = [part for o in self.names if o != site for part in ("--peer", f"{ROOT}/peers/{o}")]
        command = [sys.executable, "-m", "penstock.cli.main", "serve", f"{ROOT}/runs", *peers]
        self.running[site] = self.hosts[site].start(
            *command, "--host", self.hosts[site].address, "--port", str(PORT),
            log=self.kept / f"service-{site}.log", environment=ENVIRONMENT,
        )  # fmt: skip
        if not wait_until(lambda: self.ask(site, "/runs") is not None, PATIENCE_S):
            raise PenstockError(f"the service of {site} did not come up; see {self.kept}")

    def service(self, site: str) -> Service:
        """A site's service, for whoever is in its network."""
        return Service(self._url(site), f"token-of-{site}")

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

    def begin(self, topology: str, code: str, sites: Sequence[str]) -> None:
        """Start the run of each of these sites, with the functions in a folder of its host."""
        for site in sites:
            wish = {"name": self.run, "topology": topology, "site": site, "code": code}
            self.tell(site, "/runs", wish)

    def command(self, site: str, kind: str, reason: str) -> None:
        """Tell a site's run something."""
        self.tell(site, f"/runs/{self.run}/commands", {"kind": kind, "reason": reason})

    def phase(self, site: str) -> str:
        """What a site's run is about."""
        for run in self.ask(site, "/runs") or ():
            if run["name"] == self.run:
                return str(run["phase"])
        return "unknown"

    def stop(self) -> None:
        """Stop the runs of all sites that are not over."""
        for site in self.names:
            try:
                if self.phase(site) not in ("ended", "unknown"):
                    self.command(site, "stop", "enough was seen")
            except PenstockError as error:
                print(f"{site} could not be stopped: {error}", file=sys.stderr)

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
        return read_results(self.hosts[site].file(f"{ROOT}/runs/{self.run}/results/{sink}"))

    def controller(self, site: str) -> int | None:
        """The process that was last the controller of a site's run, as its host counts."""
        found = self.read(site, f"runs/{self.run}/controller.lock").strip()
        return int(found) if found else None

    def kill(self, site: str, what: str) -> None:
        """Kill the processes of a site's host whose command has these words, and nothing else."""
        for folder in self.hosts[site].file("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if what in command:
                    self.kill_process(site, int(folder.name))

    def kill_process(self, site: str, pid: int) -> None:
        """Kill one process of a site's host."""
        self.hosts[site].run("kill", "-9", str(pid))

    def keep(self) -> list[Path]:
        """Copy what the runs leave off the hosts' disks."""
        found = []
        for site in self.names:
            target = self.kept / site
            shutil.rmtree(target, ignore_errors=True)
            source = self.hosts[site].file(f"{ROOT}/runs/{self.run}")
            if not source.is_dir():
                continue  # it never began
            ignored = shutil.ignore_patterns("clusters", "cluster", "checkpoint")
            with contextlib.suppress(shutil.Error):  # files of a run that goes on come and go meanwhile
                shutil.copytree(source, target, ignore=ignored)
            found.append(target)
        return found

    def _url(self, site: str) -> str:
        return f"http://{self.hosts[site].address}:{PORT}/"


def client_file(broker: str) -> str:
    """Where every host has what a site's broker lets clients in with."""
    return f"/etc/penstock/{broker}.properties"
