"""The wide area network between the rig's sites, in user space: delay, jitter, loss, rate and cut.

A process of its own with one tun device in each site's network. Packets that leave a site are read here, wait
for as long as their link says, and are written into the other site. It works on kernels without `netem`.
Started with a JSON of sites as its argument; each line on its input changes a link and is answered by a line.
"""

from __future__ import annotations

import fcntl
import heapq
import ipaddress
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.rig.namespaces import inside

NETWORK = "10.77.0.0/16"
"""All addresses of the rig; a site has the 256 of its number."""
DEVICE = "wan"

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_TUN, _NO_INFO, _HEADER = 0x1, 0x1000, 0x4000
_CHECKSUM, _SEGMENTS = 1, 2
_HEADER_BYTES = 10
_LONGEST = 70_000
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Link:
    """How one site is reached from another."""

    delay_ms: float = 0.0
    """One way."""
    jitter_ms: float = 0.0
    """The delay differs by up to so much either way; packets stay in order."""
    loss: float = 0.0
    """The share of packets that is lost."""
    rate_mbit: float = 0.0
    """Megabits a second; 0 is without a limit."""
    cut: bool = False
    """Nothing gets through."""


@dataclass(slots=True)
class _Counts:
    """Packets so far."""

    carried: int = 0
    lost: int = 0
    cut: int = 0


class Wan:
    """Carries packets between sites."""

    def __init__(self, sites: dict[str, tuple[int, str]]) -> None:
        """`sites` by name: the number of a process in the site's network, and the site's addresses."""
        self._devices = {name: _device(pid) for name, (pid, _) in sites.items()}
        self._site_of = {device: name for name, device in self._devices.items()}
        networks = {name: ipaddress.ip_network(addresses) for name, (_, addresses) in sites.items()}
        self._networks = [(int(n.network_address), int(n.netmask), name) for name, n in networks.items()]
        self._links: dict[tuple[str, str], Link] = {}
        self._free_s: dict[tuple[str, str], float] = {}
        """When the last packet of a link is through its narrowest place."""
        self._last_s: dict[tuple[str, str], float] = {}
        """When the last packet of a link arrives: none overtakes it."""
        self._waiting: list[tuple[float, int, tuple[str, str], bytes]] = []
        self._number = 0
        self._counts = _Counts()
        self._chance = random.Random(1)

    def run(self, orders: int, answers: int) -> None:
        """Carry packets until `orders` ends."""
        poll = select.epoll()
        for device in (*self._site_of, orders):
            poll.register(device, select.EPOLLIN)
        text = b""
        while True:
            self._deliver()
            wait_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else -1
            for ready, _ in poll.poll(wait_s):
                if ready != orders:
                    self._take(ready)
                    continue
                piece = os.read(orders, 65536)
                if not piece:
                    return
                *lines, text = (text + piece).split(b"\n")
                for line in lines:
                    self._set(json.loads(line))
                    os.write(answers, json.dumps(asdict(self._counts)).encode() + b"\n")

    def _set(self, order: dict[str, Any]) -> None:
        one, other = order.pop("between")
        for pair in ((one, other), (other, one)):
            self._links[pair] = replace(self._links.get(pair, Link()), **order)

    def _take(self, device: int) -> None:
        """Read what a site sends and put it on its way."""
        own = self._site_of[device]
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(device, _LONGEST)
            except BlockingIOError:
                return
            other = self._target(packet)
            if other is not None:
                self._send((own, other), packet)

    def _target(self, packet: bytes) -> str | None:
        if packet[_HEADER_BYTES] >> 4 != 4:
            return None
        address = int.from_bytes(packet[_HEADER_BYTES + 16 : _HEADER_BYTES + 20], "big")
        return next((name for first, mask, name in self._networks if address & mask == first), None)

    def _send(self, pair: tuple[str, str], packet: bytes) -> None:
        link = self._links.get(pair, Link())
        if link.cut:
            self._counts.cut += 1
            return
        if link.loss and self._chance.random() < link.loss:
            self._counts.lost += 1
            return
        at_s = time.monotonic()
        if link.rate_mbit:
            at_s = max(at_s, self._free_s.get(pair, 0.0)) + len(packet) * 8e-6 / link.rate_mbit
            self._free_s[pair] = at_s
        at_s += (link.delay_ms + self._chance.uniform(-1, 1) * link.jitter_ms) / 1000
        at_s = max(at_s, self._last_s.get(pair, 0.0))
        self._last_s[pair] = at_s
        self._number += 1
        heapq.heappush(self._waiting, (at_s, self._number, pair, packet))

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, pair, packet = heapq.heappop(self._waiting)
            if self._links.get(pair, Link()).cut:
                self._counts.cut += 1
                continue
            try:
                os.write(self._devices[pair[1]], packet)
                self._counts.carried += 1
            except OSError:
                self._counts.lost += 1


def _device(pid: int) -> int:
    """A tun device in the network of a process, with the way to all other sites through it."""
    with inside(pid):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        wanted = struct.pack("16sH22x", DEVICE.encode(), _TUN | _NO_INFO | _HEADER)
        fcntl.ioctl(device, _TUNSETIFF, wanted)
        # Segments stay together on their way: a third of the work.
        fcntl.ioctl(device, _TUNSETOFFLOAD, _CHECKSUM | _SEGMENTS)
        up = f"ip link set {DEVICE} up txqueuelen 5000; ip route add {NETWORK} dev {DEVICE}"
        subprocess.run(["bash", "-ec", up], check=True)
    return device


def main() -> None:
    """Carry packets until the input ends; says `ready` once it does."""
    wan = Wan({name: (pid, addresses) for name, (pid, addresses) in json.loads(sys.argv[1]).items()})
    answers = sys.stdout.fileno()
    os.write(answers, b"ready\n")
    wan.run(sys.stdin.fileno(), answers)


if __name__ == "__main__":
    main()
