"""What a controller is given: the latest of each sensor and topic, the time, and random numbers. None of it can change.

In a single run numbers are floats. For a controller with `batch = True` they are arrays with one entry for each world,
in a single run too: one world is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel
from microsim.engine.exact import atan2
from microsim.engine.geometry import Array
from microsim.engine.noise import normals, uniforms
from microsim.errors import unknown

Keys = npt.NDArray[np.int64]

_HEADING = ("qz", "qw")  # of a reading that has `yaw` too


class _Constant:
    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"what a controller is given cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"what a controller is given cannot be changed: {name}")


class Reading(_Constant):
    """The numbers of a sensor's latest reading, as attributes."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Any:
        values = self._values
        if name in values:
            return values[name]
        if name == "yaw" and "qz" in values and "qw" in values:
            return yaw_of(values["qz"], values["qw"])
        raise AttributeError(unknown("the reading has no number", repr(name), name, self.names))

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._values, *(("yaw",) if "qz" in self._values else ()))

    def __repr__(self) -> str:
        return f"Reading({', '.join(f'{name}={value}' for name, value in self._values.items())})"


def yaw_of(qz: Any, qw: Any) -> Any:
    """The heading [rad] of a quaternion, for a robot that stays level."""
    return _yaws(qz, qw) if isinstance(qz, np.ndarray) else 2.0 * atan2(qz, qw)


@kernel
def _yaws(qz: Array, qw: Array) -> Array:
    out = np.empty(qz.shape[0])
    for i in range(qz.shape[0]):
        out[i] = 2.0 * atan2(qz[i], qw[i])
    return out


class Draws:
    """Random numbers of one call of a controller: a function of the seed, the tick and the order of drawing."""

    def __init__(self, key: int, tick: int) -> None:
        self._key, self._tick, self._index = key, tick, -1

    def _next(self) -> int:
        self._index += 1
        return self._index

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * uniforms(self._key, self._tick, self._next())[0]

    def normal(self, mean: float = 0.0, sigma: float = 1.0) -> float:
        return mean + sigma * normals(self._key, self._tick, self._next())[0]

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return min(int(count * self.uniform()), count - 1)


class ManyDraws:
    """The same for many worlds: arrays, with a number for each."""

    def __init__(self, keys: Keys, ticks: Keys) -> None:
        self._keys, self._ticks, self._index = keys, ticks, -1

    def _drawn(self, is_normal: bool) -> Array:
        self._index += 1
        return _draw_each(self._keys, self._ticks, self._index, is_normal)

    def uniform(self, low: Any = 0.0, high: Any = 1.0) -> Any:
        return low + (high - low) * self._drawn(False)

    def normal(self, mean: Any = 0.0, sigma: Any = 1.0) -> Any:
        return mean + sigma * self._drawn(True)

    def below(self, count: int) -> Any:
        return np.minimum((count * self._drawn(False)).astype(np.int64), count - 1)


@kernel
def _draw_each(keys: Keys, ticks: Keys, index: int, is_normal: bool) -> Array:
    out = np.empty(keys.shape[0])
    for i in range(keys.shape[0]):
        if is_normal:
            out[i] = normals(keys[i], ticks[i], index)[0]
        else:
            out[i] = uniforms(keys[i], ticks[i], index)[0]
    return out


class Seen(_Constant):
    """`seen["odom"]` is a sensor's latest reading, `seen["/rover/odom"]` a topic's latest message; None: none yet."""

    __slots__ = ("_latest", "dt", "n", "random", "robot", "tick", "time")

    _latest: Callable[[str], Any]
    robot: str  # that it commands; `*`: all
    tick: Any
    time: Any  # [s]
    dt: float  # between two calls [s]
    n: int  # worlds
    random: Any  # `Draws` or `ManyDraws`

    def __init__(self, latest: Callable[[str], Any], **values: Any) -> None:
        for name, value in {"_latest": latest, **values}.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, name: str) -> Any:
        return self._latest(name)
