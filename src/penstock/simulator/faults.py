"""What goes wrong on purpose in a simulated run, and when."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import ConfigurationError

KINDS = ("instance_crash", "host_crash", "host_slowdown")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at an instant. The target is a name, or None for the oldest there is at that instant."""

    at_s: float
    kind: str
    """`instance_crash`, `host_crash` or `host_slowdown`."""
    target: str | None = None
    unit: str | None = None
    """With `instance_crash` and no target: the oldest instance of this unit."""
    factor: float = 2.0
    """With `host_slowdown`: how many times longer everything takes on the host."""
    duration_s: float = 300.0
    """With `host_slowdown`: for how long."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f'expected a fault out of {", ".join(KINDS)}, got "{self.kind}"')
        if self.factor <= 0 or self.duration_s < 0:
            raise ConfigurationError("a slowdown needs a positive factor and a duration that is not negative")
