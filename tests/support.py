"""Small things that tests of the engine share."""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

import microsim

COMPILED = not numba.config.DISABLE_JIT  # `make coverage` runs kernels as plain Python, a hundred times slower


def many(count: int, least: int = 10) -> int:
    """How many samples or examples to take: as asked when compiled, a twentieth as plain Python."""
    return count if COMPILED else max(count // 20, least)


def bare(**robot: Any) -> dict[str, Any]:
    """A robot's block with none of the sensors it would have by default."""
    return {"odom": None, "gps": None, "imu": None, "camera": None, "range": None, **robot}


def scenario(**changes: Any) -> dict[str, Any]:
    """A small flat world with nothing in it: 20 m × 20 m, robots must be named, no radio loss, no world topics."""
    return {
        "map": {"size_xy_cells": [20, 20]},
        "robots": {},
        "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
        **changes,
    }


def on_topic(messages: Sequence[Any], topic: str) -> list[Any]:
    return [message for message in messages if message.topic == topic]


def decoded(messages: Sequence[Any], topic: str) -> list[Any]:
    return [message.message for message in messages if message.topic == topic]


def stamp_ns(header: Any) -> int:
    return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec


def simulate(scenario: Any, ticks: int, seed: int | None = None) -> list[Any]:
    return microsim.Simulation(scenario, seed).step(ticks)


def ks_distance(samples: Any, cdf: Any) -> float:
    """Kolmogorov and Smirnov's statistic times sqrt(n): above 1.95 with probability 0.001, above 2.7 with 1e-6."""
    ordered = np.sort(np.asarray(samples))
    n = len(ordered)
    expected = cdf(ordered)
    above = np.max(np.arange(1, n + 1) / n - expected)
    below = np.max(expected - np.arange(n) / n)
    return float(np.sqrt(n) * max(above, below))
