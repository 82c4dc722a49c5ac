"""The clairvoyant bound: what the cheapest leases would have cost, had the whole load been known.

Not a policy: nobody can follow it. It answers how much of a bill was unavoidable. Given how many cores
and how much memory are needed in every step of a run, it finds the cheapest set of leases that has that
much in every step. Hosts are assumed to be up at once and to be packed without a gap, so no policy that
keeps up with the load in every step can be cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack, vstack

from penstock.errors import InfeasibleError
from penstock.topology.model import HostFlavour, Site, Topology

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LeaseSchedule:
    """The cheapest leases of a site: how many of each flavour begin in each step."""

    cost: Decimal
    starts: Mapping[str, tuple[int, ...]]
    """For each flavour, the billing time units that begin in each step; empty where only a bound is known."""
    exact: bool = True
    """False where the solver ran out of time and the cost is the lower bound it has proven."""


def fewest_instances(
    rate_per_s: Floats, service_s: float, slots: int, least: int = 1, most: int | None = None
) -> Floats:
    """The fewest instances that keep up with a rate: all their slots are busy all the time."""
    busy_slots = rate_per_s * service_s
    # Work that fills a slot exactly must not count as two for the last bit.
    needed = np.maximum(np.ceil(busy_slots / slots - 1e-9), max(1, least))
    return needed if most is None else np.minimum(needed, most)


def needs_of(topology: Topology, instances: Mapping[str, Floats]) -> Mapping[str, tuple[Floats, Floats]]:
    """Cores and memory needed in each step at each site, from the instances of each unit.

    A unit that may run at several sites counts at the first one it prefers.
    """
    needs: dict[str, tuple[Floats, Floats]] = {}
    for unit, count in instances.items():
        site = topology.sites_of(unit)[0].name
        cores, memory = needs.get(site, (np.zeros_like(count), np.zeros_like(count)))
        needs[site] = (
            cores + count * topology.unit_cores(unit),
            memory + count * topology.unit_memory_mib(unit),
        )
    return needs


def cheapest_leases(site: Site, cores: Floats, memory_mib: Floats, step_s: float) -> LeaseSchedule:
    """The cheapest leases of a site that offer the needed cores and memory in every step.

    With one flavour this is an interval cover: going through time and leasing exactly when something is
    missing is optimal, since a lease that begins earlier ends earlier. With several it is a MILP. Where a
    lease is paid for a minimum and then in smaller increments, it may also end at any step after that.
    """
    if site.least_steps > 1:
        return _with_minimum(site, cores, memory_mib, step_s)
    site = _billed_by_btu(site)
    span = max(1, round(site.btu_s / step_s)) if site.btu_s >= step_s else 1
    per_step = 1 if site.btu_s >= step_s else math.ceil(step_s / site.btu_s - 1e-9)
    if len(site.flavours) == 1:
        return _one_flavour(site.flavours[0], cores, memory_mib, span, per_step)
    return _several_flavours(site.flavours, cores, memory_mib, span, per_step)


def _billed_by_btu(site: Site) -> Site:
    """The site with its increment, where it has one, as the billing time unit."""
    if site.increment_s is None:
        return site
    flavours = tuple(replace(f, price_per_btu=site.price_per_step(f)) for f in site.flavours)
    return replace(site, btu_s=site.step_s, flavours=flavours, minimum_s=None, increment_s=None)


def hosts_needed(flavour: HostFlavour, cores: Floats, memory_mib: Floats) -> Floats:
    """Hosts of one flavour that have so many cores and so much memory together."""
    return np.ceil(np.maximum(cores / flavour.cores, memory_mib / flavour.memory_mib) - 1e-9)


def _one_flavour(
    flavour: HostFlavour, cores: Floats, memory_mib: Floats, span: int, per_step: int
) -> LeaseSchedule:
    needed = hosts_needed(flavour, cores, memory_mib).astype(int)
    starts = np.zeros(len(needed), dtype=int)
    alive = 0
    for step, count in enumerate(needed):
        if step >= span:
            alive -= starts[step - span]
        starts[step] = max(0, int(count) - alive)
        alive += starts[step]
    units = int(starts.sum()) * per_step
    return LeaseSchedule(units * flavour.price_per_btu, {flavour.name: tuple(starts.tolist())})


def _with_minimum(site: Site, cores: Floats, memory_mib: Floats, step_s: float) -> LeaseSchedule:
    """min Σ price · n  with leases that last the minimum: n_t − n_{t−1} ≤ x_t, Σ_{s in (t − m, t]} x_s ≤ n_t.

    `n` are the hosts of a flavour in a step, `x` those that begin in it. An increment longer than a step is
    counted by the part that is used, so the cost is a bound then.
    """
    minimum_s = site.least_steps * site.step_s
    span, steps, flavours = max(1, round(minimum_s / step_s)), len(cores), site.flavours
    increments = Decimal(str(step_s)) / Decimal(str(site.step_s))
    if site.step_s <= step_s:
        increments = increments.to_integral_value(ROUND_CEILING)
    # A minimum longer than a step is met by the constraint; a shorter one, or the rest of it, is paid here.
    increments = max(increments, Decimal(site.least_steps) / span)
    exact = site.step_s <= step_s
    prices = [site.price_per_step(flavour) * increments for flavour in flavours]
    if len(flavours) == 1 and span == 1:
        hosts = hosts_needed(flavours[0], cores, memory_mib).astype(int)
        begun = np.maximum(np.diff(hosts, prepend=0), 0)
        return LeaseSchedule(int(hosts.sum()) * prices[0], {flavours[0].name: tuple(begun.tolist())}, exact)
    ones, below = csr_array(np.eye(steps)), csr_array(np.eye(steps, k=-1))
    lasting = csr_array(np.tri(steps) - np.tri(steps, k=-span))
    nothing = csr_array((steps, steps))
    blocks, count = [], len(flavours)
    for index in range(count):
        # What is there was there before or begins: n_t − n_{t−1} ≤ x_t, and stays for the minimum.
        for hosts_part, starts_part in (((below - ones), ones), (ones, -lasting)):
            row = [nothing] * (2 * count)
            row[index], row[count + index] = hosts_part, starts_part
            blocks.append(hstack(row))
    for size in ("cores", "memory_mib"):
        blocks.append(hstack([ones * float(getattr(f, size)) for f in flavours] + [nothing] * count))
    lower = np.concatenate([np.zeros(2 * count * steps), cores - 1e-9, memory_mib - 1e-9])
    result = milp(
        np.concatenate([np.repeat([float(price) for price in prices], steps), np.zeros(count * steps)]),
        constraints=LinearConstraint(vstack(blocks), lower, np.inf),
        bounds=Bounds(0, np.inf),
        integrality=np.ones(2 * count * steps),
        options={"time_limit": 20.0, "mip_rel_gap": 1e-4},
    )
    bound = getattr(result, "mip_dual_bound", None)
    if result.status != 0:
        if bound is None or not math.isfinite(bound):
            raise InfeasibleError(f"no lease schedule was found: {result.message}")
        return LeaseSchedule(Decimal(str(round(float(bound), 6))), {}, exact=False)
    found = np.round(result.x).astype(int).reshape(2, count, steps)
    total = sum((int(n.sum()) * price for n, price in zip(found[0], prices, strict=True)), Decimal(0))
    starts = {f.name: tuple(x.tolist()) for f, x in zip(flavours, found[1], strict=True)}
    return LeaseSchedule(total, starts, exact)


def _several_flavours(
    flavours: Sequence[HostFlavour], cores: Floats, memory_mib: Floats, span: int, per_step: int
) -> LeaseSchedule:
    """min Σ price · x  with  Σ_{f, s in (t − span, t]} size_f · x_{f,s} ≥ need_t  for cores and memory."""
    steps = len(cores)
    columns = np.repeat(np.arange(steps), [min(span, steps - s) for s in range(steps)])
    rows = np.concatenate([np.arange(s, min(s + span, steps)) for s in range(steps)])
    covers = csr_array((np.ones(len(rows)), (rows, columns)), shape=(steps, steps))
    prices = [float(flavour.price_per_btu) * per_step for flavour in flavours]
    cost = np.repeat(prices, steps)
    matrix = vstack(
        [
            hstack([covers * flavour.cores for flavour in flavours]),
            hstack([covers * (flavour.memory_mib / 1024) for flavour in flavours]),
        ]
    )
    result = milp(
        cost,
        constraints=LinearConstraint(
            matrix, np.concatenate([cores - 1e-9, memory_mib / 1024 - 1e-9]), np.inf
        ),
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(cost)),
        options={"time_limit": 20.0, "mip_rel_gap": 1e-4},
    )
    bound = getattr(result, "mip_dual_bound", None)
    if result.status != 0:
        # Out of time: what the solver has proven so far is still a bound.
        if bound is None or not math.isfinite(bound):
            raise InfeasibleError(f"no lease schedule was found: {result.message}")
        return LeaseSchedule(Decimal(str(round(float(bound), 6))), {}, exact=False)
    x = np.round(result.x).astype(int).reshape(len(flavours), steps)
    total = sum(
        (int(row.sum()) * per_step * flavour.price_per_btu for flavour, row in zip(flavours, x, strict=True)),
        Decimal(0),
    )
    starts = {flavour.name: tuple(row.tolist()) for flavour, row in zip(flavours, x, strict=True)}
    return LeaseSchedule(total, starts)
