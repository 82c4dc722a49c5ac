"""A rig as its user sees it: bring it up, add hosts, run things in them, cut, heal, kill, take it down."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.processes import ChildProcesses, ProcessIdentity, log_tail, wait_until
from penstock.rig.availability import unavailable
from penstock.rig.keeper import RECORD, SOCKET, kept
from penstock.rig.limits import Hierarchies
from penstock.rig.namespaces import entering, inside

START_S = 30.0
ANSWER_S = 60.0
"""A host is made in 0.1 to 0.3 s; a busy machine takes many times that."""
_KEEPER = "keeper"


@dataclass(frozen=True, slots=True)
class RigHost:
    """A host of the rig that is switched on."""

    name: str
    site: str
    address: str
    mac: str
    pid: int
    """Its first process, as the machine counts."""
    members: tuple[str, ...]

    def command(self, command: Sequence[str]) -> list[str]:
        """What runs a command on this host, within its limits."""
        return entering(self.pid, self.members, command)

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end."""
        return subprocess.run(
            self.command(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start(
        self, *command: str, log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on this host; it ends with the host at the latest."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command(command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Sockets that this thread opens meanwhile are this host's."""
        return inside(self.pid)

    def file(self, path: str | Path) -> Path:
        """A file on this host's disk, as this machine sees it."""
        return Path(f"/proc/{self.pid}/root") / str(path).lstrip("/")


class Rig:
    """A rig of sites and hosts. As a context manager it is taken down on leaving."""

    def __init__(
        self,
        sites: Sequence[str] = ("a",),
        *,
        name: str | None = None,
        persistent: bool = False,
    ) -> None:
        """One that is not `persistent` ends with this process, however this process ends."""
        self.name = name or f"rig-{uuid.uuid4().hex[:8]}"
        for word in (self.name, *sites):
            require_name(word)
        self.sites = tuple(sites)
        self.persistent = persistent
        self.folder = cache_folder("rigs") / self.name
        self._children = ChildProcesses(f"rig-{self.name}", persistent=persistent)

    # --- life -------------------------------------------------------------------------------------

    def up(self) -> Rig:
        """Make the sites; ClusterError where a rig cannot be had or this one is up already."""
        reason = unavailable()
        if reason is not None:
            raise ClusterError(reason)
        sweep()
        if self.alive():
            raise ClusterError(f"the rig {self.name} is up already; take it down with `penstock rig down`")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = None if self.persistent else asdict(ProcessIdentity.of(os.getpid()))
        wanted = {"name": self.name, "folder": str(self.folder), "sites": self.sites, "owner": owner}
        log = self.folder / "logs" / "keeper.log"
        self._children.start(
            _KEEPER,
            [
                *("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--"),
                *(sys.executable, "-m", "penstock.rig.keeper", json.dumps(wanted)),
            ],
            log=log,
        )
        wait_until(lambda: self.alive() or not self._children.alive(_KEEPER), START_S)
        if not self.alive():
            said = log_tail(log)
            self.down()
            raise ClusterError(f"the rig {self.name} did not come up; last lines of its log:\n{said}")
        return self

    def down(self) -> None:
        """End everything in it and leave nothing behind; calling it again does nothing."""
        self._children.adopt()
        with contextlib.suppress(ClusterError, OSError):
            self._order("down")
        wait_until(lambda: not self._children.alive(_KEEPER), ANSWER_S if self.alive() else 5.0)
        self._children.stop_all(grace_s=0.0)
        _clear(self.folder)

    def __enter__(self) -> Rig:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @staticmethod
    def open(name: str) -> Rig:
        """The rig of this name that is up; ClusterError where there is none."""
        found = Rig(name=name, persistent=True)
        if not found.alive():
            raise ClusterError(f"no rig named {name!r} is up; make one with `penstock rig up`")
        found.sites = tuple(found.status()["sites"])
        return found

    def alive(self) -> bool:
        """Whether it is up and answers."""
        try:
            self._order("status")
        except (ClusterError, OSError):
            return False
        return True

    # --- hosts ------------------------------------------------------------------------------------

    def host(
        self,
        name: str,
        site: str | None = None,
        *,
        cores: float | None = None,
        memory_mib: int | None = None,
        disk_mib: int = 2048,
        address: str | None = None,
        boot: Sequence[str] = (),
        on: bool = True,
    ) -> RigHost | None:
        """Add a host to a site, by default to the first; None where it is not switched `on`."""
        self._order(
            "host",
            name=require_name(name),
            site=site or self.sites[0],
            cores=cores,
            memory_mib=memory_mib,
            disk_mib=disk_mib,
            address=address,
            boot=list(boot),
            on=on,
        )
        return self.get(name) if on else None

    def get(self, name: str) -> RigHost:
        """A host that is switched on; ClusterError where there is none of this name."""
        for host in self.status()["hosts"]:
            if host["name"] == name and host["pid"] is not None:
                return RigHost(
                    name, host["site"], host["address"], host["mac"], host["pid"], tuple(host["members"])
                )
        raise ClusterError(f"the rig {self.name} has no host {name} that is switched on")

    def start(self, name: str) -> RigHost:
        """Switch on a host that is off; its disk is as new."""
        self._order("start", name=name)
        return self.get(name)

    def kill(self, name: str) -> None:
        """Cut a host's power. What it had on its disk is gone; it can be switched on again."""
        self._order("kill", name=name)

    def remove(self, name: str) -> None:
        """Take a host away for good."""
        self._order("remove", name=name)

    # --- networks ---------------------------------------------------------------------------------

    def cut(self, *names: str) -> None:
        """Cut off a host, a site, or two sites from each other."""
        self._order("cut", names=names)

    def heal(self, *names: str) -> None:
        """Undo `cut`."""
        self._order("heal", names=names)

    def link(self, one: str, other: str, **how: float | bool) -> None:
        """Say how two sites are joined: the fields of `wan.Link`."""
        self._order("link", between=(one, other), **how)

    def gateway(self, site: str | None = None) -> tuple[str, int]:
        """The address of a site's router, and the number of a process in its network."""
        found = self.status()["sites"][site or self.sites[0]]
        return found["gateway"], found["pid"]

    def service(self, name: str, site: str, *command: str, **environment: str) -> None:
        """Run a program in a site's network outside of any host, such as the API of a cloud."""
        self._order("service", name=name, site=site, command=command, environment=environment)

    def status(self) -> dict[str, Any]:
        """All there is, as the keeper tells it."""
        found: dict[str, Any] = self._order("status")
        return found

    def log(self, name: str) -> Path:
        """What a host's boot command or a service wrote."""
        return self.folder / "logs" / f"{name}.log"

    def _order(self, what: str, **how: Any) -> Any:
        return order(self.folder, what, **how)


def order(folder: Path, what: str, **how: Any) -> Any:
    """Tell the keeper of the rig in this folder to do something; ClusterError where it cannot."""
    place = os.open(folder, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            # By way of the folder's descriptor: a socket's path may be at most 107 bytes long.
            connection.connect(f"/proc/self/fd/{place}/{SOCKET}")
            connection.sendall(json.dumps({"do": what, **how}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline() or b'{"error": "the rig is going down"}')
    finally:
        os.close(place)
    if "error" in answer:
        raise ClusterError(answer["error"])
    return answer["done"]


def require_name(name: str) -> str:
    """The name, where it can be a host's or a site's; ClusterError where it cannot."""
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", name):
        raise ClusterError(f"expected a name of letters, digits and `-`, got {name!r}")
    return name


def names() -> list[str]:
    """The rigs that are up."""
    return [path.name for path in sorted(cache_folder("rigs").iterdir()) if Rig(name=path.name).alive()]


def sweep() -> None:
    """Clear away what rigs left behind whose keeper was killed."""
    for folder in cache_folder("rigs").iterdir():
        if (folder / RECORD).exists() and not kept(folder).in_use():
            _clear(folder)


def _clear(folder: Path) -> None:
    """Remove the control groups and the folder of a rig whose processes have ended."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        record = json.loads((folder / RECORD).read_text())
        Hierarchies(tuple(Path(group) for group in record["groups"]), 1).remove(record["name"])
    shutil.rmtree(folder, ignore_errors=True)
