"""What stood where at an instant of a run, and how healthy units were in a span of it: from its journal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.controller.journal import Journal
from penstock.fleet.deployment import INSTANCE_COUNTED, Instance
from penstock.fleet.keeping import living_of
from penstock.fleet.lives import Life
from penstock.levels.configuration import HostLayout
from penstock.monitoring.health import health, is_backlog
from penstock.policies.levels import entry_units
from penstock.topology.model import Topology


@dataclass(frozen=True, slots=True)
class Span:
    """What a run did in a span of its time."""

    from_s: float
    to_s: float
    load_per_s: float
    """What came from the sources."""
    health: Mapping[str, float | None]
    """By unit, executed over received."""
    cpu_ratio: Mapping[str, float | None]
    """By unit, the mean over its instances and the span."""
    memory_ratio: Mapping[str, float | None]
    hosts: tuple[HostLayout, ...]
    """What stood where at the end of the span."""
    late: int = 0
    """Records that waited at the end of the span."""

    @property
    def least_health(self) -> float:
        """The lowest health of a unit; 1 where nothing came in."""
        known = [value for value in self.health.values() if value is not None]
        return min(known, default=1.0)


class Record:
    """A run's journal, read once."""

    def __init__(self, topology: Topology, journal: Journal) -> None:
        self.topology = topology
        self._entries = entry_units(topology)
        self._observations = journal.rows(
            "observation",
            (
                "unit",
                "at_s",
                "interval_s",
                "arrived",
                "processed",
                "waiting",
                "in_service",
                "cpu_ratio",
                "memory_ratio",
            ),
        )
        self._lives: list[tuple[float, str, Any]] = []
        for row in journal.rows("life"):
            if row["what"] == "instance":
                life = Life(
                    "instance", row["name"], row["at_s"], row["state"], False, json.loads(row["payload"])
                )
                self._lives.append((row["at_s"], row["name"], living_of(life, topology)))

    def span(self, from_s: float, to_s: float) -> Span:
        """What happened from one instant to another."""
        rows = [row for row in self._observations if from_s < row["at_s"] <= to_s + 1e-6]
        by_unit: dict[str, list[Mapping[str, Any]]] = {unit.name: [] for unit in self.topology.units}
        for row in rows:
            by_unit[row["unit"]].append(row)
        arriving = sum(
            sum(row["arrived"] for row in found) / max(sum(row["interval_s"] for row in found), 1e-9)
            for unit, found in by_unit.items()
            if unit in self._entries and found
        )
        return Span(
            from_s,
            to_s,
            arriving,
            {unit: _health(found) for unit, found in by_unit.items()},
            {unit: _mean(found, "cpu_ratio") for unit, found in by_unit.items()},
            {unit: _mean(found, "memory_ratio") for unit, found in by_unit.items()},
            self.layout(to_s),
            sum(found[-1]["waiting"] for found in by_unit.values() if found),
        )

    def layout(self, at_s: float) -> tuple[HostLayout, ...]:
        """Which instances, of how many slots, stood on which host at an instant, hosts in order of use."""
        newest: dict[str, Instance] = {}
        for since_s, name, instance in self._lives:
            if since_s <= at_s + 1e-6 and isinstance(instance, Instance):
                newest[name] = instance
        hosts: dict[str, dict[str, tuple[int, ...]]] = {}
        for instance in newest.values():
            if instance.state in INSTANCE_COUNTED and instance.host is not None:
                there = hosts.setdefault(instance.host, {})
                slots = self.topology.slots_of(instance.unit, instance.cores)
                there[instance.unit] = (*there.get(instance.unit, ()), slots)
        return tuple(hosts.values())

    def memory_mib(self, at_s: float) -> int:
        """Memory of all instances at an instant."""
        newest: dict[str, Instance] = {}
        for since_s, name, instance in self._lives:
            if since_s <= at_s + 1e-6 and isinstance(instance, Instance):
                newest[name] = instance
        return sum(i.memory_mib for i in newest.values() if i.state in INSTANCE_COUNTED)


def _health(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Executed over received; 1 where no more waits in the end than the next micro-batch takes."""
    found = health(sum(row["processed"] for row in rows), sum(row["arrived"] for row in rows))
    if found is None:
        return None
    in_hand = max(row["in_service"] or 0 for row in rows)
    return found if is_backlog(rows[-1]["waiting"], in_hand) else 1.0


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    known = [row[column] for row in rows if row[column] is not None]
    return sum(known) / len(known) if known else None
