"""What sensors and frames need of a robot's state, computed once a tick for all robots of a model."""

from collections.abc import Sequence
from typing import TypeAlias

from microsim.sim import exact
from microsim.sim.compiled import kernel
from microsim.sim.components import (
    ACCELERATION_X,
    ACCELERATION_Y,
    ACCELERATION_Z,
    VELOCITY_X,
    VELOCITY_Y,
    VELOCITY_Z,
    YAW_RATE,
)
from microsim.sim.components import YAW as _YAW
from microsim.sim.components import X as _X
from microsim.sim.components import Y as _Y
from microsim.sim.components import Z as _Z
from microsim.sim.geometry import Array

_sincos = exact.sincos

Motion: TypeAlias = Sequence[float]
# Fields of a Motion. Position in the map frame; velocity over ground and acceleration in body axes, without gravity.
X, Y, Z, YAW, SIN_YAW, COS_YAW = range(6)
QUATERNION_Z, QUATERNION_W = 6, 7
FORWARD, LEFT, UP, TURN = 8, 9, 10, 11  # [m/s] [m/s] [m/s] [rad/s]
ACCEL_FORWARD, ACCEL_LEFT, ACCEL_UP = 12, 13, 14  # [m/s^2]
FIELDS = 15


@kernel
def observe(state: Array, out: Array) -> None:
    """Fill out (n, FIELDS) from state (rows, n)."""
    for i in range(state.shape[1]):
        sine, cosine = _sincos(state[_YAW, i])
        half_sine, half_cosine = _sincos(0.5 * state[_YAW, i])
        out[i, X], out[i, Y], out[i, Z], out[i, YAW] = state[_X, i], state[_Y, i], state[_Z, i], state[_YAW, i]
        out[i, SIN_YAW], out[i, COS_YAW] = sine, cosine
        out[i, QUATERNION_Z], out[i, QUATERNION_W] = half_sine, half_cosine
        vx, vy = state[VELOCITY_X, i], state[VELOCITY_Y, i]
        out[i, FORWARD], out[i, LEFT] = cosine * vx + sine * vy, cosine * vy - sine * vx
        out[i, UP], out[i, TURN] = state[VELOCITY_Z, i], state[YAW_RATE, i]
        ax, ay = state[ACCELERATION_X, i], state[ACCELERATION_Y, i]
        out[i, ACCEL_FORWARD], out[i, ACCEL_LEFT] = cosine * ax + sine * ay, cosine * ay - sine * ax
        out[i, ACCEL_UP] = state[ACCELERATION_Z, i]


def mounted_at(motion: Motion, xyz: tuple[float, float, float]) -> tuple[float, float, float]:
    """Map position of a point fixed to the robot at xyz in its base_link."""
    x, y, z = xyz
    sine, cosine = motion[SIN_YAW], motion[COS_YAW]
    return motion[X] + cosine * x - sine * y, motion[Y] + sine * x + cosine * y, motion[Z] + z
