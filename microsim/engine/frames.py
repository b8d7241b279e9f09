"""Where robots are in the tree of frames (REP-105), for those whose odometry decides nothing else."""

from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import (
    QUATERNION_W,
    QUATERNION_X,
    QUATERNION_Y,
    QUATERNION_Z,
    X,
    Y,
    Z,
)


@kernel
def exact_pose(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """x, y, z [m] and the quaternion x, y, z, w of base_link in the map."""
    reading[0], reading[1], reading[2] = motion[X], motion[Y], motion[Z]
    reading[3], reading[4] = motion[QUATERNION_X], motion[QUATERNION_Y]
    reading[5], reading[6] = motion[QUATERNION_Z], motion[QUATERNION_W]


@kernel
def identity(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    for k in range(7):
        reading[k] = 0.0
    reading[6] = 1.0
