"""Sites and hosts of the rig as the keeper makes them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.rig.limits import Group
from penstock.rig.namespaces import Box, entering, network

BRIDGE = "br0"
METADATA_ADDRESS = "169.254.169.254"
"""Where clouds tell an instance about itself; every site has it."""
FIRST, LAST = 10, 250
"""Hosts of a site are 10.77.N.10 to 10.77.N.250."""
_NOT_DISKS = ("/proc", "/sys", "/dev", "/run")


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a host whether it is switched on or not."""

    name: str
    site: str
    address: str
    cores: float | None = None
    """None is without a limit."""
    memory_mib: int | None = None
    """None is without a limit; what is written to the disk counts as memory."""
    disk_mib: int = 2048
    boot: tuple[str, ...] = ()
    """Run each time it is switched on, as the programs of a machine's image are."""

    @property
    def mac(self) -> str:
        """The address of its network card, for wake-on-LAN."""
        _, _, site, number = (int(part) for part in self.address.split("."))
        return f"02:77:00:00:{site:02x}:{number:02x}"


class SiteBox:
    """A site: a bridge on which its hosts are, and the way to other sites."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.addresses = f"10.77.{number}.0/24"
        self.gateway = f"10.77.{number}.1"
        self.mac = f"02:77:00:00:{number:02x}:01"
        """Its own: a bridge without one takes a host's, and with that host's end no other host reaches it."""
        self._number = number
        setup = f"""
ip link set lo up
ip link add {BRIDGE} address {self.mac} type bridge
ip addr add {self.gateway}/24 dev {BRIDGE}
ip addr add {METADATA_ADDRESS}/32 dev {BRIDGE}
ip link set {BRIDGE} up
echo 1 > /proc/sys/net/ipv4/ip_forward
"""
        self.box = Box(f"site {name}", setup, host=False)

    def address(self, number: int) -> str:
        """The address of its host of this number."""
        return f"10.77.{self._number}.{number}"


class HostBox:
    """A host that is switched on."""

    def __init__(self, machine: Machine, site: SiteBox, group: Group | None, folder: Path) -> None:
        """`folder` is the rig's: its `mnt` is where a disk is put together, its `logs` keep what it says."""
        self.machine = machine
        self._site = site
        self._group = group
        if group is not None:
            group.limit(machine.cores, machine.memory_mib)
        self._box = Box(machine.name, _setup(machine, folder / "mnt"), host=True, group=group)
        self._boot: subprocess.Popen[bytes] | None = None
        self._link = f"v{machine.address.rpartition('.')[2]}"
        network(
            f"ip link add {self._link} type veth peer name eth0 address {machine.mac} "
            f"netns /proc/{self.pid}/ns/net; ip link set {self._link} master {BRIDGE} up",
            site.box.pid,
        )
        network(
            f"ip addr add {machine.address}/24 dev eth0; ip link set eth0 up; "
            f"ip route add default via {site.gateway}",
            self.pid,
        )
        if machine.boot:
            log = folder / "logs" / f"{machine.name}.log"
            with log.open("ab") as output:
                self._boot = subprocess.Popen(
                    entering(self.pid, self.members, machine.boot),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    @property
    def pid(self) -> int:
        """Its first process, as the machine counts."""
        return self._box.pid

    @property
    def members(self) -> tuple[str, ...]:
        """Files a process writes 0 to in order to be within the host's limits."""
        return () if self._group is None else tuple(str(file) for file in self._group.members)

    def reap(self) -> None:
        """Bury what the boot command left."""
        if self._boot is not None:
            self._boot.poll()

    def cut(self) -> None:
        """Pull its network cable."""
        network(f"ip link set {self._link} down", self._site.box.pid)

    def heal(self) -> None:
        """Plug its network cable in again."""
        network(f"ip link set {self._link} up", self._site.box.pid)

    def kill(self) -> None:
        """Cut its power: nothing that runs on it says good-bye to anybody."""
        # Without its link, closed connections cannot be told to the other side.
        network(f"ip link delete {self._link}", self._site.box.pid)
        self._box.end()
        if self._boot is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._boot.pid, signal.SIGKILL)
            self._boot.wait()
        if self._group is not None:
            self._group.remove()


def disks() -> tuple[str, ...]:
    """Folders of this machine on which a file system is mounted that a host has to see, the root first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")
        outside = any(place == other or place.startswith(f"{other}/") for other in _NOT_DISKS)
        if not outside and Path(place).is_dir():
            found.append(place)
    return tuple(sorted(set(found)))


def _setup(machine: Machine, mnt: Path) -> str:
    """A disk of its own: this machine's files below as the image, what the host writes above, in memory."""
    quoted = shlex.quote(str(mnt))
    lines = [
        f"hostname {machine.name}",
        f"mount -t tmpfs -o size={machine.disk_mib}m tmpfs {quoted}",
        f"cd {quoted}; mkdir root",
    ]
    for number, place in enumerate(disks()):
        below, above = shlex.quote(place), shlex.quote(f"root{place}".rstrip("/"))
        lines += [
            f"mkdir -p up{number} work{number}",
            # A file system that cannot be below another one is left out: what is on it is not seen.
            f"mount -t overlay -o lowerdir={below},upperdir=up{number},workdir=work{number} overlay {above}"
            + ("" if place == "/" else " 2> /dev/null || true"),
        ]
    lines += [
        "mount --rbind /dev root/dev; mount --rbind /sys root/sys",
        "mount -t tmpfs tmpfs root/dev/shm; mount -t tmpfs tmpfs root/run",
        "cd root; mkdir -p .old; pivot_root . .old; cd /",
        "mount -t proc proc /proc; umount -l /.old; rmdir /.old",
        f"printf '127.0.0.1 localhost\\n{machine.address} {machine.name}\\n' > /etc/hosts",
        "rm -f /etc/resolv.conf; : > /etc/resolv.conf; echo 'hosts: files' > /etc/nsswitch.conf",
        "ip link set lo up",
    ]
    return "\n".join(lines)
