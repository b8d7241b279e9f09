"""What a policy sees: readings of sensors by their names, and numbers that the task computes.

Numbers of a task are kept in rows, one value for each world, as the states of a batch are. `Layout.gather` writes them
and the readings into one array (n, size), or leaves an image as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.batch import BatchSimulation
from microsim.errors import UsageError, unknown
from microsim.parts.learning.body_axes import clip_into_columns


@dataclass(frozen=True)
class Reading:
    """The latest reading of a sensor, divided by `per` and kept between `low` and `high`; NaN becomes `high`.

    `fields` chooses some of its numbers by their names; by default all. An image stays what it is: bytes.
    """

    sensor: str
    fields: tuple[str, ...] = ()
    per: float = 1.0
    low: float = -1.0
    high: float = 1.0


class Numbers:
    """Numbers that `Task.fill` computes, by name, kept between `low` and `high`."""

    def __init__(self, *names: str, low: float = -1.0, high: float = 1.0) -> None:
        self.names, self.low, self.high = names, low, high


Part = Reading | Numbers


@dataclass(frozen=True)
class _Place:
    """Where one part is in an observation."""

    part: Part
    columns: slice  # of the observation
    names: tuple[str, ...]
    picked: Any = None  # of a reading: the columns to take


class Layout:
    """The observations of one task in one batch."""

    def __init__(self, parts: Mapping[str, Part], batch: BatchSimulation) -> None:
        self.batch, xp, n = batch, batch.loops.xp, batch.n
        self.images = {
            name: part for name, part in parts.items() if isinstance(part, Reading) and _is_image(batch, part)
        }
        self.places = self._place({name: part for name, part in parts.items() if name not in self.images})
        self.size = sum(len(place.names) for place in self.places.values())
        numbers = {name: place for name, place in self.places.items() if isinstance(place.part, Numbers)}
        count = sum(len(place.names) for place in numbers.values())
        self._rows: npt.NDArray[np.float32] = xp.zeros((count, n), np.float32)
        self._low, self._high = (xp.zeros((count, 1), np.float32) for _ in range(2))
        self.rows: dict[str, npt.NDArray[np.float32]] = {}  # by part, each (numbers, n), for `Task.fill`
        self._runs: list[tuple[slice, slice]] = []  # rows, and the columns that they become
        first = 0
        for name, place in numbers.items():
            mine = slice(first, first + len(place.names))
            self.rows[name] = self._rows[mine]
            self._low[mine], self._high[mine] = place.part.low, place.part.high
            if self._runs and self._runs[-1][1].stop == place.columns.start:
                start, columns = self._runs.pop()
                self._runs.append((slice(start.start, mine.stop), slice(columns.start, place.columns.stop)))
            else:
                self._runs.append((mine, place.columns))
            first = mine.stop

    def _place(self, parts: Mapping[str, Part]) -> dict[str, _Place]:
        places, first = {}, 0
        for name, part in parts.items():
            inner, picked = (part.names, None) if isinstance(part, Numbers) else self._picked(part)
            names = tuple(f"{name}.{each}" for each in inner)
            places[name] = _Place(part, slice(first, first + len(names)), names, picked)
            first += len(names)
        return places

    def _picked(self, part: Reading) -> tuple[tuple[str, ...], Any]:
        """Names of the numbers of a reading, and their columns."""
        known = self.batch.fields(part.sensor)
        if not part.fields:
            return known, slice(None)
        for field in part.fields:
            if field not in known:
                raise UsageError(unknown(f"{part.sensor} has no field", repr(field), field, known))
        chosen = [known.index(field) for field in part.fields]
        first, last = chosen[0], chosen[-1]
        together = chosen == list(range(first, last + 1))
        return part.fields, slice(first, last + 1) if together else chosen

    @property
    def names(self) -> tuple[str, ...]:
        """Of every number of an observation, in order: `part.number`."""
        return tuple(name for place in self.places.values() for name in place.names)

    @property
    def bounds(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        low, high = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        for place in self.places.values():
            low[place.columns], high[place.columns] = place.part.low, place.part.high
        return low, high

    def gather(self, out: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Write all numbers into `out` (n, size)."""
        for place in self.places.values():
            if isinstance(place.part, Reading):
                self._read(place, out[:, place.columns])
        for mine, columns in self._runs:
            rows, low, high = self._rows[mine], self._low[mine], self._high[mine]
            if self.batch.loops.xp is np:
                clip_into_columns(rows, low, high, out[:, columns])
            else:
                out[:, columns] = np.maximum(np.minimum(rows, high), low).T
        return out

    def _read(self, place: _Place, out: npt.NDArray[np.float32]) -> None:
        part = place.part
        assert isinstance(part, Reading)
        values = self.batch.readings[part.sensor].reshape(self.batch.n, -1)[:, place.picked]
        np.divide(values, np.float32(part.per), out=out, casting="same_kind")
        np.fmin(out, np.float32(part.high), out=out)  # NaN, nothing in sight, becomes the highest value
        np.maximum(out, np.float32(part.low), out=out)

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        found: npt.NDArray[np.uint8] = self.batch.readings[self.images[name].sensor]
        return found


def _is_image(batch: BatchSimulation, part: Reading) -> bool:
    return bool(batch.readings[part.sensor].dtype == np.uint8)
