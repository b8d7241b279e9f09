"""Kinematic bicycle, the ego car: its reference point is the middle of the rear axle, on the ground.

Steering follows the command at a limited rate; speed follows the pedals (throttle and brake) or, while none is pressed,
a wanted speed. Over a tick the car drives an exact arc of radius wheelbase / tan(steering), as seen from above. Height,
pitch and roll follow the ground under the reference point and the wheels. The car stops where its body would enter an
occupied cell, leave the map or lose the ground.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Finite, Height, Length, show
from microsim.engine import columns
from microsim.engine.calls import Scene
from microsim.engine.columns import Column, column_in
from microsim.engine.command_timeout import timeout_ticks
from microsim.engine.compiled import kernel
from microsim.engine.components import COMMON, Airflow, RobotModel
from microsim.engine.exact import atan2, sincos, wrap_angle
from microsim.engine.geometry import Array, Grid, ground_height, is_free
from microsim.engine.motion import Motion, motion_in
from microsim.engine.robot_loops import move_to
from microsim.robots.robot import Limit, Look, Report, Robot, Start
from microsim.robots.rover import RoverPose
from microsim.sensors.autoware import Autoware
from microsim.sensors.camera import LOOKING_FORWARD
from microsim.sensors.joint_states import JointStates
from microsim.sensors.sensor import Mount

_clear = columns.clear

OWN = (
    "steering",  # [rad] of the front wheel, left positive
    "speed",  # [m/s] of the rear axle along the ground, backward negative
    "wheel",  # [rad] how far the rear wheels have turned, within -pi and pi
    "blocked",  # by what it is stopped: see below
    "steering_rate",  # [rad/s]
    "emergency",  # 1 while the car brakes for want of commands, else 0
    "command_age",  # [ticks] since the last command
)
_robot_in = column_in((*COMMON, *OWN))

FREE, BY_OBSTACLE, BY_MISSING_GROUND, BY_SLOPE = range(4)  # of `blocked`; the map's edge counts as an obstacle
_BLOCKED_WORDS = ("no", "by an obstacle", "no ground ahead", "slope too steep")

_HALVINGS = 12  # of a blocked tick's way: it ends less than a thousandth of it before the obstacle


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    car, front = settings, settings.length_m - settings.rear_overhang_m
    size = (car.wheelbase_m, car.track_m, car.width_m, front, -car.rear_overhang_m, car.wheel_radius_m)
    pedals = (car.max_acceleration, car.max_deceleration, car.max_speed, car.max_reverse_speed)
    emergency_share = min(car.emergency_deceleration / max(car.max_deceleration, 1e-9), 1.0)
    limits = (timeout_ticks(car.cmd_timeout_s or 0.0, dt), emergency_share, car.max_slope)
    return *size, car.max_steering, car.max_steering_rate, *pedals, *limits


def inputs_for_twist(settings: Any, forward: float, turn: float) -> dict[str, float]:
    """The command that drives at a speed [m/s] and turn rate [rad/s]; at rest the wheels turn as far as they go."""
    if forward == 0.0:
        steering = settings.max_steering if turn > 0.0 else -settings.max_steering if turn < 0.0 else 0.0
    else:
        slope = settings.wheelbase_m * turn / forward
        steering = float(atan2(slope, 1.0)) if math.isfinite(slope) else slope
    return {"steering": steering, "speed": forward}


@kernel
def _brake_when_unheard(robot: Column, command: Column, parameters: Column) -> None:
    """After too many ticks without a command: steering held where it is, no throttle, brake."""
    robot.emergency = 1.0 if robot.command_age >= parameters.timeout else 0.0
    if robot.emergency == 1.0:
        _clear(command)
        command.steering = robot.steering
        command.brake = parameters.emergency_share
    robot.command_age += 1.0


JOINTS = (
    "front_left_steering",
    "front_right_steering",
    "front_left_wheel",
    "front_right_wheel",
    "rear_left_wheel",
    "rear_right_wheel",
)


_joint_settings_in = column_in(("track", "wheelbase", "radius"))


@kernel
def joint_values(
    settings: Array, state: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Positions, then speeds of JOINTS. Both front wheels point at the centre of the turn; all roll like the axle."""
    robot, wheels = _robot_in(state), _joint_settings_in(settings)
    sine, cosine = sincos(robot.steering)
    slope = sine / cosine
    half = 0.5 * wheels.track * slope / wheels.wheelbase
    reading[0], reading[1] = atan2(slope, 1.0 + -1.0 * half), atan2(slope, 1.0 + 1.0 * half)
    reading[6], reading[7] = robot.steering_rate, robot.steering_rate
    for wheel in range(4):
        reading[2 + wheel] = robot.wheel
        reading[8 + wheel] = robot.speed / wheels.radius


@kernel
def _clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@kernel
def _steered(steering: float, command: Column, parameters: Column, dt: float) -> float:
    """The steering angle after a tick."""
    limit = parameters.max_steering
    rate = parameters.max_steering_rate
    if command.steering_rate > 0.0:
        rate = min(rate, command.steering_rate)
    wanted = _clamped(command.steering, -limit, limit)
    return steering + _clamped(wanted - steering, -rate * dt, rate * dt)


@kernel
def _sped(speed: float, command: Column, parameters: Column, dt: float) -> float:
    """The speed after a tick. A brake only stops: it never sets the car in motion backward."""
    gain, loss = parameters.max_acceleration, parameters.max_deceleration
    throttle = _clamped(command.throttle, -1.0, 1.0)
    brake = _clamped(command.brake, 0.0, 1.0)
    if throttle != 0.0 or brake != 0.0:
        speed += throttle * gain * dt
        slower = brake * loss * dt
        speed = max(speed - slower, 0.0) if speed >= 0.0 else min(speed + slower, 0.0)
    else:
        if command.acceleration > 0.0:
            gain = min(gain, command.acceleration)
            loss = min(loss, command.acceleration)
        wanted = command.speed
        if speed > 0.0 or (speed == 0.0 and wanted > 0.0):
            speed += _clamped(max(wanted, 0.0) - speed, -loss * dt, gain * dt)
        else:
            speed += _clamped(min(wanted, 0.0) - speed, -gain * dt, loss * dt)
    return _clamped(speed, -parameters.max_reverse, parameters.max_speed)


@kernel
def moved_along_arc(x: float, y: float, yaw: float, length: float, curvature: float) -> tuple[float, float, float]:
    """The pose after a way of `length` on a circle of that curvature [1/m]; exact for any length."""
    half = 0.5 * length * curvature
    chord = length
    if half != 0.0:
        chord = length * (sincos(half)[0] / half)
    sine, cosine = sincos(yaw + half)
    return x + cosine * chord, y + sine * chord, yaw + 2.0 * half


@kernel
def _outline_blocks(
    footing: Grid, cell: float, u: float, v: float, sine: float, cosine: float, parameters: Column
) -> int:
    """How many points of the body's outline, at most a cell apart, have no footing. (u, v) counts from the grid."""
    rows, columns = footing.shape
    front, rear, half = parameters.front, parameters.rear, 0.5 * parameters.width
    if 0.0 <= u < columns * cell and 0.0 <= v < rows * cell:
        reach = math.sqrt(max(front, -rear) * max(front, -rear) + half * half)
        near = footing[min(int(v / cell), rows - 1), min(int(u / cell), columns - 1)]
        if (near - 1.0) * cell > reach:
            return 0
    blocked = 0
    along, across = int((front - rear) / cell) + 1, int(2.0 * half / cell) + 1
    for side in range(2):
        q = half if side == 0 else -half
        for k in range(along + 1):
            p = rear + (front - rear) * k / along
            blocked += not is_free(footing, cell, u + cosine * p - sine * q, v + sine * p + cosine * q)
        p = front if side == 0 else rear
        for k in range(across + 1):
            q = -half + 2.0 * half * k / across
            blocked += not is_free(footing, cell, u + cosine * p - sine * q, v + sine * p + cosine * q)
    return blocked


@kernel
def _lacks_ground(elevation: Array, footing: Grid, cell: float, u: float, v: float, reach: float) -> bool:
    """True when cells without ground are within reach of (u, v)."""
    rows, columns = elevation.shape
    i0, i1 = int(max((u - reach) / cell - 1.0, 0.0)), int(min(max((u + reach) / cell + 1.0, 0.0), columns - 1.0))
    j0, j1 = int(max((v - reach) / cell - 1.0, 0.0)), int(min(max((v + reach) / cell + 1.0, 0.0), rows - 1.0))
    for j in range(j0, j1 + 1):
        for i in range(i0, i1 + 1):
            if elevation[j, i] != elevation[j, i]:
                return True
    return False


@kernel
def _lean(
    elevation: Array, cell: float, u: float, v: float, sine: float, cosine: float, parameters: Column
) -> tuple[float, float]:
    """Roll and pitch of the plane through the axles' and sides' middles; (u, v) counts from the grid."""
    base, half = parameters.wheelbase, 0.5 * parameters.track
    rear_left = ground_height(elevation, cell, u - sine * half, v + cosine * half)
    rear_right = ground_height(elevation, cell, u + sine * half, v - cosine * half)
    u, v = u + cosine * base, v + sine * base
    front_left = ground_height(elevation, cell, u - sine * half, v + cosine * half)
    front_right = ground_height(elevation, cell, u + sine * half, v - cosine * half)
    rise = 0.5 * ((front_left + front_right) - (rear_left + rear_right)) / base
    bank = 0.5 * ((front_left + rear_left) - (front_right + rear_right)) / (2.0 * half)
    if not math.isfinite(rise + bank):
        return 0.0, 0.0
    return atan2(bank / math.sqrt(1.0 + rise * rise), 1.0), atan2(-rise, 1.0)


@kernel
def settle(robot: Column, parameters: Column, scene: Scene) -> None:
    """Roll and pitch of a car that was put somewhere."""
    sine, cosine = sincos(robot.yaw)
    u, v = robot.x - scene.west, robot.y - scene.south
    robot.roll, robot.pitch = _lean(scene.elevation, scene.cell, u, v, sine, cosine, parameters)


@kernel
def _way_is_free(
    footing: Grid, cell: float, u: float, v: float, yaw: float, parameters: Column, tolerated: int
) -> bool:
    """True when the car may stand at a pose. Blocked points that it already has are tolerated: it can drive out."""
    if not is_free(footing, cell, u, v):
        return False
    sine, cosine = sincos(yaw)
    return _outline_blocks(footing, cell, u, v, sine, cosine, parameters) <= tolerated


@kernel
def _free_share(
    footing: Grid,
    cell: float,
    u: float,
    v: float,
    yaw: float,
    length: float,
    curvature: float,
    parameters: Column,
) -> float:
    """The share of a tick's way after which the car must stop; 1 when all of it is free."""
    end_u, end_v, end_yaw = moved_along_arc(u, v, yaw, length, curvature)
    if _way_is_free(footing, cell, end_u, end_v, end_yaw, parameters, 0):
        return 1.0
    sine, cosine = sincos(yaw)
    tolerated = _outline_blocks(footing, cell, u, v, sine, cosine, parameters)
    if _way_is_free(footing, cell, end_u, end_v, end_yaw, parameters, tolerated):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        at_u, at_v, at_yaw = moved_along_arc(u, v, yaw, length * middle, curvature)
        if _way_is_free(footing, cell, at_u, at_v, at_yaw, parameters, tolerated):
            low = middle
        else:
            high = middle
    return low


@kernel
def _is_too_steep(scene: Scene, parameters: Column, x: float, y: float, yaw: float, length: float) -> bool:
    """Whether a car that got here would be driving up a slope that is too steep; down it may always drive."""
    if scene.elevation.size == 1:
        return False
    sine, cosine = sincos(yaw)
    pitch = _lean(scene.elevation, scene.cell, x - scene.west, y - scene.south, sine, cosine, parameters)[1]
    return (-pitch if length > 0.0 else pitch) > parameters.max_slope


@kernel
def _drive(robot: Column, command: Column, parameters: Column, scene: Scene) -> None:
    dt, footing, cell = scene.dt, scene.footing, scene.cell
    steering = _steered(robot.steering, command, parameters, dt)
    speed = _sped(robot.speed, command, parameters, dt)
    mean = 0.5 * (robot.speed + speed)
    slope_cosine = sincos(robot.pitch)[1]
    steering_sine, steering_cosine = sincos(steering)
    curvature = steering_sine / steering_cosine / parameters.wheelbase
    length = mean * dt * slope_cosine  # as seen from above
    u, v, yaw = robot.x - scene.west, robot.y - scene.south, robot.yaw
    if length != 0.0:
        share = _free_share(footing, cell, u, v, yaw, length, curvature, parameters)
        robot.blocked = FREE
        if share < 1.0:
            length *= share
            speed = 0.0
            reach = parameters.front - parameters.rear
            missing = _lacks_ground(scene.elevation, footing, cell, u, v, reach)
            robot.blocked = BY_MISSING_GROUND if missing else BY_OBSTACLE
            robot.is_stopped = 1.0
    x, y, new_yaw = moved_along_arc(robot.x, robot.y, yaw, length, curvature)
    if length != 0.0 and _is_too_steep(scene, parameters, x, y, new_yaw, length):
        length, speed, robot.blocked = 0.0, 0.0, BY_SLOPE
        x, y, new_yaw = robot.x, robot.y, yaw
    robot.wheel = wrap_angle(robot.wheel + length / slope_cosine / parameters.wheel_radius)
    robot.steering_rate = (steering - robot.steering) / dt
    robot.steering, robot.speed = steering, speed
    _stand(robot, parameters, scene, x, y, new_yaw)


@kernel
def _stand(robot: Column, parameters: Column, scene: Scene, x: float, y: float, yaw: float) -> None:
    """Put the car down at the end of a tick's way, and note what it really did."""
    u, v, dt = x - scene.west, y - scene.south, scene.dt
    z = ground_height(scene.elevation, scene.cell, u, v)
    z = z if z == z else robot.z
    sine, cosine = sincos(yaw)
    roll, pitch = _lean(scene.elevation, scene.cell, u, v, sine, cosine, parameters)
    move_to(robot, x, y, z, dt)
    robot.yaw_rate = (yaw - robot.yaw) / dt
    robot.roll_rate, robot.pitch_rate = (roll - robot.roll) / dt, (pitch - robot.pitch) / dt
    robot.yaw, robot.roll, robot.pitch = wrap_angle(yaw), roll, pitch


@kernel
def advance(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    _brake_when_unheard(robot, command, parameters)
    _drive(robot, command, parameters, scene)


class CarPose(RoverPose):
    """Where a car starts, in the map frame."""

    yaw: Angle = Field(0.0, description="Heading, counter-clockwise from east [rad].")


class CarStart(Start):
    """How a car starts."""

    map_pose: CarPose = Field(CarPose(), description="Pose of the rear axle's middle in the map frame.")


class Bicycle(Robot):
    """A car: the kinematic bicycle at its rear axle, on the relief of the ground."""

    position: ClassVar[int] = 3
    is_watched: ClassVar[bool] = True
    is_vehicle: ClassVar[bool] = True
    class_id: ClassVar[str] = "car"
    names: ClassVar[tuple[str, ...]] = ("ego",)
    inputs: ClassVar[tuple[str, ...]] = ("cmd_vel", "ackermann_cmd", "set_pose")
    follower: ClassVar[str] = "pure_pursuit"
    urdf: ClassVar[str] = "ego"
    mounts: ClassVar[Mapping[str, Mount]] = {
        "gps": Mount(xyz=(0.0, 0.0, 1.5)),
        **dict.fromkeys(("imu", "ahrs"), Mount(xyz=(0.0, 0.0, 0.4))),
        "range": Mount(xyz=(3.6, 0.0, 0.5)),
        "scan": Mount(xyz=(3.6, 0.0, 0.5)),
        "camera": Mount(xyz=(1.7, 0.0, 1.3), rpy=LOOKING_FORWARD),
        "lidar": Mount(xyz=(1.2, 0.0, 1.9)),
    }

    model: Literal["bicycle"] = Field("bicycle", description="A car as a kinematic bicycle.")
    start: CarStart = Field(CarStart(), description="How it starts.")
    frame_prefix: Annotated[str, Field(strict=True, pattern=r"^([a-z][a-z0-9_]*/)*$", max_length=100)] | None = Field(
        None, description="Before the names of its frames; default: none for the robot `ego`, `<name>/` for any other."
    )
    wheelbase_m: Length = Field(2.7, description="Distance of the axles [m].")
    track_m: Length = Field(1.6, description="Distance of the wheels of an axle [m].")
    length_m: Length = Field(4.5, description="Length of the body [m].")
    width_m: Length = Field(1.8, description="Width of the body [m].")
    height_m: Length = Field(1.5, description="Height of the body above the ground [m].")
    rear_overhang_m: Height = Field(0.9, description="How far the body reaches behind the rear axle [m].")
    wheel_radius_m: Length = Field(0.33, description="Radius of the wheels [m].")
    max_steering: Annotated[Finite, Field(ge=0, le=1.5)] = Field(0.6, description="Greatest steering angle [rad].")
    max_steering_rate: Limit = Field(0.8, description="Greatest rate of the steering angle [rad/s].")
    max_acceleration: Limit = Field(3.0, description="Acceleration at full throttle [m/s²].")
    max_deceleration: Limit = Field(8.0, description="Deceleration at full brake [m/s²].")
    emergency_deceleration: Limit = Field(
        3.0, description="That of an emergency stop, at most the full brake's [m/s²]."
    )
    max_speed: Limit = Field(15.0, description="Greatest speed forward [m/s].")
    max_reverse_speed: Limit = Field(3.0, description="Greatest speed backward [m/s].")
    max_slope: Annotated[Finite, Field(ge=0, le=1.5)] = Field(
        0.7, description="Steepest slope that it drives up, between its axles; before a steeper one it stops [rad]."
    )
    cmd_timeout_s: Annotated[Finite, Field(gt=0, le=1e6)] | None = Field(
        1.0, description="A command older than this is followed by an emergency stop; null: commands hold [s]."
    )
    autoware: Autoware | None = Field(None, description="Topics of Autoware's planning simulator; null: none.")
    joint_states: JointStates | None = Field(JointStates(), description="Angles of wheels and steering; null: none.")

    @model_validator(mode="after")
    def _axles_under_the_body(self) -> Self:
        if self.rear_overhang_m + self.wheelbase_m > self.length_m:
            raise ValueError(
                f"expected length_m to be at least rear_overhang_m + wheelbase_m, which is "
                f"{show(self.rear_overhang_m + self.wheelbase_m)}, found {show(self.length_m)}"
            )
        return self

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        middle = 0.5 * self.length_m - self.rear_overhang_m
        return (middle, 0.0, 0.5 * self.height_m), (self.length_m, self.width_m, self.height_m)

    def look(self) -> Look:
        center, size = self.body()
        return Look("box", size, (0.2, 0.4, 0.8), center)

    def report(self, state: Any) -> Report:
        robot = _robot_in(state)
        is_emergency = robot.emergency == 1.0
        by_robot = robot.is_stopped == 1.0 and robot.blocked == FREE
        values = {
            "emergency_stop": str(is_emergency).lower(),
            "blocked": "by another robot" if by_robot else _BLOCKED_WORDS[int(robot.blocked)],
            "speed": f"{robot.speed:.3f}",
        }
        return Report(values, "emergency_stop" if is_emergency else "")

    def ground_points(self, motion: Motion) -> tuple[Any, Any]:
        along = np.array([0.0, 0.0, 0.0, self.wheelbase_m, self.wheelbase_m])
        across = 0.5 * self.track_m * np.array([0.0, 1.0, -1.0, 1.0, -1.0])
        seen = motion_in(motion)
        sine, cosine = seen.sin_yaw, seen.cos_yaw
        return seen.x + cosine * along - sine * across, seen.y + sine * along + cosine * across

    def frame(self, robot: str, link: str) -> str:
        prefix = self.frame_prefix if self.frame_prefix is not None else "" if robot == "ego" else f"{robot}/"
        return f"{prefix}{link}"

    def sensor_frame(self, robot: str, sensor: str, suffix: str = "_link") -> str:
        """Cameras and LiDARs of a world bundle have frames of their own names: `camera_front`, `lidar_top`."""
        return self.frame(robot, sensor if sensor.startswith(("camera_", "lidar_")) else f"{sensor}{suffix}")

    engine: ClassVar[RobotModel] = RobotModel(
        name="bicycle",
        inputs=("steering", "speed", "throttle", "brake", "acceleration", "steering_rate"),
        twist_fields=(),
        own=OWN,
        shown=(
            *("x", "y", "z", "yaw", "roll", "pitch", "steering", "speed", "yaw_rate"),
            *("contacts", "blocked", "emergency"),
        ),
        parameter_names=(
            *("wheelbase", "track", "width", "front", "rear", "wheel_radius", "max_steering", "max_steering_rate"),
            *("max_acceleration", "max_deceleration", "max_speed", "max_reverse"),
            *("timeout", "emergency_share", "max_slope"),  # [ticks], of the full brake, [rad]
        ),
        parameters=parameters,
        advance=advance,
        is_ground_bound=True,
        stops_at_cells=True,
        zero_when_stopped=("speed",),
        kept_when_stopped=("wheel",),
        from_twist=inputs_for_twist,
        settle=settle,
        command_age="command_age",
        joints=JOINTS,
        joint_kernel=joint_values,
        joint_numbers=lambda settings: (settings.track_m, settings.wheelbase_m, settings.wheel_radius_m),
    )


ROBOT = Bicycle
