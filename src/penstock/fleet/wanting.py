"""All that is wanted of a unit, out of what the fleet knows of its instances."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.fleet.binding import Bound
from penstock.fleet.deployment import INSTANCE_COUNTED, Instance, InstanceState
from penstock.fleet.ports import Wanted, WantedInstance
from penstock.topology.model import Topology


def wanted_of(
    topology: Topology,
    unit: str,
    members: Sequence[Instance],
    bound: Bound | None,
    hurried: Collection[str],
    stopping: bool,
) -> Wanted:
    """What is wanted of a unit: who serves, who goes (those `hurried` at once), and how large they are."""
    bound_ones = [i for i in members if i.external_id]
    going = [(i.id, str(i.external_id)) for i in bound_ones if i.state is InstanceState.RETIRING]
    usual = topology.unit_cores(unit)
    return Wanted(
        tuple(
            [
                WantedInstance(i.id, i.host, i.cores, i.memory_mib)
                for i in members
                if i.state in INSTANCE_COUNTED
            ]
        ),
        0 if bound is None else len(bound.plugs),
        (
            *[external_id for name, external_id in going if name not in hurried],
            *(bound.surplus if bound is not None else ()),
        ),
        tuple([external_id for name, external_id in going if name in hurried]),
        stopping,
        {str(i.external_id): topology.slots_of(unit, i.cores) for i in bound_ones if i.cores != usual},
    )
