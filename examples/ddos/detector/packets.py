"""Packets as a sensor captures them: a number, an instant, and the first headers of each.

Sixteen bytes are the sensor's own: the packet's number and its microseconds since the sensor began. Then come
the IPv4 header and that of TCP or UDP. Payloads are not captured: the header says how long they are.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TCP, UDP = 6, 17
SYN, ACK, PUSH = 0x02, 0x10, 0x08
_OWN = struct.Struct(">QQ")
_IP = struct.Struct(">BBHHHBBHII")
_TCP = struct.Struct(">HHIIBBHHH")
_UDP = struct.Struct(">HHHH")


@dataclass(frozen=True, slots=True)
class Packet:
    """What the headers of one packet say; addresses are numbers, as on the wire."""

    number: int
    """Packets of a sensor are numbered 1, 2, 3, … without a gap."""
    time_us: int
    """Microseconds since the sensor began."""
    source: int
    destination: int
    source_port: int
    destination_port: int
    protocol: int
    flags: int
    """Of TCP; 0 for UDP."""
    length: int
    """Bytes with all headers, as the IPv4 header says."""


def written(packet: Packet) -> bytes:
    """A packet as the sensor sends it."""
    head = _IP.pack(
        0x45, 0, packet.length, packet.number & 0xFFFF, 0, 64, packet.protocol, 0, packet.source,
        packet.destination,
    )  # fmt: skip
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    ports = packet.source_port, packet.destination_port
    if packet.protocol == TCP:
        rest = _TCP.pack(*ports, packet.number & 0xFFFFFFFF, 0, 5 << 4, packet.flags, 65535, 0, 0)
    else:
        rest = _UDP.pack(*ports, packet.length - 20, 0)
    return _OWN.pack(packet.number, packet.time_us) + head + rest


def parsed(raw: bytes) -> Packet:
    """What a captured packet says.

    One that is cut short, damaged or neither TCP nor UDP keeps its number and has protocol 0.
    """
    number, time_us = _OWN.unpack_from(raw)
    unknown = Packet(number, time_us, 0, 0, 0, 0, 0, 0, 0)
    head = raw[_OWN.size : _OWN.size + _IP.size]
    if len(raw) < _OWN.size + _IP.size + _UDP.size:
        return unknown
    version, _, length, _, _, _, protocol, _, source, destination = _IP.unpack(head)
    if version != 0x45 or protocol not in (TCP, UDP) or checksum(head):
        return unknown
    at = _OWN.size + _IP.size
    if protocol == TCP and len(raw) < at + _TCP.size:
        return unknown
    ports = struct.unpack_from(">HH", raw, at)
    flags = raw[at + 13] if protocol == TCP else 0
    return Packet(number, time_us, source, destination, *ports, protocol, flags, length)


def checksum(head: bytes) -> int:
    """The IPv4 checksum of a header; 0 where the header has its own right checksum in it."""
    total = sum(struct.unpack(f">{len(head) // 2}H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def address(text: str) -> int:
    """An IPv4 address as a number."""
    return int(ipaddress.IPv4Address(text))


def dotted(number: int) -> str:
    """A number as an IPv4 address."""
    return str(ipaddress.IPv4Address(int(number)))


def dotted_all(numbers: Sequence[int] | NDArray[np.int64]) -> list[str]:
    """Numbers as IPv4 addresses."""
    return [dotted(number) for number in numbers]
