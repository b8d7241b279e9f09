"""Kinematic drone (PRD 4.1.1, 6.2): body-frame velocity commands, first-order lag, wind, ground clearance."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from microsim.documents.values import Height, Metres
from microsim.engine import exact
from microsim.engine.calls import Scene
from microsim.engine.columns import Column
from microsim.engine.compiled import inlined, kernel
from microsim.engine.components import Airflow, RobotModel, SideBySide
from microsim.engine.exact import sincos, wrap_angle
from microsim.engine.geometry import ground_height
from microsim.engine.noise import normals
from microsim.engine.robot_loops import accelerate
from microsim.robots.robot import Limit, Look, Pose, Robot, Start, TimeConstant
from microsim.sensors.camera import LOOKING_DOWN, Camera
from microsim.sensors.sensor import Mount


def lag_factor(dt: float, time_constant: float) -> float:
    """Share of the way to a held command that a first-order lag goes in dt (exact solution); 1 without lag."""
    return 1.0 - exact.exp(-dt / time_constant) if time_constant > 0.0 else 1.0


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    keep = exact.exp(-dt / wind.gust_tau_s)
    return (
        settings.max_vx,
        settings.max_vy,
        settings.max_vz,
        settings.max_yaw_rate,
        lag_factor(dt, settings.cmd_time_constant),
        settings.ground_clearance_m,
        *wind.world_xyz,
        keep,
        # the drive's variance is such that the gust, which follows it with the same time constant, has sigma^2
        wind.gust_sigma * (1.0 + keep) / math.sqrt(1.0 + keep * keep) * math.sqrt(1.0 - keep * keep),
    )


@inlined
def approach(value: float, command: float, limit: float, lag: float) -> float:
    """One tick of clamp and lag."""
    return value + (min(max(command, -limit), limit) - value) * lag


@kernel
def _blow(robot: Column, parameters: Column, key: int, tick: int) -> None:
    """Gusts: in each axis a Gauss-Markov process, smoothed by its own time constant.

    Without the smoothing the drone's acceleration, and so its IMU, would be noise that grows with the tick rate.
    """
    keep, new = parameters.gust_keep, parameters.gust_new
    if not new > 0.0:
        return
    first, second = normals(key, tick, 0)
    third, _ = normals(key, tick, 1)
    robot.drive_x = keep * robot.drive_x + new * first
    robot.drive_y = keep * robot.drive_y + new * second
    robot.drive_z = keep * robot.drive_z + new * third
    robot.gust_x = keep * robot.gust_x + (1.0 - keep) * robot.drive_x
    robot.gust_y = keep * robot.gust_y + (1.0 - keep) * robot.drive_y
    robot.gust_z = keep * robot.gust_z + (1.0 - keep) * robot.drive_z


@inlined
def _fly(robot: Column, command: Column, parameters: Column, dt: float) -> None:
    """One tick over ground."""
    vx = approach(robot.vx, command.vx, parameters.max_vx, parameters.lag)
    vy = approach(robot.vy, command.vy, parameters.max_vy, parameters.lag)
    yaw_rate = approach(robot.yaw_rate, command.yaw_rate, parameters.max_yaw_rate, parameters.lag)
    sine, cosine = sincos(robot.yaw)
    world_x = cosine * vx - sine * vy + parameters.wind_x + robot.gust_x
    world_y = sine * vx + cosine * vy + parameters.wind_y + robot.gust_y
    robot.x += world_x * dt
    robot.y += world_y * dt
    robot.yaw = wrap_angle(robot.yaw + yaw_rate * dt)
    robot.velocity_x, robot.velocity_y, robot.yaw_rate = world_x, world_y, yaw_rate
    robot.vx, robot.vy = vx, vy


@inlined
def _climb(robot: Column, command: Column, parameters: Column, ground: float, dt: float) -> None:
    """The same tick in height, no lower than the clearance over the ground at the new place."""
    vz = approach(robot.vz, command.vz, parameters.max_vz, parameters.lag)
    world_z = vz + parameters.wind_z + robot.gust_z
    z = robot.z + world_z * dt
    lowest = ground + parameters.clearance
    is_below = z < lowest
    world_z = (lowest - robot.z) / dt if is_below else world_z
    robot.z = lowest if is_below else z
    robot.vz = max(vz, 0.0) if is_below else vz
    robot.velocity_z = world_z


@kernel
def advance(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    _blow(robot, parameters, key, tick)
    x, y, z = robot.velocity_x, robot.velocity_y, robot.velocity_z
    _fly(robot, command, parameters, scene.dt)
    ground = ground_height(scene.elevation, scene.cell, robot.x - scene.west, robot.y - scene.south)
    _climb(robot, command, parameters, ground, scene.dt)
    accelerate(robot, x, y, z, scene.dt)


@inlined
def _is_clear(robot: Column, command: Column, parameters: Column, scene: Scene, ticks: int) -> bool:
    """Nothing is in its way: it flies over what stands there, or is stopped after the tick."""
    return True


class DronePose(Pose):
    """Where a drone starts, in the map frame."""

    x: Metres = Field(20.0, description="East [m].")
    y: Metres = Field(20.0, description="North [m].")
    z: Metres = Field(10.0, description="Height in the map frame [m].")


class DroneStart(Start):
    """How a drone starts."""

    map_pose: DronePose = Field(DronePose(), description="Pose in the map frame.")


class Drone(Robot):
    """A kinematic drone: it follows velocity commands with a lag."""

    position: ClassVar[int] = 1
    mounts: ClassVar[Mapping[str, Mount]] = {
        "gps": Mount(xyz=(0.0, 0.0, 0.08)),
        "camera": Mount(xyz=(0.10, 0.0, -0.05), rpy=LOOKING_DOWN),
    }
    follower: ClassVar[str] = "fly"
    urdf: ClassVar[str] = "drone"
    wind_parameter: ClassVar[bool] = True

    model: Literal["drone"] = Field("drone", description="A kinematic drone.")
    start: DroneStart = Field(DroneStart(), description="How it starts.")
    max_vx: Limit = Field(5.0, description="Greatest speed forward and backward [m/s].")
    max_vy: Limit = Field(5.0, description="Greatest speed left and right [m/s].")
    max_vz: Limit = Field(3.0, description="Greatest speed up and down [m/s].")
    max_yaw_rate: Limit = Field(1.5, description="Greatest turning rate [rad/s].")
    cmd_time_constant: TimeConstant = Field(0.15, description="Lag of commands, first order; 0: none [s].")
    ground_clearance_m: Height = Field(0.1, description="Least height above the ground [m].")
    camera: Camera | None = Field(Camera(), description="Camera looking down; null: none.")

    engine: ClassVar[RobotModel] = RobotModel(
        name="drone",
        inputs=("vx", "vy", "vz", "yaw_rate"),
        twist_fields=("linear.x", "linear.y", "linear.z", "angular.z"),
        own=(
            *("vx", "vy", "vz"),  # [m/s] body frame, through the air
            *("gust_x", "gust_y", "gust_z"),  # [m/s] map frame
            *("drive_x", "drive_y", "drive_z"),  # [m/s] what the gust follows
        ),
        shown=("x", "y", "z", "yaw", "vx", "vy", "vz", "yaw_rate"),
        zero_when_stopped=("vx", "vy", "vz"),
        parameter_names=(
            *("max_vx", "max_vy", "max_vz", "max_yaw_rate", "lag", "clearance"),
            *("wind_x", "wind_y", "wind_z", "gust_keep", "gust_new"),
        ),
        parameters=parameters,
        advance=advance,
        side_by_side=SideBySide(go=_fly, stand=_climb, is_clear=_is_clear, drift=_blow, noise_rows=6),
        is_ground_bound=False,
        needs_tick=lambda parameters: bool((parameters["gust_new"] > 0.0).any()),
    )

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        return (0.0, 0.0, 0.0), (0.5, 0.5, 0.15)

    def look(self) -> Look:
        return Look("cylinder", (0.3, 0.3, 0.05), (0.1, 0.1, 0.1))


ROBOT = Drone
