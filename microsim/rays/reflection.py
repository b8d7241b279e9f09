"""How strongly a LiDAR's beam comes back: what the surface reflects, times the cosine of the angle of incidence."""

import math

from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.rays import bvh
from microsim.rays.bvh import TreeArrays
from microsim.rays.ground_rays import LatticeArrays

# What a beam has met: a thing's number in the tree (0, 1, 2 …), bvh.NOTHING, GROUND, or GROUND - 1 - n for the other
# robot number n.
GROUND = -2

# share of the light that comes back, by class of surface: ground, obstacle, hazard, target, water; robots
_REFLECTIVITY = (0.35, 0.6, 0.5, 0.9, 0.05)
_ROBOTS = 0.8


@inlined
def reflectivity_at(
    lattice: LatticeArrays, tree: TreeArrays, surface: Grid, position: Vector, ray: Vector, distance: float, what: int
) -> float:
    if what < GROUND:
        return _ROBOTS
    if what != GROUND:
        return _REFLECTIVITY[1]
    cell, west, south = lattice[3], lattice[4], lattice[5]
    i = int(min(max((position[0] + ray[0] * distance - west) / cell, 0.0), surface.shape[1] - 1.0))
    j = int(min(max((position[1] + ray[1] * distance - south) / cell, 0.0), surface.shape[0] - 1.0))
    return _REFLECTIVITY[surface[j, i]]


@inlined
def cosine_at(
    lattice: LatticeArrays, tree: TreeArrays, bodies: Array, position: Vector, ray: Vector, distance: float, what: int
) -> float:
    """Cosine of the angle between the ray and the surface's normal, whichever side it is seen from."""
    if what == GROUND:
        nx, ny, nz = _ground_normal(lattice, position, ray, distance)
    elif what < GROUND:
        nx, ny, nz = _body_normal(bodies[GROUND - 1 - what], position, ray, distance)
    elif what < tree[4].shape[0]:
        t = tree[4][what]
        nx, ny, nz = t[4] * t[8] - t[5] * t[7], t[5] * t[6] - t[3] * t[8], t[3] * t[7] - t[4] * t[6]
    else:
        nx, ny, nz = _solid_normal(tree[5][what - tree[4].shape[0]], position, ray, distance)
    length = math.sqrt(nx * nx + ny * ny + nz * nz)
    return abs(nx * ray[0] + ny * ray[1] + nz * ray[2]) / length if length > 0.0 else 0.0


@inlined
def _ground_normal(lattice: LatticeArrays, position: Vector, ray: Vector, distance: float) -> Vector:
    nodes, cell = lattice[0], lattice[3]
    gx = (position[0] + ray[0] * distance - lattice[4]) / cell + 0.5
    gy = (position[1] + ray[1] * distance - lattice[5]) / cell + 0.5
    i = int(min(max(gx, 0.0), nodes.shape[1] - 2.0))
    j = int(min(max(gy, 0.0), nodes.shape[0] - 2.0))
    p, q = gx - i, gy - j
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    twist = (h11 - h10) - (h01 - h00)
    slope_x, slope_y = ((h01 - h00) + twist * q) / cell, ((h10 - h00) + twist * p) / cell
    if not math.isfinite(slope_x + slope_y):  # the side of the ground at a hole
        return ray[0], ray[1], ray[2]
    return -slope_x, -slope_y, 1.0


@kernel
def _body_normal(row: Array, position: Vector, ray: Vector, distance: float) -> Vector:
    """The axis of the side on which the point lies."""
    x, y, z = (
        position[0] + ray[0] * distance - row[0],
        position[1] + ray[1] * distance - row[1],
        position[2] + ray[2] * distance - row[2],
    )
    side, outmost = 0, -math.inf
    for k in range(3):
        beyond = abs(row[3 + k] * x + row[6 + k] * y + row[9 + k] * z) - row[12 + k]
        if beyond > outmost:
            side, outmost = k, beyond
    return row[3 + side], row[6 + side], row[9 + side]


@kernel
def _solid_normal(solid: Array, position: Vector, ray: Vector, distance: float) -> Vector:
    x, y = position[0] + ray[0] * distance - solid[1], position[1] + ray[1] * distance - solid[2]
    z = position[2] + ray[2] * distance
    above = max(z - solid[4], solid[3] - z)
    along, across = solid[5] * x + solid[6] * y, solid[5] * y - solid[6] * x
    if solid[0] == bvh.CYLINDER:
        return (0.0, 0.0, 1.0) if above >= math.sqrt(x * x + y * y) - solid[7] else (x, y, 0.0)
    beyond_x, beyond_y = abs(along) - solid[7], abs(across) - solid[8]
    if above >= max(beyond_x, beyond_y):
        return 0.0, 0.0, 1.0
    return (solid[5], solid[6], 0.0) if beyond_x >= beyond_y else (-solid[6], solid[5], 0.0)
