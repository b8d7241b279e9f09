"""Round planar robot for navigation tests: limits of speed, acceleration and jerk, a command timeout, and braking.

In a tick of dt, in this order: the command (0 once it has run out) is clipped; it is limited by what is in the way; the
speeds approach it within their limits; then Euler's step, x <- x + v cos(yaw) dt, yaw <- wrap(yaw + ω dt), no farther
than to where the robot would touch something.

With the free way d before it, the speed is at most max_v (d - stop) / (slow - stop) from slow_distance_m on, and 0 from
stop_distance_m on. Where acceleration or jerk are limited it brakes so early that it can keep to that line.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Switch, detail, fail
from microsim.engine.calls import Scene
from microsim.engine.columns import Column, column_in
from microsim.engine.compiled import kernel
from microsim.engine.components import COMMON, Airflow, RobotModel
from microsim.engine.exact import sincos, wrap_angle
from microsim.engine.geometry import Array, Grid, distance_to_occupied, ground_height
from microsim.engine.speed_limits import towards
from microsim.robots.robot import Look, Robot

OWN = (
    *("v", "accel", "alpha"),  # [m/s] [m/s^2] [rad/s^2]
    "ahead",  # [m] free way in the direction of the command; inf when there is none or nobody looked
    "has_timed_out",  # 1 where the command has run out
    "command_age",  # ticks since the last command
)
_robot_in = column_in((*COMMON, *OWN))

_TOUCH_M = 1e-9  # by which a robot may overlap a cell that it only touches
_RAYS = 16  # at most so many on either side of the middle


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    return (
        settings.max_v,
        settings.max_omega,
        float(settings.limit_commands),
        float(max(math.floor(settings.cmd_timeout_s / dt + 1e-9), 1)),  # a command acts for a tick at least
        settings.slow_distance_m if settings.slow_down else 0.0,
        settings.stop_distance_m,
        settings.radius_m,
        settings.min_turn_radius_m,
        settings.max_linear_accel,
        settings.max_linear_jerk,
        settings.max_angular_accel,
        settings.max_angular_jerk,
        math.inf,
        math.inf,
    )


@kernel
def _is_occupied(clearance: Grid, cell: float, u: float, v: float) -> bool:
    """True when a point lies in an occupied cell; beyond the grid nothing is."""
    rows, columns = clearance.shape
    column, row = u / cell, v / cell
    # compared before they become integers: what an out-of-range number becomes depends on the processor
    return 0.0 <= column < columns and 0.0 <= row < rows and clearance[int(row), int(column)] == 0


@kernel
def free_way(scene: Scene, x: float, y: float, dx: float, dy: float, radius: float, reach: float) -> float:
    """How far a round robot at (x, y) can drive along the unit vector (dx, dy), inf beyond `reach`.

    The grid is looked at along parallel rays across the robot's width, at most half a cell apart. A ray that begins in
    an occupied cell does not count: a robot that touches a wall may drive along it, and one put into a wall drive out.
    """
    clearance, cell, u, v = scene.clearance, scene.cell, x - scene.west, y - scene.south
    rays = min(math.ceil(2.0 * radius / cell), _RAYS)  # on either side
    free = math.inf
    for k in range(-rays, rays + 1):
        aside = radius * k / rays if rays > 0 else 0.0
        front = math.sqrt(max(radius * radius - aside * aside, 0.0))
        start_u, start_v = u - dy * aside, v + dx * aside
        if not _is_occupied(clearance, cell, start_u, start_v):
            way = distance_to_occupied(clearance, cell, start_u, start_v, dx, dy, reach + front, False)
            free = min(free, max(way - front, 0.0))
    return free if free <= reach else math.inf


@kernel
def _way_into_box(x: float, y: float, dx: float, dy: float, half_x: float, half_y: float) -> float:
    """From (x, y) along (dx, dy) into a box about the origin; inf: it misses the box or lies before it."""
    enter, leave = -math.inf, math.inf
    for k in range(2):
        place, way, half = (x, dx, half_x) if k == 0 else (y, dy, half_y)
        if way != 0.0:
            one, other = (-half - place) / way, (half - place) / way
            enter, leave = max(enter, min(one, other)), min(leave, max(one, other))
        elif abs(place) >= half:
            return math.inf
    return max(enter, 0.0) if -_TOUCH_M <= enter <= leave and leave > 0.0 else math.inf


@kernel
def _way_to_cell(x: float, y: float, dx: float, dy: float, half: float, radius: float) -> float:
    """How far a disc at (x, y) can go along (dx, dy) before it overlaps a square cell about the origin.

    0: it does already, and would come nearer; inf: never, or it leaves it.
    """
    near_x, near_y = min(max(x, -half), half) - x, min(max(y, -half), half) - y
    if near_x * near_x + near_y * near_y <= radius * radius:
        return 0.0 if near_x * dx + near_y * dy > 0.0 else math.inf
    way = min(_way_into_box(x, y, dx, dy, half + radius, half), _way_into_box(x, y, dx, dy, half, half + radius))
    for k in range(4):
        corner_x, corner_y = (half if k & 1 else -half) - x, (half if k & 2 else -half) - y
        along = corner_x * dx + corner_y * dy
        power = along * along - (corner_x * corner_x + corner_y * corner_y - radius * radius)
        if along > 0.0 and power >= 0.0:
            way = min(way, max(along - math.sqrt(power), 0.0))
    return way


@kernel
def exact_way(scene: Scene, x: float, y: float, dx: float, dy: float, radius: float, reach: float) -> float:
    """How far a round robot can drive before it overlaps an occupied cell, inf beyond `reach`; of every cell there.

    Less than _TOUCH_M is touching, so that it can drive along a wall. `free_way`, which looks along rays, is for one
    that was put into a wall, and for one without a width.
    """
    clearance, cell, u, v = scene.clearance, scene.cell, x - scene.west, y - scene.south
    rows, columns = clearance.shape
    free, around = math.inf, radius + reach
    low_u, high_u = (u - around) / cell, (u + around) / cell
    low_v, high_v = (v - around) / cell, (v + around) / cell
    if radius <= 2.0 * _TOUCH_M or not around < 1e4 * cell:
        return free_way(scene, x, y, dx, dy, radius, reach)
    if not (high_u >= 0.0 and high_v >= 0.0 and low_u < columns and low_v < rows):
        return math.inf
    for j in range(int(max(low_v, 0.0)), int(min(high_v, rows - 1.0)) + 1):
        for i in range(int(max(low_u, 0.0)), int(min(high_u, columns - 1.0)) + 1):
            if clearance[j, i] != 0:
                continue
            from_x, from_y, half = u - (i + 0.5) * cell, v - (j + 0.5) * cell, 0.5 * cell
            gap_x, gap_y = max(abs(from_x) - half, 0.0), max(abs(from_y) - half, 0.0)
            deep = radius - 1e3 * _TOUCH_M
            if gap_x * gap_x + gap_y * gap_y < deep * abs(deep):
                return free_way(scene, x, y, dx, dy, radius, reach)
            if _way_to_cell(from_x, from_y, dx, dy, half, radius - _TOUCH_M) <= reach:
                free = min(free, _way_to_cell(from_x, from_y, dx, dy, half, radius))
    return free if free <= reach else math.inf


@kernel
def allowed_speed(ahead: float, max_v: float, slow: float, stop: float, dt: float) -> float:
    """Falls in a straight line from max_v at `slow` to 0 at `stop`, and never lets a tick reach past `stop`."""
    if ahead <= stop:
        return 0.0
    left = ahead - stop
    if ahead >= slow:
        return left / dt
    return min(max_v * left / (slow - stop), left / dt)


@kernel
def _braking(v: float, max_accel: float, max_jerk: float) -> tuple[float, float]:
    """Deceleration [m/s^2] to count on from the speed v, and the time until it is reached [s]; inf: no limit."""
    decel = max_accel if max_accel > 0.0 else math.inf
    if max_jerk > 0.0:
        decel = min(decel, max(math.sqrt(v * max_jerk), 1e-6))
        return decel, 2.0 * decel / max_jerk  # it may be speeding up as hard as that
    return decel, 0.0


@kernel
def braked_speed(left: float, decel: float, delay: float, slope: float, dt: float) -> float:
    """The greatest speed from which the robot can still keep to v <= slope * way, with `left` of that way before it.

    It drives on for a tick and the delay, then brakes: v = sqrt(2 decel (way - decel / (2 slope^2))), the parabola that
    touches the line at v = decel / slope.
    """
    wait = delay + dt
    slowest = left / (1.0 / slope + wait)
    if slowest * slope <= decel:
        return slowest
    half = decel * wait
    return math.sqrt(max(half * half + 2.0 * decel * left - (decel / slope) * (decel / slope), 0.0)) - half


@kernel
def _speed_before_obstacles(
    robot: Column, parameters: Column, scene: Scene, v: float, sine: float, cosine: float
) -> float:
    """The commanded speed, as far as what is in the way allows; notes the free way."""
    robot.ahead = math.inf
    slow, stop = parameters.slow, parameters.stop
    if slow <= 0.0 or v == 0.0:
        return v
    sign = 1.0 if v > 0.0 else -1.0
    fastest = max(abs(v), abs(robot.v))
    slope = parameters.max_v / (slow - stop)
    decel, delay = _braking(fastest, parameters.max_accel, parameters.max_jerk)
    reach = max(slow, stop + fastest * (scene.dt + delay))
    if decel < math.inf and slope > 0.0:
        reach = max(reach, stop + fastest * (scene.dt + delay) + fastest * fastest / decel + decel / (slope * slope))
    others = parameters.others_ahead if v > 0.0 else parameters.others_astern
    free = exact_way(scene, robot.x, robot.y, sign * cosine, sign * sine, parameters.radius, reach)
    ahead = min(free, others)
    if ahead > reach:
        return v
    if ahead <= slow:
        robot.ahead = ahead
    most = allowed_speed(ahead, parameters.max_v, slow, stop, scene.dt)
    if decel < math.inf and slope > 0.0:
        most = min(most, braked_speed(max(ahead - stop, 0.0), decel, delay, slope, scene.dt))
    return min(max(v, -most), most)


@kernel
def _free_step(robot: Column, parameters: Column, scene: Scene, step: float, sine: float, cosine: float) -> float:
    """How much of a step [m, negative: backward] the robot can go before it touches something."""
    if parameters.slow <= 0.0 or step == 0.0:
        return step
    sign = 1.0 if step > 0.0 else -1.0
    others = parameters.others_ahead if step > 0.0 else parameters.others_astern
    free = exact_way(scene, robot.x, robot.y, sign * cosine, sign * sine, parameters.radius, abs(step))
    return sign * min(abs(step), free, others)


@kernel
def _turn(robot: Column, parameters: Column, v: float, omega: float, dt: float) -> tuple[float, float]:
    """Turning rate and its change in this tick. The radius of a curve is kept even where its limits would not."""
    most = abs(v) / parameters.min_turn if parameters.min_turn > 0.0 else math.inf
    omega = min(max(omega, -most), most)
    before = robot.yaw_rate
    omega, alpha = towards(before, robot.alpha, omega, parameters.max_alpha, parameters.max_angular_jerk, dt)
    if abs(omega) > most:
        omega = min(max(omega, -most), most)
        alpha = (omega - before) / dt
    return omega, alpha


@kernel
def advance(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    dt = scene.dt
    robot.has_timed_out = 1.0 if robot.command_age >= parameters.timeout else 0.0
    robot.command_age += 1.0
    v, omega = 0.0, 0.0
    if robot.has_timed_out == 0.0:
        v, omega = command.v, command.omega
    if parameters.is_clipped > 0.0:
        most_v, most_omega = parameters.max_v, parameters.max_omega
        v, omega = min(max(v, -most_v), most_v), min(max(omega, -most_omega), most_omega)
    sine, cosine = sincos(robot.yaw)
    v = _speed_before_obstacles(robot, parameters, scene, v, sine, cosine)
    v, accel = towards(robot.v, robot.accel, v, parameters.max_accel, parameters.max_jerk, dt)
    step = _free_step(robot, parameters, scene, v * dt, sine, cosine)
    dx, dy = v * cosine * dt, v * sine * dt
    if step != v * dt:
        v, accel, dx, dy = 0.0, 0.0, step * cosine, step * sine
        robot.is_stopped = 1.0
    omega, alpha = _turn(robot, parameters, v, omega, dt)
    robot.x += dx
    robot.y += dy
    robot.yaw = wrap_angle(robot.yaw + omega * dt)
    sine, cosine = sincos(robot.yaw)
    velocity_x, velocity_y = v * cosine, v * sine
    robot.acceleration_x = (velocity_x - robot.velocity_x) / dt
    robot.acceleration_y = (velocity_y - robot.velocity_y) / dt
    robot.velocity_x, robot.velocity_y, robot.yaw_rate = velocity_x, velocity_y, omega
    robot.v, robot.accel, robot.alpha = v, accel, alpha
    robot.z = ground_height(scene.elevation, scene.cell, robot.x - scene.west, robot.y - scene.south)


@kernel
def exact_speeds(
    settings: Array, state: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Put the speeds into a reading of odometry as they are in the state, without the rounding of turned axes."""
    robot = _robot_in(state)
    reading[7], reading[8], reading[9] = robot.v, 0.0, 0.0
    reading[10], reading[11], reading[12] = 0.0, 0.0, robot.yaw_rate


NAVIGATION = RobotModel(
    name="navigation_robot",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    own=OWN,
    shown={"x": "x", "y": "y", "z": "z", "yaw": "yaw", "v": "v", "omega": "yaw_rate"},
    parameter_names=(
        *("max_v", "max_omega", "is_clipped", "timeout", "slow", "stop", "radius", "min_turn"),
        *("max_accel", "max_jerk", "max_alpha", "max_angular_jerk"),
        *("others_ahead", "others_astern"),  # [m] free way to what moves, written by what moves it; inf: none
    ),
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
    stops_at_cells=True,
    zero_when_stopped=("v", "accel", "alpha"),
    command_age="command_age",
    needs_tick=lambda parameters: False,
)

Speed = Annotated[Finite, Field(ge=0, le=1e6)]
Limit = Annotated[Finite, Field(ge=0, le=1e9)]  # 0: none
Distance = Annotated[Finite, Field(ge=0, le=1e6)]
Seconds = Annotated[Finite, Field(ge=0.001, le=1e6)]


class NavigationRobot(Robot):
    """A round robot that drives and turns in the plane, within limits, and brakes before what is in its way."""

    position: ClassVar[int] = 4
    urdf: ClassVar[str] = "rover"
    engine: ClassVar[RobotModel] = NAVIGATION

    model: Literal["navigation_robot"] = Field("navigation_robot", description="A robot for navigation tests.")
    max_v: Speed = Field(2.0, description="Greatest speed of a command, forward and backward [m/s].")
    max_omega: Speed = Field(3.0, description="Greatest turning rate of a command [rad/s].")
    limit_commands: Switch = Field(True, description="Whether commands are clipped to these.")
    cmd_timeout_s: Seconds = Field(2.0, description="The robot stops when no command has come for longer [s].")
    max_linear_accel: Limit = Field(0.0, description="Greatest linear acceleration and deceleration [m/s^2]; 0: none.")
    max_linear_jerk: Limit = Field(0.0, description="Greatest change of linear acceleration [m/s^3]; 0: none.")
    max_angular_accel: Limit = Field(0.0, description="Greatest angular acceleration [rad/s^2]; 0: none.")
    max_angular_jerk: Limit = Field(0.0, description="Greatest change of angular acceleration [rad/s^3]; 0: none.")
    min_turn_radius_m: Distance = Field(0.0, description="Smallest radius of a curve [m]; 0: turns on the spot.")
    slow_down: Switch = Field(True, description="Whether it slows down and stops before obstacles.")
    slow_distance_m: Distance = Field(1.5, description="From this free way on the speed is limited [m] …")
    stop_distance_m: Distance = Field(0.3, description="… down to 0 at this one [m].")
    radius_m: Distance = Field(0.25, description="Radius of the robot [m].")

    @model_validator(mode="after")
    def _slows_before_it_stops(self) -> Self:
        if self.stop_distance_m >= self.slow_distance_m > 0.0:
            message = f"expected less than slow_distance_m, which is {self.slow_distance_m:g}, found "
            fail([detail(f"{message}{self.stop_distance_m:g}", "stop_distance_m")])
        return self

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        size = max(2.0 * self.radius_m, 0.01)
        return (0.0, 0.0, 0.15), (size, size, 0.3)

    def look(self) -> Look:
        center, size = self.body()
        return Look("cylinder", size, (0.2, 0.4, 0.8), center)


ROBOT = NavigationRobot
