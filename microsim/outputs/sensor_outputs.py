"""Sensors of a scenario as outputs. Nothing here knows a particular kind of sensor.

A sensor with a kernel becomes a row that needs no Python; one with an instrument, or of the simple form, becomes an
output that Python makes at its own ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled_tick import CompiledOutput, Slot
from microsim.engine.components import FixedMount
from microsim.engine.delay_line import ONLY, DelayLine, Latency, most_under_way
from microsim.engine.delayed_readings import MOST_UNDER_WAY, DelayedReadings
from microsim.engine.faults import Health
from microsim.engine.geometry import Array, matrix_from_rpy, rpy_from_matrix
from microsim.engine.pipeline import Delayed
from microsim.engine.sensor_calls import Call, CompiledReading, windows_of
from microsim.messages import Prepared, encoders, is_known
from microsim.messages.outbox import name_in_transcript
from microsim.outputs.run_outputs import Run, bodies_of, parts_of_others
from microsim.outputs.sensors_in_worlds import Sensing, SensorFaults, is_in, sensor_context, sensor_faults
from microsim.plugin_errors import plugin_error, plugin_errors
from microsim.registry import origin_of
from microsim.scenario.bundles import own_splats
from microsim.sensors.plugin import PluginOutput, as_plugin_error
from microsim.sensors.sensor import (
    Instrument,
    KernelSensor,
    MessageForm,
    PythonSensor,
    Reader,
    Sensor,
    SensorContext,
    View,
    sees_robots,
)

PI = 3.141592653589793


def context_of(run: Run, robot: str, name: str, block: Any, sensor: Sensor) -> SensorContext:
    """What the sensor may know; its link is added to the tree of frames."""
    others, motions = run.others(robot), run.worlds.motions
    robots = run.scenario.robots  # functions below must not keep the run alive
    has_link = hasattr(block, "mount")
    return sensor_context(
        run.scenario,
        robot,
        name,
        block,
        run.world,
        run.clock,
        worlds=run.worlds,
        key=run.key(f"{robot}/{name}{sensor.stream}"),
        frame=_add_frame(run, robot, name, block, sensor) if has_link else robots[robot].frame(robot, "base_link"),
        odom_frame=run.odom_frame(robot),
        bodies=lambda: bodies_of(others, motions),
        parts=lambda: parts_of_others(robots, robot, motions),
        splats_of_others={each: own for each in others if (own := own_splats(robots[each])) is not None},
        shared=run.shared,
    )


def _add_frame(run: Run, robot: str, name: str, block: Any, sensor: Sensor) -> str:
    """The frame of its messages. With axes as `ros` has them, the optical frame is a further one in the sensor's."""
    settings, mount = run.scenario.robots[robot], FixedMount(block.mount.xyz, block.mount.rpy)
    base, frame = settings.frame(robot, "base_link"), settings.sensor_frame(robot, name, sensor.frame_suffix)
    if getattr(block, "convention", None) != "ros":
        run.mounts.append((base, frame, mount))
        return frame
    (a, b, c), (d, e, f), (g, h, i) = matrix_from_rpy(*mount.rpy)
    turned = FixedMount(mount.xyz, rpy_from_matrix(((a, -b, -c), (d, -e, -f), (g, -h, -i))))
    run.mounts.append((base, frame, turned))
    run.mounts.append((frame, f"{frame}_optical", FixedMount(rpy=(PI, 0.0, 0.0))))
    return f"{frame}_optical"


def add_sensors(run: Run) -> None:
    # splat cameras come last in /tf_static
    for robot, name, block, sensor in sorted(
        run.scenario.all_sensors, key=lambda item: getattr(item[2], "is_splat", False)
    ):
        context = run.contexts[f"{robot}/{name}"] = context_of(run, robot, name, block, sensor)
        with plugin_errors(f"sensor {robot}/{name}", sensor):
            if isinstance(sensor, PythonSensor):
                _add_python(run, context, sensor)
            elif isinstance(sensor, Instrument):
                _add_instrument(run, context, sensor)
            elif isinstance(sensor, KernelSensor):
                _add_kernel(run, context, sensor)


def _add_kernel(run: Run, context: SensorContext, sensor: KernelSensor) -> None:
    target = f"{context.robot}/{context.sensor}"
    sensing, silent = sensing_of(run, context, sensor), windows_of(_faults(run, context).silent)
    calls = sensing.calls
    for form in sensor.messages:
        topic, ready, slots = _filled(context, sensor, form, sensing.readings)
        run.outbox.topics[topic] = (form.type, form.qos)
        run.rates[topic] = context.settings.hz
        trigger, name = run.trigger(context.settings.hz), name_in_transcript(topic, form.type)
        run.add(sensor.position, topic, CompiledOutput(name, trigger, ready.bytes, slots, calls, silent, target))
        calls = []  # its other messages are sent after this one, with the same reading


def _filled(
    context: SensorContext, sensor: Sensor, form: MessageForm, reading: Array | None = None
) -> tuple[str, Prepared, list[Slot]]:
    """Topic of a message, its encoded prototype, and where stamps and the numbers of a reading go."""
    assert form.prototype is not None
    ready = Prepared(form.type, form.prototype(context))
    slots = [Slot(offset) for offset in ready.stamps()]
    if reading is not None and isinstance(sensor, KernelSensor):
        for path, (first, count) in sensor.places(form, context).items():
            offset, size = ready.place(path, count)
            slots.append(Slot(offset, size, reading, first, count))
    return sensor.topic(form, context.robot, context.sensor), ready, joined(slots)


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


def _faults(run: Run, context: SensorContext) -> SensorFaults:
    return sensor_faults(run.health.faults, f"{context.robot}/{context.sensor}", run.scenario.plugins)


def sensing_of(run: Run, context: SensorContext, sensor: KernelSensor) -> Sensing:
    """What makes its readings."""
    fleet, column = run.worlds.home[context.robot]
    faults, motion = _faults(run, context), run.seen(context.robot)
    sensing = Sensing(sensor, context, faults, fleet.state, run.owners, column=column, motion=motion)
    sensing.begin(ONLY, run.worlds.motions.seen[context.robot][None])
    if sensor.tracker is not None and sensor.tracker.frames is not None:
        run.poses.setdefault(context.robot, sensing)
    if sensing.track is not None:
        run.trackers.append(sensing.track)
    run.sensing[sensing.target] = sensing
    return sensing


_NO_BODIES: Array = np.zeros((0, 15))


@dataclass
class GuardedReader:
    """A reader, and what is sent in its place while it fails: its last reading (black at first), or none."""

    reader: Reader
    context: SensorContext
    sensor: Instrument
    health: Health
    faults: SensorFaults

    def __post_init__(self) -> None:
        self.target = f"{self.context.robot}/{self.context.sensor}"
        self.may_break = bool(getattr(self.reader, "may_break", False))
        self._sees_robots = sees_robots(self.reader)
        self.last: npt.NDArray[Any] | None = None  # kept only where it can be needed

    def reading(self, tick: int) -> npt.NDArray[Any] | None:
        """The reading of this tick; None when nothing is to be sent."""
        if is_in(self.faults.silent, tick):
            self.health.dropped[self.target] += 1
            return None
        if is_in(self.faults.fails, tick):
            return self._instead("failed")
        try:
            found = self.reader.read(self._view(tick))
        except Exception as error:  # of any kind: a sensor that fails must not end the run
            if not self.may_break:
                with as_plugin_error(self.context, self.sensor):
                    raise
            return self._instead(f"failed ({type(error).__name__}: {error})")
        if self.faults.fails or self.may_break:
            self.health.note(self.target, "")
            self.last = found if self.sensor.on_failure == "repeat" else None
        return found

    def _view(self, tick: int) -> View:
        context = self.context
        context.now[0] = tick
        return View(context.motion, context.key, tick, context.bodies() if self._sees_robots else _NO_BODIES)

    def _instead(self, problem: str) -> npt.NDArray[Any]:
        if self.sensor.on_failure == "empty":
            self.health.note(self.target, f"{problem}, an empty cloud is sent")
            return np.zeros(0, self.sensor.dtype)
        self.health.note(self.target, f"{problem}, its last image is sent again")
        return np.zeros(self.sensor.shape(self.context), self.sensor.dtype) if self.last is None else self.last

    def save(self) -> Any:
        return None if self.last is None else self.last.tobytes()

    def load(self, saved: Any) -> None:
        shape = self.sensor.shape(self.context)
        self.last = None if saved is None else np.frombuffer(saved, self.sensor.dtype).reshape(shape).copy()


def _add_instrument(run: Run, context: SensorContext, sensor: Instrument) -> None:
    block, time_ns = context.settings, run.clock.time_ns
    forms = [form for form in sensor.messages if form.applies(block)]
    topics = [sensor.topic(form, context.robot, context.sensor) for form in forms]
    senders = [run.sender(topic, form.type, form.qos) for topic, form in zip(topics, forms, strict=True)]
    run.rates.update(dict.fromkeys(topics, block.hz))
    reader, latency = sensor.reader(context), latency_of(context, run.scenario.physics_hz)
    key = run.key(latency_stream(context))

    def send(sampled_at: int, messages: tuple[bytes, ...]) -> None:
        for send_one, message in zip(senders, messages, strict=True):
            send_one(time_ns(sampled_at), message)

    reading = _compiled_reading(run, context, sensor, reader, forms, latency)
    if reading is not None:
        delayed = DelayedReadings(latency, key, run.trigger(block.hz), reading, send, len(forms) - 1)
        _add_delayed(run, context, sensor, forms, delayed)
        return
    encode = [form.encoder(context) for form in forms if form.encoder is not None]
    guard = GuardedReader(reader, context, sensor, run.health, _faults(run, context))

    def sample(tick: int) -> tuple[bytes, ...] | None:
        reading = guard.reading(tick)
        return None if reading is None else tuple(each(time_ns(tick), reading) for each in encode)

    line = DelayLine(latency, np.array([key], np.int64))
    run.add(sensor.position, topics[0], Delayed(run.trigger(block.hz), line, sample, send, guard))


def _compiled_reading(
    run: Run,
    context: SensorContext,
    sensor: Sensor,
    reader: Reader,
    forms: Sequence[MessageForm],
    latency: Latency,
) -> CompiledReading | None:
    """Of an instrument that needs no Python; None: it does.

    A plug-in's always does: what it compiles by itself has no checks, and would damage memory silently.
    """
    if origin_of(sensor) is not None:
        return None
    trigger = run.trigger(context.settings.hz)
    can_be_timed = run.clock.is_simple and most_under_way(latency, trigger) <= MOST_UNDER_WAY
    if _faults(run, context).fails or not can_be_timed or any(form.prototype is None for form in forms):
        return None
    reading: CompiledReading | None = getattr(reader, "compiled", lambda: None)()
    return reading


def _add_delayed(
    run: Run, context: SensorContext, sensor: Sensor, forms: Sequence[MessageForm], delayed: DelayedReadings
) -> None:
    target, reading = f"{context.robot}/{context.sensor}", delayed.reading
    call = Call(reading.address, np.zeros(1), np.zeros(1), run.seen(context.robot), context.key, picture=reading)
    call.memory = delayed.rows.view(np.float64)
    dropouts = windows_of(_faults(run, context).silent)
    for form in forms:
        topic, ready, slots = _filled(context, sensor, form)
        name = name_in_transcript(topic, form.type)
        if form is forms[0]:
            run.add(sensor.position, topic, delayed)
            around, tail_bytes = ready.without_last_array()
            sizes = ready.bytes.size - around.size, tail_bytes
            assert sizes[0] == reading.bytes, f"{topic}: {reading.bytes} bytes do not fill {sizes[0]}"
            output = CompiledOutput(name, delayed.trigger, around, slots, [call], dropouts, target, delayed, *sizes)
        else:
            output = CompiledOutput(name, None, ready.bytes, slots)
        run.add(sensor.position, topic, output)


def latency_of(context: SensorContext, physics_hz: float) -> Latency:
    """Of a sensor whose settings have `latency_ms`; none for the others."""
    delay = getattr(context.settings, "latency_ms", None)
    if delay is None:
        return Latency(0.0, 0.0, 0.0, float(physics_hz))
    return Latency(delay.mean, delay.jitter, delay.drop_probability, float(physics_hz))


def latency_stream(context: SensorContext) -> str:
    """Name of its noise."""
    return f"{context.robot}/{context.sensor}/latency"


def _add_python(run: Run, context: SensorContext, sensor: PythonSensor) -> None:
    (form,) = sensor.messages
    if not is_known(sensor.message_type):
        problem = f"there is no message type {sensor.message_type!r}"
        raise plugin_error(problem, f"sensor {context.robot}/{context.sensor}", sensor)
    topic = sensor.topic(form, context.robot, context.sensor)
    encode, publish = encoders.from_fields(form.type, context.frame), run.sender(topic, form.type, form.qos)
    run.rates[topic] = context.settings.hz
    with as_plugin_error(context, sensor):
        created = sensor.create(context)
    target, health = f"{context.robot}/{context.sensor}", run.health
    silent = _faults(run, context).silent

    def is_silent(tick: int) -> bool:
        if not is_in(silent, tick):
            return False
        health.dropped[target] += 1
        return True

    def send(stamp: int, fields: Any) -> None:
        publish(stamp, encode(stamp, fields))

    trigger = run.trigger(context.settings.hz)
    run.add(sensor.position, topic, PluginOutput(context, sensor, created, trigger, run.clock.dt, send, is_silent))
