"""Kinematic differential-drive rover (PRD 4.1.2, 6.2): stops at occupied cells and at the map's edge."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_core import InitErrorDetails

from microsim.documents.values import Angle, Finite, Metres, Model, Switch, detail, show
from microsim.engine.calls import Scene
from microsim.engine.columns import Column
from microsim.engine.compiled import inlined, kernel
from microsim.engine.components import Airflow, RobotModel, SideBySide
from microsim.engine.exact import sincos, wrap_angle
from microsim.engine.geometry import Grid, distance_to_occupied, ground_height, is_free
from microsim.engine.robot_loops import accelerate
from microsim.robots.drone import approach, lag_factor
from microsim.robots.robot import Limit, Look, Pose, Robot, Start, TimeConstant
from microsim.sensors.camera import LOOKING_FORWARD
from microsim.sensors.joint_states import JointStates
from microsim.sensors.range import Range
from microsim.sensors.sensor import Mount

CONTACT_GAP_M = 1e-3  # how far from an occupied cell a stopped rover stands
_SLACK_M = 1e-6  # far above what rounding can move a rover by, far below a cell


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    return settings.max_v, settings.max_omega, lag_factor(dt, settings.cmd_time_constant)


@kernel
def free_length(scene: Scene, x: float, y: float, dx: float, dy: float, length: float) -> float:
    """How far, up to `length`, the way from (x, y) along the unit vector (dx, dy) is free of occupied cells."""
    footing, cell, west, south = scene.footing, scene.cell, scene.west, scene.south
    wall = distance_to_occupied(footing, cell, x - west, y - south, dx, dy, length + CONTACT_GAP_M, True)
    if wall == math.inf:
        return length
    length = min(length, max(wall - CONTACT_GAP_M, 0.0))
    # The end point is rounded on its own: it must lie in a free cell too, whatever the crossing's rounding said.
    return length if is_free(footing, cell, x + dx * length - west, y + dy * length - south) else 0.0


@inlined
def _pull(robot: Column, command: Column, parameters: Column) -> tuple[float, float]:
    """(v, omega) as they become in this tick."""
    v = approach(robot.v, command.v, parameters.max_v, parameters.lag)
    return v, approach(robot.yaw_rate, command.omega, parameters.max_omega, parameters.lag)


@inlined
def _go(robot: Column, x: float, y: float, velocity_x: float, velocity_y: float, omega: float, dt: float) -> None:
    robot.x, robot.y = x, y
    robot.yaw = wrap_angle(robot.yaw + omega * dt)
    robot.velocity_x, robot.velocity_y, robot.yaw_rate = velocity_x, velocity_y, omega


@inlined
def _stand(robot: Column, command: Column, parameters: Column, ground: float, dt: float) -> None:
    robot.velocity_z, robot.z = (ground - robot.z) / dt, ground


@inlined
def _drive_freely(robot: Column, command: Column, parameters: Column, dt: float) -> None:
    """One tick where nothing can be in the way."""
    v, omega = _pull(robot, command, parameters)
    sine, cosine = sincos(robot.yaw)
    robot.v = v
    _go(robot, robot.x + cosine * v * dt, robot.y + sine * v * dt, cosine * v, sine * v, omega, dt)


@kernel
def travel(robot: Column, v: float, omega: float, sine: float, cosine: float, scene: Scene) -> None:
    """It drives at v along (cosine, sine) for a tick, over the ground and no farther than to an occupied cell."""
    x, y, dt = robot.x, robot.y, scene.dt
    before_x, before_y, before_z = robot.velocity_x, robot.velocity_y, robot.velocity_z
    wanted_x, wanted_y = x + cosine * v * dt, y + sine * v * dt
    length = abs(v * dt)
    sign = 1.0 if v >= 0.0 else -1.0
    free = free_length(scene, x, y, sign * cosine, sign * sine, length)
    if free < length or not is_free(scene.footing, scene.cell, wanted_x - scene.west, wanted_y - scene.south):
        new_x, new_y = x + sign * cosine * free, y + sign * sine * free
        robot.v = 0.0
        robot.is_stopped = 1.0
        _go(robot, new_x, new_y, (new_x - x) / dt, (new_y - y) / dt, omega, dt)
    else:
        robot.v = v
        _go(robot, wanted_x, wanted_y, cosine * v, sine * v, omega, dt)
    ground = ground_height(scene.elevation, scene.cell, robot.x - scene.west, robot.y - scene.south)
    robot.velocity_z, robot.z = (ground - robot.z) / dt, ground
    accelerate(robot, before_x, before_y, before_z, dt)


@inlined
def _is_far_from_walls(clearance: Grid, cell: float, x: float, y: float, reach: float) -> bool:
    """True when no way of length `reach` from (x, y) can touch an occupied cell or the map's edge; for SIMD."""
    rows, columns = clearance.shape
    per_cell = 1.0 / cell
    u, v = x * per_cell, y * per_cell  # rounding is far below the slack
    is_on_map = (u >= 0.0) & (u < columns) & (v >= 0.0) & (v < rows)
    u, v = u if is_on_map else 0.0, v if is_on_map else 0.0
    i, j = int(u), int(v)
    border = min(u - i, i + 1.0 - u, v - j, j + 1.0 - v)  # of its own cell; those around it are free too
    return is_on_map & (reach + CONTACT_GAP_M + _SLACK_M < (float(clearance[j, i]) - 1.0 + border) * cell)


@inlined
def _is_clear(robot: Column, command: Column, parameters: Column, scene: Scene, ticks: int) -> bool:
    """Whether no wall is in reach; its speed never leaves the span between that of now and the commanded one."""
    speed = max(abs(robot.v), min(abs(command.v), parameters.max_v))
    x, y = robot.x - scene.west, robot.y - scene.south
    return _is_far_from_walls(scene.footing, scene.cell, x, y, speed * scene.dt * ticks)


@inlined
def _drift(robot: Column, parameters: Column, key: int, tick: int) -> None:
    """Nothing here is random."""


@kernel
def advance(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    v, omega = _pull(robot, command, parameters)
    sine, cosine = sincos(robot.yaw)
    travel(robot, v, omega, sine, cosine, scene)


KINEMATIC = RobotModel(
    name="rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    own=("v",),  # [m/s] forward
    shown={"x": "x", "y": "y", "z": "z", "yaw": "yaw", "v": "v", "omega": "yaw_rate"},
    parameter_names=("max_v", "max_omega", "lag"),
    parameters=parameters,
    advance=advance,
    side_by_side=SideBySide(go=_drive_freely, stand=_stand, is_clear=_is_clear, drift=_drift),
    is_ground_bound=True,
    stops_at_cells=True,
    zero_when_stopped=("v",),
    needs_tick=lambda parameters: False,
)


class RoverPose(Pose):
    """Where a rover starts, in the map frame."""

    x: Metres = Field(10.0, description="East [m].")
    y: Metres = Field(10.0, description="North [m].")
    yaw: Angle = Field(1.57, description="Heading, counter-clockwise from east [rad].")

    @field_validator("z")
    @classmethod
    def _on_the_ground(cls, value: float | None) -> None:
        if value:
            raise ValueError(f"a rover stands on the ground: leave z out; found {show(value)}")


class RoverStart(Start):
    """How a rover starts."""

    map_pose: RoverPose = Field(RoverPose(), description="Pose in the map frame.")


Mass = Annotated[Finite, Field(ge=1e-3, le=1e6)]
Inertia = Annotated[Finite, Field(ge=1e-6, le=1e9)]
Drag = Annotated[Finite, Field(ge=0, le=1e6)]
Force = Annotated[Finite, Field(ge=0, le=1e6)]
ResponseTime = Annotated[Finite, Field(ge=1e-4, le=1e4)]
Timeout = Annotated[Finite, Field(ge=0, le=1e6)]


class Dynamics(Model):
    """A rover's response to commands: force towards the commanded speed, drag, and what becomes of an old command."""

    use_dynamics: Switch = Field(True, description="false: the commanded speed at once, without force and drag.")
    mass: Mass = Field(5.0, description="Mass [kg].")
    inertia: Inertia = Field(0.5, description="Inertia about the vertical [kg m²].")
    response_time: ResponseTime = Field(0.3, description="Time constant towards the commanded speed [s].")
    linear_drag: Drag = Field(2.0, description="Drag per speed [N s/m].")
    angular_drag: Drag = Field(1.0, description="Drag per turning rate [N m s/rad].")
    max_force: Force = Field(20.0, description="Greatest net force; over the mass it limits acceleration [N].")
    max_torque: Force = Field(5.0, description="Greatest net torque; over the inertia it limits turning [N m].")
    command_timeout: Timeout = Field(
        0.5, description="A command not followed by another for so long counts as 0; 0: it never runs out [s]."
    )

    def too_quick(self, rate_hz: float) -> str:
        """Why speeds would never settle at so few ticks a second; empty when they do."""
        if not self.use_dynamics:
            return ""
        quickest = 1.0 / self.response_time + max(self.linear_drag / self.mass, self.angular_drag / self.inertia)
        if quickest <= 2.0 * rate_hz:
            return ""
        return (
            f"at {rate_hz:g} Hz speeds would swing for ever: 1/response_time plus drag over mass (or inertia) is "
            f"{quickest:.4g} 1/s, and may be twice the rate; lengthen response_time, lessen drag, or raise the rate"
        )


WheelLength = Annotated[Finite, Field(ge=1e-3, le=1e3)]


class WheelJoints(JointStates):
    """`sensor_msgs/JointState` on `joint_states`: the four wheels of `urdf/rover.urdf.xacro`."""

    wheel_radius_m: WheelLength = Field(0.068, description="Radius of the wheels [m].")
    track_m: WheelLength = Field(0.33, description="Distance between left and right wheels [m].")


class Rover(Robot):
    """A rover: it drives and turns on the ground, and stops at occupied cells. Kinematic, or with mass and drag."""

    position: ClassVar[int] = 2
    absent_when_null: ClassVar[tuple[str, ...]] = ("dynamics", "joint_states")
    mounts: ClassVar[Mapping[str, Mount]] = {
        "gps": Mount(xyz=(0.0, 0.0, 0.15)),
        "camera": Mount(xyz=(0.25, 0.0, 0.15), rpy=LOOKING_FORWARD),
    }
    urdf: ClassVar[str] = "rover"
    engine: ClassVar[RobotModel] = KINEMATIC

    model: Literal["rover"] = Field("rover", description="A rover with differential drive.")
    start: RoverStart = Field(RoverStart(), description="How it starts.")
    max_v: Limit = Field(2.0, description="Greatest speed forward and backward [m/s].")
    max_omega: Limit = Field(1.2, description="Greatest turning rate [rad/s].")
    cmd_time_constant: TimeConstant = Field(0.10, description="Lag of commands, first order; 0: none [s].")
    dynamics: Dynamics | None = Field(
        None, description="Mass, drag and command timeout in place of the lag; null: kinematic, and commands are held."
    )
    range: Range | None = Field(Range(), description="Range sensor looking forward; null: none.")
    joint_states: WheelJoints | None = Field(
        None, description="Angles and speeds of the wheels, of a rover with dynamics; null: none."
    )

    @field_validator("dynamics", mode="before")
    @classmethod
    def _switch_dynamics(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @property
    def engine_model(self) -> RobotModel:
        if self.dynamics is None:
            return self.engine
        from microsim.robots.dynamic_rover import DYNAMIC

        return DYNAMIC

    def unfit(self, physics_hz: float) -> list[InitErrorDetails]:
        if self.dynamics is None:
            message = "a kinematic rover has no wheels that turn: write `dynamics: {}` beside it"
            return [] if self.joint_states is None else [detail(message, "joint_states", at_key=True)]
        problem = self.dynamics.too_quick(physics_hz)
        return [detail(problem, "dynamics")] if problem else []

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        return (0.0, 0.0, 0.075), (0.5, 0.35, 0.15)

    def look(self) -> Look:
        return Look("box", (0.5, 0.3, 0.15), (0.8, 0.2, 0.2))


ROBOT = Rover
