"""What the camera sees of a static mesh."""

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid
from microsim.rays import bvh, screen_rays
from microsim.rays.bvh import Numbers
from microsim.render.screen import Pose, Rays, Spans

_cast = screen_rays.cast


@kernel
def draw_mesh(
    pose: Pose,
    rays: Rays,
    screen: Array,
    columns: Spans,
    rows: Spans,
    longest: float,
    boxes: Array,
    first: Numbers,
    count: Numbers,
    order: Numbers,
    triangles: Array,
    solids: Array,
    class_id: int,
    directions: Array,
    hit: Numbers,
    depths: Array,
    classes: Grid,
) -> None:
    """Give `class_id` and its depth to the pixels in which the mesh is nearer than what was seen so far.

    Directions are those of depth 1, so that distances along them are depths. `directions` (3, h, w) and `hit` (h, w)
    are room to work in.
    """
    height, width = depths.shape
    for v in range(height):
        for u in range(width):
            a, b = rays[0, v, u], rays[1, v, u]
            directions[0, v, u] = pose[3] * a + pose[4] * b + pose[5]
            directions[1, v, u] = pose[6] * a + pose[7] * b + pose[8]
            directions[2, v, u] = pose[9] * a + pose[10] * b + pose[11]
            hit[v, u] = bvh.NOTHING
    things = (boxes, first, count, order, triangles, solids)
    _cast(*things, pose, screen, columns, rows, 1e300, longest, directions, depths, hit)
    for v in range(height):
        for u in range(width):
            classes[v, u] = class_id if hit[v, u] != bvh.NOTHING else classes[v, u]
