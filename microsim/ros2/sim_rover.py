"""The node `fake_rover_state_controller`: rovers with mass and drag on a plane, as their document describes them.

`RoverCore` is a function of ticks, commands and stamps; `sim_rover` puts it on a transport.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Count, Finite, Hertz, Length, Metres, Model, Seed, Sigma, Switch, show
from microsim.engine.command_timeout import timeout_ticks
from microsim.engine.components import YAW, X, Y
from microsim.engine.exact import wrap_angle
from microsim.engine.noise import stream_key
from microsim.engine.physics import make_fleet
from microsim.engine.timekeeper import Clock
from microsim.messages import encoders
from microsim.messages.outbox import Outbox
from microsim.messages.topics import TOPICS
from microsim.robots import dynamic_rover
from microsim.robots.rover import Dynamics
from microsim.robots.wheels import WHEEL_ROWS, roll
from microsim.ros2.node_settings import read_settings
from microsim.ros2.node_time import READ_ONLY, TimeSettings
from microsim.ros2.paced_node import SmallNode
from microsim.ros2.transport import Transport
from microsim.runner import WallClock
from microsim.sensors import pose2d

NODE_NAME = "fake_rover_state_controller"
TWIST = "geometry_msgs/msg/Twist"
JOY = "/joy/cmd_vel"
WHEEL_JOINTS = (
    "base_to_front_left_wheel",
    "base_to_front_right_wheel",
    "base_to_rear_left_wheel",
    "base_to_rear_right_wheel",
)  # of urdf/rover.urdf.xacro


def _robot_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", value, re.ASCII):
        raise ValueError(f"expected a namespace such as p0 or fleet/p0, found {show(value)}")
    return value


RobotId = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_robot_id)]
Limit = Annotated[Finite, Field(ge=0, le=1e4)]
WheelLength = Annotated[Finite, Field(ge=1e-3, le=1e3)]


class RoverIdentity(Model):
    """Who the rover is, where it starts, and who drives it."""

    robot_id: RobotId = Field(
        "p0", description="Namespace of the robot's topics and frames.", json_schema_extra=READ_ONLY
    )
    x: Metres = Field(0.0, description="Initial x [m].", json_schema_extra=READ_ONLY)
    y: Metres = Field(0.0, description="Initial y [m].", json_schema_extra=READ_ONLY)
    t: Angle = Field(0.0, description="Initial heading, counter-clockwise from x [rad].", json_schema_extra=READ_ONLY)
    direct_joy_control: Switch = Field(False, description="Listen to /joy/cmd_vel, which then wins over cmd_vel.")


class RoverSettings(TimeSettings, Dynamics, RoverIdentity):
    """Every parameter of `sim_rover`; fields of later bases come first."""

    update_rate: Hertz = Field(50.0, description="Updates and messages per second [Hz].", json_schema_extra=READ_ONLY)
    max_v: Limit = Field(1e4, description="Commands beyond are clamped to it [m/s].")
    max_omega: Limit = Field(1e4, description="Commands beyond are clamped to it [rad/s].")
    wheel_radius: WheelLength = Field(0.068, description="For the wheel angles; that of the URDF [m].")
    track_width: WheelLength = Field(0.33, description="Between left and right wheels; that of the URDF [m].")
    publish_tf: Switch = Field(
        False, description="Publish odom → <robot_id>/base_link on /tf.", json_schema_extra=READ_ONLY
    )
    position_noise: Sigma = Field(0.0, description="Noise of x and y on pose2D, 1 sigma [m].")
    heading_noise: Sigma = Field(0.0, description="Noise of theta on pose2D, 1 sigma [rad].")
    seed: Seed = Field(0, description="Seed of the noise.", json_schema_extra=READ_ONLY)
    count: Annotated[Count, Field(le=10_000)] = Field(
        1, description="How many rovers; robot_id is counted on: p0, p1, p2 ….", json_schema_extra=READ_ONLY
    )
    spacing: Length = Field(
        2.0, description="Way along y from one rover's start to the next [m].", json_schema_extra=READ_ONLY
    )

    @model_validator(mode="after")
    def _settles(self) -> Self:
        problem = self.too_quick(self.update_rate)
        if problem:
            raise ValueError(problem)
        return self

    def robot_ids(self) -> list[str]:
        if self.count == 1:
            return [self.robot_id]
        stem = self.robot_id.rstrip("0123456789")
        first = int(self.robot_id[len(stem) :] or 0)
        return [f"{stem}{first + index}" for index in range(self.count)]


class RoverCore:
    """`count` rovers side by side, one per column."""

    def __init__(self, settings: RoverSettings) -> None:
        self.outbox = Outbox()
        self.robot_ids = settings.robot_ids()
        self.dt = Clock(settings.update_rate).dt
        self.overruled = 0  # commands that came while the joystick had the rovers
        self._tick = 0  # that the next `move` starts from
        self._joy_until = 0.0  # the joystick's command is in force before this tick
        count = settings.count
        states = np.zeros((dynamic_rover.ROWS, count))
        states[X], states[Y] = settings.x, settings.y + settings.spacing * np.arange(count)
        states[YAW] = wrap_angle(settings.t)
        keys = [stream_key(settings.seed, f"{robot}/pose2D") for robot in self.robot_ids]
        self.fleet = make_fleet(dynamic_rover.ROBOT, self.robot_ids, states, np.empty((0, 0)), keys)
        self.wheels = np.zeros((WHEEL_ROWS, count))
        self._poses = np.empty((count, 3))
        self._senders = [self._sender(robot) for robot in self.robot_ids]
        self._send_frames = self._frames() if settings.publish_tf else None
        self.configure(settings)

    def configure(self, settings: RoverSettings) -> None:
        """Go on from here with other settings."""
        self.settings = settings
        dynamics: Any = settings  # has their fields, but frozen
        column = dynamic_rover.column(dynamics, settings.max_v, settings.max_omega, self.dt)
        self.fleet.parameters = np.repeat(np.array(column)[:, None], len(self.robot_ids), axis=1)

    # ---- commands: taken at the next tick -----------------------------------------------------------------------

    def command(self, robot: int, v: float, omega: float) -> bool:
        """On cmd_vel of the rover with this number; False when the joystick has it."""
        if self._tick < self._joy_until:
            self.overruled += 1
            return False
        self.fleet.take(robot, (v, omega))
        return True

    def joystick(self, v: float, omega: float) -> None:
        """On /joy/cmd_vel: for every rover, and alone for as long as this command is in force."""
        self.fleet.take(slice(None), [[v], [omega]])
        self._joy_until = self._tick + timeout_ticks(self.settings.command_timeout, self.dt)

    def let_go(self) -> None:
        """Of the joystick: cmd_vel counts again from now on."""
        self._joy_until = 0.0

    # ---- the tick -------------------------------------------------------------------------------------------------

    def move(self, tick: int) -> None:
        fleet, settings = self.fleet, self.settings
        dynamic_rover.advance_on_plane(fleet.state, fleet.command, fleet.parameters, self.dt)
        roll(fleet.state, self.wheels, settings.wheel_radius, settings.track_width, self.dt)
        self._tick = tick + 1

    def send(self, tick: int, stamp_ns: int) -> None:
        fleet, settings = self.fleet, self.settings
        pose2d.measure(fleet.state, fleet.keys, tick, settings.position_noise, settings.heading_noise, self._poses)
        for send, pose, wheels in zip(self._senders, self._poses.tolist(), self.wheels.T.tolist(), strict=True):
            send(stamp_ns, pose, wheels)
        if self._send_frames is not None:
            self._send_frames(stamp_ns)

    def _sender(self, robot: str) -> Callable[[int, list[float], list[float]], None]:
        joint_type, pose_type = "sensor_msgs/msg/JointState", "geometry_msgs/msg/Pose2D"
        encode_joints = encoders.joint_states(f"{robot}/base_link", WHEEL_JOINTS)
        encode_pose = encoders.pose2d()
        send_joints = self.outbox.sender(f"/{robot}/joint_states", joint_type)
        send_pose = self.outbox.sender(f"/{robot}/pose2D", pose_type)

        def send(stamp_ns: int, pose: list[float], wheels: list[float]) -> None:
            left, right, left_speed, right_speed = wheels
            angles, speeds = (left, right, left, right), (left_speed, right_speed, left_speed, right_speed)
            send_joints(stamp_ns, encode_joints(stamp_ns, angles, speeds))
            send_pose(stamp_ns, encode_pose(pose))

        return send

    def _frames(self) -> Callable[[int], None]:
        encode = encoders.transforms([("odom", f"{robot}/base_link") for robot in self.robot_ids])
        topic, rows = TOPICS["tf"], np.empty((len(self.robot_ids), 7))
        send = self.outbox.sender(topic.name, topic.type, topic.qos)

        def send_frames(stamp_ns: int) -> None:
            pose2d.transforms(self.fleet.state, rows)
            send(stamp_ns, encode(stamp_ns, rows.tolist()))

        return send_frames


def sim_rover(transport: Transport, clock: WallClock | None = None) -> SmallNode:
    """The node, ready to run, with the parameters of --ros-args."""
    settings = read_settings(transport, RoverSettings)
    core = RoverCore(settings)
    node = SmallNode(transport, core, settings.update_rate, settings, clock)
    for index, robot in enumerate(core.robot_ids):
        node.subscribe(f"/{robot}/cmd_vel", TWIST, _cmd_vel(node, core, index, f"/{robot}/cmd_vel"))
    joystick = _Joystick(node, core)
    joystick.listen(settings)

    def change(wanted: RoverSettings) -> None:
        core.configure(wanted)
        joystick.listen(wanted)

    node.declare(settings, change)
    return node


def _cmd_vel(node: SmallNode, core: RoverCore, index: int, topic: str) -> Callable[[Any], None]:
    def take(message: Any) -> None:
        command = _finite(node, topic, message)
        if command is not None and not core.command(index, *command):
            node.ignore(f"commands on {topic}, overruled by {JOY}", "info", f"{topic}: ignored, the joystick drives")

    return take


class _Joystick:
    """Subscribes when it is first wanted; nobody can unsubscribe, so later it is only listened to or not."""

    def __init__(self, node: SmallNode, core: RoverCore) -> None:
        self._node, self._core = node, core
        self._is_wanted = self._is_subscribed = False

    def listen(self, settings: RoverSettings) -> None:
        self._is_wanted = settings.direct_joy_control
        if not self._is_wanted:
            self._core.let_go()
        elif not self._is_subscribed:
            self._is_subscribed = True
            self._node.subscribe(JOY, TWIST, self._take)

    def _take(self, message: Any) -> None:
        command = _finite(self._node, JOY, message) if self._is_wanted else None
        if command is not None:
            self._core.joystick(*command)


def _finite(node: SmallNode, topic: str, message: Any) -> tuple[float, float] | None:
    """v and ω of a Twist; None, counted and said, when one is no number."""
    v, omega = float(message.linear.x), float(message.angular.z)
    if math.isfinite(v) and math.isfinite(omega):
        return v, omega
    node.ignore(f"commands with NaN or infinity on {topic}", "error", f"{topic}: NaN or infinity, ignored")
    return None
