"""Rover with mass and drag: a first-order response to commands, limited force, midpoint integration, command timeout.

In a tick of dt, with the target v_t (the command, within the limits; 0 once it has run out) and likewise for turning
with inertia I and torque:

    F = m (v_t - v) / T - c v          a = clamp(F / m, ±F_max / m)          v <- v + a dt
    heading of the way: yaw + ω dt / 2                                       yaw <- wrap(yaw + ω dt)

In kinematic mode v is v_t at once. v and ω on the second line are the new ones.
"""

from typing import Any

from microsim.engine import exact
from microsim.engine.calls import Scene
from microsim.engine.command_timeout import expire, timeout_ticks
from microsim.engine.compiled import kernel
from microsim.engine.components import COMMON_ROWS, YAW, YAW_RATE, RobotModel, Wind, X, Y, Z
from microsim.engine.geometry import Array
from microsim.robots.drone import Keys
from microsim.robots.rover import CONTACTS, Dynamics, V, travel

_sincos = exact.sincos
_wrap_angle = exact.wrap_angle

# rows of the state after the common ones: V and CONTACTS as a rover has them, then
COMMAND_AGE = COMMON_ROWS + 2  # ticks since the last command
ROWS = COMMON_ROWS + 3

# rows of the parameters
_MAX_V, _MAX_OMEGA, _TIMEOUT, _IS_DYNAMIC, _RESPONSE = range(5)
_MASS, _DRAG, _MAX_ACCELERATION, _INERTIA, _TURN_DRAG, _MAX_TURN_ACCELERATION = range(5, 11)


def column(dynamics: Dynamics, max_v: float, max_omega: float, dt: float) -> tuple[float, ...]:
    """A rover's parameters."""
    return (
        max_v,
        max_omega,
        timeout_ticks(dynamics.command_timeout, dt),
        float(dynamics.use_dynamics),
        dynamics.response_time,
        dynamics.mass,
        dynamics.linear_drag,
        dynamics.max_force / dynamics.mass,
        dynamics.inertia,
        dynamics.angular_drag,
        dynamics.max_torque / dynamics.inertia,
    )


def parameters(settings: Any, wind: Wind, dt: float) -> tuple[float, ...]:
    return column(settings.dynamics, settings.max_v, settings.max_omega, dt)


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
def advance(state: Array, command: Array, parameters: Array, keys: Keys, scene: Scene, tick: int, ticks: int) -> None:
    for i in range(state.shape[1]):
        for _ in range(ticks):
            v, omega = _speeds(state, command, parameters, i, scene.dt)
            sine, cosine = _sincos(state[YAW, i] + 0.5 * omega * scene.dt)
            travel(state, i, v, omega, sine, cosine, scene)


@kernel
def advance_on_plane(state: Array, command: Array, parameters: Array, dt: float) -> None:
    """One tick of all columns on a plane without end and without obstacles: pose and speeds, and nothing else."""
    for i in range(state.shape[1]):
        v, omega = _speeds(state, command, parameters, i, dt)
        sine, cosine = _sincos(state[YAW, i] + 0.5 * omega * dt)
        state[X, i] += cosine * v * dt
        state[Y, i] += sine * v * dt
        state[YAW, i] = _wrap_angle(state[YAW, i] + omega * dt)
        state[V, i], state[YAW_RATE, i] = v, omega


DYNAMIC = RobotModel(
    name="dynamic_rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    rows=ROWS,
    state={"x": X, "y": Y, "z": Z, "yaw": YAW, "v": V, "omega": YAW_RATE, "contacts": CONTACTS},
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
    command_age=COMMAND_AGE,
    needs_tick=lambda parameters: False,
)
