"""The things a policy can ask for, each with its reason in words and numbers.

Hosts and instances are named by the asker, so that asking again for the same one changes nothing. What an
action means for the fleet is told by the action itself (`starts`, `leaves`, `subject`), so that whoever
counts, guards or books actions needs no list of their kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args


class Started(NamedTuple):
    """An instance an action brings into being."""

    instance: str
    unit: str
    host: str | None
    """The host it is meant for; None where the plane chooses."""
    slots: int | None = None
    """Its slots; None means the unit's own number."""


class _Described:
    """What every action tells of itself; the defaults are those of an action that changes no instance."""

    __slots__ = ()

    kind: ClassVar[str]
    """Its name in the journal."""
    verb: ClassVar[str]
    """Its name in a sentence."""
    changes: ClassVar[bool] = True
    """Whether anything is to be done at all."""
    scales: ClassVar[bool] = False
    """Whether it changes how many instances its unit has."""

    @property
    def subject(self) -> str:
        """The host, instance or unit it is about."""
        raise TypeError(f"{type(self).__name__} is about nothing")

    @property
    def starts(self) -> Started | None:
        """The instance that comes into being by it."""
        return None

    @property
    def leaves(self) -> str | None:
        """The instance that goes by it, at once or when its replacement runs."""
        return None


class _AboutHost(_Described):
    __slots__ = ()

    @property
    def subject(self) -> str:
        """The host it is about."""
        host: str = self.host  # type: ignore[attr-defined]
        return host


class _AboutInstance(_Described):
    __slots__ = ()

    @property
    def subject(self) -> str:
        """The instance it is about."""
        instance: str = self.instance  # type: ignore[attr-defined]
        return instance


@dataclass(frozen=True, slots=True)
class LeaseHost(_AboutHost):
    """Lease a host of a flavour at a site."""

    kind: ClassVar[str] = "LeaseHost"
    verb: ClassVar[str] = "lease"
    host: str
    site: str
    flavour: str
    reason: str
    unit: str | None = None
    """The unit that needs it."""


@dataclass(frozen=True, slots=True)
class ProlongLease(_AboutHost):
    """Pay one more billing time unit for a host."""

    kind: ClassVar[str] = "ProlongLease"
    verb: ClassVar[str] = "keep"
    host: str
    reason: str
    unit: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class ReleaseHost(_AboutHost):
    """Give a host back as soon as nothing is on it any more."""

    kind: ClassVar[str] = "ReleaseHost"
    verb: ClassVar[str] = "release"
    host: str
    reason: str
    asked: bool = False
    """Whether a person asked for it: then it is not taken back where it takes long, but paid on."""
    unit: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class StartInstance(_AboutInstance):
    """Start an instance of a unit, on a host or (host None) wherever there is room."""

    kind: ClassVar[str] = "StartInstance"
    verb: ClassVar[str] = "start"
    scales: ClassVar[bool] = True
    instance: str
    unit: str
    host: str | None
    reason: str
    slots: int | None = None
    """Its slots; None means the unit's own number."""

    @property
    def starts(self) -> Started:
        """The instance that starts."""
        return Started(self.instance, self.unit, self.host, self.slots)


@dataclass(frozen=True, slots=True)
class StopInstance(_AboutInstance):
    """Retire an instance: it finishes what it has begun and takes nothing new."""

    kind: ClassVar[str] = "StopInstance"
    verb: ClassVar[str] = "stop"
    scales: ClassVar[bool] = True
    instance: str
    unit: str
    reason: str

    @property
    def leaves(self) -> str:
        """The instance that retires."""
        return self.instance


@dataclass(frozen=True, slots=True)
class MigrateInstance(_AboutInstance):
    """Start a replacement on another host, wait until it serves, then retire the instance."""

    kind: ClassVar[str] = "MigrateInstance"
    verb: ClassVar[str] = "migrate"
    instance: str
    replacement: str
    unit: str
    to_host: str | None
    reason: str
    slots: int | None = None
    """The replacement's slots; None means the unit's own number."""

    @property
    def starts(self) -> Started:
        """The replacement."""
        return Started(self.replacement, self.unit, self.to_host, self.slots)

    @property
    def leaves(self) -> str:
        """The instance that is replaced."""
        return self.instance


@dataclass(frozen=True, slots=True)
class ResizeInstance(_AboutInstance):
    """Give an instance that runs another number of slots, in place: nothing starts and nothing moves."""

    kind: ClassVar[str] = "ResizeInstance"
    verb: ClassVar[str] = "resize"
    instance: str
    unit: str
    slots: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hold(_Described):
    """Do nothing for a unit, on purpose."""

    kind: ClassVar[str] = "Hold"
    verb: ClassVar[str] = "hold"
    changes: ClassVar[bool] = False
    unit: str
    reason: str

    @property
    def subject(self) -> str:
        """The unit that is left as it is."""
        return self.unit


Action: TypeAlias = (
    LeaseHost
    | ProlongLease
    | ReleaseHost
    | StartInstance
    | StopInstance
    | MigrateInstance
    | ResizeInstance
    | Hold
)

ACTIONS: Mapping[str, type[Any]] = {kind.kind: kind for kind in get_args(Action)}
"""Every kind of action by its name."""


def described(action: Action) -> str:
    """An action in one line: what, about whom, why."""
    place = action.starts.host if action.starts is not None else None
    where = f" on {place}" if place else ""
    return f"{action.verb} {action.subject}{where}: {action.reason}"


def verb_of(kind: str) -> str:
    """What an action of a kind does, for people; the kind itself where it is none of these."""
    return ACTIONS[kind].verb if kind in ACTIONS else kind
