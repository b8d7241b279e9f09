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
from microsim.batch.sensor_columns import NEVER, Fixture, KernelColumns, SensorColumns
from microsim.engine.bodies import Body, body_row
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, Motion, observe
from microsim.engine.noise import stream_keys
from microsim.engine.pipeline import Delayed
from microsim.outputs.sensor_outputs import latency_of
from microsim.sensors.sensor import Sensor, View


def motion_of(state: Array, world: int) -> Motion:
    seen = np.empty((1, FIELDS))
    observe(np.ascontiguousarray(state[:, world : world + 1]), seen)
    motion: Motion = seen[0].tolist()
    return motion


class InstrumentColumns(SensorColumns):
    """A sensor with an instrument: what it would read from is kept, and read when it leaves its pipeline.

    It reads on the CPU. In a batch on a GPU its readings are copied there at the end of a call.
    """

    has_history = True

    def prepare(self) -> None:
        sensor = self.sensor
        shape = sensor.reading_shape(self.context)
        self._made: npt.NDArray[Any] = np.zeros((self.n, *shape), sensor.dtype)
        self.keys, self.sampled_at, self.dropped = map(self.loops.host, (self.keys, self.sampled_at, self.dropped))
        self.readings = self.loops.array(self._plain())
        self._states: dict[str, Array] = {}  # of all robots, now
        self._fails, self._silent = self.windows("fail"), self.windows("silence")
        others = self.fixture.scenario.robots.items()
        self._bodies = {name: Body(*settings.body()) for name, settings in others if name != self.robot.name}
        self._pipelines: dict[int, Delayed] = {}
        self._left: dict[int, tuple[int, View | None]] = {}  # what has left and is not read yet
        self._good: dict[int, View] = {}  # the last that did not fail, where it can be needed
        self._settings: dict[int, Any] = {}  # of worlds whose seed draws them
        self._worlds: dict[int, Any] = {}  # instruments of worlds with obstacles or settings of their own
        self._stale: set[int] = set()  # worlds whose readings have still to be copied to the device
        self._own = threading.local()  # instruments hold buffers: one for each thread

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        worlds, seeds = self.loops.host(worlds), self.loops.host(seeds)
        self.keys[worlds] = stream_keys(seeds, f"{self.target}{self.sensor.stream}")
        self.sampled_at[worlds], self.dropped[worlds] = NEVER, 0
        self._made[worlds] = np.zeros((), self.sensor.dtype)
        self._stale.update(worlds.tolist())
        drawn = self.draw(seeds)
        for index, (world, seed) in enumerate(zip(worlds.tolist(), seeds.tolist(), strict=True)):
            for kept in (self._left, self._good, self._worlds, self._settings):
                kept.pop(world, None)
            if self.spans:
                self._settings[world] = self.settings_of({key: float(each[index]) for key, each in drawn.items()})
            self._pipelines[world] = self._pipeline(world, seed)

    def _pipeline(self, world: int, seed: int) -> Delayed:
        latency = latency_of(self.context, self.fixture.scenario.physics_hz, seed)

        def sample(tick: int) -> tuple[View | None] | None:
            return self._sampled(world, tick)

        def send(sampled_at: int, view: tuple[View | None]) -> None:
            self._left[world] = (sampled_at, view[0])

        return Delayed(self.trigger, latency, sample, send)

    def _sampled(self, world: int, tick: int) -> tuple[View | None] | None:
        """What a reading of this tick is made from; (None,): from nothing; None: nothing is sent."""
        if any(first <= tick < end for first, end, *_ in self._silent):
            self.dropped[world] += 1
            return None
        if any(first <= tick < end for first, end, *_ in self._fails):
            return (self._good.get(world) if self.sensor.on_failure == "repeat" else None,)
        states = self._states
        boxes = [body_row(motion_of(states[name], world), body) for name, body in self._bodies.items()]
        view = View(
            motion_of(states[self.robot.name], world), int(self.keys[world]), tick, np.array(boxes).reshape(-1, 15)
        )
        if self._fails:
            self._good[world] = view
        return (view,)

    def _look(self, tick: Integers) -> Integers:
        """Bring what is needed of the worlds to the CPU."""
        self._states = {name: self.loops.host(robot.state) for name, robot in self.fixture.robots.items()}
        return self.loops.host(tick)

    def sample(self, worlds: Integers, tick: Integers) -> None:
        tick = self._look(tick)
        for world in worlds.tolist():
            self._pipelines[world].fire(int(tick[world]), 0)

    def finish(self, worlds: Integers, tick: Integers) -> None:
        tick, due = self._look(tick), []
        for world in worlds.tolist():
            pipeline = self._pipelines[world]
            if pipeline.due <= tick[world]:
                pipeline.fire(int(tick[world]), 0)
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

    def arrays(self) -> dict[str, tuple[Any, int]]:
        return {**super().arrays(), "readings": (self._made if self.loops.name == "cpu" else self.readings, 0)}

    def kernels(self) -> set[Any]:
        """Level ground and relief, and obstacles that are moved, are drawn by different functions."""
        ground = self.robot.ground
        kind = self.sensor, ground.world.is_flat, ground.is_shared
        return {kind} if is_drawn_by_gpu(self.fixture, self.robot, self.block, self.sensor) else set()

    def skip(self, worlds: Integers, tick: Integers) -> None:
        """What was due while nothing was sensed is left out; pipelines continue at their own ticks."""
        tick = self.loops.host(tick)
        for world in worlds.tolist():
            pipeline = self._pipelines[world]
            pipeline.recall(pipeline.memory(), int(tick[world]))

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

        for world, sampled_at, view in due:
            self.sampled_at[world] = sampled_at
            if view is None:
                self._take(world, np.zeros(self._made.shape[1:], self.sensor.dtype))
                continue
            instrument = self._instrument(world)
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
        assert self.sensor.instrument is not None
        context = replace(self.context, settings=settings, world=world, shared={})
        return self.sensor.instrument(context)

    def memory(self, worlds: Integers, seeds: Integers, tick: Integers) -> Any:
        chosen = zip(worlds.tolist(), seeds[worlds].tolist(), tick[worlds].tolist(), strict=True)
        return [
            (seed, now, self._pipelines[world].memory(), self._good.get(world), self._settings.get(world))
            for world, seed, now in chosen
        ]

    def recall(self, worlds: Integers, memory: Any) -> None:
        for world, (seed, tick, waiting, good, settings) in zip(worlds.tolist(), memory, strict=True):
            for kept, value in ((self._good, good), (self._settings, settings)):
                kept.pop(world, None)
                if value is not None:
                    kept[world] = value
            self._worlds.pop(world, None)
            self._pipelines[world] = self._pipeline(world, seed)
            self._pipelines[world].recall(waiting, tick)


def sensor_columns(
    fixture: Fixture, robot: RobotColumns, name: str, block: Any, sensor: Sensor, n: int
) -> SensorColumns:
    made = fixture, robot, name, block, sensor, n
    if sensor.instrument is None:
        return KernelColumns(*made)
    if robot.loops.name == "cuda" and is_drawn_by_gpu(fixture, robot, block, sensor):
        from microsim.batch.camera_columns import CameraColumns  # needs numba's part for GPUs

        return CameraColumns(*made)
    return InstrumentColumns(*made)


def is_drawn_by_gpu(fixture: Fixture, robot: RobotColumns, block: Any, sensor: Sensor) -> bool:
    is_plain = sensor.is_plain_camera(block, robot.ground.world, len(fixture.robots) > 1)
    return is_plain and not robot.ground.is_generated
