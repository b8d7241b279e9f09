"""Which way the surfaces face that a camera sees, in its optical frame: a thing's own normal, and that of depths.

What stands in the world and robots are known shapes, whose normals are exact, also where they are round. Those of
ground, mesh and splats come from the depths of neighbouring pixels.
"""

import math

import numpy as np

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Vector
from microsim.render.drawing import Solids
from microsim.render.robot_models import outward_of_part
from microsim.render.screen import Pose, Rays
from microsim.render.shapes import Shapes, outward_of_shape
from microsim.render.splat.activation import Floats


@kernel
def normals_of_things(
    pose: Pose, rays: Rays, depths: Array, solids: Solids, shapes: Shapes, parts: Array, found: Floats
) -> None:
    """(h, w, 3); NaN where no thing is seen."""
    table, painted = shapes.table, shapes.painted
    for v in range(solids.shape[0]):
        for u in range(solids.shape[1]):
            solid = int(solids[v, u])
            found[v, u, 0] = found[v, u, 1] = found[v, u, 2] = math.nan
            if solid == 0:
                continue
            depth, a, b = depths[v, u], rays[0, v, u], rays[1, v, u]
            x = pose[0] + depth * (pose[3] * a + pose[4] * b + pose[5])
            y = pose[1] + depth * (pose[6] * a + pose[7] * b + pose[8])
            z = pose[2] + depth * (pose[9] * a + pose[10] * b + pose[11])
            if solid > 0:
                east, north, up = outward_of_shape(table[painted + solid - 1], x, y, z)
            else:
                part = parts[-1 - solid]
                east, north, up = outward_of_part(part, x - part[0], y - part[1], z - part[2])
            for k in range(3):
                found[v, u, k] = pose[3 + k] * east + pose[6 + k] * north + pose[9 + k] * up


@kernel
def normals_of_depths(rays: Rays, depths: Floats, found: Floats) -> None:
    """Across the ways to a neighbour in the row and one in the column, each the one that is nearer in depth."""
    for v in range(depths.shape[0]):
        for u in range(depths.shape[1]):
            ax, ay, az = _way(rays, depths, v, u, 0, 1)
            bx, by, bz = _way(rays, depths, v, u, 1, 0)
            x, y, z = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
            facing = x * rays[0, v, u] + y * rays[1, v, u] + z
            length = math.sqrt(x * x + y * y + z * z)
            for k in range(3):
                found[v, u, k] = math.nan
            if length > 0.0 and facing != 0.0:  # NaN is neither
                length = -length if facing > 0.0 else length
                found[v, u, 0], found[v, u, 1], found[v, u, 2] = x / length, y / length, z / length


@kernel
def _way(rays: Rays, depths: Floats, v: int, u: int, dv: int, du: int) -> Vector:
    """On the surface that a pixel shows, along the row or the column; 0 where it has no neighbour."""
    depth, best, way = np.float64(depths[v, u]), math.inf, (0.0, 0.0, 0.0)  # a `float` stays a float32 in numba
    for sign in (1, -1):
        j, i = v + sign * dv, u + sign * du
        if 0 <= j < depths.shape[0] and 0 <= i < depths.shape[1]:
            other = np.float64(depths[j, i])
            if abs(other - depth) < best:  # not where one of them is infinite
                best = abs(other - depth)
                x = other * rays[0, j, i] - depth * rays[0, v, u]
                y = other * rays[1, j, i] - depth * rays[1, v, u]
                way = (sign * x, sign * y, sign * (other - depth))
    return way
