"""What `make sites` changes: a topology of three units, and a kind of change after the other, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from penstock.topology.model import (
    Choice,
    HostFlavour,
    LoopSettings,
    Operator,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

RATE_PER_S = 50.0
CODE = '''
import penstock
from pyspark.sql import functions as sql


def worked(records):
    """A column more."""
    return records.withColumn("twice", sql.col("number") * 2)


def limited(records):
    """The same, up to a number that is looked up: beyond it, it throws on every record."""
    limit = penstock.Lookup("limit", default=10**12)

    @sql.udf("long")
    def twice(number):
        if number > limit():
            raise ValueError("beyond the limit")
        return 2 * number

    return records.withColumn("twice", twice("number"))


def broken(records):
    """Throws on every record."""
    @sql.udf("long")
    def thrown(number):
        raise ValueError("nobody can do this")

    return records.withColumn("twice", thrown("number"))


def worked_better(records):
    """The same in another way."""
    return records.withColumn("twice", sql.col("number") + sql.col("number"))
'''


def passing(name: str, given: str, function: str | None = None, schema: str = "number long") -> Operator:
    """An operator that hands on what it gets."""
    return Operator(name, (given,), function, schema=schema)


FIRST = Topology(
    "changing",
    (Source("numbers", workload=Choice("constant", {"level_per_s": RATE_PER_S}), schema="number long"),),
    (
        passing("read", "numbers"),
        passing("work", "read", "work:worked", "number long, twice long"),
        passing("look", "read"),
    ),
    (Sink("out", ("work",), "jsonl:out"), Sink("seen", ("look",), "jsonl:seen")),
    tuple(
        Unit(unit, (operator,), policy=Choice("fixed"), max_instances=1, trigger_s=1.0, sites=sites)
        for unit, operator, sites in (
            ("front", "read", ("here",)),
            ("middle", "work", ("here", "there")),
            ("side", "look", ("here",)),
        )
    ),
    tuple(
        Site(
            name,
            Choice("local"),
            btu_s=60.0,
            flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
            max_hosts=6,
        )
        for name in ("here", "there")
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=5.0),
)
"""Numbers are read, worked on and, beside that, looked at: three units, two of which end in a sink.

All are at one site; who works on them may be at another one.
"""


def _units(topology: Topology, members: dict[str, tuple[str, ...]]) -> Topology:
    known = topology.unit_by_name
    fixed = Unit("", ("",), policy=Choice("fixed"), max_instances=1, trigger_s=1.0, sites=("here",))
    units = [replace(known.get(name, fixed), name=name, operators=own) for name, own in members.items()]
    return replace(topology, units=tuple(units))


def operator(topology: Topology, name: str, **changes: Any) -> Topology:
    """A topology in which one operator is another one."""
    operators = (replace(o, **changes) if o.name == name else o for o in topology.operators)
    return replace(topology, operators=tuple(operators))


def _sink(topology: Topology, name: str, operator: str) -> Topology:
    sinks = (replace(s, inputs=(operator,)) if s.name == name else s for s in topology.sinks)
    return replace(topology, sinks=tuple(sinks))


def _tail(topology: Topology, unit: str) -> Topology:
    """One operator more before the sink."""
    tail = passing("tail", "work", schema="number long, twice long")
    members = {u.name: u.operators for u in topology.units}
    members[unit] = (*members.get(unit, ()), "tail")
    return _sink(_units(replace(topology, operators=(*topology.operators, tail)), members), "out", "tail")


def _replaced(topology: Topology) -> Topology:
    """Another operator in the place of the one before the sink."""
    other = passing("labour", "read", "work:worked_better", "number long, twice long")
    operators = tuple(other if o.name == "work" else o for o in topology.operators)
    members = {u.name: u.operators for u in topology.units} | {"middle": ("labour",)}
    changed = replace(topology, operators=operators, sinks=topology.sinks[1:])
    return _units(replace(changed, sinks=(Sink("out", ("labour",), "jsonl:out"), *changed.sinks)), members)


def _site(topology: Topology, **changes: Any) -> Topology:
    return replace(topology, sites=(replace(topology.sites[0], **changes), *topology.sites[1:]))


def _unit(topology: Topology, name: str, **changes: Any) -> Topology:
    units = (replace(u, **changes) if u.name == name else u for u in topology.units)
    return replace(topology, units=tuple(units))


LIGHT: dict[str, Callable[[Topology], Topology]] = {
    "policy": lambda t: _unit(t, "side", policy=Choice("threshold")),
    "filter": lambda t: _unit(t, "side", filter=Choice("gaussian")),
    "most instances": lambda t: _unit(t, "side", max_instances=2),
    "SLO": lambda t: operator(t, "work", slo_s=7.0),
    "price": lambda t: _site(t, flavours=(replace(t.sites[0].flavours[0], price_per_btu=Decimal("0.012")),)),
    "billing": lambda t: _site(t, btu_s=50.0),
    "most hosts": lambda t: _site(t, max_hosts=7),
    "interval": lambda t: replace(t, loop=replace(t.loop, provisioning_s=10.0)),
    "advice only": lambda t: replace(t, loop=replace(t.loop, advisory=True)),
    "flavour added": lambda t: _site(
        t, flavours=(*t.sites[0].flavours, HostFlavour("large", 2.0, 2048, Decimal("0.02")))
    ),
}
"""Kinds of change that start nobody again; none makes a site so dear that a unit would leave it."""
UNITS: dict[str, Callable[[Topology], Topology]] = {
    "function": lambda t: operator(t, "work", function="work:worked_better"),
    "operator replaced": _replaced,
    "operator added": lambda t: _tail(t, "middle"),
    "unit split": lambda t: _tail(t, "end"),
    "units merged": lambda t: _units(t, {"front": ("read", "work"), "side": ("look",)}),
}
WIRING: dict[str, Callable[[Topology], Topology]] = {
    "inputs rewired": lambda t: operator(t, "look", inputs=("work",)),
    "schema": lambda t: operator(t, "read", schema="number double"),
    "shape": lambda t: operator(t, "look", memory_mib=640),
    "unit renamed": lambda t: _units(t, {"door": ("read",), "middle": ("work",), "side": ("look",)}),
    "unit removed": lambda t: replace(t, operators=t.operators[:2], sinks=t.sinks[:1], units=t.units[:2]),
}
MOVES = {"unit moved": ("middle", "there")}
"""Units that are told to go to another site."""
CHANGES = LIGHT | UNITS | WIRING
"""What is changed, by name; each is taken back before the next."""
KINDS = (*CHANGES, *MOVES)
ENDS = {"out": ("front", "middle", "end", "door"), "seen": ("front", "side", "door")}
"""The units whose pause is seen at a sink."""
