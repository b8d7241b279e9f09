"""Wheels of a rover with differential drive: they roll without slipping."""

from microsim.engine.compiled import kernel
from microsim.engine.components import YAW_RATE
from microsim.engine.geometry import Array
from microsim.robots.rover import V

LEFT_ANGLE, RIGHT_ANGLE, LEFT_SPEED, RIGHT_SPEED = range(4)  # rows: [rad] [rad] [rad/s] [rad/s], positive forward
WHEEL_ROWS = 4


@kernel
def roll(state: Array, wheels: Array, radius: float, track: float, dt: float) -> None:
    """One tick: wheels (WHEEL_ROWS, n) follow the speeds of state (rows, n); `track` is the way between the sides."""
    for i in range(state.shape[1]):
        across = 0.5 * track * state[YAW_RATE, i]
        left, right = (state[V, i] - across) / radius, (state[V, i] + across) / radius
        wheels[LEFT_SPEED, i], wheels[RIGHT_SPEED, i] = left, right
        wheels[LEFT_ANGLE, i] += left * dt
        wheels[RIGHT_ANGLE, i] += right * dt
