"""The extended Kalman filter of paper 001, with the gaps of the printed one closed.

The state of an instance is its utilisation; the input is its share of the arrival rate, which is known
at once and without noise, so a change of load shows in the estimate before it shows in the readings.
Beyond the paper: the covariance step, a floor for Q, readings clamped at saturation treated as censored,
newcomers that start from their unit's estimate, and an innovation test that resets what has diverged.
See docs/designs/0003-filters.md for what each of these is for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.filters.calibration import Calibration
from penstock.filters.equations import (
    Transition,
    clip_eigenvalues,
    predict_covariance,
    recency_weighted,
    update,
)
from penstock.filters.kalman_state import KalmanState
from penstock.filters.readings import Array, Estimates, Readings
from penstock.filters.rows import Rows
from penstock.filters.sensitivities import Fit, Sensitivity
from penstock.filters.tracking import LevelTracker

LEAST_READINGS = 3
"""The dead time never ends with fewer readings: two say nothing about a spread."""
TEST_READINGS = 10
"""The innovation test averages over about so many readings."""
TEST_CAP = 25.0
"""One reading counts for at most this much in the test (five σ): a lone outlier is no divergence."""
SATURATED = 1.0
"""What a sensor shows at most, but for its noise."""


@dataclass(frozen=True, slots=True)
class KalmanParameters:
    """Estimate utilisation from readings and from the known arrival rate (extended Kalman filter)."""

    name: ClassVar[str] = "kalman"

    dead_time_s: float = field(
        default=10.0,
        metadata={"doc": "readings are only collected for so long; they give the first estimate"},
    )
    ease_in_s: float = field(
        default=10.0, metadata={"doc": "then the filter runs for so long before its estimates are trusted"}
    )
    noise_std: tuple[float, ...] = field(
        default=(0.05, 0.01),
        metadata={"doc": "standard deviation of the readings' noise, a number for each metric (√R)"},
    )
    calibration: str | None = field(
        default=None, metadata={"doc": "file written by `penstock calibrate`; its R replaces noise_std"}
    )
    noise_floor: float = field(
        default=1e-6, metadata={"doc": "least variance in Q; larger follows readings faster and calms less"}
    )
    noise_ceiling: float | None = field(
        default=None,
        metadata={"doc": "largest variance in Q; none lets a noisy start make a nervous filter"},
    )
    sensitivity: tuple[tuple[float, float], ...] | None = field(
        default=None, metadata={"doc": "(a, b) for each metric; fitted on the way where not given"}
    )
    saturation_ratio: float = field(
        default=0.9,
        metadata={"doc": "readings from here on count as clamped: 1 less the noise of a saturated sensor"},
    )
    divergence_ratio: float = field(
        default=9.0,
        metadata={"doc": "reset where squared innovations average this many times their variance"},
    )
    gate_sigma: float | None = field(
        default=None, metadata={"doc": "leave out single readings further off than this; none takes all in"}
    )
    adaptive_ratio: float = field(
        default=0.0,
        metadata={"doc": "share of unexplained innovation variance added to Q; 0 keeps Q as it is"},
    )
    drain_s: float = field(
        default=0.0,
        metadata={"doc": "how long clamped readings may be put down to a backlog where b·D explains less"},
    )
    as_printed: bool = field(
        default=False,
        metadata={"doc": "the paper's filter with its gaps left open; for comparison only"},
    )
    transition: str | None = field(
        default=None, metadata={"doc": "your own f(x, u) with its Jacobian, as module:function"}
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", _numbers(self.noise_std, "noise_std"))
        if self.sensitivity is not None:
            pairs = tuple(_numbers(pair, "sensitivity") for pair in self.sensitivity)
            if any(len(pair) != 2 for pair in pairs):
                raise ConfigurationError(
                    f"filter kalman: expected sensitivity as (a, b) for each metric, got {self.sensitivity}"
                )
            object.__setattr__(self, "sensitivity", pairs)
        if not self.noise_std or min(self.noise_std) <= 0:
            raise ConfigurationError(
                f"filter kalman: expected noise_std above 0 for each metric, got {self.noise_std}; "
                "without measurement noise a Kalman filter is no filter: use `none`"
            )
        for name in ("noise_floor", "saturation_ratio", "divergence_ratio"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"filter kalman: expected {name} above 0, got {getattr(self, name)}")
        for name in ("dead_time_s", "ease_in_s", "adaptive_ratio", "drain_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(
                    f"filter kalman: expected {name} of at least 0, got {getattr(self, name)}"
                )

    def track(self) -> LevelTracker:
        """A filter for a single number."""
        return LevelTracker()

    def make(self) -> KalmanFilter:
        """A filter for one run; reads the calibration file where one is named."""
        calibration = None if self.calibration is None else Calibration.read(Path(self.calibration))
        transition = None if self.transition is None else _imported(self.transition)
        R = None if calibration is None else np.array(calibration.covariance)
        return KalmanFilter(self, R, transition)


def _numbers(value: object, what: str) -> tuple[float, ...]:
    try:
        if isinstance(value, (int, float)):
            return (float(value),)
        return tuple(float(part) for part in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ConfigurationError(f"filter kalman: expected numbers for {what}, got {value!r}") from None


def _imported(name: str) -> Transition:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"filter kalman: expected transition as module:function, got {name!r} ({error})"
        ) from error
    if not callable(found):
        raise ConfigurationError(f"filter kalman: transition {name!r} is no function")
    transition: Transition = found
    return transition


class KalmanFilter:
    """One extended Kalman filter for each instance, all stepped at once."""

    name: ClassVar[str] = "kalman"

    def __init__(
        self, parameters: KalmanParameters, R: Array | None = None, transition: Transition | None = None
    ) -> None:
        self._parameters = parameters
        self._given_R = R
        self._transition = transition
        self._rows = Rows()
        self._units: dict[str, int] = {}
        self._metrics = 0

    # --- what can be asked of it ---

    @property
    def sensitivities(self) -> dict[str, tuple[Sensitivity, ...]]:
        """The sensitivities in use, by unit: the given ones, or what the run has taught so far."""
        return {
            unit: tuple(
                Sensitivity(float(self._a[row, j]), float(self._b[row, j])) for j in range(self._metrics)
            )
            for unit, row in self._units.items()
        }

    def step(self, readings: Readings) -> Estimates:
        """Predict, take in what was read, test the innovations; start newcomers."""
        z = np.asarray(readings.values, dtype=np.float64)
        if self._metrics == 0:
            self._begin(z.shape[1])
        elif z.shape[1] != self._metrics:
            raise ValueError(f"expected {self._metrics} metrics as at the first tick, got {z.shape[1]}")
        self._realign(readings, self._rows.align(readings.keys))
        now_s, D = readings.at_s, readings.inputs
        known = ~np.isnan(z)
        clamped = known & (z >= self._parameters.saturation_ratio)
        if self._parameters.as_printed:
            clamped[:] = False
        notices: list[str] = []

        if self._parameters.sensitivity is None:
            self._learn(D, np.where(clamped, np.nan, z))
        if self._state.started.any():
            self._predict(D)
            self._correct(now_s, z, known, clamped, D)
            notices = self._reset_diverged(readings, z, known, clamped, D)
        if not self._state.started.all():
            self._start_newcomers(now_s, z, known, clamped, D)

        self._state.seen |= known
        state = self._state
        trusted = state.started & (now_s >= state.trusted_s - 1e-9) & state.seen.any(axis=1)
        values, variances = state.x, np.einsum("njj->nj", state.P)
        if not state.started.all():
            # In the dead time the best guess is what Equation (16) gives so far; it is not trusted yet.
            guess = state.sums / np.maximum(state.weights, 1.0)
            values = np.where(state.started[:, None], values, guess)
        return Estimates(
            readings.keys,
            np.where(state.seen, values, np.nan),
            np.where(state.seen, variances, np.nan),
            trusted,
            tuple(notices),
        )

    # --- memory ---

    def _begin(self, metrics: int) -> None:
        self._metrics = metrics
        if self._given_R is None:
            std = self._parameters.noise_std
            # Metrics beyond those named are as noisy as the last one named.
            R = np.diag(np.array([std[min(j, len(std) - 1)] for j in range(metrics)]) ** 2)
        else:
            R = self._given_R
            if R.shape != (metrics, metrics):
                raise ConfigurationError(
                    f"filter kalman: the calibration is for {len(R)} metrics, the readings have {metrics}"
                )
            # A sensor that stood still while it was calibrated is not without noise.
            R = clip_eigenvalues(R, self._parameters.noise_floor)
        self._R = R
        self._fit = Fit(metrics)
        self._a: Array = np.zeros((0, metrics))
        self._b: Array = np.zeros((0, metrics))
        self._unit: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._state = KalmanState.blank(0, R, self._parameters.noise_floor)

    def _realign(self, readings: Readings, origin: NDArray[np.intp] | None) -> None:
        if origin is None:
            return
        fresh = KalmanState.blank(len(origin), self._R, self._parameters.noise_floor)
        fresh.take_over(self._state, origin)
        self._state = fresh
        names = readings.unit_names
        for name in names:
            if name not in self._units:
                self._units[name] = len(self._units)
        self._unit = np.fromiter((self._units[name] for name in names), dtype=np.intp, count=len(names))
        more = len(self._units) - len(self._a)
        if more > 0:
            a, b = np.zeros((more, self._metrics)), np.zeros((more, self._metrics))
            for j, (given_a, given_b) in enumerate(self._parameters.sensitivity or ()):
                if j < self._metrics:
                    a[:, j], b[:, j] = given_a, given_b
            self._a, self._b = np.concatenate([self._a, a]), np.concatenate([self._b, b])
            self._fit.grow(len(self._units))

    # --- the steps of a tick ---

    def _learn(self, D: Array, z: Array) -> None:
        changes = z - self._state.z
        self._state.z = z
        self._fit.add(self._unit, D, changes)
        self._a, self._b = self._fit.coefficients()

    def _predict(self, D: Array) -> None:
        if self._transition is None:
            # Paper 001, Equation (10) with f(x, u) = x + a·D + b·ΔD, whose Jacobian is the identity.
            x, F = self._state.x + self._a[self._unit] * D[:, :1] + self._b[self._unit] * D[:, 1:], None
        else:
            x, F = self._transition(self._state.x, D)
        Q = self._state.Q
        if self._parameters.adaptive_ratio > 0:
            # Adaptive Q (ours): innovation variance beyond what P + R explains must come from the system.
            Q = Q + self._parameters.adaptive_ratio * self._state.excess[:, :, None] * np.eye(self._metrics)
        if not self._parameters.as_printed:
            # Utilisation is never negative; above saturation it is demand, which may be any size.
            x = np.maximum(x, 0.0)
        self._state.x = np.where(self._state.started[:, None], x, self._state.x)
        P = predict_covariance(self._state.P, F, Q)
        self._state.P = np.where(self._state.started[:, None, None], P, self._state.P)

    def _correct(
        self, now_s: float, z: Array, known: NDArray[np.bool_], clamped: NDArray[np.bool_], D: Array
    ) -> None:
        if self._parameters.as_printed:
            # Paper 001, Equations (13) and (14) alone: P stays as predicted, so it grows by Q for ever.
            observed = known & self._state.started[:, None]
            self._state.x = update(self._state.x, self._state.P, z, self._R, observed)[0]
            return
        # A clamped reading says "at least": no news to an estimate that is above it already.
        observed = known & ~(clamped & (self._state.x >= z)) & self._state.started[:, None]
        explained = self._b[self._unit] * D[:, :1]
        blind = clamped & self._state.started[:, None] & (explained >= self._parameters.saturation_ratio)
        if self._parameters.drain_s > 0:
            # Ours: full instances whose input explains less work off a backlog. That passes, so it is no
            # reason to scale; but if it does not pass, the input's share is wrong and the reading counts.
            draining = clamped & (explained > 0) & (explained < self._parameters.saturation_ratio)
            since_s = np.where(np.isnan(self._state.clamped_s), now_s, self._state.clamped_s)
            self._state.clamped_s = np.where(draining, since_s, np.nan)
            draining &= self._state.started[:, None] & (now_s - since_s < self._parameters.drain_s)
            observed &= ~draining
            blind |= draining
        # Demand beyond capacity still reads as full: h(x) = min(x, 1), so a lone low reading cannot undo it.
        shown = np.minimum(self._state.x, np.maximum(SATURATED, z))
        x, P, innovation, squared = update(self._state.x, self._state.P, z, self._R, observed, shown)
        # The test does hold readings against x itself: low readings again and again disprove the demand.
        spread = np.einsum("njj->nj", self._state.P) + np.diag(self._R)
        misses = np.where(observed, (np.nan_to_num(z) - self._state.x) ** 2 / spread, 0.0)
        expected = observed.sum(axis=1)
        tested = expected > 0
        surprise = np.minimum(misses, TEST_CAP)
        gate = self._parameters.gate_sigma
        if gate is not None:
            # Innovation gating (ours): a reading that far off is left out; if more follow, the test tells.
            out = tested & (squared > expected * gate**2)
            x, P = np.where(out[:, None], self._state.x, x), np.where(out[:, None, None], self._state.P, P)
        if self._parameters.adaptive_ratio > 0:
            share = np.where(observed, 1.0 / TEST_READINGS, 0.0)
            self._state.excess = np.maximum(
                self._state.excess + share * (innovation**2 - spread - self._state.excess), 0.0
            )
        if blind.any():
            # A full sensor says nothing of demand, the input does: b·D. Otherwise an error made with one
            # instance would stay as large with twenty. It is as uncertain as a reading.
            x = np.where(blind, explained, x)
            apart = blind[:, :, None] | blind[:, None, :]
            P = np.where(apart, np.eye(self._metrics) * np.where(blind, np.diag(self._R), 0.0)[:, :, None], P)
        self._state.x, self._state.P = x, P
        share = np.where(observed, 1.0 / TEST_READINGS, 0.0)
        self._state.surprise = self._state.surprise + share * (surprise - self._state.surprise)

    def _reset_diverged(
        self,
        readings: Readings,
        z: Array,
        known: NDArray[np.bool_],
        clamped: NDArray[np.bool_],
        D: Array,
    ) -> list[str]:
        far = self._state.surprise > self._parameters.divergence_ratio
        diverged = self._state.started & far.any(axis=1)
        if not diverged.any():
            return []
        notices = []
        for row in np.flatnonzero(diverged):
            worst = int(np.argmax(self._state.surprise[row]))
            notices.append(
                f"instance {readings.keys[row]}: Kalman filter reset, squared innovations of "
                f"metric {worst + 1} average {self._state.surprise[row, worst]:.1f} times their variance "
                f"(limit {self._parameters.divergence_ratio:g}); "
                f"read {z[row, worst]:.3f}, estimated {self._state.x[row, worst]:.3f}"
            )
        take = far & known & self._state.started[:, None]
        self._state.x = np.where(take, self._at_least(z, clamped, D), self._state.x)
        self._state.P = np.where(diverged[:, None, None], 2.0 * self._R, self._state.P)
        self._state.surprise = np.where(diverged[:, None], 1.0, self._state.surprise)
        self._state.excess = np.where(diverged[:, None], 0.0, self._state.excess)
        self._state.trusted_s = np.where(
            diverged, readings.at_s + self._parameters.ease_in_s, self._state.trusted_s
        )
        return notices

    def _at_least(self, z: Array, clamped: NDArray[np.bool_], D: Array) -> Array:
        """Readings, where clamped ones are lifted to the demand the input explains: b·D."""
        demand: Array = np.where(clamped, np.maximum(z, self._b[self._unit] * D[:, :1]), z)
        return demand

    def _start_newcomers(
        self, now_s: float, z: Array, known: NDArray[np.bool_], clamped: NDArray[np.bool_], D: Array
    ) -> None:
        parameters = self._parameters
        new = ~self._state.started
        self._state.born_s = np.where(new & np.isnan(self._state.born_s), now_s, self._state.born_s)
        if not parameters.as_printed:
            self._adopt(new, now_s)
        new = ~self._state.started
        if not new.any():
            return
        # The dead time: collect, weighing the i-th reading by i.
        self._state.count = self._state.count + (new & known.any(axis=1))
        value = np.where(known & new[:, None], self._at_least(np.nan_to_num(z), clamped, D), 0.0)
        weight = np.where(known & new[:, None], self._state.count[:, None], 0.0)
        self._state.weights = self._state.weights + weight
        self._state.sums = self._state.sums + weight * value
        self._state.squares = self._state.squares + weight * value**2
        over = (
            new
            & (now_s - self._state.born_s >= parameters.dead_time_s - 1e-9)
            & (self._state.count >= (LEAST_READINGS if parameters.dead_time_s > 0 else 1))
        )
        if not over.any():
            return
        rows = np.flatnonzero(over)
        x0, P0 = recency_weighted(
            self._state.weights[rows], self._state.sums[rows], self._state.squares[rows]
        )
        # Paper 001, Equation (18): Q = P0 − R, which is rarely positive, hence the floor.
        Q = np.maximum(P0 - np.diag(self._R), parameters.noise_floor)
        if parameters.noise_ceiling is not None:
            Q = np.minimum(Q, parameters.noise_ceiling)
        unity = np.eye(self._metrics)
        self._state.x[rows] = x0
        self._state.P[rows] = np.maximum(P0, parameters.noise_floor)[:, :, None] * unity
        self._state.Q[rows] = Q[:, :, None] * unity
        self._state.started[rows] = True
        self._state.trusted_s[rows] = now_s + parameters.ease_in_s

    def _adopt(self, new: NDArray[np.bool_], now_s: float) -> None:
        """Newcomers of a unit that has trusted instances start from those instances' mean."""
        elders = self._state.started & (now_s >= self._state.trusted_s - 1e-9)
        if not elders.any():
            return
        units = len(self._units)
        count = np.bincount(self._unit[elders], minlength=units).astype(np.float64)
        joins = new & (count[self._unit] > 0)
        if not joins.any():
            return
        share = np.maximum(count, 1.0)
        for memory in (self._state.x, self._state.P, self._state.Q):
            total = np.zeros((units, *memory.shape[1:]))
            np.add.at(total, self._unit[elders], memory[elders])
            mean = total / share.reshape(-1, *[1] * (memory.ndim - 1))
            memory[joins] = mean[self._unit[joins]]
        self._state.P[joins] += self._R
        self._state.started[joins] = True
        self._state.trusted_s[joins] = now_s
