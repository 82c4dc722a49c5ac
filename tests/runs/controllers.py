"""A real run whose units cost little: their drivers are real processes, and their Java says nothing."""

from __future__ import annotations

from pathlib import Path

from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.file import parse_topology

TOPOLOGY = """
name: waiting
loop: {monitoring: 1 s, provisioning: 1 s}
sites: {here: {master: "local-cluster[1,1,512]"}}
sources: {numbers: {workload: {name: constant, level_per_s: 5}, schema: number long}}
operators: {count: {inputs: numbers, function: "a:count"}}
units: {unit: {operators: count}}
"""
UNIT = "unit"


def a_java(home: Path, then: str = "") -> Path:
    """A Java that tells its version, and else does `then`."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    version = 'openjdk version "25.0.1" 2025-01-01'
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] && echo '{version}' >&2 && exit 0\n{then}\n")
    program.chmod(0o755)
    return home


def a_plan(place: RunFolder) -> RunPlan:
    """The plan of such a run, kept in its folder."""
    plan = RunPlan.of(parse_topology(TOPOLOGY), f"run-{place.root.parent.name}")
    place.write_plan(plan)
    return plan
