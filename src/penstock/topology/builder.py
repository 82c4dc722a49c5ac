"""Builds a topology in Python, with the same words and the same checks as a file.

The builder collects what a file would say and reads it with the file's own grammar. So both give equal
topologies for equal words, "500 ms" means the same in both, and neither accepts what the other refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node

from penstock.errors import ConfigurationError
from penstock.quantities import shown
from penstock.topology.file import topology_of
from penstock.topology.model import Choice, Topology
from penstock.topology.validation import Known

_STRING = "tag:yaml.org,2002:str"
_MAPPING = "tag:yaml.org,2002:map"


class TopologyBuilder:
    """Collects the parts of a topology; every method gives the builder back, `make` gives the topology.

    Keyword arguments are the keys of the file (docs/topology-file.md); quantities may be written as there
    or as plain numbers. A policy, filter, provider or workload is a name or a `Choice`::

        topology = (
            TopologyBuilder("clicks")
            .source("clicks", workload=Choice("sine", {"mean_per_s": 50}))
            .operator("count", "clicks", slo="500 ms")
            .make()
        )
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._sections: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._bounds: list[dict[str, Any]] = []
        self._settings: dict[str, Any] = {}

    def source(self, name: str, **keys: Any) -> TopologyBuilder:
        """Add a source; keys: function, workload, schema, share, records."""
        return self._add("sources", name, keys)

    def operator(self, name: str, *inputs: str, **keys: Any) -> TopologyBuilder:
        """Add an operator with its inputs; keys: function, slo, cores, memory, stateful, ratio, …"""
        return self._add("operators", name, {"inputs": inputs, **keys} if inputs else keys)

    def sink(self, name: str, *inputs: str, **keys: Any) -> TopologyBuilder:
        """Add a sink with its inputs; keys: function."""
        return self._add("sinks", name, {"inputs": inputs, **keys} if inputs else keys)

    def unit(self, name: str, *operators: str, **keys: Any) -> TopologyBuilder:
        """Put operators into one unit; keys: sites, policy, filter, min_instances, max_instances, …"""
        return self._add("units", name, {"operators": operators, **keys} if operators else keys)

    def site(self, name: str, **keys: Any) -> TopologyBuilder:
        """Add a site; keys as in a file: provider, btu, flavours, max_hosts, master, storage and so on."""
        return self._add("sites", name, keys)

    def channel(self, name: str, **keys: Any) -> TopologyBuilder:
        """Add a channel; keys: kind, and the options of that kind."""
        return self._add("channels", name, keys)

    def latency_bound(self, bound: str | float, **keys: Any) -> TopologyBuilder:
        """Bound the end-to-end latency; keys: source, sink."""
        self._bounds.append({"bound": bound, **keys})
        return self

    def loop(self, **keys: Any) -> TopologyBuilder:
        """Set how the control loop runs; keys: monitoring, provisioning, cooldown, largest_step, …"""
        self._settings.setdefault("loop", {}).update(keys)
        return self

    def policy(self, policy: str | Choice) -> TopologyBuilder:
        """The policy of every unit that names none."""
        self._settings["policy"] = policy
        return self

    def filter(self, filter: str | Choice) -> TopologyBuilder:
        """The filter of every unit that names none."""
        self._settings["filter"] = filter
        return self

    def make(self, known: Known | None = None) -> Topology:
        """The frozen topology; TopologyError lists all mistakes."""
        pairs: list[tuple[str, Node]] = [("name", _node(self._name))]
        for section, things in self._sections.items():
            pairs.append((section, _mapping((name, _node(keys)) for name, keys in things)))
        pairs += [(key, _node(value)) for key, value in self._settings.items()]
        if self._bounds:
            pairs.append(("latency_bounds", _node(self._bounds)))
        return topology_of(_mapping(pairs), known, name=self._name)

    def _add(self, section: str, name: str, keys: dict[str, Any]) -> TopologyBuilder:
        self._sections.setdefault(section, []).append((name, keys))
        return self


def _mapping(pairs: Iterable[tuple[str, Node]]) -> MappingNode:
    """A YAML mapping that keeps doubled names, so that they can be told."""
    return MappingNode(_MAPPING, [(yaml.ScalarNode(_STRING, name), node) for name, node in pairs])


def _node(value: Any) -> Node:
    """A Python value as the YAML node a file would have held."""
    try:
        return yaml.SafeDumper(_Nowhere(), sort_keys=False).represent_data(_plain(value))
    except (yaml.representer.RepresenterError, ValueError):  # no number of thousands of digits is written
        raise ConfigurationError(
            f"expected numbers, text, lists and mappings, got {type(value).__name__}: {shown(value)}"
        ) from None


class _Nowhere:
    """Where a dumper that only makes nodes would write."""

    def write(self, data: str) -> None:
        """Take text and forget it."""


def _plain(value: Any) -> Any:
    """Plain data: choices become mappings, tuples lists, exact numbers text."""
    if isinstance(value, Choice):
        return {"name": value.name, **_plain(value.parameters)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return str(value)
    return value
