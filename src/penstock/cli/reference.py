"""Writes the reference of topology files from the grammar the reader itself follows.

`python -m penstock.cli.reference > docs/topology-file.md` writes the page; a test fails where the page
says something else than the code.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any

from penstock.channels.registry import CHANNELS
from penstock.choosing import Registry
from penstock.filters.registry import FILTERS
from penstock.policies.registry import POLICIES
from penstock.providers.registry import PROVIDERS
from penstock.spark.managers.registry import MANAGERS
from penstock.topology.file import duration_text, memory_text
from penstock.topology.forms import DURATION, MEMORY
from penstock.topology.grammar import CHANNEL_MEANING, FLAVOUR_KEYS, GRAMMAR
from penstock.topology.model import (
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)
from penstock.topology.reading import Key
from penstock.workload.registry import WORKLOADS

_MODELS: dict[str, type[Any]] = {
    "": Topology,
    "sources": Source,
    "operators": Operator,
    "operators, service": Service,
    "sinks": Sink,
    "units": Unit,
    "sites": Site,
    "sites, flavours": HostFlavour,
    "latency_bounds": LatencyBound,
    "loop": LoopSettings,
}

_HEAD = """\
# Topology files

<!-- Written by `python -m penstock.cli.reference`; change the grammar in the code, not this page. -->

A topology file is YAML. `penstock check FILE` lists all its mistakes at once, each with its line;
`penstock show FILE` draws it. The smallest useful one names a source and an operator:

```yaml
sources:
  clicks: {workload: sine}
operators:
  count: {inputs: clicks, slo: 500 ms}
```

Everything else has a default. Sources, operators, sinks, units, sites and channels are mappings from a
name to keys; a name is made of letters, digits, `_`, `.` and `-`, at most 64 of them. Where a list of names
is expected, a single name will do.

## Quantities

| quantity | written as | a plain number means |
| --- | --- | --- |
| duration | `250 ms`, `5 s`, `10 min`, `1 h 05 min`, `1 d` | seconds |
| memory | `512 MiB`, `2 GiB`, `2 GB` | MiB |
| rate | `100/s`, `6000/min` | records a second |
| ratio | `0.5`, `50 %` | the ratio |
| price | `0.10 USD/h`, `3/BTU` | an amount for each billing time unit |

## Things with parameters

A policy, a filter, a provider and a workload are chosen by name, with or without parameters:

```yaml
policy: threshold
policy: {name: threshold, up_queue: 30}
```

A parameter whose name ends in `_s`, `_per_s`, `_mib` or `_ratio` may be written as a quantity.
`penstock policies` and `penstock workloads` list what there is.
"""

_TITLES = {
    "": "The top level",
    "sources": "sources",
    "operators": "operators",
    "operators, service": "operators: service",
    "sinks": "sinks",
    "units": "units",
    "sites": "sites",
    "sites, flavours": "sites: flavours",
    "latency_bounds": "latency_bounds (a list)",
    "loop": "loop",
}

_TAIL = """\
## Mistakes that are found

Unknown and doubled names and keys; inputs that lead nowhere; operators no source reaches; sources nobody
takes; cycles of operators (named one by one) and of units; quantities in a wrong unit; values out of
range; a unit that no host of an allowed site can hold; unknown policies, filters, providers, workloads,
channels and parameters, with the nearest known name; two sinks that write to one folder; text that is not
YAML; a file of more than 256 KiB, 100,000 values (counted with what aliases repeat) or 50 levels.

Real executors have whole cores and at least 512 MiB. At a site with another provider than `simulated`, or
with a `master`, an operator with a fraction of a core and an instance with less memory are refused, with what
to write instead; a simulated site takes both. `penstock run` holds every site to it.

## In Python

`penstock.topology.builder.TopologyBuilder` takes the same keys and gives an equal topology;
`penstock.topology.file.load_topology` reads a file, `dump_topology` writes one, and
`penstock.topology.difference.difference` tells what changed between two versions.
"""


def reference() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for section, keys in GRAMMAR.items():
        parts.append(f"## {_TITLES[section]}\n\n{_table(_MODELS[section], keys)}")
        if section == "sites, flavours":
            parts.append(f"## channels\n\n`kind` is {CHANNEL_MEANING}.\n")
    parts.append(_chosen("Policies", POLICIES))
    parts.append(_chosen("Filters", FILTERS))
    parts.append(_chosen("Providers", PROVIDERS))
    parts.append(_chosen("Cluster managers", MANAGERS, about=_MANAGERS))
    parts.append(_chosen("Kinds of channel", CHANNELS, about=_CHANNELS))
    parts.append(_chosen("Workloads", WORKLOADS, ("rate_scale", "time_scale")))
    parts.append(_SCALES)
    parts.append(_TAIL)
    return "\n".join(parts)


def _table(model: type[Any], keys: Sequence[Key]) -> str:
    rows = ["| key | written as | default | meaning |", "| --- | --- | --- | --- |"]
    for key in keys:
        required = key.meaning.endswith("; required")
        meaning = key.meaning.removesuffix("; required")
        default = "required" if required else _default(model, key)
        rows.append(f"| `{key.name}` | {_cell(key.form.words)} | {default} | {_cell(meaning)} |")
    return "\n".join(rows) + "\n"


def _default(model: type[Any], key: Key) -> str:
    """The model's own default, as a file would write it."""
    if _is_of_flavours(key):
        return ""
    found = next((field for field in fields(model) if field.name == key.attribute), None)
    if found is None or found.default in (MISSING, None, ()):
        return ""
    value = found.default
    if key.form is DURATION:
        return f"`{duration_text(value)}`"
    if key.form is MEMORY:
        return f"`{memory_text(value)}`"
    if isinstance(value, Choice):
        return f"`{value.name}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float, Decimal)):
        return f"`{value:f}`" if isinstance(value, Decimal) else f"`{value:g}`"
    if isinstance(value, str):
        return f"`{value}`" if value else ""
    if key.name == "flavours":
        flavour = value[0]
        return (
            f"`{flavour.name}: {{cores: {flavour.cores:g}, memory: {memory_text(flavour.memory_mib)}, "
            f"price: {flavour.price_per_btu}}}`"
        )
    return ""


def _is_of_flavours(key: Key) -> bool:
    """Whether a key is one of a flavour, whose price the model holds in another form."""
    return any(key is other for other in FLAVOUR_KEYS)


def _chosen(title: str, registry: Registry, left_out: Collection[str] = (), about: str = "") -> str:
    """Everything a registry holds, with its parameters."""
    parts = [f"## {title}\n", about] if about else [f"## {title}\n"]
    for name in registry:
        lines = [f"**`{name}`**: {registry.described(name)}\n"]
        shown = [one for one in registry.parameters(name).values() if one.name not in left_out]
        if shown:
            lines += ["| parameter | default | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{one.name}` | {one.default_text} | {_cell(one.meaning)} |" for one in shown]
        parts.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(parts)


_MANAGERS = (
    "A site with a `master` is an existing cluster; which manager it is follows from the master, and its "
    "parameters stand in `cluster:`. See [clusters.md](clusters.md).\n"
)

_CHANNELS = "The kind stands in `kind` of a channel (above), its options beside it.\n"

_SCALES = (
    "Every workload also takes `rate_scale` (a factor on every rate) and `time_scale` "
    "(a factor on every duration).\n"
)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
