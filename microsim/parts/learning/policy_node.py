"""A policy as a ROS 2 node: it reads the sensors of its task from their topics and publishes commands.

The node holds its task's one world, in which no time passes: messages write its state and its readings, and the task's
own code makes the observation of them. With the kernel of `policy.infer`, actions are then bit for bit those of the
policy in a batch. The node acts when all its topics have a message with the same stamp, so it needs no gate but one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from microsim import messages as wire
from microsim.engine.components import CONTACTS, TOUCHING, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW_RATE, X, Y, Z
from microsim.errors import UsageError
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.inputs import INPUTS, InputKind
from microsim.messages.inputs.drive_commands import ACKERMANN_FIELDS
from microsim.messages.topics import Qos
from microsim.parts.learning.observations import Reading
from microsim.parts.learning.policy import Policy, input_of, load_policy
from microsim.parts.learning.task import Array, Task, find_task
from microsim.parts.ros2.transport import Transport
from microsim.scenario import Scenario, load_scenario
from microsim.sensors import SENSORS
from microsim.sensors.sensor import Sensor

NODE_NAME = "policy"
_ODOMETRY, _IMAGE = "nav_msgs/msg/Odometry", "sensor_msgs/msg/Image"


class _OverMessages(Task):
    """The part of a task that looks at robots, when odometry comes as messages."""

    ticks = 0  # time passes elsewhere
    odometry: dict[str, Any]  # by robot: its latest message
    _robot = ""

    def look(self, robot: str) -> tuple[Array, Array, Array]:
        pose = self.odometry[robot].pose.pose
        if pose.orientation.x or pose.orientation.y:
            raise UsageError(f"{robot} rolls or pitches; policies support only robots that stay level")
        self._robot = robot
        self.take_heading(pose.orientation.z, pose.orientation.w)
        return self.batch.rows(robot), self._sine, self._cosine

    def velocity(self, rows: Array) -> tuple[Array, Array]:
        linear = self.odometry[self._robot].twist.twist.linear
        return np.array([linear.x]), np.array([linear.y])


class PolicyNode:
    """`seed`: of the world, which decides where a task's goals are."""

    def __init__(self, transport: Transport, policy: str | Path | Policy, seed: int = 0) -> None:
        self.transport, self.policy, self.seed = transport, load_policy(policy), seed
        kind = find_task(self.policy.task)
        self.task: Any = type(kind.__name__, (_OverMessages, kind), {})(1, **self.policy.about.get("options", {}))
        self.policy.check(self.task)
        self.steps, self.is_over, self.is_stopping = 0, False, False
        self._latest: dict[str, Any] = {}  # by topic
        self._stamp: tuple[int, int] | None = None  # of the latest observation
        self._takers: dict[str, Callable[[Any], None]] = {}
        self._commands = {robot: self._publisher(robot) for robot in self.task.actions}
        for robot in self.task.batch.robots:
            self._listen(f"/{robot}/odom", _ODOMETRY, Qos(10), partial(self._take_odometry, robot))
        for sensor in dict.fromkeys(
            part.sensor for part in self.task.observations.values() if isinstance(part, Reading)
        ):
            self._listen_to_sensor(sensor)
        self._begin()

    @property
    def topics(self) -> list[str]:
        """That it reads."""
        return list(self._takers)

    def run(self) -> None:
        """Until `stop`."""
        while not self.is_stopping:
            self.transport.poll(0.1)

    def stop(self) -> None:
        self.is_stopping = True

    def _begin(self) -> None:
        self.task.reset(seeds=np.array([self.seed], np.int64))
        self.task.odometry = {}
        self.steps, self.is_over = 0, False
        for robot in self.task.batch.robots:
            rows = self.task.batch.rows(robot)
            rows[:] = np.nan  # what no message carries must not be seen
            rows[CONTACTS] = rows[TOUCHING] = 0.0

    # ---- messages ----------------------------------------------------------------------------------------------------

    def _publisher(self, robot: str) -> tuple[InputKind, tuple[str, ...], Any]:
        """The message that takes the robot's inputs, where they are in it, and what publishes one."""
        kind, fields = _command(self.task, robot)
        return kind, fields, self.transport.publisher(kind.topic.format(robot=robot), kind.type, Qos(10))

    def _listen(self, topic: str, type_name: str, qos: Qos, take: Callable[[Any], None]) -> None:
        self._takers[topic] = take

        def on_message(cdr: bytes) -> None:
            try:
                self._latest[topic] = decode_checked(type_name, cdr)
            except WireError as error:
                self.transport.log("warn", f"{topic}: not a {type_name}, ignored: {error}")
            else:
                self._act_when_complete()

        self.transport.subscribe(topic, type_name, qos, on_message)

    def _listen_to_sensor(self, name: str) -> None:
        robot, _, sensor = name.partition("/")
        if sensor == "odom":
            return  # is read anyway
        found = SENSORS.find(getattr(self.task.batch.scenario.robots[robot].all_sensors()[sensor], "type", sensor))
        is_image = found is not None and found.messages[0].type == _IMAGE
        if found is None or not (is_image or _slots(found)):
            raise UsageError(f"{name}: over ROS 2, policies support only sensors whose messages are numbers or images")
        take = partial(self._take_image, name) if is_image else partial(self._take_reading, name, _slots(found))
        form = found.messages[0]
        self._listen(found.topic(form, robot, sensor), form.type, form.qos, take)

    def _take_odometry(self, robot: str, message: Any) -> None:
        self.task.odometry[robot] = message
        rows, pose, twist = self.task.batch.rows(robot), message.pose.pose.position, message.twist.twist
        rows[X], rows[Y], rows[Z] = pose.x, pose.y, pose.z
        rows[VELOCITY_Z], rows[YAW_RATE] = twist.linear.z, twist.angular.z
        if message.pose.pose.orientation.z == 0.0:  # the axes of the robot are those of the map
            rows[VELOCITY_X], rows[VELOCITY_Y] = twist.linear.x, twist.linear.y
        if f"{robot}/odom" in self.task.batch.sensors:
            self._take_reading(f"{robot}/odom", _slots(SENSORS.built_in["odom"]), message)

    def _take_reading(self, name: str, slots: Mapping[str, str], message: Any) -> None:
        reading, fields = self.task.batch.readings[name].reshape(1, -1), self.task.batch.fields(name)
        for path, field in slots.items():
            if "[" not in path:  # the others repeat a number
                value = reduce(getattr, path.split("."), message)
                if len(slots) == 1:
                    reading[0, :] = value
                else:
                    reading[0, fields.index(field)] = value

    def _take_image(self, name: str, message: Any) -> None:
        image = self.task.batch.readings[name][0]
        expected, found = ("rgb8", *image.shape[:2]), (message.encoding, message.height, message.width)
        if found != expected or len(message.data) != image.size:
            texts = (f"{encoding}, {width} × {height}" for encoding, height, width in (expected, found))
            raise UsageError("{}: expected an image in {}, found {}".format(name, *texts))
        image[:] = np.frombuffer(bytes(message.data), np.uint8).reshape(image.shape)

    def _act_when_complete(self) -> None:
        stamps = {(each.header.stamp.sec, each.header.stamp.nanosec) for each in self._latest.values()}
        if len(self._latest) < len(self._takers) or len(stamps) > 1:
            return
        (stamp,) = stamps
        if stamp == self._stamp:
            return
        if self._stamp is not None and stamp < self._stamp:  # the simulation was reset
            self._begin()
        self._stamp = stamp
        for topic, take in self._takers.items():
            take(self._latest[topic])
        self._act()

    def _act(self) -> None:
        if self.steps:
            self.is_over = bool(self.task.judge().ended[0]) or self.is_over
        seen = input_of(self.task)
        if np.isnan(seen).any():
            missing = [name for name, value in zip(self.task.layout.names, seen[0], strict=False) if np.isnan(value)]
            raise UsageError(f"{self.task.name} observes values that no message contains: {', '.join(missing)}")
        self.task.act(self.policy.actions(seen))
        self.steps += 1
        for robot, (kind, fields, publisher) in self._commands.items():
            values = self.task.batch.commands(robot)[:, 0].tolist()
            parts: dict[str, dict[str, float]] = {}
            for path, value in zip(fields, values, strict=True):
                part, _, field = path.partition(".")
                if part:
                    parts.setdefault(part, {})[field] = 0.0 if self.is_over else value
            publisher.publish(wire.encode(kind.type, wire.from_mapping(kind.type, parts)))


def _command(task: Task, robot: str) -> tuple[InputKind, tuple[str, ...]]:
    """The message with which a robot is commanded, and where each of its inputs is in it; empty: nowhere."""
    settings, inputs = task.batch.scenario.robots[robot], task.batch.inputs(robot)
    fields = settings.engine_model.twist_fields
    if fields:
        return INPUTS.built_in["cmd_vel"], fields
    if "ackermann_cmd" in settings.inputs and set(task.actions[robot]) <= set(ACKERMANN_FIELDS):
        places = {name: f"drive.{field}" for name, field in ACKERMANN_FIELDS.items()}
        return INPUTS.built_in["ackermann_cmd"], tuple(places.get(name, "") for name in inputs)
    raise UsageError(f"{robot}: no message carries its inputs {', '.join(task.actions[robot])}")


def _slots(sensor: Sensor) -> Mapping[str, str]:
    """Path in its message -> name in its reading; empty where they differ from scenario to scenario."""
    slots = sensor.messages[0].slots if sensor.messages else {}
    return {} if callable(slots) else slots


def scenario_for(policy: str | Path | Policy, seed: int | None = None, lockstep: bool = True) -> Scenario:
    """The scenario of its task, with odometry and the gates of lockstep: for `microsim run` beside the node."""
    policy = load_policy(policy)
    task = find_task(policy.task)(1, **policy.about.get("options", {}))
    data = task.batch.scenario.model_dump(mode="json", by_alias=True, exclude_unset=True)
    rate = task.batch.scenario.physics_hz / task.ticks
    for robot in task.batch.robots:
        data["robots"][robot]["odom"] = {"hz": rate}  # a sensor more changes no other's noise
    first = f"/{task.batch.robots[0]}/odom"
    gates = [{"after": first, "expect": _command(task, robot)[0].topic.format(robot=robot)} for robot in task.actions]
    data["lockstep"] = gates if lockstep else []
    return load_scenario({**data, **({} if seed is None else {"seed": seed})})
