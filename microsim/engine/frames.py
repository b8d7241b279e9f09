"""Where robots are in the tree of frames (REP-105), for those whose odometry decides nothing else."""

from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import motion_in as _motion_in


@kernel
def exact_pose(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """x, y, z [m] and the quaternion x, y, z, w of base_link in the map."""
    seen = _motion_in(motion)
    reading[0], reading[1], reading[2] = seen.x, seen.y, seen.z
    reading[3], reading[4] = seen.quaternion_x, seen.quaternion_y
    reading[5], reading[6] = seen.quaternion_z, seen.quaternion_w


@kernel
def identity(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    for k in range(7):
        reading[k] = 0.0
    reading[6] = 1.0
