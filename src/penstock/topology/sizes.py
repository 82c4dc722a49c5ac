"""Whether an instance fits where it may run: on a host that holds it, and in the sizes Spark can start.

What the planner places is what Spark starts. Spark's executors have whole cores and a least heap, so a site
with real executors takes neither a fraction of a core nor less memory than that; a simulated one does.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import Mistake
from penstock.topology.findings import Findings, sorted_mistakes
from penstock.topology.model import Shape, Site, Topology, Unit

LEAST_EXECUTOR_MIB = 512
"""The least memory of an executor: Spark refuses a heap below 450 MiB, and Python runs beside it."""


def whole_cores(topology: Topology, *, everywhere: bool = False) -> tuple[Mistake, ...]:
    """Units whose instances Spark cannot start as they are written, with what to write instead.

    By default at sites with real executors only (another provider than `simulated`, or a master);
    `everywhere` is for a run on Spark, whatever the sites say.
    """
    findings = Findings(topology)
    check_whole_cores(findings, everywhere=everywhere)
    return sorted_mistakes(findings.mistakes)


def has_whole_cores(site: Site) -> bool:
    """Whether a site runs real executors, which have whole cores only."""
    return site.provider.name != "simulated" or site.master is not None


def check_whole_cores(findings: Findings, *, everywhere: bool = False) -> None:
    """Tell every unit that a site of it with real executors cannot start as it is written."""
    for unit in findings.topology.units:
        shape = _shape(findings, unit)
        real = [site for site in _allowed(findings, unit) if everywhere or has_whole_cores(site)]
        if shape is None or not real or shape.slots < 1:
            continue
        path, what = findings.unit_path(unit), f'unit "{unit.name}"'
        members = [findings.operators[name] for name in unit.operators if name in findings.operators]
        for operator in members:
            if operator.cores > 0 and operator.cores != int(operator.cores):
                findings.tell(
                    ("operators", operator.name, "cores"),
                    "fraction-of-a-core",
                    f'operator "{operator.name}", cores: site "{real[0].name}" starts executors of whole '
                    f"cores, got {operator.cores:g}; write cores: {int(operator.cores) + 1}, or let "
                    f"{what} run at a simulated site only",
                )
        if 0 < shape.memory_mib < LEAST_EXECUTOR_MIB and all(o.memory_mib > 0 for o in members):
            each = -(-LEAST_EXECUTOR_MIB // len(members))
            whose = f'operator "{members[0].name}"' if len(members) == 1 else "each of its operators"
            findings.tell(
                path,
                "too-little-memory",
                f'{what}: one instance needs {shape.memory_mib} MiB, but site "{real[0].name}" starts no '
                f"executor below {LEAST_EXECUTOR_MIB} MiB; write memory: {each} MiB for {whose}",
            )


def check_room(findings: Findings, unit: Unit) -> None:
    """Whether some host of an allowed site can hold one instance."""
    shape, allowed = _shape(findings, unit), _allowed(findings, unit)
    flavours = [flavour for site in allowed for flavour in site.flavours]
    if any(site.master is not None and site.flavours == Site("").flavours for site in allowed):
        return  # machines of an existing cluster: how large they are is known there
    if shape is None or not flavours or any(shape.fits(flavour) for flavour in flavours):
        return
    biggest = max(flavours, key=lambda flavour: (flavour.cores, flavour.memory_mib))
    findings.tell(
        findings.unit_path(unit),
        "too-big",
        f'unit "{unit.name}": one instance needs {shape.cores:g} cores and {shape.memory_mib} MiB, more than '
        f'any host of {_listed(allowed)} has (the biggest, "{biggest.name}": {biggest.cores:g} cores, '
        f"{biggest.memory_mib} MiB); allow another site, offer a bigger flavour or need less",
    )


def _shape(findings: Findings, unit: Unit) -> Shape | None:
    """The size of a unit's instances; None where an operator of it is not known or there is none."""
    if not unit.operators or not all(name in findings.operators for name in unit.operators):
        return None
    if findings.topology.unit_by_name[unit.name] is not unit:
        return None  # a doubled name is told as such
    return findings.topology.unit_shape(unit.name)


def _allowed(findings: Findings, unit: Unit) -> list[Site]:
    if not unit.sites:
        return list(findings.topology.sites)
    return [findings.sites[name] for name in unit.sites if name in findings.sites]


def _listed(sites: Sequence[Site]) -> str:
    names = ", ".join(f'"{site.name}"' for site in sites)
    return f"site {names}" if len(sites) == 1 else f"the sites {names}"
