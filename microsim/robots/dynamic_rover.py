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
from microsim.engine.command_timeout import expire, timeout_ticks
from microsim.engine.compiled import kernel
from microsim.engine.components import COMMON_ROWS, CONTACTS, YAW, YAW_RATE, Airflow, RobotModel, X, Y, Z
from microsim.engine.exact import sincos
from microsim.engine.geometry import Array
from microsim.robots.drone import Keys
from microsim.robots.rover import Dynamics, V, WheelJoints, travel

# rows of the state after the common ones: V as a rover has it, then
COMMAND_AGE = COMMON_ROWS + 1  # ticks since the last command
LEFT_WHEEL, RIGHT_WHEEL = COMMON_ROWS + 2, COMMON_ROWS + 3  # [rad] angles of the wheels of either side
ROWS = COMMON_ROWS + 4

JOINTS = (
    "base_to_front_left_wheel",
    "base_to_front_right_wheel",
    "base_to_rear_left_wheel",
    "base_to_rear_right_wheel",
)  # of urdf/rover.urdf.xacro

# rows of the parameters
_MAX_V, _MAX_OMEGA, _TIMEOUT, _IS_DYNAMIC, _RESPONSE = range(5)
_MASS, _DRAG, _MAX_ACCELERATION, _INERTIA, _TURN_DRAG, _MAX_TURN_ACCELERATION = range(5, 11)
_WHEEL_RADIUS, _TRACK = 11, 12
_JOINT_RADIUS, _JOINT_TRACK = range(2)  # of the settings of `joint_values`


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
def _speeds(state: Array, command: Array, parameters: Array, i: int, dt: float) -> tuple[float, float]:
    """v and ω of this tick; the command grows a tick older."""
    expire(state, command, i, COMMAND_AGE, parameters[_TIMEOUT, i])
    max_v, max_omega, response = parameters[_MAX_V, i], parameters[_MAX_OMEGA, i], parameters[_RESPONSE, i]
    v = min(max(command[0, i], -max_v), max_v)
    omega = min(max(command[1, i], -max_omega), max_omega)
    if parameters[_IS_DYNAMIC, i] > 0.0:
        mass, drag, limit = parameters[_MASS, i], parameters[_DRAG, i], parameters[_MAX_ACCELERATION, i]
        v = respond(state[V, i], v, mass, response, drag, limit, dt)
        mass, drag, limit = parameters[_INERTIA, i], parameters[_TURN_DRAG, i], parameters[_MAX_TURN_ACCELERATION, i]
        omega = respond(state[YAW_RATE, i], omega, mass, response, drag, limit, dt)
    return v, omega


@kernel
def _side_speeds(v: float, omega: float, radius: float, track: float) -> tuple[float, float]:
    """How fast the left and the right wheels turn [rad/s]."""
    across = 0.5 * track * omega
    return (v - across) / radius, (v + across) / radius


@kernel
def advance(state: Array, command: Array, parameters: Array, keys: Keys, scene: Scene, tick: int, ticks: int) -> None:
    for i in range(state.shape[1]):
        for _ in range(ticks):
            v, omega = _speeds(state, command, parameters, i, scene.dt)
            sine, cosine = sincos(state[YAW, i] + 0.5 * omega * scene.dt)
            travel(state, i, v, omega, sine, cosine, scene)
            left, right = _side_speeds(state[V, i], omega, parameters[_WHEEL_RADIUS, i], parameters[_TRACK, i])
            state[LEFT_WHEEL, i] += left * scene.dt
            state[RIGHT_WHEEL, i] += right * scene.dt


@kernel
def joint_values(
    settings: Array, state: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Positions, then speeds of JOINTS."""
    left, right = _side_speeds(state[V], state[YAW_RATE], settings[_JOINT_RADIUS], settings[_JOINT_TRACK])
    for wheel in range(2):
        reading[2 * wheel], reading[2 * wheel + 1] = state[LEFT_WHEEL], state[RIGHT_WHEEL]
        reading[4 + 2 * wheel], reading[5 + 2 * wheel] = left, right


DYNAMIC = RobotModel(
    name="dynamic_rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    rows=ROWS,
    state={"x": X, "y": Y, "z": Z, "yaw": YAW, "v": V, "omega": YAW_RATE, "contacts": CONTACTS},
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
    minds_cells=True,
    zero_when_held=(V,),
    kept_when_held=(LEFT_WHEEL, RIGHT_WHEEL),
    command_age=COMMAND_AGE,
    needs_tick=lambda parameters: False,
    joints=JOINTS,
    joint_kernel=joint_values,
    joint_numbers=wheels_of,
)
