"""The platform's profile: what one more slot, instance or host brings and costs, as measured there.

Nothing about a platform is assumed: `penstock study levels` measures it and writes it down, and policies
choose by what is written. The default is what the study found for Spark on one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.levels.files import read_yaml, write_yaml

SLOT, INSTANCE, HOST = LEVELS = ("slot", "instance", "host")
"""The levels, the lowest first: a slot is inside an instance, an instance on a host."""
LEAST_EFFECT = 0.2
"""A level that brings less than this share of a slot's worth does not help."""


@dataclass(frozen=True, slots=True)
class Level:
    """What one more container of a level is worth."""

    effect_ratio: float
    """Load it adds while the host has free cores, as a share of what the first slot takes."""
    memory_mib: int
    """Memory it takes beside the records."""
    start_s: float
    """From asking for it until it serves."""
    beyond_cores_ratio: float = 0.0
    """Load it adds on a host without a free core, as the same share."""

    @property
    def helps(self) -> bool:
        """Whether more of it carries more load, where there are cores."""
        return self.effect_ratio >= LEAST_EFFECT


@dataclass(frozen=True, slots=True)
class PlatformProfile:
    """The levels of one platform, and what else was found about it."""

    platform: str
    levels: Mapping[str, Level]
    findings: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the study, by name."""

    def __post_init__(self) -> None:
        missing = [name for name in LEVELS if name not in self.levels]
        if missing:
            raise ConfigurationError(f"a platform profile needs the levels {', '.join(missing)}")

    def cheapest_first(self) -> tuple[str, ...]:
        """The levels that help, the cheapest first: by memory, then by the time they take to start.

        A host holds the others, so it never comes before them.
        """
        inner = [name for name in (SLOT, INSTANCE) if self.levels[name].helps]
        inner.sort(key=lambda name: (self.levels[name].memory_mib, self.levels[name].start_s))
        return (*inner, HOST)

    def write(self, file: Path) -> Path:
        """Write the profile to a file."""
        return write_yaml(self, file)

    @staticmethod
    def read(file: Path) -> PlatformProfile:
        """The profile in a file; ConfigurationError where there is none."""
        return read_yaml(PlatformProfile, file, "a platform profile")


@lru_cache
def default_profile() -> PlatformProfile:
    """What the study found for Spark; `penstock study levels` makes one of another platform."""
    with resources.as_file(resources.files("penstock.levels") / "spark.yaml") as file:
        return PlatformProfile.read(file)
