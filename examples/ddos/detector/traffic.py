"""Traffic with a labelled truth: people at work, and five kinds of attack on their servers.

How many packets are due when is the workload's (the day of Figure 8, in the topology file). Here it is
decided whose each packet is. Conversations between clients and servers come and go, each with a pace and
sizes of its own; there are as many as the load needs. Every minute of a run has one attack of each kind in
it. The same source always makes the same packets, so the truth can be made again by whoever wants to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from detector.packets import ACK, PUSH, SYN, TCP, UDP, Packet, address, written
from penstock.topology.model import Choice
from penstock.workload.arrivals import ArrivalStream
from penstock.workload.registry import make_workload

PERIOD_S = 5.0
"""Packets are counted by so much time (paper 002: a minute)."""
CYCLE_S = 60.0
"""The attacks begin again after so long."""
SERVERS = tuple(address("10.0.0.1") + k for k in range(24))
CLIENTS = tuple(address("192.168.0.10") + k for k in range(600))
SERVICES = ((443, TCP), (443, TCP), (443, TCP), (80, TCP), (25, TCP), (993, TCP), (53, UDP))
A_CONVERSATION_PER_S = 2.5
"""Packets a second of a conversation in the mean: twice the load is twice as many conversations."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack in every cycle."""

    kind: str
    from_s: float
    to_s: float
    share: float
    """Of the packets due while it lasts; the rest is as usual."""


ATTACKS = (
    Attack("flood", 4.0, 12.0, 0.35),  # one machine, as fast as it can
    Attack("scan", 15.0, 23.0, 0.06),  # one machine asks a server at all its ports
    Attack("slow", 18.0, 44.0, 0.015),  # many connections of one machine, kept open with next to nothing
    Attack("spoofed", 28.0, 36.0, 0.3),  # a flood under one address that is nobody's
    Attack("distributed", 46.0, 54.0, 0.35),  # a flood under thousands of such addresses
)


@dataclass(slots=True)
class _Conversation:
    source: int
    destination: int
    port: int
    service: tuple[int, int]
    weight: float
    size: float
    left: int
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Labelled:
    """A packet and the kind of attack it belongs to; an empty kind is traffic as usual."""

    packet: Packet
    kind: str


class Traffic:
    """The packets of one source, in the order of their time."""

    def __init__(self, source: str, attacks: Sequence[Attack] = ATTACKS) -> None:
        self._rng = np.random.default_rng([2018, *source.encode()])
        self._attacks = tuple(attacks)
        self._talks: list[_Conversation] = []
        self._shares = np.empty(0)
        self._pace_per_s = 0.0

    def packets(self, first: int, instants_s: Sequence[float]) -> list[Labelled]:
        """The packets that are due at these instants, the first of which has this number, from 0."""
        if not len(instants_s):
            return []
        self._keep_pace(instants_s)
        talks = self._rng.choice(len(self._talks), size=len(instants_s), p=self._shares)
        luck = self._rng.random((len(instants_s), 3))
        made = []
        for offset, at_s in enumerate(instants_s):
            number, time_us = first + offset + 1, round(float(at_s) * 1e6)
            attack = self._attack(float(at_s), luck[offset, 0])
            if attack is None:
                made.append(
                    Labelled(self._usual(self._talks[talks[offset]], number, time_us, luck[offset]), "")
                )
            else:
                made.append(Labelled(self._hostile(attack, number, time_us, luck[offset]), attack.kind))
        self._end_talks()
        return made

    def columns(self, first: int, instants_s: Sequence[float]) -> list[Mapping[str, bytes]]:
        """The same as records of the source."""
        return [{"packet": written(labelled.packet)} for labelled in self.packets(first, instants_s)]

    def _keep_pace(self, instants_s: Sequence[float]) -> None:
        """As many conversations as the load needs; what it needs is seen over about a second."""
        now_per_s = len(instants_s) / 0.1
        before = self._pace_per_s or now_per_s
        self._pace_per_s = before + 0.1 * (now_per_s - before)
        wanted = max(12, round(self._pace_per_s / A_CONVERSATION_PER_S))
        while len(self._talks) < wanted:
            rng = self._rng
            self._talks.append(
                _Conversation(
                    CLIENTS[rng.integers(len(CLIENTS))],
                    # Some servers are asked much more often than others.
                    SERVERS[min(int(rng.exponential(6.0)), len(SERVERS) - 1)],
                    int(rng.integers(32768, 60999)),
                    SERVICES[rng.integers(len(SERVICES))],
                    float(rng.lognormal(0.0, 0.7)),
                    float(rng.lognormal(6.0, 0.6)),
                    int(rng.geometric(1 / 40)),
                )
            )
        weights = np.array([talk.weight for talk in self._talks])
        self._shares = weights / weights.sum()

    def _end_talks(self) -> None:
        self._talks = [talk for talk in self._talks if talk.left > 0]

    def _attack(self, at_s: float, luck: float) -> Attack | None:
        within_s = at_s % CYCLE_S
        below = 0.0
        for attack in self._attacks:
            if attack.from_s <= within_s < attack.to_s:
                below += attack.share
                if luck < below:
                    return attack
        return None

    def _usual(
        self,
        talk: _Conversation,
        number: int,
        time_us: int,
        luck: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> Packet:
        talk.left -= 1
        port, protocol = talk.service
        flags = 0 if protocol == UDP else (ACK | (PUSH if luck[1] < 0.5 else 0)) if talk.begun else SYN
        length = 60 if not talk.begun or luck[1] < 0.3 else int(min(1500, 60 + talk.size * (0.5 + luck[2])))
        talk.begun = True
        return Packet(
            number, time_us, talk.source, talk.destination, talk.port, port, protocol, flags, length
        )

    def _hostile(
        self, attack: Attack, number: int, time_us: int, luck: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> Packet:
        cycle = int(time_us / 1e6 // CYCLE_S)
        turn = cycle * len(ATTACKS) + [known.kind for known in ATTACKS].index(attack.kind)
        victim, attacker = SERVERS[7 * turn % len(SERVERS)], address("203.0.113.0") + turn % 250
        port = 1024 + int(luck[1] * 60000)
        if attack.kind == "scan":
            return Packet(number, time_us, attacker, victim, 40000, 1 + int(luck[1] * 10000), TCP, SYN, 40)
        if attack.kind == "slow":
            return Packet(
                number, time_us, attacker, victim, 20000 + int(luck[1] * 400), 443, TCP, ACK | PUSH, 41
            )
        if attack.kind == "distributed":
            forged = address("100.64.0.0") + int(luck[2] * 4000) + 4000 * cycle
            return Packet(number, time_us, forged, victim, port, 443, TCP, SYN, 40)
        if attack.kind == "spoofed":
            return Packet(number, time_us, address("198.18.0.1") + cycle, victim, port, 443, TCP, SYN, 40)
        return Packet(number, time_us, attacker, victim, port, 53, UDP, 0, 60 + int(luck[2] * 900))


def packets(source: str) -> object:
    """What a source sends, for the topology file: traffic with attacks."""
    return Traffic(source).columns


def usual(source: str) -> object:
    """What a source sends on a day without attacks."""
    return Traffic(source, ()).columns


def captured(
    source: str, workload: Choice, duration_s: float, attacks: Sequence[Attack] = ATTACKS
) -> Iterator[Labelled]:
    """Every packet that a source sends in a run of this duration, with its label."""
    traffic, arrivals = Traffic(source, attacks), ArrivalStream(make_workload(workload))
    number = 0
    for tick in range(1, round(duration_s * 10) + 1):
        # The feeder's own steps of a tenth of a second, so that the same is drawn at random.
        made = traffic.packets(number, arrivals.until(min(duration_s, tick * 0.1)))
        number += len(made)
        yield from made


def period_of(time_us: int) -> int:
    """The number of the period an instant is in."""
    return int(time_us // round(PERIOD_S * 1e6))


def truth(found: Sequence[Labelled]) -> dict[tuple[int, int, int], str]:
    """By (period, source, destination), the kind of attack that is in it; pairs without one are left out."""
    kinds: dict[tuple[int, int, int], str] = {}
    for labelled in found:
        if labelled.kind:
            packet = labelled.packet
            kinds[period_of(packet.time_us), packet.source, packet.destination] = labelled.kind
    return kinds
