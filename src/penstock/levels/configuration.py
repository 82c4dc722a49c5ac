"""The configuration map (paper 002, Table 1): which hosts, instances and slots a load needs.

A configuration is a list of hosts, each with the slots of the instances on it by unit: `(1, 2) + (1, 1)` of
the paper is two hosts with one instance of two slots and one of one. Each has a lower and an upper threshold
of the load it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from penstock.errors import ConfigurationError
from penstock.levels.files import read_yaml, write_yaml

HostLayout: TypeAlias = Mapping[str, tuple[int, ...]]
"""What is on one host: by unit, the slots of each of its instances."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Hosts, instances and slots that carry a load, with the load they were found for."""

    from_per_s: float
    """The lower threshold: below it a smaller configuration does."""
    to_per_s: float
    """The upper threshold: the highest load at which every unit was healthy."""
    hosts: tuple[HostLayout, ...]

    def slots(self, unit: str) -> int:
        """The slots of a unit on all hosts together."""
        return sum(sum(layout.get(unit, ())) for layout in self.hosts)

    def instances(self, unit: str) -> int:
        """The instances of a unit on all hosts together."""
        return sum(len(layout.get(unit, ())) for layout in self.hosts)

    def described(self, units: tuple[str, ...] = ()) -> str:
        """Hosts with the slots of the instances on each, as in `(parser 2) + (parser 1)`."""
        parts = []
        for layout in self.hosts:
            shown = [
                f"{unit} {'+'.join(str(slots) for slots in found)}"
                for unit, found in layout.items()
                if found and (not units or unit in units)
            ]
            parts.append(f"({', '.join(shown) or 'empty'})")
        return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class ConfigurationMap:
    """The configurations of a topology by rising load."""

    topology: str
    least_health: float
    """Every unit's health was at least this at each configuration's load."""
    configurations: tuple[Configuration, ...]
    ground: str = ""
    """Where it was found: `simulated` or `spark`."""
    ended: str = ""
    """Why no higher load was tried, in words."""

    def __post_init__(self) -> None:
        if not self.configurations:
            raise ConfigurationError("a configuration map needs at least one configuration")
        tops = [configuration.to_per_s for configuration in self.configurations]
        if tops != sorted(tops):
            raise ConfigurationError("the configurations of a map stand by rising load")

    def for_load(self, per_s: float) -> Configuration:
        """The smallest configuration that carries a load; the largest there is where none does."""
        return next((c for c in self.configurations if per_s <= c.to_per_s), self.configurations[-1])

    def above(self, configuration: Configuration) -> Configuration:
        """The next larger configuration, or the same where there is none."""
        place = self.configurations.index(configuration)
        return self.configurations[min(place + 1, len(self.configurations) - 1)]

    @property
    def most_per_s(self) -> float:
        """The highest load it knows a configuration for."""
        return self.configurations[-1].to_per_s

    def write(self, file: Path) -> Path:
        """Write the map to a file."""
        return write_yaml(self, file)

    @staticmethod
    def read(file: Path) -> ConfigurationMap:
        """The map in a file; ConfigurationError where there is none."""
        return read_yaml(ConfigurationMap, file, "a configuration map (see `penstock benchmark`)")
