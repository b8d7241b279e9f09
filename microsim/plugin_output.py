"""What a plug-in sensor is given, and how it is driven."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from microsim.engine.components import Mount
from microsim.engine.motion import Motion, mounted_at
from microsim.engine.physics import Physics
from microsim.engine.timekeeper import Trigger
from microsim.engine.world import World
from microsim.errors import PluginError


@dataclass
class SensorContext:
    """What a plug-in sensor may know: its place, its options, the world, the robot's motion, and noise of its own."""

    robot: str
    sensor: str
    options: dict[str, Any]
    world: World
    physics: Physics
    key: int
    mount: Mount = field(default_factory=Mount)
    tick: int = 0

    @property
    def motion(self) -> Motion:
        """The robot's motion now; fields are named in `microsim.engine.motion`."""
        return self.physics.motions[self.robot]

    @property
    def place(self) -> tuple[float, float, float]:
        """Where the sensor is now: x, y, z in the map frame [m]."""
        return mounted_at(self.motion, self.mount.xyz)

    def normals(self, index: int = 0) -> tuple[float, float]:
        """Two standard normal numbers of this sensor and tick; another index gives others."""
        from microsim.engine.noise import normals

        return normals(self.key, self.tick, index)


@dataclass(frozen=True)
class PluginMemory:
    """What a plug-in sensor's own `memory()` gave, from a snapshot's file."""

    values: Any


@dataclass
class PluginOutput:
    """Calls a plug-in's `update(dt)` every tick and sends what `publish()` gives when it is due."""

    context: SensorContext
    sensor: Any
    trigger: Trigger
    dt: float
    send: Callable[[int, Any], None]
    due: float = 0
    next_message: int = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.context.tick = tick
        with blaming(self.context):
            if tick > 0:
                self.sensor.update(self.dt)
            if tick >= self.next_message:
                self.send(stamp_ns, self.sensor.publish())
        if tick >= self.next_message:
            self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def memory(self) -> Any:
        return self.context, self._copy(self.sensor, self.context)

    def recall(self, memory: Any, tick: int) -> None:
        if isinstance(memory, PluginMemory):
            with blaming(self.context):
                self.sensor.recall(memory.values)
        elif memory is not None:
            theirs, sensor = memory
            self.sensor = self._copy(sensor, theirs)
        self.context.tick = tick
        self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def _copy(self, sensor: Any, theirs: SensorContext) -> Any:
        """A copy of the sensor that sees our world and robots, though it may have been made in another Simulation."""
        ours = self.context
        shared = {
            id(theirs): ours,
            id(theirs.world): ours.world,
            id(theirs.physics): ours.physics,
            id(theirs.physics.motions): ours.physics.motions,
        }
        with blaming(ours):
            return copy.deepcopy(sensor, shared)


@contextmanager
def blaming(context: SensorContext) -> Iterator[None]:
    """Whatever a third party's code raises is reported as that sensor's fault."""
    try:
        yield
    except Exception as error:
        place = f"sensor {context.robot}/{context.sensor} failed at tick {context.tick}"
        raise PluginError(f"{place}: {type(error).__name__}: {error}") from error
