"""The things a policy can ask for, each with its reason in words and numbers.

Hosts and instances are named by the asker, so that asking again for the same one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class LeaseHost:
    """Lease a host of a flavour at a site."""

    host: str
    site: str
    flavour: str
    reason: str
    unit: str | None = None
    """The unit that needs it."""


@dataclass(frozen=True, slots=True)
class ProlongLease:
    """Pay one more billing time unit for a host."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseHost:
    """Give a host back. It must be empty, or be emptied by actions of the same tick."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Start an instance of a unit, on a host or (host None) wherever there is room."""

    instance: str
    unit: str
    host: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Retire an instance: it finishes what it has begun and takes nothing new."""

    instance: str
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class MigrateInstance:
    """Start a replacement on another host, then retire the instance."""

    instance: str
    replacement: str
    unit: str
    to_host: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing for a unit, on purpose."""

    unit: str
    reason: str


Action: TypeAlias = (
    LeaseHost | ProlongLease | ReleaseHost | StartInstance | StopInstance | MigrateInstance | Hold
)
