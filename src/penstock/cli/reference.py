"""Writes the reference of topology files from the grammar the reader itself follows.

`python -m penstock.cli.reference > docs/topology-file.md` writes the page; a test fails where the page
says something else than the code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any

from penstock.cli.parameters import first_sentence, parameters
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
name to keys; a name is made of letters, digits, `_`, `.` and `-`. Where a list of names is expected, a
single name will do.

## Quantities

| quantity | written as | a plain number means |
| --- | --- | --- |
| duration | `250 ms`, `5 s`, `10 min`, `1 h`, `1 d` | seconds |
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
channels and parameters, with the nearest known name; text that is not YAML.

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
    parts.append(_workloads())
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


def _workloads() -> str:
    parts = ["## Workloads\n"]
    for name, kind in WORKLOADS.items():
        rows = [
            f"**`{name}`**: {first_sentence(kind)}\n",
            "| parameter | default | meaning |",
            "| --- | --- | --- |",
        ]
        rows += [
            f"| `{parameter.name}` | {parameter.default} | {_cell(parameter.meaning)} |"
            for parameter in parameters(kind)
            if parameter.name not in ("rate_scale", "time_scale")
        ]
        parts.append("\n".join(rows) + "\n")
    parts.append(
        "Every workload also takes `rate_scale` (a factor on every rate) and `time_scale` "
        "(a factor on every duration).\n"
    )
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
