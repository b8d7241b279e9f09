"""`BareSimulation`: robots and their sensors in a given world and time, and beside them only what its maker adds.

A `Simulation` sends all that a scenario stands for. Programs with a fixed interface send other topics, under other
names and not always, and may live in another node's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from microsim.engine.calls import sample_address
from microsim.engine.compiled_tick import NEVER, CompiledOutput, Slot
from microsim.engine.faults import Health
from microsim.engine.frames import exact_pose
from microsim.engine.geodesy import tangent_plane
from microsim.engine.geometry import Array
from microsim.engine.pipeline import Output, Periodic
from microsim.engine.records import address_of
from microsim.engine.schedule import Schedule
from microsim.engine.sensor_calls import Call
from microsim.engine.timekeeper import Clock
from microsim.engine.world import World
from microsim.engine.worlds import Fleet, OneWorld
from microsim.messages import Prepared, encoders
from microsim.messages.topics import TOPICS, Topic
from microsim.outputs.compose import fleets_of
from microsim.outputs.control import Controllers
from microsim.outputs.message_faults import MessageFaults
from microsim.outputs.own_topics import add_clock
from microsim.outputs.run_outputs import Run
from microsim.outputs.sensor_outputs import add_sensors
from microsim.scenario import Scenario
from microsim.simulation import Simulation

Statuses = Mapping[str, tuple[int, str, Mapping[str, str]]]  # name -> level, message, values


class OffsetClock(Clock):
    """Ticks to stamps: evenly spaced, from any time on."""

    offset_ns = 0  # stamp of tick 0

    @property
    def is_simple(self) -> bool:
        return self.offset_ns == 0 and super().is_simple

    def time_ns(self, tick: int) -> int:
        return super().time_ns(tick) + self.offset_ns

    def set(self, tick: int, stamp_ns: int) -> None:
        """This tick has that stamp, and later ones count from there."""
        self.offset_ns = stamp_ns - super().time_ns(tick)


class Diagnostics(Periodic):
    """Keeps to its own ticks when it was made due in between."""

    def fire(self, tick: int, stamp_ns: int) -> None:
        super().fire(tick, stamp_ns)
        self.due = self.trigger.next_tick(tick + 1)


class BareRun(Run):
    """A robot without a name has its topics without a prefix."""

    def add(self, position: int, name: str, output: CompiledOutput | Output) -> None:
        if isinstance(output, CompiledOutput):
            output.name = output.name.replace(b"//", b"/", 1)
        super().add(position, name, output)

    def odom_frame(self, robot: str) -> str:
        return str(getattr(self.scenario.robots[robot], "odom_frame", "odom"))

    def add_transforms(self, topic: Topic, hz: Any, transforms: Sequence[tuple[str, str, Call]]) -> None:
        """A message with (parent, child, call that gives x, y, z and a quaternion) each."""
        pairs = [(parent, child) for parent, child, _ in transforms]
        message = Prepared(topic.type, encoders.transforms_message(pairs))
        slots = []
        for index, (_, _, call) in enumerate(transforms):
            offset, size = message.place(f"transforms[{index}].transform.translation.x", 7)
            slots.append(Slot(offset, size, call.reading, 0, 7))
        self.compiled(topic, hz, message, [call for _, _, call in transforms], slots)

    def pose_call(self, robot: str) -> Call:
        """Where the robot is."""
        return self.frame_call(exact_pose, robot, np.zeros(1), np.zeros(1))

    def frame_call(self, kernel: Callable[..., None], robot: str, memory: Array, settings: Array) -> Call:
        return Call(sample_address(kernel), settings, np.zeros(7), self.seen(robot), memory=memory)

    def alter(self, sensor: str, kernel: Callable[..., None], memory: Array, reads_state: bool = False) -> None:
        """Call a kernel with a sensor's signature on the readings of every sensor of that name."""
        kernels = {each.target: each for _, _, each in self._outputs if isinstance(each, CompiledOutput)}
        for robot, (fleet, column) in self.worlds.home.items():
            output = kernels.get(f"{robot}/{sensor}")
            if output is None:
                continue
            own = output.calls[0]
            given = own.settings, own.reading, own.seen, own.key
            further = Call(sample_address(kernel), *given, mount=own.mount, memory=memory, table=own.table)
            if reads_state:
                further.size, further.stride = fleet.state.shape
                further.seen, further.motion = address_of(fleet.state) + 8 * column, np.zeros(further.size)
            output.calls = [*output.calls, further]

    def add_diagnostics(self, hz: float, statuses: Callable[[Fleet, int], Statuses]) -> Diagnostics | None:
        """`/diagnostics` at a rate, from (robots, tick); 0: never. The output may be made due earlier."""
        if not hz:
            return None
        topic = TOPICS["diagnostics"]
        hz = min(hz, float(self.scenario.physics_hz))
        send = self.sender(topic.name, topic.type, topic.qos)
        fleet = self.worlds.fleets[0]
        output = Diagnostics(
            self.trigger(hz), lambda tick, stamp_ns: encoders.diagnostics(stamp_ns, statuses(fleet, tick)), send
        )
        self.add(topic.position, topic.name, output)
        return output


class BareSimulation(Simulation):
    """`compose(run)` adds what is sent, beside what the robots' sensors send. Topics that are held send nothing."""

    clock: OffsetClock

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        clock: OffsetClock,
        publish_clock: bool,
        compose: Callable[[BareRun], None],
        held: Iterable[str] = (),
    ) -> None:
        self._own_world, self._own_clock, self._publish_clock, self._add = world, clock, publish_clock, compose
        self._held = set(held)
        super().__init__(scenario)

    def _draw(self) -> None:
        self.clock, self.world, self._resolved = self._own_clock, self._own_world, self.scenario

    def _compose(self) -> Schedule:
        fleets = fleets_of(self.scenario, self.seed, self.world, self.clock)
        worlds = OneWorld(self.world, self.clock.dt, fleets, tangent_plane(*self.scenario.map.origin_wgs84))
        self.health = Health((), self.listeners.warning)
        self._message_faults = MessageFaults(self.scenario, self.clock, self.seed)  # it has none
        outbox = self._outbox
        run = BareRun(self.scenario, self.seed, self.world, self.clock, worlds, outbox, self._shared, self.health)
        if self._publish_clock:
            add_clock(run, TOPICS["clock"])
        add_sensors(run)
        self._add(run)
        self._contexts, self._frames = run.contexts, run.frames
        self._controllers = Controllers(self.scenario, self.seed, self.clock, {}, {}, self._accept)  # it has none
        for topic in [topic for topic in outbox.topics if topic.startswith("//")]:
            outbox.topics[topic[1:]] = outbox.topics.pop(topic)
        self._tables, python = run.finish()
        outputs = ((row, each) for row, each in enumerate(self._tables.outputs) if each is not None)
        self._rows = {bytes(each.name).partition(b"\0")[0].decode(): row for row, each in outputs}
        self._hold()
        return Schedule(self.clock, worlds, None, self._tables, python, {}, self.health, outbox)

    def reconfigure(self, scenario: Scenario) -> None:
        super().reconfigure(scenario)
        self._hold()

    def _hold(self) -> None:
        for topic in self._held & set(self._rows):
            self._tables.rows[self._rows[topic]].due = NEVER

    @property
    def fleet(self) -> Fleet:
        """Where all robots are of one model: they."""
        return self.fleets[0]

    def use_world(self, world: World) -> None:
        """From the next tick on."""
        self._own_world = world
        self.reconfigure(self.scenario)

    def memory_of(self, sensor: str) -> Array:
        """What a sensor, `robot/name`, keeps from tick to tick."""
        memory: Array = self._schedule.worlds.arrays[f"{sensor}:memory"].array[0]
        return memory

    def place(self, robot: str, x: float, y: float, yaw: float) -> None:
        """Put a robot there at once, at rest, whatever is there."""
        self._schedule.worlds.place(robot, x, y, 0.0, yaw)
        self._schedule.worlds.look()

    def release(self, topics: Iterable[str]) -> None:
        """Send what was held, from the next tick on, at its own times."""
        for topic in self._held.intersection(topics):
            self._held.discard(topic)
            if topic in self._rows:
                row = self._rows[topic]
                output = self._tables.outputs[row]
                assert output is not None
                assert output.trigger is not None  # none of them is late
                self._tables.rows[row].due = output.trigger.next_tick(self.tick + 1)

    def send_next(self, topics: Iterable[str]) -> None:
        """At the next tick, whether due or not; not those that are held."""
        for topic in topics:
            if topic in self._rows and topic not in self._held:
                self._tables.rows[self._rows[topic]].due = 0
