"""The study of a platform (paper 002, section 2.3): which level of container pays, and what each costs.

One level is varied at a time: partitions (tasks), slots of an instance (threads), instances on one host
(processes), hosts; then slots and instances together. For each the highest load at which health stays at 0.9
is what a query takes over 0.9. What is found becomes the platform's profile, which policies read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.levels.platform import HOST, INSTANCE, SLOT, Level, PlatformProfile
from penstock.monitoring.health import CONGESTED
from penstock.quantities import counted


class Measured(Protocol):
    """What a ground tells of one shape."""

    @property
    def records_per_s(self) -> float:
        """Records a second when there is always more."""
        ...

    @property
    def memory_mib(self) -> float:
        """Memory of all instances."""
        ...

    @property
    def cpu_cores(self) -> float:
        """Cores that they used."""
        ...


class Ground(Protocol):
    """Where a study takes place: shapes are set one at a time, each call tells how long it took."""

    def slots(self, number: int) -> float:
        """So many slots in every instance."""
        ...

    def instances(self, number: int) -> float:
        """So many instances."""
        ...

    def host(self) -> float:
        """One more host with an instance on it."""
        ...

    def capacity(self, query: str, *, rows: int, span_s: float, partitions: int) -> Measured:
        """What a query takes in the shape as it is."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How thoroughly a platform is studied."""

    queries: tuple[str, ...]
    cores: int
    """Cores of a host."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Records of a micro-batch, by query: large enough that starting it hardly counts."""
    span_s: float = 4.0
    partitions: tuple[int, ...] = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class Found:
    """One row of the study's table."""

    query: str
    hosts: int
    instances: int
    slots: int
    partitions: int
    healthy_per_s: float
    """The highest load at which health stays at least 0.9."""
    memory_mib: float
    cpu_cores: float


def study(ground: Ground, plan: Plan, say: Callable[[str], None]) -> tuple[list[Found], dict[str, float]]:
    """Every shape of the plan, and how long each level took to serve."""
    rows: list[Found] = []
    times: dict[str, float] = {}
    usual = 8 if 8 in plan.partitions else max(plan.partitions)
    steps = 6 + sum(number != usual for number in plan.partitions)
    done = 0

    def look(hosts: int, instances: int, slots: int, partitions: int = usual) -> None:
        nonlocal done
        done += 1
        for query in plan.queries:
            say(f"{done} of {steps} {query}: {hosts} hosts, {instances} instances of {slots} slots, "
                f"{partitions} partitions")  # fmt: skip
            amount = plan.rows.get(query, 50_000)
            found = ground.capacity(query, rows=amount, span_s=plan.span_s, partitions=partitions)
            healthy = found.records_per_s / CONGESTED
            rows.append(
                Found(query, hosts, instances, slots, partitions, healthy, found.memory_mib, found.cpu_cores)
            )

    def warm_up() -> None:
        # What runs first in a process is compiled while it runs: whatever comes after it would look good.
        for query in plan.queries:
            say(f"{done} of {steps} {query}: warming up")
            ground.capacity(query, rows=plan.rows.get(query, 50_000), span_s=plan.span_s, partitions=usual)

    warm_up()
    look(1, 1, 1)
    times[SLOT] = ground.slots(2)
    look(1, 1, 2)
    for partitions in plan.partitions:
        if partitions != usual:
            look(1, 1, 2, partitions)
    ground.slots(2 * plan.cores)
    look(1, 1, 2 * plan.cores)
    ground.slots(1)
    times[INSTANCE] = ground.instances(2)
    warm_up()
    look(1, 2, 1)
    ground.slots(2)
    look(1, 2, 2)
    ground.slots(1)
    full = max(2, plan.cores)
    ground.instances(full)
    times[HOST] = ground.host()
    warm_up()
    look(2, full + 1, 1)
    return rows, times


def profile_of(
    platform: str, rows: list[Found], times: Mapping[str, float], plan: Plan, host_memory_mib: float
) -> PlatformProfile:
    """The platform's profile: effects are means over the queries, of what one slot alone takes."""
    usual = 8 if 8 in plan.partitions else max(plan.partitions)

    def gain(instances: int, slots: int) -> float:
        values = []
        for query in plan.queries:
            one, more = (_row(rows, query, n, s, usual) for n, s in ((1, 1), (instances, slots)))
            further = instances * slots - 1
            values.append((more.healthy_per_s / one.healthy_per_s - 1) / further)
        return max(0.0, sum(values) / len(values))

    def memory(instances: int, slots: int) -> int:
        values = [
            _row(rows, query, instances, slots, usual).memory_mib - _row(rows, query, 1, 1, usual).memory_mib
            for query in plan.queries
        ]
        return max(0, round(sum(values) / len(values)))

    full, crowded = gain(1, 2), gain(1, 2 * plan.cores)
    # What slots beyond the cores bring: the gain of all of them less that of those with a core.
    beyond = max(0.0, crowded * (2 * plan.cores - 1) - full * (plan.cores - 1)) / plan.cores
    # An instance takes what the first one took with its one slot; later on that one is larger, and stays so.
    instance = round(sum(_row(rows, q, 1, 1, usual).memory_mib for q in plan.queries) / len(plan.queries))
    levels = {
        SLOT: Level(round(full, 3), memory(1, 2), round(times[SLOT], 2), round(beyond, 3)),
        INSTANCE: Level(round(gain(2, 1), 3), instance, round(times[INSTANCE], 2), round(beyond, 3)),
        HOST: Level(
            round(max(full, gain(2, 1)), 3), instance + round(host_memory_mib), round(times[HOST], 2), 0.0
        ),
    }
    measured = {"host_alone_mib": round(host_memory_mib)}
    return PlatformProfile(platform, levels, tuple(_findings(rows, plan, levels, usual)), measured)


def _findings(rows: list[Found], plan: Plan, levels: Mapping[str, Level], usual: int) -> list[str]:
    slot, instance, host = (levels[name] for name in (SLOT, INSTANCE, HOST))
    found = [
        f"a second slot takes {slot.effect_ratio:.2f} of the first one's load for {slot.memory_mib} MiB and "
        f"{slot.start_s:g} s; a slot beyond the cores {slot.beyond_cores_ratio:.2f}",
        f"a second instance on a host takes {instance.effect_ratio:.2f} for {instance.memory_mib} MiB and "
        f"{instance.start_s:g} s",
        f"a host with an instance takes {host.memory_mib} MiB and {host.start_s:g} s; on cores of its own it "
        "brings what a slot or an instance with a core brings here",
    ]
    for partitions in plan.partitions:
        if partitions != usual:
            two = [(_row(rows, q, 1, 2, partitions), _row(rows, q, 1, 2, usual)) for q in plan.queries]
            share = sum(some.healthy_per_s / most.healthy_per_s for some, most in two) / len(two)
            does = "carries" if partitions == 1 else "carry"
            found.append(
                f"{counted(partitions, 'partition')} {does} {share:.2f} of what {usual} carry in two slots"
            )
    return found


def _row(rows: list[Found], query: str, instances: int, slots: int, partitions: int, hosts: int = 1) -> Found:
    wanted = (query, hosts, instances, slots, partitions)
    return next(
        row for row in rows if (row.query, row.hosts, row.instances, row.slots, row.partitions) == wanted
    )
