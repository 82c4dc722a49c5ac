"""The grammar of topology files: every key, how it is written, and where it goes in the model.

The reader, its error messages, the writer and docs/topology-file.md all follow the tables below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from yaml.nodes import MappingNode, Node, SequenceNode

from penstock import quantities
from penstock.errors import Mistake
from penstock.topology.findings import Path
from penstock.topology.forms import (
    AMOUNT,
    BLACKOUT,
    CHOICE,
    CLUSTER,
    DISTANCES,
    DURATION,
    FLAG,
    MEMORY,
    NAMES,
    NUMBER,
    PARAMETER,
    PRICE,
    RATIO,
    SETTINGS,
    TEXT,
    WHOLE,
    WHOLE_OR_NONE,
    WORKLOAD,
)
from penstock.topology.model import (
    Channel,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
)
from penstock.topology.reading import (
    REFUSED,
    Form,
    Key,
    Reader,
    RefusedError,
    line_of,
    place_in_words,
    shown_node,
)


def _read_service(reader: Reader, node: Node, path: Path) -> Service:
    if not isinstance(node, MappingNode):
        return Service(DURATION.read(reader, node, path))
    found = reader.keys(node, path, SERVICE_KEYS, "a duration, or a mapping with mean, cv and shape")
    if "mean_s" not in found:
        if (*path, "mean") not in reader.refused:
            reader.refuse(node, path, "missing", "expected the key mean, the mean service time")
        raise RefusedError
    return Service(**found)


def _read_flavours(reader: Reader, node: Node, path: Path) -> tuple[dict[str, Any], ...]:
    """Flavours with their prices as written; the site turns these into prices per billing time unit."""
    return tuple(
        {"name": name, **found}
        for name, _, found in _section(reader, node, path, FLAVOUR_KEYS, "flavours by name")
    )


SERVICE = Form("a duration (the mean), or {mean: …, cv: …, shape: …}", _read_service)
FLAVOURS = Form("flavours by name (see below)", _read_flavours)


# The grammar: every key of every section.

SOURCE_KEYS = (
    Key(
        "function",
        "function",
        TEXT,
        "`module:function` taking a SparkSession and giving a streaming DataFrame",
    ),
    Key("workload", "workload", WORKLOAD, "the arrival pattern of a simulated run (`penstock workloads`)"),
    Key("schema", "schema", TEXT, "the records' columns as a Spark DDL string"),
    Key("share", "share", NUMBER, "records emitted for every record of the workload"),
    Key(
        "records",
        "records",
        TEXT,
        "`module:function` making the columns of generated records; by default they are filled by type",
    ),
)
OPERATOR_KEYS = (
    Key("inputs", "inputs", NAMES, "the sources and operators whose records it takes; required"),
    Key(
        "function",
        "function",
        TEXT,
        "`module:function` taking a DataFrame for each input and giving one, or `sql:SELECT … FROM {input}`",
    ),
    Key("slo", "slo_s", DURATION, "the longest acceptable processing duration of one record"),
    Key("cores", "cores", NUMBER, "cores it needs for one record at a time"),
    Key("memory", "memory_mib", MEMORY, "memory it needs in each instance"),
    Key("stateful", "stateful", FLAG, "whether it keeps state"),
    Key("ratio", "ratio", RATIO, "records emitted towards each successor for every record consumed"),
    Key("service", "service", SERVICE, "service time for the simulator; by default its mean is the SLO"),
    Key("schema", "schema", TEXT, "columns of the outgoing records; needed where an edge crosses units"),
    Key(
        "on_error",
        "on_error",
        TEXT,
        "what happens to a record the function fails on: `stop`, `skip` or `retry`",
    ),
)
SERVICE_KEYS = (
    Key("mean", "mean_s", DURATION, "mean time for one record; required"),
    Key("cv", "cv", NUMBER, "coefficient of variation"),
    Key("shape", "shape", TEXT, "`lognormal`, `exponential` or `deterministic`"),
)
SINK_KEYS = (
    Key("inputs", "inputs", NAMES, "the sources and operators whose records it takes; required"),
    Key(
        "function",
        "function",
        TEXT,
        "`module:function` taking a batch; without one, records are counted only",
    ),
)
UNIT_KEYS = (
    Key("operators", "operators", NAMES, "the operators deployed and scaled together; required"),
    Key(
        "sites", "sites", NAMES, "sites it may be at; taken is the cheapest by price and distance; none: all"
    ),
    Key("policy", "policy", CHOICE, "how it is scaled (`penstock policies`)"),
    Key("filter", "filter", CHOICE, "how its measurements are smoothed"),
    Key("min_instances", "min_instances", WHOLE, "never fewer instances than this"),
    Key("max_instances", "max_instances", WHOLE, "never more instances than this"),
    Key(
        "initial_instances",
        "initial_instances",
        WHOLE,
        "instances at the start; by default min_instances, at least 1",
    ),
    Key("slots", "slots", WHOLE, "parallel places inside one instance"),
    Key("channel", "channel", TEXT, "the channel its outgoing edges cross; by default the first"),
    Key("max_slots", "max_slots", WHOLE_OR_NONE, "an instance may grow in place to this many slots"),
    Key("slot_memory", "slot_memory_mib", MEMORY, "memory that each slot beyond `slots` adds"),
    Key(
        "places", "places", WHOLE, "simulated: records a slot has in hand at once, each so many times longer"
    ),
    Key("trigger", "trigger_s", DURATION, "the least time from one micro-batch to the next; 0: at once"),
    Key(
        "shards",
        "shards",
        WHOLE_OR_NONE,
        "pieces its state is kept in; no more slots work on it; 8 unless said",
    ),
)
SITE_KEYS = (
    Key("provider", "provider", CHOICE, "who gives the hosts"),
    Key("btu", "btu_s", DURATION, "the billing time unit; every started one is paid whole"),
    Key("minimum", "minimum_s", DURATION, "the least time a lease is paid for; by default one increment"),
    Key("increment", "increment_s", DURATION, "the steps time is paid in after that; by default the BTU"),
    Key("flavours", "flavours", FLAVOURS, "the kinds of host it leases out"),
    Key("max_hosts", "max_hosts", WHOLE, "most hosts at a time"),
    Key("currency", "currency", TEXT, "the currency of its prices; by default the one they are written in"),
    Key("distance", "distance_s", DISTANCES, "one-way delay to other sites"),
    Key(
        "master",
        "master",
        TEXT,
        "the master of an existing cluster: `spark://host:7077`, `yarn` or `k8s://https://host:6443`",
    ),
    Key("cluster", "cluster", CLUSTER, "parameters of the cluster manager behind the master (see below)"),
    Key("settings", "settings", SETTINGS, "Spark settings of every application at the site"),
    Key(
        "storage",
        "storage",
        TEXT,
        "what all machines of the site share: a folder, or a URL such as `hdfs://nn/penstock`",
    ),
    Key("core_hour", "core_hour", AMOUNT, "what one core of an instance costs for an hour at a `master`"),
    Key("gib_hour", "gib_hour", AMOUNT, "what one GiB of an instance costs for an hour at a `master`"),
    Key("budget", "budget", AMOUNT, "what leases may cost in 30 days; then none is added. 0: no limit"),
)
FLAVOUR_KEYS = (
    Key("cores", "cores", NUMBER, "cores of one host; required"),
    Key("memory", "memory_mib", MEMORY, "memory of one host; required"),
    Key("price", "price", PRICE, "what one host costs; required"),
    Key("max_hosts", "max_hosts", WHOLE_OR_NONE, "most hosts of this flavour at a time"),
    Key("type", "type", TEXT, "what its provider calls it; by default the flavour's own name"),
    Key("spot", "spot", FLAG, "whether it is bought as spot: cheaper, and taken away at short notice"),
)
LATENCY_BOUND_KEYS = (
    Key("bound", "bound_s", DURATION, "the longest acceptable end-to-end latency; required"),
    Key("source", "source", TEXT, "where the paths begin; by default at every source"),
    Key("sink", "sink", TEXT, "where the paths end; by default at every sink"),
)
LOOP_KEYS = (
    Key("monitoring", "monitoring_s", DURATION, "time between two observations"),
    Key("provisioning", "provisioning_s", DURATION, "time between two decisions"),
    Key("cooldown", "cooldown_s", DURATION, "least time between two scalings of one unit"),
    Key(
        "largest_step",
        "largest_step",
        WHOLE_OR_NONE,
        "most instances started or stopped for a unit in one tick",
    ),
    Key("blackout", "blackout", BLACKOUT, "hours of the day in which nothing is scaled"),
    Key(
        "hold_backlog",
        "hold_backlog",
        WHOLE_OR_NONE,
        "no unit shrinks while more of its records than this wait or are in work",
    ),
    Key("advisory", "advisory", FLAG, "decide and record, but do nothing"),
    Key("penalty", "penalty", AMOUNT, "cost of one record that misses its SLO"),
    Key("silence", "silence_s", DURATION, "a unit not heard of for so long hangs, and is started again"),
    Key("journal", "journal_s", DURATION, "how long the journal keeps every row; older ones are thinned"),
)
CHANNEL_MEANING = "`files` (the default) or `kafka`; every other key is an option of that kind"


Found: TypeAlias = tuple[str, Path, dict[str, Any]]


def _section(reader: Reader, node: Node, path: Path, keys: Sequence[Key], expected: str) -> list[Found]:
    """Named things: for each its name, its path and the attributes given."""
    found: list[Found] = []
    for name, _, value_node in reader.mapping(node, path, f"{expected}, as in a mapping (name: fields)"):
        at = (*path, name)
        try:
            found.append((name, at, reader.keys(value_node, at, keys, "a mapping (key: value)")))
        except RefusedError:
            found.append((name, at, {}))
    return found


def _read_sources(reader: Reader, node: Node, path: Path) -> tuple[Source, ...]:
    return tuple(
        Source(name, **found)
        for name, _, found in _section(reader, node, path, SOURCE_KEYS, "sources by name")
    )


def _read_operators(reader: Reader, node: Node, path: Path) -> tuple[Operator, ...]:
    return tuple(
        Operator(name, **{"inputs": (), **found})
        for name, _, found in _section(reader, node, path, OPERATOR_KEYS, "operators by name")
    )


def _read_sinks(reader: Reader, node: Node, path: Path) -> tuple[Sink, ...]:
    return tuple(
        Sink(name, **{"inputs": (), **found})
        for name, _, found in _section(reader, node, path, SINK_KEYS, "sinks by name")
    )


def _read_units(reader: Reader, node: Node, path: Path) -> tuple[dict[str, Any], ...]:
    """Units as written; the file's own policy and filter are added afterwards."""
    return tuple(
        {"name": name, "operators": (), **found}
        for name, _, found in _section(reader, node, path, UNIT_KEYS, "units by name")
    )


def _read_sites(reader: Reader, node: Node, path: Path) -> tuple[Site, ...]:
    sites = []
    for name, at, found in _section(reader, node, path, SITE_KEYS, "sites by name"):
        written = found.pop("flavours", None)
        if written is not None:
            btu_s = found.get("btu_s", Site("").btu_s)
            flavours, currencies = _flavours(reader, written, (*at, "flavours"), btu_s)
            if flavours or not written:
                found["flavours"] = flavours
            if "currency" not in found and currencies:
                found["currency"] = currencies[0]
            for currency in currencies:
                if currency != found["currency"]:
                    reader.mistakes.append(
                        Mistake(
                            f'site "{name}": prices in {currency} and {found["currency"]}; expected one',
                            reader.file,
                            reader.lines.get((*at, "flavours")),
                            "mixed-currencies",
                        )
                    )
        sites.append(Site(name, **found))
    return tuple(sites)


def _flavours(
    reader: Reader, written: Sequence[Mapping[str, Any]], path: Path, btu_s: float
) -> tuple[tuple[HostFlavour, ...], list[str]]:
    """Flavours with their prices for one billing time unit, and the currencies used."""
    flavours: list[HostFlavour] = []
    currencies: list[str] = []
    for found in written:
        at = (*path, found["name"])
        missing = [
            key.name
            for key in FLAVOUR_KEYS
            if key.meaning.endswith("required") and key.attribute not in found
        ]
        for name in missing:
            if (*at, name) not in reader.refused and at not in reader.refused:
                reader.mistakes.append(
                    Mistake(
                        f'{place_in_words(at)}: expected the key "{name}"',
                        reader.file,
                        reader.lines.get(at),
                        "missing",
                    )
                )
        if missing:
            continue
        price: quantities.Price | None
        price, listed = found["price"]
        if price is not None and price.currency and price.currency not in currencies:
            currencies.append(price.currency)
        flavours.append(
            HostFlavour(
                found["name"],
                found["cores"],
                found["memory_mib"],
                Decimal(0) if price is None else price.for_span(btu_s),
                found.get("max_hosts"),
                found.get("type"),
                found.get("spot", False),
                listed=listed,
            )
        )
    return tuple(flavours), currencies


def _read_channels(reader: Reader, node: Node, path: Path) -> tuple[Channel, ...]:
    channels = []
    for name, _, value_node in reader.mapping(node, path, "channels by name, as in a mapping (name: fields)"):
        at = (*path, name)
        options: dict[str, Any] = {}
        kind = Channel(name).kind
        try:
            for key, _, option_node in reader.mapping(value_node, at, "a mapping (key: value)"):
                value = reader.value(TEXT if key == "kind" else PARAMETER, option_node, (*at, key))
                if value is REFUSED:
                    continue
                if key == "kind":
                    kind = value
                else:
                    options[key] = value
        except RefusedError:
            pass
        channels.append(Channel(name, kind, options))
    return tuple(channels)


def _read_latency_bounds(reader: Reader, node: Node, path: Path) -> tuple[LatencyBound, ...]:
    if not isinstance(node, SequenceNode):
        raise reader.refuse(
            node, path, "wrong-type", f"expected a list such as [{{bound: 2 s}}], got {shown_node(node)}"
        )
    bounds = []
    for i, item in enumerate(node.value):
        at = (*path, str(i))
        line = line_of(item)
        if line is not None:
            reader.lines[at] = line
        try:
            found = reader.keys(item, at, LATENCY_BOUND_KEYS, "a mapping with bound, source and sink")
        except RefusedError:
            continue
        if "bound_s" in found:
            bounds.append(LatencyBound(**found))
        elif (*at, "bound") not in reader.refused:
            reader.refuse(item, at, "missing", 'expected the key "bound"')
    return tuple(bounds)


def _read_loop(reader: Reader, node: Node, path: Path) -> LoopSettings:
    return LoopSettings(**reader.keys(node, path, LOOP_KEYS, "a mapping (key: value)"))


TOPOLOGY_KEYS = (
    Key("name", "name", TEXT, "the topology's name; by default the file's"),
    Key("sources", "sources", Form("sources by name", _read_sources), "where records enter; required"),
    Key("operators", "operators", Form("operators by name", _read_operators), "the steps; required"),
    Key("sinks", "sinks", Form("sinks by name", _read_sinks), "where results leave"),
    Key(
        "units",
        "units",
        Form("units by name", _read_units),
        "what is deployed together; by default each operator alone",
    ),
    Key("policy", "policy", CHOICE, "the policy of every unit that names none"),
    Key("filter", "filter", CHOICE, "the filter of every unit that names none"),
    Key(
        "sites",
        "sites",
        Form("sites by name", _read_sites),
        "where units may run; by default one site `local`",
    ),
    Key(
        "channels",
        "channels",
        Form("channels by name", _read_channels),
        "streams between units; by default `files`",
    ),
    Key(
        "latency_bounds",
        "latency_bounds",
        Form("a list of bounds", _read_latency_bounds),
        "end-to-end latency bounds of paths",
    ),
    Key("loop", "loop", Form("settings", _read_loop), "the control loop's intervals and guards"),
)

GRAMMAR: Mapping[str, tuple[Key, ...]] = {
    "": TOPOLOGY_KEYS,
    "sources": SOURCE_KEYS,
    "operators": OPERATOR_KEYS,
    "operators, service": SERVICE_KEYS,
    "sinks": SINK_KEYS,
    "units": UNIT_KEYS,
    "sites": SITE_KEYS,
    "sites, flavours": FLAVOUR_KEYS,
    "latency_bounds": LATENCY_BOUND_KEYS,
    "loop": LOOP_KEYS,
}
"""Every key the file may hold, by section; the top level is ""."""
