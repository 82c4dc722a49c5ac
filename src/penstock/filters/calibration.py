"""The calibration file: the measurement noise R of a machine, and where it came from.

`penstock calibrate` writes it after holding a steady load; filter `kalman` reads it by its parameter
`calibration`. It is a small JSON file, so that a person can check and change it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from penstock.errors import ConfigurationError
from penstock.filters.readings import Array
from penstock.quantities import shown
from penstock.topology.bounded import read_text

WHAT = "a calibration"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one calibration run found."""

    metrics: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    """R: the covariance of the readings under a load that does not change."""
    mean: tuple[float, ...]
    readings: int
    interval_s: float
    load_ratio: float
    """The CPU load that was asked for."""

    def __post_init__(self) -> None:
        size = len(self.metrics)
        if len(self.covariance) != size or any(len(row) != size for row in self.covariance):
            raise ConfigurationError(
                f"a calibration of {size} metrics needs a {size} by {size} covariance, "
                f"got {shown(self.covariance)}"
            )
        numbers = [number for row in (*self.covariance, self.mean) for number in row]
        if not all(math.isfinite(number) for number in (*numbers, self.interval_s, self.load_ratio)):
            raise ConfigurationError(f"expected finite numbers, got {shown(self.covariance)}")
        matrix = np.array(self.covariance)
        least, most = np.linalg.eigvalsh(matrix)[[0, -1]] if size else (0.0, 0.0)
        if not np.allclose(matrix, matrix.T) or least < -1e-6 * abs(most):
            raise ConfigurationError(
                f"expected a covariance, a symmetric matrix without variances below 0, "
                f"got {shown(self.covariance)}"
            )

    @staticmethod
    def of(metrics: tuple[str, ...], values: Array, interval_s: float, load_ratio: float) -> Calibration:
        """The calibration that readings (t, m) under a steady load give."""
        if len(values) < 3:
            raise ConfigurationError(f"expected at least 3 readings to calibrate with, got {len(values)}")
        covariance = np.atleast_2d(np.cov(values, rowvar=False))
        return Calibration(
            metrics,
            tuple(tuple(float(value) for value in row) for row in covariance),
            tuple(float(value) for value in values.mean(axis=0)),
            len(values),
            interval_s,
            load_ratio,
        )

    def write(self, path: Path) -> None:
        """Write the file, replacing what was there."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Calibration:
        """Read the file; ConfigurationError says what is wrong with it."""
        try:
            found = json.loads(read_text(path, WHAT))
            return Calibration(
                tuple(found["metrics"]),
                tuple(tuple(float(value) for value in row) for row in found["covariance"]),
                tuple(float(value) for value in found["mean"]),
                int(found["readings"]),
                float(found["interval_s"]),
                float(found["load_ratio"]),
            )
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{path}: expected {WHAT}, as `penstock calibrate` writes one; {error}"
            ) from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigurationError(
                f"{path}: expected {WHAT} as written by `penstock calibrate`, "
                f"got {type(error).__name__}: {error}"
            ) from None
