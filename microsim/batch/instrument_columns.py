"""A sensor with an instrument in every world, such as a LiDAR: it reads in Python, on the CPU, what will be seen.

A reading that is followed by another in the same call is not made.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.batch.batch_columns import Integers
from microsim.batch.robot_columns import RobotColumns
from microsim.batch.sensor_columns import NEVER, BatchContext, KernelColumns, SensorColumns
from microsim.engine.bodies import Body, body_row
from microsim.engine.delay_line import DelayLine, delay_at, most_under_way, pop_due, push, sampled_at
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, Motion, observe
from microsim.engine.noise import stream_keys
from microsim.engine.world_arrays import WorldArray
from microsim.outputs.sensor_outputs import latency_of, latency_stream
from microsim.outputs.sensors_in_worlds import is_in
from microsim.sensors.sensor import Instrument, KernelSensor, Sensor, View, sees_robots

_NO_BODIES: Array = np.zeros((0, 15))
_BLANK = -1  # shown by an image of nothing: the sensor failed before it saw anything


class InstrumentColumns(SensorColumns):
    """A sensor with an instrument: what it would read from is kept, and read when it leaves its pipeline.

    It reads on the CPU. In a batch on a GPU its readings are copied there at the end of a call.
    """

    has_history = True
    line: DelayLine
    sensor: Instrument

    def prepare(self) -> None:
        sensor, n = self.sensor, self.n
        shape = sensor.shape(self.context)
        self._made: npt.NDArray[Any] = np.zeros((n, *shape), sensor.dtype)
        self.keys, self.sampled_at, self.dropped = map(self.loops.host, (self.keys, self.sampled_at, self.dropped))
        self.readings = self.loops.array(self._plain())
        others = self.batch.scenario.robots.items()
        self._bodies = {name: Body(*settings.body()) for name, settings in others if name != self.robot.name}
        latency, self._latency_keys = latency_of(self.context, self.batch.scenario.physics_hz), np.zeros(n, np.int64)
        kept = {
            "shows": ((), np.int64),  # the tick that is seen
            "motion": ((FIELDS,), np.float64),
            "bodies": ((len(self._bodies), 15), np.float64),
        }
        capacity = most_under_way(latency, self.trigger)
        self.line = DelayLine(latency, self._latency_keys, capacity, np, lambda rows: rows, **kept)
        self._good = {  # what was seen last without a failure, where it can be needed
            name: np.zeros((n if self.faults.fails else 0, *shape), kind) for name, (shape, kind) in kept.items()
        }
        self._left: dict[int, tuple[int, View | None]] = {}  # what has left and is not read yet
        self._settings: dict[int, Any] = {}  # of worlds whose seed draws them
        self._worlds: dict[int, Any] = {}  # instruments of worlds with obstacles or settings of their own
        self._stale: set[int] = set()  # worlds whose readings have still to be copied to the device
        self._own = threading.local()  # instruments hold buffers: one for each thread

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        worlds, seeds = self.loops.host(worlds), self.loops.host(seeds)
        self.keys[worlds] = stream_keys(seeds, f"{self.target}{self.sensor.stream}")
        self._latency_keys[worlds] = stream_keys(seeds, latency_stream(self.context))
        self.sampled_at[worlds], self.dropped[worlds] = NEVER, 0
        self._made[worlds] = np.zeros((), self.sensor.dtype)
        self.line.clear(worlds)
        if self.faults.fails:
            self._good["shows"][worlds] = _BLANK
        self._forget(worlds)
        self._draw_settings(worlds, seeds)

    def _forget(self, worlds: Integers) -> None:
        """What was made for these worlds as they were."""
        self._stale.update(worlds.tolist())
        for world in worlds.tolist():
            for kept in (self._left, self._worlds, self._settings):
                kept.pop(world, None)

    def _draw_settings(self, worlds: Integers, seeds: Integers) -> None:
        if self.spans:
            drawn = self.draw(seeds)
            for index, world in enumerate(worlds.tolist()):
                self._settings[world] = self.settings_of({key: float(each[index]) for key, each in drawn.items()})

    def _expose(self, world: int, now: int, motions: dict[str, Array]) -> None:
        """Let it see what it sees at a tick of its trigger, as `pipeline.Delayed` does. `motions`: of all robots."""
        delay = delay_at(self.line.address, world, now)
        if delay < 0:
            return
        if is_in(self.faults.silent, now):
            self.dropped[world] += 1
            return
        has_failed = is_in(self.faults.fails, now)
        seen = {name: array[world] for name, array in self._good.items()} if has_failed else self._seen(now, motions)
        place = push(self.line.address, world, now, delay)
        for name, array in self.line.kept.items():
            array[world, place] = seen[name]
            if self.faults.fails and not has_failed:
                self._good[name][world] = seen[name]
        if has_failed and self.sensor.on_failure == "empty":
            self.line.kept["shows"][world, place] = _BLANK

    def _seen(self, now: int, motions: dict[str, Array]) -> dict[str, Any]:
        boxes = [body_row(motions[name].tolist(), body) for name, body in self._bodies.items()]
        bodies = np.array(boxes) if boxes else _NO_BODIES
        return {"shows": now, "motion": motions[self.robot.name], "bodies": bodies}

    def _release(self, world: int, now: int) -> None:
        """What leaves: of several, the last is read."""
        line = self.line.address
        while (place := pop_due(line, world, now)) >= 0:
            seen = {name: array[world, place] for name, array in self.line.kept.items()}
            view = None
            if seen["shows"] != _BLANK:
                motion: Motion = seen["motion"].tolist()
                view = View(motion, int(self.keys[world]), int(seen["shows"]), seen["bodies"].copy())
            self._left[world] = (sampled_at(line, world, place), view)

    def _motions(self, worlds: Integers) -> dict[str, Array]:
        """By robot: (len(worlds), FIELDS), on the CPU."""
        found = {}
        for name in (self.robot.name, *self._bodies):
            state = self.loops.host(self.batch.robots[name].state[:, worlds])
            found[name] = np.empty((worlds.size, FIELDS))
            observe(np.ascontiguousarray(state), found[name])
        return found

    def sample(self, worlds: Integers, tick: Integers) -> None:
        motions, now = self._motions(worlds), self.loops.host(tick[worlds]).tolist()
        for index, world in enumerate(worlds.tolist()):
            self._expose(world, now[index], {name: each[index] for name, each in motions.items()})
            self._release(world, now[index])

    def finish(self, worlds: Integers, tick: Integers) -> None:
        due, now = [], self.loops.host(tick[worlds]).tolist()
        for world, at in zip(worlds.tolist(), now, strict=True):
            self._release(world, at)
            if world in self._left:
                due.append((world, *self._left.pop(world)))
        self._read(due)
        self._publish()

    def _plain(self) -> npt.NDArray[Any]:
        """The readings as the device can hold them: a GPU's arrays have no records, but their bytes."""
        made = self._made
        if self.loops.name == "cpu" or made.dtype.names is None:
            return made
        return made.view(np.uint8).reshape(*made.shape, made.dtype.itemsize)

    def _publish(self) -> None:
        """Copy what has changed to the device."""
        if self.loops.name != "cpu" and self._stale:
            chosen = np.array(sorted(self._stale), np.int64)
            self.readings[self.loops.array(chosen)] = self.loops.array(self._plain()[chosen])
        self._stale.clear()

    def kernels(self) -> set[Any]:
        """Level ground and relief, and obstacles that are moved, are drawn by different functions."""
        ground = self.robot.ground
        kind = self.sensor, ground.world.is_flat, ground.is_shared
        return {kind} if is_drawn_by_gpu(self.batch, self.robot, self.block, self.sensor) else set()

    def _read(self, due: Sequence[tuple[int, int, View | None]]) -> None:
        """Instruments that can draw many views in one call are aimed at each first: `aim`, `draw` and `at_once`."""
        worlds: list[int] = []
        aimed: list[Any] = []
        last: Any = None

        def draw() -> None:
            may_stay = self.loops.name != "cpu"
            for world, reading in zip(worlds, last.draw(aimed, may_stay) if aimed else (), strict=True):
                self._take(world, reading)
            worlds.clear()
            aimed.clear()

        for world, at, seen in due:
            self.sampled_at[world] = at
            if seen is None:
                self._take(world, np.zeros(self._made.shape[1:], self.sensor.dtype))
                continue
            instrument = self._instrument(world)
            view = seen if sees_robots(instrument) else replace(seen, bodies=_NO_BODIES)
            if not hasattr(instrument, "aim"):
                self._take(world, instrument.read(view))
                continue
            if instrument is not last:
                draw()
                last = instrument
            worlds.append(world)
            aimed.append(instrument.aim(view))
            if len(aimed) >= instrument.at_once:
                draw()
        draw()

    def _take(self, world: int, reading: Any) -> None:
        if not isinstance(reading, np.ndarray):  # it is on the device already
            self.readings[world] = reading
            self._stale.discard(world)
            return
        self._stale.add(world)
        row = self._made[world]
        if reading.shape == row.shape:
            row[...] = reading
            return
        row[: len(reading)] = reading
        row[len(reading) :] = np.zeros((), self.sensor.dtype)

    def _instrument(self, world: int) -> Any:
        """The one of this thread, made to see this world."""
        ground = self.robot.ground
        tools: dict[Any, Any] = self._own.__dict__
        if world in self._settings:
            key = ("world", world)
            if key not in tools or tools[key][0] is not self._settings[world]:
                tools[key] = (self._settings[world], self._make(self._settings[world], ground.world_of(world)))
            return tools[key][1]
        if "shared" not in tools:
            tools["shared"] = self._make(self.block, ground.world)
        instrument = tools["shared"]
        if ground.is_shared:
            return instrument
        if hasattr(instrument, "show_obstacles") and not ground.is_generated:
            instrument.show_obstacles(ground.obstacles(world))
            return instrument
        if world not in self._worlds:
            self._worlds[world] = self._make(self.block, ground.world_of(world))
        return self._worlds[world]

    def _make(self, settings: Any, world: Any) -> Any:
        return self.sensor.reader(replace(self.context, settings=settings, world=world, shared={}))

    def arrays(self) -> dict[str, WorldArray]:
        readings = WorldArray(self._made if self.loops.name == "cpu" else self.readings)
        good = {f"good {name}": WorldArray(array) for name, array in self._good.items() if self.faults.fails}
        return {**super().arrays(), "readings": readings, "latency_keys": WorldArray(self._latency_keys), **good}

    def loaded(self, worlds: Integers, seeds: Integers) -> None:
        worlds, seeds = self.loops.host(worlds), self.loops.host(seeds)
        self._forget(worlds)
        self._stale.difference_update(worlds.tolist())
        self._draw_settings(worlds, seeds)


def sensor_columns(
    batch: BatchContext, robot: RobotColumns, name: str, block: Any, sensor: Sensor, n: int
) -> SensorColumns:
    if isinstance(sensor, KernelSensor):
        return KernelColumns(batch, robot, name, block, sensor, n)
    assert isinstance(sensor, Instrument)
    if robot.loops.name == "cuda" and is_drawn_by_gpu(batch, robot, block, sensor):
        from microsim.batch.camera_columns import CameraColumns  # needs numba's part for GPUs

        return CameraColumns(batch, robot, name, block, sensor, n)
    return InstrumentColumns(batch, robot, name, block, sensor, n)


def is_drawn_by_gpu(batch: BatchContext, robot: RobotColumns, block: Any, sensor: Sensor) -> bool:
    if sensor.camera is None or robot.ground.is_generated:
        return False
    return sensor.camera.is_plain(block, robot.ground.world, len(batch.robots) > 1)
