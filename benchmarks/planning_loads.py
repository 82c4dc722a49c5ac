"""Loads that `auto` is judged on: the shapes asked for, and others that nothing was chosen by.

Levels are relative; whoever takes them scales them to the instances they are to keep busy at their highest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 11
GENERATED = ("jumps", "walk", "two peaks", "flash crowd", "ramp")
"""The shapes the issue of planning names."""
HELD_OUT = ("sawtooth", "bursts", "mixture", "drift", "plateaus", "calm", "two crowds")
"""Shapes made after the policy was, to check it on."""


def levels_of(name: str, hours: float, seed: int = SEED) -> tuple[tuple[float, ...], float]:
    """Levels of a generated load, and how long each is held."""
    rng = np.random.default_rng(seed)
    if name == "jumps":
        levels = [1.0]
        while len(levels) < hours * 12:
            levels.append(float(np.clip(levels[-1] * (1 + rng.uniform(-0.2, 0.2)), 0.5, 2.0)))
        return tuple(levels), 300.0
    if name == "walk":
        levels = [3.0]
        while len(levels) < hours * 60:
            levels.append(float(np.clip(levels[-1] + rng.integers(-1, 2), 1, 7)))
        return tuple(levels), 60.0
    at = np.arange(0.0, hours, 1 / 60)
    return tuple(_curve(name, at, rng).tolist()), 60.0


def _curve(name: str, at: Floats, rng: np.random.Generator) -> Floats:
    """A load by the minute; `at` are hours."""
    day = at / 24 * 2 * np.pi
    if name == "two peaks":
        return 1 + 1.2 * np.exp(-(((at - 9) / 1.8) ** 2)) + 1.6 * np.exp(-(((at - 19) / 2.2) ** 2))
    if name == "flash crowd":
        return np.asarray(1 + 0.3 * np.sin(day) + 1.5 * np.clip((at - 8) * 12, 0, 1) * (at < 9.5))
    if name == "ramp":
        return np.asarray(1 + 2 * np.clip((at - 4) / 12, 0, 1))
    if name == "sawtooth":
        # Rises for an hour and a half, falls within ten minutes.
        phase = (at % (100 / 60)) / (100 / 60)
        return np.asarray(1 + np.where(phase < 0.9, phase / 0.9, (1 - phase) / 0.1))
    if name == "bursts":
        return _bursts(at, rng)
    if name == "mixture":
        # Two crowds of different days and one of the whole week, with noise that lasts.
        week = 1 + 0.25 * np.sin(at / 168 * 2 * np.pi)
        early, late = np.exp(1.2 * np.cos(day - 2.6)), 0.7 * np.exp(2.0 * np.cos(day - 5.2))
        return np.asarray(week * (0.6 + early + late) * np.exp(_lasting(len(at), rng, 0.97, 0.008)))
    if name == "drift":
        # A day of 22.5 hours that grows, with noise.
        curve = (1 + 0.45 * np.sin(at / 22.5 * 2 * np.pi + 1.0)) * (1 + 0.012 * at)
        return np.asarray(curve * np.exp(_lasting(len(at), rng, 0.9, 0.012)))
    if name == "plateaus":
        return _plateaus(at, rng)
    if name == "calm":
        return np.asarray(np.exp(rng.normal(0, 0.012, len(at))))
    if name == "two crowds":
        rise = np.clip((at - 5.3) * 7.5, 0, 1) * (at < 6.1) + 0.8 * np.clip((at - 14.9) * 20, 0, 1) * (
            at < 17.4
        )
        return np.asarray((1 + 0.2 * np.cos(day) + 1.3 * rise) * np.exp(rng.normal(0, 0.01, len(at))))
    raise ValueError(f"no load is called {name}")


def _bursts(at: Floats, rng: np.random.Generator) -> Floats:
    """Bursts that come as a Poisson stream, one in 50 minutes, each of its own height and length."""
    curve = np.ones_like(at)
    begin = float(rng.exponential(50 / 60))
    while begin < at[-1]:
        length, height = float(rng.exponential(12 / 60)) + 1 / 30, float(rng.lognormal(-0.9, 0.5))
        curve += height * ((at >= begin) & (at < begin + length))
        begin += float(rng.exponential(50 / 60))
    return np.asarray(curve * np.exp(rng.normal(0, 0.015, len(at))))


def _plateaus(at: Floats, rng: np.random.Generator) -> Floats:
    """Levels that hold for 20 minutes to 3 hours, with three minutes between them."""
    levels = np.ones_like(at)
    begin, level = 0.0, 1.0
    while begin < at[-1]:
        length, after = float(rng.uniform(1 / 3, 3.0)), float(rng.uniform(0.6, 1.8))
        levels = np.where(at >= begin, level + (after - level) * np.clip((at - begin) * 20, 0, 1), levels)
        begin, level = begin + length, after
    return np.asarray(levels * np.exp(rng.normal(0, 0.01, len(at))))


def _lasting(count: int, rng: np.random.Generator, lasts: float, step: float) -> Floats:
    """Noise of which the next value keeps a share of the last."""
    found, value = np.zeros(count), 0.0
    for number, move in enumerate(rng.normal(0, step, count)):
        value = lasts * value + move
        found[number] = value
    return found
