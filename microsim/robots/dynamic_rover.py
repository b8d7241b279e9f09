"""Rover with mass and drag: a first-order response to commands, limited force, midpoint integration, command timeout.

In a tick of dt, with the target v_t (the command, within the limits; 0 once it has run out) and likewise for turning
with inertia I and torque:

    F = m (v_t - v) / T - c v          a = clamp(F / m, ±F_max / m)          v <- v + a dt
    heading of the way: yaw + ω dt / 2                                       yaw <- wrap(yaw + ω dt)

In kinematic mode v is v_t at once. v and ω on the second line are the new ones. The wheels roll without slipping:

    angle <- angle + (v ∓ ω track / 2) / radius dt                           left and right
"""

from typing import Any

from microsim.engine.calls import Scene
from microsim.engine.columns import Column, column_in
from microsim.engine.command_timeout import expire, timeout_ticks
from microsim.engine.compiled import kernel
from microsim.engine.components import COMMON, Airflow, RobotModel
from microsim.engine.exact import sincos
from microsim.engine.geometry import Array
from microsim.robots.rover import Dynamics, WheelJoints, travel

OWN = (
    "v",  # [m/s] forward, as of a rover
    "command_age",  # ticks since the last command
    *("left_wheel", "right_wheel"),  # [rad] angles of the wheels of either side
)
_robot_in = column_in((*COMMON, *OWN))

JOINTS = (
    "base_to_front_left_wheel",
    "base_to_front_right_wheel",
    "base_to_rear_left_wheel",
    "base_to_rear_right_wheel",
)  # of urdf/rover.urdf.xacro

_joint_settings_in = column_in(("radius", "track"))


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    dynamics: Dynamics = settings.dynamics
    return (
        settings.max_v,
        settings.max_omega,
        timeout_ticks(dynamics.command_timeout, dt),
        float(dynamics.use_dynamics),
        dynamics.response_time,
        dynamics.mass,
        dynamics.linear_drag,
        dynamics.max_force / dynamics.mass,
        dynamics.inertia,
        dynamics.angular_drag,
        dynamics.max_torque / dynamics.inertia,
        *wheels_of(settings),
    )


def wheels_of(settings: Any) -> tuple[float, float]:
    """Radius of the wheels and distance between the sides [m]."""
    wheels: WheelJoints = settings.joint_states or WheelJoints()
    return wheels.wheel_radius_m, wheels.track_m


@kernel
def respond(value: float, target: float, mass: float, response: float, drag: float, limit: float, dt: float) -> float:
    """A speed one tick later; with inertia in place of mass and a drag of turning, a turning rate."""
    push = mass * (target - value) / response
    net = push - drag * value
    return value + min(max(net / mass, -limit), limit) * dt


@kernel
def _speeds(robot: Column, command: Column, parameters: Column, dt: float) -> tuple[float, float]:
    """v and ω of this tick; the command grows a tick older."""
    expire(robot, command, parameters.timeout)
    p = parameters
    v = min(max(command.v, -p.max_v), p.max_v)
    omega = min(max(command.omega, -p.max_omega), p.max_omega)
    if p.is_dynamic > 0.0:
        v = respond(robot.v, v, p.mass, p.response, p.drag, p.max_acceleration, dt)
        omega = respond(robot.yaw_rate, omega, p.inertia, p.response, p.turn_drag, p.max_turn_acceleration, dt)
    return v, omega


@kernel
def _side_speeds(v: float, omega: float, radius: float, track: float) -> tuple[float, float]:
    """How fast the left and the right wheels turn [rad/s]."""
    across = 0.5 * track * omega
    return (v - across) / radius, (v + across) / radius


@kernel
def advance(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    v, omega = _speeds(robot, command, parameters, scene.dt)
    sine, cosine = sincos(robot.yaw + 0.5 * omega * scene.dt)
    travel(robot, v, omega, sine, cosine, scene)
    left, right = _side_speeds(robot.v, omega, parameters.wheel_radius, parameters.track)
    robot.left_wheel += left * scene.dt
    robot.right_wheel += right * scene.dt


@kernel
def joint_values(
    settings: Array, state: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Positions, then speeds of JOINTS."""
    robot, wheels = _robot_in(state), _joint_settings_in(settings)
    left, right = _side_speeds(robot.v, robot.yaw_rate, wheels.radius, wheels.track)
    for wheel in range(2):
        reading[2 * wheel], reading[2 * wheel + 1] = robot.left_wheel, robot.right_wheel
        reading[4 + 2 * wheel], reading[5 + 2 * wheel] = left, right


DYNAMIC = RobotModel(
    name="dynamic_rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    own=OWN,
    shown={"x": "x", "y": "y", "z": "z", "yaw": "yaw", "v": "v", "omega": "yaw_rate"},
    parameter_names=(
        *("max_v", "max_omega", "timeout", "is_dynamic", "response"),
        *("mass", "drag", "max_acceleration", "inertia", "turn_drag", "max_turn_acceleration"),
        *("wheel_radius", "track"),
    ),
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
    stops_at_cells=True,
    zero_when_stopped=("v",),
    kept_when_stopped=("left_wheel", "right_wheel"),
    command_age="command_age",
    needs_tick=lambda parameters: False,
    joints=JOINTS,
    joint_kernel=joint_values,
    joint_numbers=wheels_of,
)
