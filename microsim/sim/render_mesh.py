"""What the camera sees of a static mesh: rays through the tree, a few neighbouring pixels of a row at a time."""

import numpy as np

from microsim.sim import bvh
from microsim.sim.bvh import Numbers
from microsim.sim.compiled import kernel
from microsim.sim.geometry import Array, Grid
from microsim.sim.render_screen import Pose, Rays

_cast = bvh.cast

_PACKET = 16  # pixels


@kernel
def draw_mesh(
    pose: Pose,
    rays: Rays,
    boxes: Array,
    first: Numbers,
    count: Numbers,
    order: Numbers,
    triangles: Array,
    solids: Array,
    class_id: int,
    depths: Array,
    classes: Grid,
) -> None:
    """Give `class_id` and its depth to the pixels in which the mesh is nearer than what was seen so far.

    Directions are those of depth 1, so that distances along them are depths.
    """
    height, width = depths.shape
    dx, dy, dz = np.empty(_PACKET), np.empty(_PACKET), np.empty(_PACKET)
    best, hit, inverse = np.empty(_PACKET), np.empty(_PACKET, np.int32), np.empty((3, _PACKET))
    for v in range(height):
        for start in range(0, width, _PACKET):
            n = min(_PACKET, width - start)
            for r in range(n):
                a, b = rays[0, v, start + r], rays[1, v, start + r]
                known = a == a and b == b
                a, b = (a, b) if known else (0.0, 0.0)
                dx[r] = pose[3] * a + pose[4] * b + pose[5]
                dy[r] = pose[6] * a + pose[7] * b + pose[8]
                dz[r] = pose[9] * a + pose[10] * b + pose[11]
                best[r], hit[r] = depths[v, start + r] if known else 0.0, bvh.NOTHING
            _cast(
                boxes, first, count, order, triangles, solids, pose[0], pose[1], pose[2],
                dx[:n], dy[:n], dz[:n], inverse[:, :n], best[:n], hit[:n],
            )  # fmt: skip
            for r in range(n):
                if hit[r] != bvh.NOTHING:
                    depths[v, start + r], classes[v, start + r] = best[r], class_id
