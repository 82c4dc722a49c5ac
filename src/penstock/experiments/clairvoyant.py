"""What a run of a topology would have cost at least: the clairvoyant bound from its workloads.

The loads of all units follow from the workloads of the sources through the topology's ratios; the
cheapest leases for them are found in `penstock.policies.clairvoyant`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.policies.clairvoyant import cheapest_leases, fewest_instances, needs_of
from penstock.simulator.flows import flows_of
from penstock.topology.model import Topology
from penstock.workload import Workload, make_workload

Floats = NDArray[np.float64]


def unit_loads(
    topology: Topology,
    duration_s: float,
    step_s: float,
    workloads: Mapping[str, Workload] | None = None,
) -> Mapping[str, tuple[Floats, float]]:
    """For each unit, records a second in each step, and the mean work a record causes, in seconds."""
    edges_s = np.append(np.arange(0.0, duration_s - 1e-9, step_s), duration_s)
    widths_s = np.diff(edges_s)
    flows, entries = flows_of(topology)
    rates: dict[tuple[str, int], Floats] = {}
    for entry in entries:
        source = topology.source_by_name[entry.source]
        workload = (workloads or {}).get(source.name)
        if workload is None:
            if source.workload is None:
                raise ConfigurationError(f"source {source.name} has no workload, so its load is not known")
            workload = make_workload(source.workload)
        rate = np.diff(workload.curve.records(edges_s)) * source.share / widths_s
        rates[entry.unit, entry.way] = rates.get((entry.unit, entry.way), np.zeros(len(widths_s))) + rate
    found: dict[str, tuple[Floats, float]] = {}
    for flow in flows:
        ways = [rates.get((flow.unit, way), np.zeros(len(widths_s))) for way in range(len(flow.ways))]
        for edge in flow.edges:
            if edge.target is not None:
                key = (edge.target, edge.target_way)
                rates[key] = rates.get(key, np.zeros(len(widths_s))) + ways[edge.way] * edge.ratio
        total = np.sum(ways, axis=0)
        work = np.sum([rate * way.mean_s for rate, way in zip(ways, flow.ways, strict=True)], axis=0)
        mean_s = float(work.sum() / total.sum()) if total.sum() > 0 else flow.ways[0].mean_s
        found[flow.unit] = (total, mean_s)
    return found


def clairvoyant_cost(
    topology: Topology,
    duration_s: float,
    *,
    step_s: float | None = None,
    workloads: Mapping[str, Workload] | None = None,
) -> Decimal:
    """The cost of the cheapest leases with which every unit keeps up with its load in every step.

    A step is one provisioning interval unless said otherwise. A policy's bill divided by this says how
    far it is from the best there could have been.
    """
    step_s = topology.loop.provisioning_s if step_s is None else step_s
    instances = {
        unit: fewest_instances(
            rate,
            service_s,
            topology.unit_by_name[unit].slots,
            topology.unit_by_name[unit].min_instances,
            topology.unit_by_name[unit].max_instances,
        )
        for unit, (rate, service_s) in unit_loads(topology, duration_s, step_s, workloads).items()
    }
    return sum(
        (
            cheapest_leases(topology.site_by_name[site], cores, memory_mib, step_s).cost
            for site, (cores, memory_mib) in needs_of(topology, instances).items()
        ),
        Decimal(0),
    )
