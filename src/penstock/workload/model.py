"""What every workload is, and how its parameters are shared.

A workload says how many records arrive at each instant; it knows nothing of what is in them, nor of who
takes them. Each one is a frozen dataclass whose fields are the parameters a topology file may set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.workload.curve import RateCurve


@runtime_checkable
class Workload(Protocol):
    """An arrival pattern: a pure function of time, the same at every call."""

    name: ClassVar[str]
    """Its name in the registry and in topology files."""

    def rate_per_s(self, t_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Records a second at each instant, counted from the workload's start at 0 s."""
        ...

    def duration_s(self) -> float | None:
        """How long records arrive; None means without end."""
        ...

    @property
    def curve(self) -> RateCurve:
        """The rate over time with its exact integral and inverse."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pattern(ABC):
    """What the shipped workloads share: both scales, and a curve computed once."""

    name: ClassVar[str] = ""
    rate_scale: float = 1.0
    """Factor on every rate: 2 doubles the load."""
    time_scale: float = 1.0
    """Factor on every duration: 0.1 plays ten times as fast, at the same rates."""

    def __post_init__(self) -> None:
        """Compute the curve at once, so that a wrong parameter is told when the workload is made."""
        _ = self.curve

    @abstractmethod
    def shape(self) -> RateCurve:
        """The curve before scaling; each pattern has its own."""

    @cached_property
    def curve(self) -> RateCurve:
        """The rate over time with its exact integral and inverse."""
        return self.shape().scaled(self.rate_scale, self.time_scale)

    def rate_per_s(self, t_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Records a second at each instant, counted from the workload's start at 0 s."""
        return self.curve.rate_per_s(t_s)

    def duration_s(self) -> float | None:
        """How long records arrive; None means without end."""
        endless = self.curve.repeats or np.isinf(self.curve.length_s)
        return None if endless else self.curve.length_s


AnyPattern = TypeVar("AnyPattern", bound=Pattern)


def scaled(workload: AnyPattern, *, rate: float = 1.0, time: float = 1.0) -> AnyPattern:
    """The same workload with its rates and its durations multiplied."""
    return replace(workload, rate_scale=workload.rate_scale * rate, time_scale=workload.time_scale * time)


def positive(value: float, what: str) -> float:
    """The value where it is above 0 and finite; otherwise a ConfigurationError that names it."""
    if not (value > 0 and np.isfinite(value)):
        raise ConfigurationError(f"expected {what} above 0, got {value!r}")
    return value
