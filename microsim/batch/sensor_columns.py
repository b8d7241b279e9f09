"""One sensor of the scenario in every world: when it is due, what it reads. `MAKE` names the kinds there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from microsim.batch import kernels as many_worlds
from microsim.batch.columns import Array, Integers, columns, shared, width_for
from microsim.batch.robot_columns import RobotColumns
from microsim.engine import exact
from microsim.engine.components import YAW, X, Y, Z
from microsim.engine.geodesy import tangent_plane
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.engine.timekeeper import Trigger
from microsim.scenario import sensors as blocks
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import value_stream
from microsim.sensors.imu import axes_of
from microsim.sensors.scan import beam_table

_NOTHING: Array = np.zeros((2, 1))
NEVER = -1  # tick of a reading that has not been made yet


class Settings:
    """Numbers of a block that may differ from world to world: a row each."""

    def __init__(self, scenario: Scenario, place: str, block: Any, names: Sequence[str], n: int) -> None:
        values = scenario.randomize.values if scenario.randomize else {}
        paths = {row: f"{place}.{name}" for row, name in enumerate(names)}
        self.spans = {row: (path, values[path]) for row, path in paths.items() if path in values}
        written = [float(getattr(block, name)) for name in names]
        self.rows = columns(len(written), n) if self.spans else shared(written, n)
        if self.spans:
            self.rows[:] = np.array(written)[:, None]

    def draw(self, worlds: Integers, seeds: Integers) -> None:
        for row, (path, (low, high)) in self.spans.items():
            self.rows[row, worlds] = numbers_between(stream_keys(seeds, value_stream(path)), float(low), float(high))

    def arrays(self) -> dict[str, tuple[Any, int]]:
        return {"settings": (self.rows, 1)} if self.spans else {}


class DriftColumns:
    """The odometry frames of a robot that slide, from tick to tick."""

    def __init__(self, robot: RobotColumns, block: Any, n: int) -> None:
        self.robot = robot
        place = f"robots.{robot.name}.odom.drift"
        self.settings = Settings(robot.scenario, place, block, ("position_per_m", "yaw_per_rad"), n)
        self.keys: Integers = np.zeros(width_for(n), np.int64)
        self.memory = columns(many_worlds.DRIFT_ROWS, n)

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = stream_keys(seeds, f"{self.robot.name}/odom/drift")
        self.settings.draw(worlds, seeds)
        start = self.robot.state[[X, Y, Z, YAW]][:, worlds]
        self.memory[:, worlds] = 0.0
        self.memory[many_worlds.POSE : many_worlds.POSE + 4, worlds] = start
        self.memory[many_worlds.SEEN : many_worlds.SEEN + 4, worlds] = start

    def slide(self, worlds: Integers, tick: Integers) -> None:
        many_worlds.drift(self.robot.state, worlds, tick, self.settings.rows, self.keys, self.memory)

    def arrays(self) -> dict[str, tuple[Any, int]]:
        return {"keys": (self.keys, 0), "memory": (self.memory, 1), **self.settings.arrays()}


class SensorColumns:
    """What all kinds share. A subclass says what a reading looks like, which settings it uses, and how it senses."""

    shape: tuple[int, ...] = ()  # of one reading
    dtype: Any = np.float64
    noise: tuple[str, ...] = ()  # keys of the block whose numbers may differ from world to world
    has_history = False  # a reading depends on the ones before it, so none may be left out

    def __init__(self, robot: RobotColumns, name: str, block: Any, n: int) -> None:
        self.robot, self.name, self.block, self.n = robot, name, block, n
        self.trigger = Trigger(block.hz, robot.scenario.physics_hz)
        place = f"robots.{robot.name}." + (f"sensors.{name}" if name in robot.settings.sensors else name)
        self.settings = Settings(robot.scenario, place, block, self.noise, n)
        self.keys: Integers = np.zeros(width_for(n), np.int64)
        self.sampled_at: Integers = np.full(width_for(n), NEVER, np.int64)
        self.prepare()
        self.readings: Any = np.zeros((n, *self.shape), self.dtype)

    def prepare(self) -> None:
        """Whatever is the same in all worlds."""

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = stream_keys(seeds, f"{self.robot.name}/{self.name}")
        self.sampled_at[worlds] = NEVER
        self.settings.draw(worlds, seeds)

    def sample(self, worlds: Integers, tick: Integers) -> None:
        self.sense(worlds, tick)
        self.sampled_at[worlds] = tick[worlds]

    def sense(self, worlds: Integers, tick: Integers) -> None:
        raise NotImplementedError

    def arrays(self) -> dict[str, tuple[Any, int]]:
        """All that makes up its worlds, with the axis of the worlds."""
        return {
            "keys": (self.keys, 0),
            "sampled_at": (self.sampled_at, 0),
            "readings": (self.readings, 0),
            **self.settings.arrays(),
        }

    def finish(self, worlds: Integers, tick: Integers) -> None:
        """At the end of a call."""

    def memory(self, worlds: Integers, seeds: Integers, tick: Integers) -> Any:
        """What is not in its arrays."""

    def recall(self, worlds: Integers, memory: Any) -> None:
        pass


class _OnGrid(SensorColumns):
    noise = ("sigma_m", "dropout_probability")

    def grid(self) -> tuple[Any, float, float, float]:
        ground = self.robot.ground
        return ground.clearances, ground.cell, ground.west, ground.south


class RangeColumns(_OnGrid):
    """[m] (n,)"""

    def prepare(self) -> None:
        yaw = self.block.mount.rpy[2]
        self.heading = (float(exact.cos(yaw)), float(exact.sin(yaw)))

    def sense(self, worlds: Integers, tick: Integers) -> None:
        block = self.block
        near, far, mount = float(block.min_m), float(block.max_m), _floats(block.mount.xyz)
        place = (*self.grid(), mount, self.heading, near, far, self.settings.rows, self.keys, self.readings)
        many_worlds.sense_range(self.robot.state, worlds, tick, *place)


class ScanColumns(_OnGrid):
    """[m] (n, beams)"""

    dtype = np.float32

    def prepare(self) -> None:
        block = self.block
        self.beams, _ = beam_table(block.angle_min, block.angle_max, block.beams, block.mount.rpy[2])
        self.shape = (block.beams,)

    def sense(self, worlds: Integers, tick: Integers) -> None:
        block = self.block
        near, far, mount = float(block.min_m), float(block.max_m), _floats(block.mount.xyz)
        place = (*self.grid(), mount, self.beams, near, far, self.settings.rows, self.keys, self.readings)
        many_worlds.sense_scan(self.robot.state, worlds, tick, *place)


class GpsColumns(SensorColumns):
    """Latitude [deg], longitude [deg], altitude [m], variance [m^2]: (n, 4)"""

    shape = (4,)
    noise = ("sigma_m", "bias_drift_m_per_s")
    has_history = True

    def prepare(self) -> None:
        self.plane = tangent_plane(*self.robot.scenario.map.origin_wgs84)
        self.bias = columns(3, self.n)
        self.last_tick: Integers = np.zeros(width_for(self.n), np.int64)

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        self.bias[:, worlds] = 0.0
        self.last_tick[worlds] = 0

    def sense(self, worlds: Integers, tick: Integers) -> None:
        mount, memory = _floats(self.block.mount.xyz), (self.bias, self.last_tick)
        place = (mount, self.plane, self.robot.dt, *memory, self.settings.rows, self.keys, self.readings)
        many_worlds.sense_gps(self.robot.state, worlds, tick, *place)

    def arrays(self) -> dict[str, tuple[Any, int]]:
        return {**super().arrays(), "bias": (self.bias, 1), "last_tick": (self.last_tick, 0)}


class ImuColumns(SensorColumns):
    """Turn rate [rad/s] and specific force [m/s^2], each x, y, z: (n, 6)"""

    shape = (6,)
    noise = ("gyro_sigma_rad_per_s", "accel_sigma_m_per_s2")

    def prepare(self) -> None:
        self.axes = axes_of(_floats(self.block.mount.rpy))

    def sense(self, worlds: Integers, tick: Integers) -> None:
        many_worlds.sense_imu(self.robot.state, worlds, tick, self.axes, self.settings.rows, self.keys, self.readings)


class OdometryColumns(SensorColumns):
    """x, y, z [m], quaternion x, y, z, w, velocity x, y, z [m/s], turn rate x, y, z [rad/s], variances: (n, 15)"""

    shape = (15,)

    def prepare(self) -> None:
        # further odometry sensors of a robot read the frame that its `odom` slides in
        odom, robot = self.robot.settings.odom, self.robot
        if odom is not None and odom.drift is not None and robot.drift is None:
            robot.drift = DriftColumns(robot, odom.drift, self.n)

    def sense(self, worlds: Integers, tick: Integers) -> None:
        drift, nothing = self.robot.drift, _NOTHING
        memory = (nothing, nothing) if drift is None else (drift.settings.rows, drift.memory)
        rows, slides = memory, drift is not None
        many_worlds.sense_odometry(self.robot.state, worlds, slides, rows[0], rows[1], self.readings)


def _floats(numbers: Sequence[float]) -> tuple[float, float, float]:
    x, y, z = numbers
    return float(x), float(y), float(z)


MAKE: dict[type, Callable[[RobotColumns, str, Any, int], SensorColumns]] = {
    blocks.Odometry: OdometryColumns,
    blocks.Gps: GpsColumns,
    blocks.Imu: ImuColumns,
    blocks.Range: RangeColumns,
    blocks.Scan: ScanColumns,
}
