"""Numbers that an expectation can be about, read from a simulation and its messages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from microsim.engine.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, X, Y, Z
from microsim.engine.radio import Link
from microsim.engine.world import World
from microsim.errors import unknown
from microsim.messages import fields_of, is_known, new
from microsim.simulation import Simulation

Rows = list[float]  # of a robot's state


def _length(*parts: float) -> float:
    return math.sqrt(sum(part * part for part in parts))


def _displacement(sim: Simulation, rows: Rows, start: Rows) -> float:
    return _length(*(rows[i] - start[i] for i in (X, Y, Z)))


def _height(sim: Simulation, rows: Rows, start: Rows) -> float:
    return rows[Z] - sim.world.ground(rows[X], rows[Y])


def _speed(sim: Simulation, rows: Rows, start: Rows) -> float:
    return _length(*(rows[i] for i in (VELOCITY_X, VELOCITY_Y, VELOCITY_Z)))


def _clearance(sim: Simulation, rows: Rows, start: Rows) -> float:
    return clearance_cells(sim.world, rows[X], rows[Y])


DERIVED: Mapping[str, Callable[[Simulation, Rows, Rows], float]] = {
    "position": lambda sim, rows, start: math.nan,  # three numbers: compared by itself
    "displacement": _displacement,
    "height": _height,
    "speed": _speed,
    "clearance_cells": _clearance,
}


def clearance_cells(world: World, x: float, y: float) -> float:
    """Distance to the nearest occupied cell or the edge of the map, in cells; 0 inside of one or outside."""
    if not world.is_inside(x, y):
        return 0.0
    column, row = world.in_cells(x, y)
    rows, columns = np.nonzero(world.occupied)
    beside = np.maximum(np.maximum(columns - column, column - columns - 1), 0.0)
    above = np.maximum(np.maximum(rows - row, row - rows - 1), 0.0)
    ny, nx = world.occupied.shape
    edge: float = min(column, row, nx - column, ny - row)
    return min(edge, math.sqrt(float(np.min(beside * beside + above * above)))) if len(rows) else edge


def radio_value(link: Link, value: str, tick_ms: float) -> float | None:
    """None: there is nothing to measure yet."""
    if value == "drop_rate":
        return link.dropped / link.sent if link.sent else None
    if value == "latency_ms":
        return tick_ms * link.latency_sum / link.delivered if link.delivered else None
    return float(getattr(link, value))


TOPIC_VALUES = ("count", "rate_hz")


class FieldPath:
    """`pose.pose.position.x`, `position_covariance[0]`: the way to a number in a message."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str | int] = []
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", text):
            self.parts.append(name or int(index))

    def problem(self, type_name: str) -> str:
        """What is wrong with it for messages of this type; empty: nothing."""
        if not is_known(type_name):
            return ""
        if not re.fullmatch(r"\w+(\[\d+\])*(\.\w+(\[\d+\])*)*", self.text):
            return f"expected a field such as pose.pose.position.x or covariance[0], found {self.text!r}"
        message, kind = new(type_name), type_name
        for part in self.parts:
            if isinstance(part, int):
                if not hasattr(message, "__len__") or isinstance(message, str):
                    return f"{self.text!r}: what stands before [{part}] is no list"
                if part >= len(message):  # it may be there in a real message
                    return ""
                message = message[part]
                continue
            names = [name for name, _ in fields_of(kind)] if kind else []
            if part not in names:
                return unknown(f"{kind or 'a number'} has no field", repr(part), part, names)
            message = getattr(message, part)
            kind = getattr(message, "__msgtype__", "")
        return "" if _is_number(message) else f"{self.text!r} is no number"

    def read(self, message: Any) -> float | None:
        """The number; None where this message has none."""
        for part in self.parts:
            try:
                message = message[part] if isinstance(part, int) else getattr(message, part)
            except (IndexError, TypeError, AttributeError):
                return None
        return float(message) if _is_number(message) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number, np.bool_))
