"""Mistakes of the graph: inputs that lead nowhere, cycles, operators no source reaches, unused sources."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.choosing import nearest
from penstock.topology.findings import Findings
from penstock.topology.graph import MOST_CYCLES, find_cycles, reached


def check_wiring(findings: Findings) -> None:
    """Look at the graph of operators, and of units."""
    topology = findings.topology
    sources = {source.name for source in topology.sources}
    broken = _dangling(findings)
    inputs_of = {operator.name: operator.inputs for operator in topology.operators}
    cycles = find_cycles(inputs_of)
    for cycle in cycles:
        findings.tell(
            ("operators", cycle[0], "inputs"),
            "cycle",
            f"the operators form a cycle: {' → '.join((*cycle, cycle[0]))}; remove one of these inputs",
        )
    # With more cycles than are told, whatever is wrong behind them is explained by those that are.
    broken.update(inputs_of if len(cycles) == MOST_CYCLES else [name for cycle in cycles for name in cycle])
    supplied, explained = _downstream(findings, sources), _downstream(findings, broken)
    for operator in topology.operators:
        path = ("operators", operator.name, "inputs")
        if operator.name in supplied or operator.name in explained or path in findings.already:
            continue
        why = (
            "none of its inputs is reached either"
            if operator.inputs
            else "it names no input; expected inputs: [a source or an operator]"
        )
        findings.tell(
            path, "unreachable", f'operator "{operator.name}" is not reached from any source: {why}'
        )
    taken = {wanted for operator in topology.operators for wanted in operator.inputs}
    taken.update(wanted for sink in topology.sinks for wanted in sink.inputs)
    for source in topology.sources:
        if source.name not in taken and not broken and ("operators",) not in findings.already:
            findings.tell(
                ("sources", source.name),
                "unused-source",
                f'source "{source.name}": nothing takes its records; name it as an input or remove it',
            )
    if not cycles:  # operators in a circle are told as such, and their units would only say it again
        _unit_cycles(findings)


def _dangling(findings: Findings) -> set[str]:
    """Inputs that are no source or operator, or are there twice; gives those who name one that is not."""
    topology = findings.topology
    emitting = {source.name for source in topology.sources} | set(findings.operators)
    sinks = {sink.name for sink in topology.sinks}
    takers = [("operators", "operator", o.name, o.inputs) for o in topology.operators]
    takers += [("sinks", "sink", k.name, k.inputs) for k in topology.sinks]
    broken: set[str] = set()
    for section, kind, name, inputs in takers:
        path = (section, name, "inputs")
        before: set[str] = set()
        for i, wanted in enumerate(inputs):
            at = (*path, str(i))
            if wanted not in emitting:
                broken.add(name)
                others = (other for other in emitting if other != name)
                reason = (
                    " is a sink, which emits nothing; expected a source or an operator"
                    if wanted in sinks
                    else f" is neither a source nor an operator{nearest(wanted, others)}"
                )
                findings.tell(at, "dangling-input", f'{kind} "{name}": its input "{wanted}"{reason}')
            elif wanted in before:
                findings.tell(at, "doubled-name", f'{kind} "{name}": its input "{wanted}" is there twice')
            before.add(wanted)
        if not inputs and kind == "sink":
            findings.tell(
                path, "dangling-input", f'sink "{name}" names no input; expected inputs: [an operator]'
            )
    return broken


def _downstream(findings: Findings, names: Iterable[str]) -> set[str]:
    """Every operator reached from these names, and the names themselves."""
    takers: dict[str, list[str]] = {}
    for operator in findings.topology.operators:
        for wanted in operator.inputs:
            takers.setdefault(wanted, []).append(operator.name)
    return reached(takers, names)


def _unit_cycles(findings: Findings) -> None:
    """Units that wait for each other although their operators do not."""
    unit_of = {name: unit.name for unit in findings.topology.units for name in unit.operators}
    inputs: dict[str, list[str]] = {unit.name: [] for unit in findings.topology.units}
    for operator in findings.topology.operators:
        own = unit_of.get(operator.name)
        for wanted in operator.inputs:
            other = unit_of.get(wanted)
            if own is not None and other is not None and other != own:
                inputs[own].append(other)
    for cycle in find_cycles(inputs):
        findings.tell(
            ("units", cycle[0]),
            "unit-cycle",
            f"the units form a cycle: {' → '.join((*cycle, cycle[0]))}; "
            "put their operators into one unit, or cut them elsewhere",
        )
