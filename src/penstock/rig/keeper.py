"""The process that holds a rig. It is the first of its own process namespace: nothing in the rig outlives it.

It obeys orders, a JSON line each, on a socket in the rig's folder (`penstock.rig.rig` gives them). It ends
when it is told to, when it is killed, and when its owner is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.errors import ClusterError
from penstock.machine.files import written
from penstock.machine.locks import Lock
from penstock.machine.processes import TOKEN_VARIABLE, ProcessIdentity
from penstock.rig.hosts import FIRST, LAST, HostBox, Machine, SiteBox
from penstock.rig.limits import KEEPER, Hierarchies
from penstock.rig.namespaces import inside
from penstock.rig.wan import Link

SOCKET = "keeper.sock"
RECORD = "rig.json"
"""What has to be cleared away should the keeper be killed."""
WAKE_PORT = 9
"""Where wake-on-LAN packets are listened for in each site."""
_LOOK_S = 1.0


class Keeper:
    """Everything of one rig."""

    def __init__(self, name: str, folder: Path, sites: list[str]) -> None:
        self.name = name
        self.folder = folder
        for part in ("mnt", "logs"):
            (folder / part).mkdir(exist_ok=True)
        found = Hierarchies.find()
        self._limits = found if isinstance(found, Hierarchies) else None
        self._no_limits = found if isinstance(found, str) else None
        groups = [str(parent) for parent in self._limits.parents] if self._limits else []
        written(folder / RECORD, json.dumps({"name": name, "groups": groups}))
        if self._limits is not None:
            self._limits.sweep()
            self._limits.group(name, KEEPER).join()
        self._sites = {site: SiteBox(site, number) for number, site in enumerate(sites, 1)}
        self._machines: dict[str, Machine] = {}
        self._hosts: dict[str, HostBox] = {}
        self._cut: set[str] = set()
        self._links: dict[tuple[str, str], Link] = {}
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        self._wan = self._start_wan()
        self._wake = {site: self._listen(box) for site, box in self._sites.items()}

    # --- orders -----------------------------------------------------------------------------------

    def obey(self, order: dict[str, Any]) -> Any:
        """Carry out one order; ClusterError tells why it cannot be done."""
        what = order.pop("do")
        return getattr(self, f"_do_{what}")(**order)

    def _do_status(self) -> dict[str, Any]:
        hosts = []
        for machine in self._machines.values():
            box = self._hosts.get(machine.name)
            state = "off" if box is None else "cut off" if machine.name in self._cut else "up"
            hosts.append(
                {
                    **asdict(machine),
                    "state": state,
                    "mac": machine.mac,
                    "pid": None if box is None else box.pid,
                    "members": [] if box is None else box.members,
                }
            )
        links = [{"between": pair, **asdict(link)} for pair, link in self._links.items()]
        return {
            "name": self.name,
            "limits": self._no_limits or f"control groups, version {self._limits and self._limits.version}",
            "sites": {
                name: {"addresses": site.addresses, "gateway": site.gateway, "pid": site.box.pid}
                for name, site in self._sites.items()
            },
            "hosts": hosts,
            "links": links,
            "services": {name: service.poll() for name, service in self._services.items()},
        }

    def _do_host(self, name: str, site: str, on: bool = True, address: str | None = None, **how: Any) -> None:
        if name in self._machines:
            raise ClusterError(f"the rig has a host {name} already")
        if name in self._sites:
            raise ClusterError(f"{name} is the name of a site of this rig")
        if site not in self._sites:
            raise ClusterError(f"the rig has no site {site}, only {', '.join(self._sites)}")
        address = address or self._free_address(site)
        if any(machine.address == address for machine in self._machines.values()):
            raise ClusterError(f"the address {address} is another host's")
        how["boot"] = tuple(how.get("boot") or ())
        self._machines[name] = Machine(name, site, address, **how)
        if on:
            self._do_start(name)

    def _do_start(self, name: str) -> None:
        machine = self._machine(name)
        if name in self._hosts:
            return
        group = self._limits.group(self.name, name) if self._limits else None
        self._hosts[name] = HostBox(machine, self._sites[machine.site], group, self.folder)

    def _do_kill(self, name: str) -> None:
        self._machine(name)
        box = self._hosts.pop(name, None)
        self._cut.discard(name)
        if box is not None:
            box.kill()

    def _do_remove(self, name: str) -> None:
        self._do_kill(name)
        del self._machines[name]

    def _do_cut(self, names: list[str]) -> None:
        self._connect(names, cut=True)

    def _do_heal(self, names: list[str]) -> None:
        self._connect(names, cut=False)

    def _do_link(self, between: list[str], **how: Any) -> dict[str, Any]:
        one, other = self._pair(between)
        link = replace(self._links.get((one, other), Link()), **how)
        self._links[one, other] = link
        assert self._wan.stdin is not None
        assert self._wan.stdout is not None
        self._wan.stdin.write(json.dumps({"between": [one, other], **asdict(link)}).encode() + b"\n")
        self._wan.stdin.flush()
        counts: dict[str, Any] = json.loads(self._wan.stdout.readline())
        return counts

    def _do_service(self, name: str, site: str, command: list[str], environment: dict[str, str]) -> None:
        """Run a program in the network of a site, outside of any host, as the API of a cloud is."""
        if site not in self._sites:
            raise ClusterError(f"the rig has no site {site}, only {', '.join(self._sites)}")
        known = self._services.get(name)
        if known is not None and known.poll() is None:
            raise ClusterError(f"the rig runs a service {name} already")
        with (self.folder / "logs" / f"{name}.log").open("ab") as output:
            self._services[name] = subprocess.Popen(
                ["nsenter", "-t", str(self._sites[site].box.pid), "-n", "--", *command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    # --- inside -----------------------------------------------------------------------------------

    def _machine(self, name: str) -> Machine:
        if name not in self._machines:
            raise ClusterError(f"the rig has no host {name}, only {', '.join(self._machines) or 'none'}")
        return self._machines[name]

    def _connect(self, names: list[str], *, cut: bool) -> None:
        if len(names) == 1 and names[0] in self._machines:
            if names[0] not in self._hosts:
                raise ClusterError(f"host {names[0]} is switched off")
            box = self._hosts[names[0]]
            (box.cut if cut else box.heal)()
            (self._cut.add if cut else self._cut.discard)(names[0])
        elif len(names) == 1 and names[0] in self._sites:
            for other in self._sites:
                if other != names[0]:
                    self._do_link([names[0], other], cut=cut)
        elif len(names) == 2:
            self._do_link(names, cut=cut)
        else:
            raise ClusterError(f"expected a host, a site or two sites, got {' '.join(names)}")

    def _pair(self, between: list[str]) -> tuple[str, str]:
        one, other = sorted(between)
        for site in between:
            if site not in self._sites:
                raise ClusterError(f"the rig has no site {site}, only {', '.join(self._sites)}")
        if one == other:
            raise ClusterError(f"expected two sites, got {one} twice")
        return one, other

    def _free_address(self, site: str) -> str:
        taken = {machine.address for machine in self._machines.values()}
        for number in range(FIRST, LAST + 1):
            address = self._sites[site].address(number)
            if address not in taken:
                return address
        raise ClusterError(f"site {site} has no free address")

    def _start_wan(self) -> subprocess.Popen[bytes]:
        sites = {name: (site.box.pid, site.addresses) for name, site in self._sites.items()}
        wan = subprocess.Popen(
            [sys.executable, "-m", "penstock.rig.wan", json.dumps(sites)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert wan.stdout is not None
        if wan.stdout.readline() != b"ready\n":
            raise ClusterError("the rig's wide area network did not start")
        return wan

    def _listen(self, site: SiteBox) -> socket.socket:
        with inside(site.box.pid):
            listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listening.bind(("", WAKE_PORT))
        return listening

    def _woken(self, packet: bytes) -> None:
        """Switch on the host whose card is named 16 times in a wake-on-LAN packet."""
        for machine in self._machines.values():
            card = bytes.fromhex(machine.mac.replace(":", ""))
            if b"\xff" * 6 + card * 16 in packet:
                self._do_start(machine.name)

    # --- life -------------------------------------------------------------------------------------

    def serve(self, server: socket.socket, owner: ProcessIdentity | None) -> None:
        """Obey until told to end, or until the owner is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(server, selectors.EVENT_READ)
            for listening in self._wake.values():
                selector.register(listening, selectors.EVENT_READ)
            while owner is None or owner.alive:
                for key, _ in selector.select(_LOOK_S):
                    if key.fileobj is not server:
                        assert isinstance(key.fileobj, socket.socket)
                        self._woken(key.fileobj.recv(1024))
                        continue
                    connection, _ = server.accept()
                    # A caller that has left, or that talks nonsense, is no reason to end a rig.
                    ignored = contextlib.suppress(OSError, ValueError)
                    with ignored, connection, connection.makefile("rwb") as stream:
                        if not self._answer(cast(BinaryIO, stream)):
                            return
                for box in self._hosts.values():
                    box.reap()

    def _answer(self, stream: BinaryIO) -> bool:
        """Answer one order; False where it was the last."""
        order = json.loads(stream.readline() or b"{}")
        if order.get("do") == "down":
            return False
        try:
            answer = {"done": self.obey(order)}
        except (ClusterError, OSError, TypeError, AttributeError, KeyError) as error:
            answer = {"error": str(error)}
        with contextlib.suppress(OSError):
            stream.write(json.dumps(answer).encode() + b"\n")
        return True

    def close(self) -> None:
        """End everything; returns when it is gone."""
        for service in self._services.values():
            service.kill()
            service.wait()
        for box in self._hosts.values():
            with contextlib.suppress(ClusterError):
                box.kill()
        self._wan.kill()
        self._wan.wait()
        for site in self._sites.values():
            site.box.end()
        if self._limits is not None:
            self._limits.leave(self.name)


def kept(folder: Path) -> Lock:
    """The lock that the keeper of the rig in a folder has for as long as it lives, however busy it is."""
    return Lock(folder / "keeper.lock", f"the rig in {folder}")


def main() -> None:
    """Hold the rig that the JSON in the first argument describes."""
    wanted = json.loads(sys.argv[1])
    # What runs in hosts is not our owner's child: a Penstock there must not end it as somebody's orphan.
    os.environ.pop(TOKEN_VARIABLE, None)
    folder = Path(wanted["folder"])
    lock = kept(folder)
    lock.acquire()  # before anything is on record: whoever sweeps sees that this rig is being made
    owner = ProcessIdentity.read(wanted["owner"]) if wanted["owner"] else None
    keeper = None
    try:
        keeper = Keeper(wanted["name"], folder, wanted["sites"])
        os.chdir(folder)  # a socket's path may be at most 107 bytes long
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(SOCKET)
            server.listen()
            keeper.serve(server, owner)
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        if keeper is not None:
            keeper.close()
            if owner is not None:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
