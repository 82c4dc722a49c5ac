"""Lives: what became of every host, instance and unit, as entries that are only ever added.

The fleet writes an entry whenever a life changes; the newest entry of a subject says where it stands. A
restarted controller rebuilds its fleet from the newest entries of those that are not over: an entry's
payload therefore holds all there is to know of its subject, as plain JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Life:
    """One entry of a life: what its subject has come to at an instant."""

    what: str
    """What the subject is: "host", "instance" or "unit"."""
    name: str
    at_s: float
    state: str
    over: bool = False
    """Whether nothing more will happen to it: a released host, a stopped instance."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """All else there is to know, as plain JSON values: a restarted controller has nothing but this."""
