"""From a scenario to what a run sends: the declarations of its sensors become rows of the output table.

Nothing here knows a particular kind of sensor. A sensor with a kernel becomes a row that needs no Python; one with an
instrument, or of the simple form, becomes an output that Python makes at its own ticks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.bodies import Body, body_row
from microsim.engine.calls import address_of, sample_address
from microsim.engine.components import Mount
from microsim.engine.faults import Fault, Health, of_target
from microsim.engine.frames import exact_pose, identity, place_pose
from microsim.engine.geometry import Array, matrix_from_rpy, rpy_from_matrix
from microsim.engine.motion import FIELDS
from microsim.engine.noise import stream_key
from microsim.engine.output_table import Call, CompiledOutput, Slot, Tables, Window
from microsim.engine.physics import Physics
from microsim.engine.pipeline import Delayed, Latency, Output, Periodic
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world import World
from microsim.errors import PluginError
from microsim.faults import FAULTS
from microsim.messages import Prepared, encoders, is_known, markers
from microsim.messages.outbox import Outbox, Send, name_in_transcript
from microsim.messages.status import HZ, Status
from microsim.messages.topics import Qos, Topic, table
from microsim.scenario.bundles import bundle_of
from microsim.scenario.models import Scenario
from microsim.sensors.declaration import Instrument, Sensor, SensorContext, View, default_form
from microsim.sensors.plugin import PluginOutput, as_plugin_error

PI = 3.141592653589793


@dataclass
class Run:
    """What the outputs of one run share, and the outputs themselves."""

    scenario: Scenario
    seed: int
    world: World
    clock: Clock
    physics: Physics
    outbox: Outbox
    shared: dict[Any, Any]  # renderers and the like, kept from reset to reset
    health: Health = field(default_factory=Health)
    mounts: list[tuple[str, str, Mount]] = field(default_factory=list)  # static frames
    rates: dict[str, float] = field(default_factory=dict)  # [Hz] by topic, for /sim/info
    memories: dict[str, Array] = field(default_factory=dict)  # robot/sensor -> what it keeps
    trackers: list[Call] = field(default_factory=list)
    contexts: dict[str, SensorContext] = field(default_factory=dict)  # by robot/sensor
    poses: dict[str, tuple[Sensor, SensorContext, Array]] = field(
        default_factory=dict
    )  # robot -> what decides its frames
    _outputs: list[tuple[int, str, CompiledOutput | Output]] = field(default_factory=list)

    def key(self, stream: str) -> int:
        return stream_key(self.seed, stream)

    def trigger(self, hz: float) -> Trigger:
        return Trigger(hz, self.scenario.physics_hz)

    def odom_frame(self, robot: str) -> str:
        return f"{robot}/odom" if self.scenario.frames.per_robot_odom else "odom"

    def add(self, position: int, name: str, output: CompiledOutput | Output) -> None:
        self._outputs.append((position, name, output))

    def sender(self, topic: str, type_name: str, qos: Qos) -> Send:
        return self.outbox.sender(topic, type_name, qos)

    def compiled(
        self, topic: Topic, hz: float, message: Any, calls: Iterable[Call] = (), slots: Iterable[Slot] = ()
    ) -> None:
        """One of the simulator's own topics."""
        self.outbox.topics[topic.name] = (topic.type, topic.qos)
        self.rates[topic.name] = hz
        ready = message if isinstance(message, Prepared) else Prepared(topic.type, message)
        stamps = [Slot(offset) for offset in ready.stamps()]
        name = name_in_transcript(topic.name, topic.type)
        output = CompiledOutput(name, self.trigger(hz), ready.bytes, [*stamps, *slots], list(calls))
        self.add(topic.position, topic.name, output)

    def once(self, topic: Topic, cdr: bytes) -> None:
        self.add(topic.position, topic.name, Once(cdr, self.sender(topic.name, topic.type, topic.qos)))

    def ordered(self) -> list[tuple[str, CompiledOutput | Output]]:
        """Every output, in the order of sending; those of one position as they were added."""
        return [(name, output) for _, name, output in sorted(self._outputs, key=lambda item: item[0])]

    def seen(self, robot: str) -> int:
        """Address of the robot's motion."""
        fleet, column = self.physics.home[robot]
        return address_of(fleet.seen) + 8 * FIELDS * column

    def others(self, robot: str) -> dict[str, Body]:
        """What a robot can see of the others."""
        robots = self.scenario.robots
        return {name: Body(*settings.body()) for name, settings in robots.items() if name != robot}

    def finish(self) -> tuple[Tables, dict[str, tuple[int, Output]]]:
        """The tables, and the outputs that Python makes with their rows."""
        ordered = self.ordered()
        compiled = [output if isinstance(output, CompiledOutput) else None for _, output in ordered]
        python = {
            name: (row, output) for row, (name, output) in enumerate(ordered) if not isinstance(output, CompiledOutput)
        }
        return Tables(compiled, self.trackers, self.physics.rows, self.physics.scene, self.clock), python


def bodies_of(robots: Mapping[str, Body], motions: Mapping[str, Any]) -> Array:
    """(n, 15) where the robots' boxes are now, as `body_row` writes them."""
    return np.array([body_row(motions[name], body) for name, body in robots.items()]).reshape(-1, 15)


# ---- sensors ---------------------------------------------------------------------------------------------------------


def context_of(run: Run, robot: str, name: str, block: Any, sensor: Sensor) -> SensorContext:
    """What the sensor may know; its link is added to the tree of frames."""
    settings = run.scenario.robots[robot]
    mount, frame = Mount(), settings.frame(robot, "base_link")
    if hasattr(block, "mount"):
        mount = Mount(block.mount.xyz, block.mount.rpy)
        frame = _add_frame(run, robot, name, block, sensor)
    others, motions, world = run.others(robot), run.physics.motions, run.scenario.world
    return SensorContext(
        robot=robot,
        sensor=name,
        settings=block,
        world=run.world,
        physics=run.physics,
        clock=run.clock,
        key=run.key(f"{robot}/{name}{sensor.stream}"),
        mount=mount,
        frame=frame,
        robot_settings=settings,
        odom_frame=run.odom_frame(robot),
        base_frame=settings.frame(robot, "base_link"),
        bodies=lambda: bodies_of(others, motions),
        bundle=None if world is None else lambda: bundle_of(world),
        bundle_key=world,
        shared=run.shared,
    )


def _add_frame(run: Run, robot: str, name: str, block: Any, sensor: Sensor) -> str:
    """The frame of its messages. With axes as `ros` has them, the optical frame is a further one in the sensor's."""
    settings, mount = run.scenario.robots[robot], Mount(block.mount.xyz, block.mount.rpy)
    base, frame = settings.frame(robot, "base_link"), settings.sensor_frame(robot, name, sensor.frame_suffix)
    if getattr(block, "convention", None) != "ros":
        run.mounts.append((base, frame, mount))
        return frame
    (a, b, c), (d, e, f), (g, h, i) = matrix_from_rpy(*mount.rpy)
    turned = Mount(mount.xyz, rpy_from_matrix(((a, -b, -c), (d, -e, -f), (g, -h, -i))))
    run.mounts.append((base, frame, turned))
    run.mounts.append((frame, f"{frame}_optical", Mount(rpy=(PI, 0.0, 0.0))))
    return f"{frame}_optical"


def add_sensors(run: Run) -> None:
    # splat cameras come last, as they always did in /tf_static
    for robot, name, block, sensor in sorted(
        run.scenario.all_sensors, key=lambda item: getattr(item[2], "is_splat", False)
    ):
        context = run.contexts[f"{robot}/{name}"] = context_of(run, robot, name, block, sensor)
        if sensor.is_simple:
            _add_plugin(run, context, sensor)
        elif sensor.instrument is not None:
            _add_instrument(run, context, sensor)
        else:
            _add_kernel(run, context, sensor)


def windows_of(faults: Iterable[Fault], effect: str, folders: Iterable[str]) -> list[Window]:
    found = []
    for fault in faults:
        kind = FAULTS.find(fault.kind, folders)
        if kind is not None and kind.effect == effect:
            found.append((fault.first_tick, fault.end_tick, *fault.offset))
    return found


def _add_kernel(run: Run, context: SensorContext, sensor: Sensor) -> None:
    target, (form,) = f"{context.robot}/{context.sensor}", sensor.messages
    faults, folders = of_target(run.health.faults, target), run.scenario.plugins
    call = sensor_call(run, context, sensor)
    call.jumps = windows_of(faults, "shift", folders)
    assert form.prototype is not None
    ready = Prepared(form.type, form.prototype(context))
    slots = [Slot(offset) for offset in ready.stamps()]
    for path, (first, count) in sensor.places(form, context).items():
        offset, size = ready.place(path)
        slots.append(Slot(offset, size, call.reading, first, count))
    topic = sensor.topic(form, context.robot, context.sensor)
    run.outbox.topics[topic] = (form.type, form.qos)
    run.rates[topic] = context.settings.hz
    calls = [call, *_altering(run, call, faults)]
    dropouts = windows_of(faults, "silence", folders)
    trigger, name = run.trigger(context.settings.hz), name_in_transcript(topic, form.type)
    run.add(sensor.position, topic, CompiledOutput(name, trigger, ready.bytes, joined(slots), calls, dropouts, target))


def joined(slots: list[Slot]) -> list[Slot]:
    """Slots that lie side by side in the reading and in the message become one."""
    found: list[Slot] = []
    for slot in slots:
        last = found[-1] if found else None
        if (
            last is not None
            and last.size == slot.size > 0
            and last.source is slot.source
            and last.first + last.count == slot.first
            and last.offset + last.count * last.size == slot.offset
        ):
            last.count += slot.count
        else:
            found.append(slot)
    return found


def _altering(run: Run, call: Call, faults: Iterable[Fault]) -> list[Call]:
    """Calls of faults that change the reading: kernels with a sensor's signature, after the sensor's own."""
    calls = []
    for fault in faults:
        kind = FAULTS.find(fault.kind, run.scenario.plugins)
        if kind is not None and kind.effect == "alter":
            settings = np.array([fault.first_tick, fault.end_tick, *fault.offset], np.float64)
            run.memories[f"{fault.target}:{kind.name}:{fault.first_tick}"] = memory = np.zeros(call.reading.size)
            calls.append(Call(sample_address(kind.alter), settings, call.seen, call.reading, call.key, memory=memory))
    return calls


def sensor_call(run: Run, context: SensorContext, sensor: Sensor) -> Call:
    """The call that makes its readings."""
    target, kernel = f"{context.robot}/{context.sensor}", sensor.sample
    if sensor.sample_of is not None:
        kernel = sensor.sample_of(context)
    if kernel is None:
        raise PluginError(
            f"robots.{context.robot}.{context.sensor}: the model {context.robot_settings.model} has no joints"
        )
    memory = _memory(run, context, sensor, target)
    owner = run.poses.get(context.robot)
    numbers = context if owner is None or not sensor.shares_memory else owner[1]
    call = Call(
        sample_address(kernel),
        np.array([*sensor.numbers(numbers), 0.0], np.float64),
        run.seen(context.robot),
        np.zeros(max(sensor.reading_size(context), 1)),
        context.key,
        mount=np.array(context.mount.xyz, np.float64),
        memory=memory,
        table=np.zeros(1) if sensor.table is None else np.ascontiguousarray(sensor.table(context), np.float64),
    )
    if sensor.reads_state:
        fleet, column = run.physics.home[context.robot]
        call.size, call.stride = fleet.state.shape[0], fleet.state.shape[1]
        call.seen, call.motion = address_of(fleet.state) + 8 * column, np.zeros(call.size)
    if sensor.frames is not None and context.robot not in run.poses:
        run.poses[context.robot] = (sensor, context, memory)
    if sensor.track is not None and sensor.is_tracking(context.settings):
        key = run.key(f"{target}{sensor.stream}")
        run.trackers.append(
            Call(
                sample_address(sensor.track),
                call.settings,
                call.seen,
                call.reading,
                key,
                mount=call.mount,
                memory=memory,
            )
        )
    return call


def _memory(run: Run, context: SensorContext, sensor: Sensor, target: str) -> Array:
    if sensor.shares_memory and context.robot in run.poses:
        return run.poses[context.robot][2]
    memory = np.zeros(max(len(sensor.memory), 1))
    if sensor.begin is not None:
        memory[:] = sensor.begin(run.physics.motions[context.robot])
    if sensor.memory:
        run.memories[target] = memory
    return memory


@dataclass
class GuardedInstrument:
    """An instrument, and what is sent in its place while it fails: its last reading (black at first), or none."""

    instrument: Instrument
    context: SensorContext
    sensor: Sensor
    health: Health
    faults: tuple[Fault, ...]
    folders: tuple[str, ...]

    def __post_init__(self) -> None:
        self.target = f"{self.context.robot}/{self.context.sensor}"
        self._fails = windows_of(self.faults, "fail", self.folders)
        self._silent = windows_of(self.faults, "silence", self.folders)
        self.may_break = bool(getattr(self.instrument, "may_break", False))
        self.last: npt.NDArray[Any] | None = None  # kept only where it can be needed

    def reading(self, tick: int) -> npt.NDArray[Any] | None:
        """The reading of this tick; None when nothing is to be sent."""
        if any(first <= tick < end for first, end, *_ in self._silent):
            self.health.dropped[self.target] += 1
            return None
        if any(first <= tick < end for first, end, *_ in self._fails):
            return self._instead("failed")
        try:
            found = self.instrument.read(self._view(tick))
        except Exception as error:  # of any kind: a sensor that fails must not end the run
            if not self.may_break:
                raise
            return self._instead(f"failed ({type(error).__name__}: {error})")
        if self._fails or self.may_break:
            self.health.note(self.target, "")
            self.last = found if self.sensor.on_failure == "repeat" else None
        return found

    def _view(self, tick: int) -> View:
        context = self.context
        context.now[0] = tick
        return View(context.motion, context.key, tick, context.bodies())

    def _instead(self, problem: str) -> npt.NDArray[Any]:
        if self.sensor.on_failure == "empty":
            self.health.note(self.target, f"{problem}, an empty cloud is sent")
            return np.zeros(0, self.sensor.dtype)
        self.health.note(self.target, f"{problem}, its last image is sent again")
        return np.zeros(self.sensor.reading_shape(self.context), self.sensor.dtype) if self.last is None else self.last

    def memory(self) -> Any:
        return None if self.last is None else self.last.tobytes()

    def recall(self, memory: Any) -> None:
        shape = self.sensor.reading_shape(self.context)
        self.last = None if memory is None else np.frombuffer(memory, self.sensor.dtype).reshape(shape).copy()


def _add_instrument(run: Run, context: SensorContext, sensor: Sensor) -> None:
    block, time_ns = context.settings, run.clock.time_ns
    forms = [form for form in sensor.messages if form.applies(block)]
    topics = [sensor.topic(form, context.robot, context.sensor) for form in forms]
    senders = [run.sender(topic, form.type, form.qos) for topic, form in zip(topics, forms, strict=True)]
    encode = [form.encoder(context) for form in forms if form.encoder is not None]
    run.rates.update(dict.fromkeys(topics, block.hz))
    assert sensor.instrument is not None
    faults = of_target(run.health.faults, f"{context.robot}/{context.sensor}")
    guard = GuardedInstrument(sensor.instrument(context), context, sensor, run.health, faults, run.scenario.plugins)

    def sample(tick: int) -> tuple[bytes, ...] | None:
        reading = guard.reading(tick)
        return None if reading is None else tuple(each(time_ns(tick), reading) for each in encode)

    def send(sampled_at: int, messages: tuple[bytes, ...]) -> None:
        for send_one, message in zip(senders, messages, strict=True):
            send_one(time_ns(sampled_at), message)

    output = Delayed(run.trigger(block.hz), latency_of(context, run.scenario.physics_hz, run.seed), sample, send, guard)
    run.add(sensor.position, topics[0], output)


def latency_of(context: SensorContext, physics_hz: float, seed: int) -> Latency:
    """Of a sensor whose settings have `latency_ms`; none for the others."""
    delay = getattr(context.settings, "latency_ms", None)
    times = (0.0, 0.0, 0.0) if delay is None else (delay.mean, delay.jitter, delay.drop_probability)
    return Latency(*times, float(physics_hz), stream_key(seed, f"{context.robot}/{context.sensor}/latency"))


def _add_plugin(run: Run, context: SensorContext, sensor: Sensor) -> None:
    """A sensor of the simple form."""
    form, assert_known = default_form(sensor), is_known(sensor.message_type)
    if not assert_known:
        raise PluginError(f"sensor {context.robot}/{context.sensor}: there is no message type {sensor.message_type!r}")
    topic = sensor.topic(form, context.robot, context.sensor)
    encode, publish = encoders.from_fields(form.type, context.frame), run.sender(topic, form.type, form.qos)
    run.rates[topic] = context.settings.hz
    assert sensor.create is not None
    with as_plugin_error(context):
        created = sensor.create(context)
    target, health = f"{context.robot}/{context.sensor}", run.health
    silent = windows_of(of_target(health.faults, target), "silence", run.scenario.plugins)

    def is_silent(tick: int) -> bool:
        if not any(first <= tick < end for first, end, *_ in silent):
            return False
        health.dropped[target] += 1
        return True

    def send(stamp: int, fields: Any) -> None:
        publish(stamp, encode(stamp, fields))

    trigger = run.trigger(context.settings.hz)
    run.add(sensor.position, topic, PluginOutput(context, created, trigger, run.clock.dt, send, is_silent))


# ---- the simulator's own topics --------------------------------------------------------------------------------------


def own_topics() -> dict[str, Topic]:
    return {topic.kind: topic for topic in table()}


def add_clock(run: Run, topic: Topic) -> None:
    run.compiled(topic, run.scenario.physics_hz, encoders.clock_message())


def add_frames(run: Run, tf: Topic, static: Topic) -> None:
    """`/tf` at its rate: map -> odom -> base_link; `/tf_static` once: base_link -> sensors."""
    robots, each_has_odom = list(run.scenario.robots), run.scenario.frames.per_robot_odom
    odom = {robot: run.odom_frame(robot) for robot in robots}
    pairs = [("map", frame) for frame in dict.fromkeys(odom.values() if each_has_odom else ["odom"])]
    pairs += [(odom[robot], run.scenario.robots[robot].frame(robot, "base_link")) for robot in robots]
    roots = [_frame_call(run, robot, "map_to_odom", identity) for robot in robots] if each_has_odom else []
    calls = [*roots, *(_frame_call(run, robot, "odom_to_base", exact_pose) for robot in robots)]
    message = Prepared(tf.type, encoders.transforms_message(pairs))
    first = len(pairs) - len(calls)  # the one shared odom frame lies where the map does
    slots = []
    for index, call in enumerate(calls):
        offset, size = message.place(f"transforms[{first + index}].transform.translation.x")
        slots.append(Slot(offset, size, call.reading, 0, 7))
    run.compiled(tf, run.scenario.frames.tf_hz, message, calls, slots)
    if run.scenario.frames.publish_static_tf:
        run.once(static, encoders.static_transforms(run.mounts))


def _frame_call(run: Run, robot: str, which: str, default: Any) -> Call:
    found = run.poses.get(robot)
    if found is None:
        return Call(sample_address(default), np.zeros(1), run.seen(robot), np.zeros(7))
    sensor, context, memory = found
    kernel = getattr(sensor.frames, which)
    numbers = np.array([*sensor.numbers(context), 0.0], np.float64)
    return Call(sample_address(kernel), numbers, run.seen(robot), np.zeros(7), memory=memory)


def add_status(run: Run, topic: Topic) -> None:
    """`/sim/status`, where there is something to report."""
    scenario, physics = run.scenario, run.physics
    watched = {name: robot for name, robot in scenario.robots.items() if robot.is_watched}
    if not watched and scenario.world is None and not scenario.faults:
        return
    area = None if scenario.world is None else bundle_of(scenario.world).drivable
    sensors = tuple(f"{robot}/{name}" for robot, name, _, _ in scenario.all_sensors)
    hz = min(HZ, float(scenario.physics_hz))
    send, encode = run.sender(topic.name, topic.type, topic.qos), encoders.status()
    run.rates[topic.name] = hz
    run.add(
        topic.position, topic.name, Status(physics, watched, area, sensors, run.health, run.trigger(hz), encode, send)
    )


@dataclass
class Once:
    """Sent at tick 0, after every reset, and again when it has changed."""

    cdr: bytes
    send: Send
    due: float = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.send(stamp_ns, self.cdr)
        self.due = math.inf

    def memory(self) -> tuple[bytes, float]:
        return self.cdr, self.due

    def recall(self, memory: tuple[bytes, float] | None, tick: int) -> None:
        cdr, due = memory or (b"", math.inf)
        self.due = due if cdr == self.cdr else tick + 1


def add_world(run: Run, occupancy: Topic, shown: Topic) -> None:
    settings = run.scenario.world_topics
    if settings.occupancy_hz:
        run.compiled(occupancy, settings.occupancy_hz, markers.occupancy_message(run.world))
    if settings.markers_hz:
        robots = run.scenario.robots
        message = Prepared(
            shown.type, markers.markers_message(run.world, {name: robots[name].look() for name in robots})
        )
        first = len(run.world.obstacles) + len(run.world.features)
        calls = [_marker_call(run, robot) for robot in robots]
        slots = []
        for index, call in enumerate(calls):
            offset, size = message.place(f"markers[{first + index}].pose.position.x")
            slots.append(Slot(offset, size, call.reading, 0, 7))
        run.compiled(shown, settings.markers_hz, message, calls, slots)


def _marker_call(run: Run, robot: str) -> Call:
    """The pose of the middle of what is drawn of a robot."""
    center = run.scenario.robots[robot].look().center
    kernel = place_pose if any(center) else exact_pose
    return Call(sample_address(kernel), np.zeros(1), run.seen(robot), np.zeros(7), mount=np.array(center, np.float64))


def add_periodic(run: Run, topic: Topic, hz: float, encode: Callable[[int, int], bytes | None]) -> None:
    """`encode(tick, stamp_ns)` at a rate, in Python."""
    run.rates[topic.name] = hz
    send = run.sender(topic.name, topic.type, topic.qos)
    run.add(topic.position, topic.name, Periodic(run.trigger(hz), encode, send))
