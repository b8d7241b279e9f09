"""The node `fake_rover_state_controller`: rovers with mass and drag on a plane, as their document describes them.

The rovers are those of any scenario, with `dynamics`, `joint_states` and `pose2D`. `RoverCore` runs them in a
`Simulation`; `SimRoverNode` puts it on a transport.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from microsim.bare_simulation import BareRun, BareSimulation, OffsetClock, Statuses
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
from microsim.engine.worlds import Fleet
from microsim.messages.outbox import Messages
from microsim.messages.topics import TOPICS
from microsim.parts.ros2.node_parameters import read_settings
from microsim.parts.ros2.transport import Transport
from microsim.parts.small_nodes.node_scenario import OK, PLANE, node_scenario
from microsim.parts.small_nodes.paced_node import PacedNode, TimeSettings, changeable, fixed, node_clock
from microsim.robots.dynamic_rover import JOINTS
from microsim.robots.robot import COMMON_SENSORS
from microsim.robots.rover import Dynamics, Rover, RoverPose, RoverStart, WheelJoints
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

    robot_id: RobotId = fixed("p0", "Namespace of the robot's topics and frames.")
    x: Metres = fixed(0.0, "Initial x [m].")
    y: Metres = fixed(0.0, "Initial y [m].")
    t: Angle = fixed(0.0, "Initial heading, counter-clockwise from x [rad].")
    direct_joy_control: Switch = changeable(
        False, "Subscribe to /joy/cmd_vel, which then takes precedence over cmd_vel."
    )


class RoverSettings(TimeSettings, Dynamics, RoverIdentity):
    """Every parameter of `sim_rover`; fields of later bases come first."""

    update_rate: Hertz = fixed(50.0, "Updates and messages per second [Hz].")
    max_v: Limit = changeable(1e4, "Commands beyond are clamped to it [m/s].")
    max_omega: Limit = changeable(1e4, "Commands beyond are clamped to it [rad/s].")
    wheel_radius: WheelLength = changeable(0.068, "For the wheel angles; that of the URDF [m].")
    track_width: WheelLength = changeable(0.33, "Between left and right wheels; that of the URDF [m].")
    publish_tf: Switch = fixed(False, "Publish odom → <robot_id>/base_link on /tf.")
    position_noise: Sigma = changeable(0.0, "Noise of x and y on pose2D, 1 sigma [m].")
    heading_noise: Sigma = changeable(0.0, "Noise of theta on pose2D, 1 sigma [rad].")
    seed: Seed = fixed(0, "Seed of the noise.")
    diagnostics_hz: HertzOrOff = fixed(1.0, "Rate of /diagnostics [Hz]; 0: never.")
    count: Annotated[Count, Field(le=10_000)] = fixed(1, "How many rovers; robot_id is counted on: p0, p1, p2 ….")
    spacing: Length = fixed(2.0, "Way along y from one rover's start to the next [m].")

    @model_validator(mode="after")
    def _settles(self) -> Self:
        if problem := self.too_quick(self.update_rate):
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

    def __init__(self, settings: RoverSettings, clock: OffsetClock | None = None) -> None:
        self.robot_ids = settings.robot_ids()
        self.clock = clock or OffsetClock(settings.update_rate)
        self.overruled = 0  # commands that came while the joystick had the rovers
        self.pace: Callable[[], Mapping[str, str]] = dict
        self._joy_until = 0.0  # the joystick's command is active before this tick
        self.settings = settings
        self.sim = BareSimulation(self._scenario(), PLANE, self.clock, settings.publish_clock, self._compose)

    def configure(self, settings: RoverSettings) -> None:
        """Continue from here with other settings."""
        self.settings = settings
        if not settings.direct_joy_control:
            self._joy_until = 0.0  # cmd_vel counts again from now on
        self.sim.reconfigure(self._scenario())

    def _scenario(self) -> Scenario:
        settings = self.settings
        none: dict[str, Any] = dict.fromkeys(COMMON_SENSORS)
        hz, v, omega = settings.update_rate, settings.max_v, settings.max_omega
        dynamics = Dynamics(**{name: getattr(settings, name) for name in Dynamics.model_fields})
        joints = WheelJoints(hz=hz, wheel_radius_m=settings.wheel_radius, track_m=settings.track_width)
        rover = Rover(**none, max_v=v, max_omega=omega, dynamics=dynamics, joint_states=joints)
        pose = Pose2D(hz=hz, position_sigma_m=settings.position_noise, yaw_sigma_rad=settings.heading_noise)
        robots = {}
        for index, robot in enumerate(self.robot_ids):
            where = {"x": settings.x, "y": settings.y + settings.spacing * index}
            place = RoverPose(yaw=settings.t).model_copy(update=where)
            start = RoverStart(map_pose=RoverPose()).model_copy(update={"map_pose": place})
            robots[robot] = rover.model_copy(update={"start": start, "pose2D": pose})
        return node_scenario("sim_rover", settings.update_rate, settings.seed, robots)

    def _compose(self, run: BareRun) -> None:
        if self.settings.publish_tf:
            calls = {robot: run.pose_call(robot) for robot in self.robot_ids}
            frames = [("odom", f"{robot}/base_link", call) for robot, call in calls.items()]
            run.add_transforms(TOPICS["tf"], self.settings.update_rate, frames)
        run.add_diagnostics(self.settings.diagnostics_hz, self._statuses)

    def command(self, robot: int, v: float, omega: float) -> bool:
        """On cmd_vel of the rover with this number; False when the joystick has it."""
        if self.sim.tick < self._joy_until:
            self.overruled += 1
            return False
        self.sim.fleet.take(robot, (v, omega))
        return True

    def joystick(self, v: float, omega: float) -> None:
        """On /joy/cmd_vel: for every rover, and alone as long as this command is active."""
        self.sim.fleet.take(slice(None), [[v], [omega]])
        self._joy_until = self.sim.tick + timeout_ticks(self.settings.command_timeout, self.clock.dt)

    def step(self, ticks: int = 1) -> Messages:
        """Advance; gives the messages of these ticks. The first call also gives tick 0's."""
        return self.sim.step(ticks)

    def _statuses(self, fleet: Fleet, tick: int) -> Statuses:
        """What /diagnostics says: each rover, then the node."""
        limit = timeout_ticks(self.settings.command_timeout, self.clock.dt)
        speeds, turns, ages = fleet.rows("v", "yaw_rate", "command_age").tolist()
        found = {}
        for robot, v, omega, age in zip(self.robot_ids, speeds, turns, ages, strict=True):
            driven = "driven by the joystick" if tick <= self._joy_until else "driven"
            values = {"linear_mps": v, "angular_rps": omega, "command_age_s": age * self.clock.dt}
            texts = {name: f"{value:.3f}" for name, value in values.items()}
            found[f"{NODE_NAME}: {robot}"] = (OK, driven if age <= limit else "no command", texts)
        return {**found, NODE_NAME: (OK, "ok", {"overruled_commands": str(self.overruled), **self.pace()})}


class SimRoverNode(PacedNode):
    """With the parameters of --ros-args."""

    core: RoverCore

    def __init__(self, transport: Transport, clock: WallClock | None = None) -> None:
        settings = read_settings(transport, RoverSettings)
        super().__init__(transport, RoverCore(settings, node_clock(settings, settings.update_rate)), settings, clock)
        for index, robot in enumerate(self.core.robot_ids):
            self.subscribe(f"/{robot}/cmd_vel", TWIST, partial(self._on_cmd_vel, index, f"/{robot}/cmd_vel"))
        self._has_subscribed_to_joystick = False
        self._use_joystick(settings)
        self.declare(settings, self._change)

    def waits_for(self) -> str:
        topics = [f"/{robot}/cmd_vel" for robot in self.core.robot_ids]
        listed = topics[0] if len(topics) == 1 else f"{topics[0]} … {topics[-1]}"
        return f"commands on {listed}{f' or {JOY}' if self.core.settings.direct_joy_control else ''}"

    def _change(self, settings: RoverSettings) -> None:
        self.core.configure(settings)
        self._use_joystick(settings)

    def _use_joystick(self, settings: RoverSettings) -> None:
        """A transport cannot unsubscribe, so messages of a topic that is off are ignored."""
        if settings.direct_joy_control and not self._has_subscribed_to_joystick:
            self._has_subscribed_to_joystick = True
            self.subscribe(JOY, TWIST, self._on_joystick)

    def _on_cmd_vel(self, index: int, topic: str, message: Any) -> None:
        command = self._finite(topic, message)
        if command is not None and not self.core.command(index, *command):
            self.ignore(f"commands on {topic}, overruled by {JOY}", "info", f"{topic}: ignored, the joystick drives")

    def _on_joystick(self, message: Any) -> None:
        command = self._finite(JOY, message) if self.core.settings.direct_joy_control else None
        if command is not None:
            self.core.joystick(*command)

    def _finite(self, topic: str, message: Any) -> tuple[float, float] | None:
        """v and ω of a Twist; None, counted and logged, when one is not a finite number."""
        v, omega = float(message.linear.x), float(message.angular.z)
        if math.isfinite(v) and math.isfinite(omega):
            return v, omega
        self.ignore(f"commands with NaN or infinity on {topic}", "error", f"{topic}: NaN or infinity, ignored")
        return None
