"""`/sim/status`: whether the car is on the road, what state it is in, and how its sensors are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from microsim.engine.drivable import OFFROAD, DrivableArea
from microsim.engine.faults import Health
from microsim.engine.motion import COS_YAW, SIN_YAW, Motion, X, Y
from microsim.engine.physics import Physics
from microsim.engine.timekeeper import Trigger
from microsim.robots import car as bicycle

HZ = 10.0
OK, WARN, ERROR = 0, 1, 2  # levels of diagnostic_msgs/DiagnosticStatus
_BLOCKED = {bicycle.FREE: "no", bicycle.BY_OBSTACLE: "by an obstacle", bicycle.BY_MISSING_GROUND: "no ground ahead"}

Entry: TypeAlias = tuple[int, str, dict[str, str]]  # level, message, values


@dataclass(frozen=True)
class Car:
    """A car whose wheels are watched."""

    wheelbase_m: float
    track_m: float

    def footprint(self, motion: Motion) -> tuple[Any, Any]:
        """x and y in the map of the reference point, then of where the wheels touch the ground."""
        along = np.array([0.0, 0.0, 0.0, self.wheelbase_m, self.wheelbase_m])
        across = 0.5 * self.track_m * np.array([0.0, 1.0, -1.0, 1.0, -1.0])
        sine, cosine = motion[SIN_YAW], motion[COS_YAW]
        return motion[X] + cosine * along - sine * across, motion[Y] + sine * along + cosine * across


@dataclass
class Status:
    """An output that looks every tick, and sends at its rate and whenever something has changed."""

    physics: Physics
    cars: Mapping[str, Car]
    area: DrivableArea | None  # None: the world does not say where one may drive
    sensors: tuple[str, ...]  # robot/sensor
    health: Health
    trigger: Trigger
    encode: Callable[[int, Mapping[str, Entry]], bytes]
    send: Callable[[int, bytes], None]
    due: float = 0
    next_regular: int = 0
    told: Any = field(default=None)  # what the last message said, without its counts

    def fire(self, tick: int, stamp_ns: int) -> None:
        entries = self.entries(tick)
        facts = [(name, level, message, values.get("is_offroad"), values.get("polygon"), values.get("blocked"))
                 for name, (level, message, values) in entries.items()]  # fmt: skip
        if tick >= self.next_regular or facts != self.told:
            self.send(stamp_ns, self.encode(stamp_ns, entries))
            self.told = facts
            if tick >= self.next_regular:
                self.next_regular = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def entries(self, tick: int) -> dict[str, Entry]:
        """By name: each car, or the run where there is none, then each sensor."""
        sensors = {name: self._sensor(name, tick) for name in self.sensors}
        is_degraded = any(level != OK for level, _, _ in sensors.values())
        found: dict[str, Entry] = {car: self._car(car, is_degraded) for car in self.cars}
        if not found:
            state = "degraded" if is_degraded else "running"
            found["run"] = (WARN if is_degraded else OK, state, {"state": state, **self._counts()})
        return found | sensors

    def _counts(self) -> dict[str, str]:
        degraded, dropped = sum(self.health.degraded.values()), sum(self.health.dropped.values())
        return {"degraded_frames": str(degraded), "dropped_frames": str(dropped)}

    def _sensor(self, name: str, tick: int) -> Entry:
        state = self.health.state(name, tick)
        counts = {"degraded_frames": self.health.degraded[name], "dropped_frames": self.health.dropped[name]}
        values = {"health": state, **{key: str(count) for key, count in counts.items()}}
        return OK if state == "ok" else WARN, state, values

    def _car(self, robot: str, is_degraded: bool) -> Entry:
        fleet, column = self.physics.home[robot]
        rows = fleet.state[:, column]
        state = "degraded" if is_degraded else "running"
        if rows[bicycle.EMERGENCY] == 1.0:
            state = "emergency_stop"
        road = self._road(robot)
        values = {
            "state": state,
            **road,
            "emergency_stop": str(state == "emergency_stop").lower(),
            "blocked": _BLOCKED[int(rows[bicycle.BLOCKED])],
            "speed": f"{rows[bicycle.SPEED]:.3f}",
            **self._counts(),
        }
        level = ERROR if state == "emergency_stop" else WARN if is_degraded or road["is_offroad"] == "true" else OK
        return level, state, values

    def _road(self, robot: str) -> dict[str, str]:
        if self.area is None:
            return {"is_offroad": "unknown", "polygon": "", "priority": "", "points_offroad": ""}
        x, y = self.cars[robot].footprint(self.physics.motions[robot])
        polygon, outside = self.area.footprint(x, y)
        priority = "" if polygon == OFFROAD else f"{self.area.priority[polygon]:g}"
        return {
            "is_offroad": str(outside > 0).lower(),
            "polygon": "" if polygon == OFFROAD else str(polygon),
            "priority": priority,
            "points_offroad": str(outside),  # of the reference point and the four wheels
        }

    def memory(self) -> Any:
        return self.told, self.health.memory()

    def recall(self, memory: Any, tick: int) -> None:
        if memory is not None:
            told, health = memory
            self.told = [tuple(entry) for entry in told] if told is not None else None
            self.health.recall(health)
        self.next_regular = self.trigger.next_tick(tick + 1)
        self.due = tick + 1
