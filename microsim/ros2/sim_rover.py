"""The node `fake_rover_state_controller`: rovers with mass and drag on a plane, as their document describes them.

The rovers are those of any scenario, with `dynamics`, `joint_states` and `pose2D`. `RoverCore` runs them in a
`Simulation`; `sim_rover` puts it on a transport.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    Angle,
    Count,
    Finite,
    Hertz,
    HertzOrOff,
    Length,
    Metres,
    Model,
    Seed,
    Sigma,
    Switch,
    show,
)
from microsim.engine.command_timeout import timeout_ticks
from microsim.engine.components import YAW_RATE
from microsim.engine.frames import exact_pose
from microsim.engine.physics import Fleet
from microsim.messages.outbox import Messages, Outbox
from microsim.messages.topics import TOPICS
from microsim.robots.dynamic_rover import COMMAND_AGE, JOINTS
from microsim.robots.robot import COMMON_SENSORS
from microsim.robots.rover import Dynamics, Rover, RoverPose, RoverStart, V, WheelJoints
from microsim.ros2.node_settings import read_settings
from microsim.ros2.node_simulation import OK, PLANE, NodeRun, NodeSimulation, Statuses, node_scenario
from microsim.ros2.node_time import READ_ONLY, NodeClock, TimeSettings, node_clock
from microsim.ros2.paced_node import SmallNode
from microsim.ros2.transport import Transport
from microsim.runner import WallClock
from microsim.scenario import Scenario
from microsim.sensors.pose2d import Pose2D

NODE_NAME = "fake_rover_state_controller"
TWIST = "geometry_msgs/msg/Twist"
JOY = "/joy/cmd_vel"
WHEEL_JOINTS = JOINTS


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
    diagnostics_hz: HertzOrOff = Field(
        1.0, description="Rate of /diagnostics [Hz]; 0: never.", json_schema_extra=READ_ONLY
    )
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
    """`count` rovers side by side on a plane, without a clock or a transport."""

    def __init__(self, settings: RoverSettings, clock: NodeClock | None = None) -> None:
        self.robot_ids = settings.robot_ids()
        self.clock = clock or NodeClock(settings.update_rate)
        self.overruled = 0  # commands that came while the joystick had the rovers
        self.pace: Callable[[], Mapping[str, str]] = dict
        self._joy_until = 0.0  # the joystick's command is in force before this tick
        self.settings = settings
        self.sim = NodeSimulation(self._scenario(), PLANE, self.clock, settings.publish_clock, self._compose)

    @property
    def outbox(self) -> Outbox:
        return self.sim.outbox

    def configure(self, settings: RoverSettings) -> None:
        """Go on from here with other settings."""
        self.settings = settings
        self.sim.reconfigure(self._scenario())

    def _scenario(self) -> Scenario:
        settings = self.settings
        none: dict[str, Any] = dict.fromkeys(COMMON_SENSORS)
        rover = Rover(
            **none,
            max_v=settings.max_v,
            max_omega=settings.max_omega,
            dynamics=Dynamics(**{name: getattr(settings, name) for name in Dynamics.model_fields}),
            joint_states=WheelJoints(
                hz=settings.update_rate, wheel_radius_m=settings.wheel_radius, track_m=settings.track_width
            ),
        )
        pose = Pose2D(
            hz=settings.update_rate, position_sigma_m=settings.position_noise, yaw_sigma_rad=settings.heading_noise
        )
        robots = {}
        for index, robot in enumerate(self.robot_ids):
            place = RoverPose(yaw=settings.t).model_copy(
                update={"x": settings.x, "y": settings.y + settings.spacing * index}
            )
            start = RoverStart(map_pose=RoverPose()).model_copy(update={"map_pose": place})
            robots[robot] = rover.model_copy(update={"start": start, "pose2D": pose})
        return node_scenario("sim_rover", settings.update_rate, settings.seed, robots)

    def _compose(self, run: NodeRun) -> None:
        if self.settings.publish_tf:
            pairs = [("odom", f"{robot}/base_link", robot) for robot in self.robot_ids]
            unused = np.zeros(1)
            frames = [
                (parent, child, run.frame_call(exact_pose, robot, unused, unused)) for parent, child, robot in pairs
            ]
            run.add_transforms(TOPICS["tf"], self.settings.update_rate, frames)
        run.add_diagnostics(self.settings.diagnostics_hz, self._statuses)

    # ---- commands: taken at the next tick -----------------------------------------------------------------------

    def command(self, robot: int, v: float, omega: float) -> bool:
        """On cmd_vel of the rover with this number; False when the joystick has it."""
        if self.sim.tick < self._joy_until:
            self.overruled += 1
            return False
        self.sim.fleet.take(robot, (v, omega))
        return True

    def joystick(self, v: float, omega: float) -> None:
        """On /joy/cmd_vel: for every rover, and alone for as long as this command is in force."""
        self.sim.fleet.take(slice(None), [[v], [omega]])
        self._joy_until = self.sim.tick + timeout_ticks(self.settings.command_timeout, self.clock.dt)

    def let_go(self) -> None:
        """Of the joystick: cmd_vel counts again from now on."""
        self._joy_until = 0.0

    def step(self, ticks: int = 1) -> Messages:
        """Advance; gives the messages of these ticks. The first call also gives tick 0's."""
        return self.sim.step(ticks)

    # ---- diagnostics ----------------------------------------------------------------------------------------------

    def _statuses(self, fleet: Fleet, tick: int) -> Statuses:
        """What /diagnostics says: each rover, then the node."""
        limit = timeout_ticks(self.settings.command_timeout, self.clock.dt)
        speeds, turns, ages = fleet.state[[V, YAW_RATE, COMMAND_AGE]].tolist()
        found = {}
        for robot, v, omega, age in zip(self.robot_ids, speeds, turns, ages, strict=True):
            driven = "driven by the joystick" if tick <= self._joy_until else "driven"
            message = driven if age <= limit else "no command"
            age_s = {"command_age_s": f"{age * self.clock.dt:.3f}"}
            values = {"linear_mps": f"{v:.3f}", "angular_rps": f"{omega:.3f}", **age_s}
            found[f"{NODE_NAME}: {robot}"] = (OK, message, values)
        own = {"overruled_commands": str(self.overruled), **self.pace()}
        return {**found, NODE_NAME: (OK, "ok", own)}


class SimRoverNode(SmallNode):
    core: RoverCore

    def waits_for(self) -> str:
        topics = [f"/{robot}/cmd_vel" for robot in self.core.robot_ids]
        listed = topics[0] if len(topics) == 1 else f"{topics[0]} … {topics[-1]}"
        return f"commands on {listed}{f' or {JOY}' if self.core.settings.direct_joy_control else ''}"


def sim_rover(transport: Transport, clock: WallClock | None = None) -> SimRoverNode:
    """The node, ready to run, with the parameters of --ros-args."""
    settings = read_settings(transport, RoverSettings)
    core = RoverCore(settings, node_clock(settings, settings.update_rate))
    node = SimRoverNode(transport, core, settings, clock)
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
