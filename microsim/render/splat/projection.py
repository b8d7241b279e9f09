"""Which splats a camera can see, and their footprints on its image.

`View` is a camera at a pose as one row of numbers, so that the GPU can be given the same.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.columns import Column, column_in
from microsim.engine.compiled import inlined, threaded_kernel
from microsim.engine.geometry import Array, Vector
from microsim.render import fisheye
from microsim.render.splat import CHUNK, DILATION_PX2, NEAR_M, TILE
from microsim.render.splat.activation import Floats, Integers
from microsim.render.splat.activation import splat_in as _splat_in

View: TypeAlias = Array  # (VIEW,)
Tiles: TypeAlias = npt.NDArray[np.int16]  # (n, 4) half-open ranges of columns and rows of tiles

# Numbers of a View. The axes are rows right, down, forward in the map frame; slopes are those beyond which a splat
# counts as seen from the edge, when its footprint is linearised; spreads bound how a footprint grows with its splat.
POSITION, AXES, FX, FY, CX, CY, WIDTH, HEIGHT = 0, 3, 12, 13, 14, 15, 16, 17
SLOPE_LEFT, SLOPE_RIGHT, SLOPE_UP, SLOPE_DOWN, SPREAD_X, SPREAD_Y, NEAR = 18, 19, 20, 21, 22, 23, 24
# Of a fisheye: the angle from the axis beyond which it sees no splat (0: a pinhole), its sine and cosine, k1 to k4.
END, END_SINE, END_COSINE, BEND = 25, 26, 27, 28
CULL_UP, CULL_DOWN, VIEW = 32, 33, 34  # slopes beyond which no splat is seen

# Numbers of a footprint. s = (root_xx dx + root_xy dy)^2 + (root_yy dy)^2, dx and dy from pixel to centre. That form
# has no differences of large squares. The centre is a whole number of pixels and a remainder, to keep a float32 exact.
_FOOTPRINT = (
    *("root_xx", "root_xy", "root_yy", "opacity", "red", "green", "blue", "depth"),
    *("extent", "centre_x", "centre_y", "rest_x", "rest_y", "reach_x", "reach_y", "unused"),
    *("inverse", "inverse_x", "inverse_y"),  # one over its depth at its centre, and how that changes with dx and dy
    "owner",  # the number of the scene it belongs to
)
FOOTPRINT, footprint_in = len(_FOOTPRINT), column_in(_FOOTPRINT)
_footprint_in = footprint_in

_EDGE = 0.15  # of the image, on each side
_FISHEYE_END = 100.0 * exact.PI / 180.0  # means so far from the axis may still reach into the image
ON_AXIS = 1e-9  # [rad] where a fisheye is a pinhole
MARGIN_PX = 2.0  # more than the dilation adds to a splat's reach
REACH_FACTOR, REACH_MARGIN_PX = 1.001, 0.05  # no rounding may take a pixel from a footprint

_atan2, _radius_of = exact.atan2, fisheye.radius_of
_f32, _f64 = np.float32, np.float64  # in compiled code, `float` leaves a float32 as it is
_HALF, _ONE, _TWO, _THREE, _FOUR = _f32(0.5), _f32(1.0), _f32(2.0), _f32(3.0), _f32(4.0)
# The constants of the real spherical harmonics of degree 0, 1, 2 and 3.
HARMONICS = (
    0.28209479177387814, 0.4886025119029199, 1.0925484305920792, 0.31539156525252005, 0.5462742152960396,
    0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277,
)  # fmt: skip
_C0, _C1, _C2A, _C2B, _C2C, _C3A, _C3B, _C3C, _C3D, _C3E = (_f32(number) for number in HARMONICS)


def view_of(
    width: int,
    height: int,
    focal: tuple[float, float],
    principal: tuple[float, float],
    position: Vector,
    rotation: tuple[Vector, Vector, Vector],
    near_m: float = NEAR_M,
    bend: tuple[float, ...] | None = None,
    strip: tuple[int, int] | None = None,
) -> View:
    """`rotation` has the rows of the matrix from the optical frame (x right, y down, z ahead) to the map frame.

    `bend`: k1 to k4 of a fisheye. `strip`: the first row and the height of the image of which this is a part: what
    counts as seen from the edge is the whole image's.
    """
    view = np.zeros(VIEW)
    view[POSITION : POSITION + 3] = position
    view[AXES : AXES + 9] = np.array(rotation, np.float64).T.ravel()
    view[FX], view[FY], view[CX], view[CY], view[WIDTH], view[HEIGHT] = *focal, *principal, width, height
    view[NEAR] = near_m
    view[SLOPE_LEFT], view[SLOPE_RIGHT], view[SPREAD_X] = _slopes(width, focal[0], principal[0])
    top, whole = strip or (0, height)
    view[SLOPE_UP], view[SLOPE_DOWN], view[SPREAD_Y] = _slopes(whole, focal[1], principal[1] + top)
    view[CULL_UP] = max(view[SLOPE_UP], (-_EDGE * whole - principal[1]) / focal[1])
    view[CULL_DOWN] = min(view[SLOPE_DOWN], (height + _EDGE * whole - principal[1]) / focal[1])
    if bend is not None:
        end = fisheye.largest_angle(bend, _FISHEYE_END)
        view[END], view[END_SINE], view[END_COSINE] = end, *exact.sincos(end)
        view[BEND : BEND + 4] = bend
        view[SPREAD_X], view[SPREAD_Y] = (each * fisheye.spread(bend, end) for each in focal)
    return view


def _slopes(size: int, focal: float, principal: float) -> tuple[float, float, float]:
    low, high = (-_EDGE * size - principal) / focal, ((1.0 + _EDGE) * size - principal) / focal
    steepest = max(abs(low), abs(high))
    return low, high, focal * math.sqrt(1.0 + steepest * steepest)


@threaded_kernel
def visible_chunks(view: View, spheres: Array, chunks: Integers) -> int:
    """Fill `chunks` with those that may hold visible splats; gives their number."""
    p, a = view[POSITION : POSITION + 3], view[AXES : AXES + 9]
    left, right = view[SLOPE_LEFT] - MARGIN_PX / view[FX], view[SLOPE_RIGHT] + MARGIN_PX / view[FX]
    up, down = view[CULL_UP] - MARGIN_PX / view[FY], view[CULL_DOWN] + MARGIN_PX / view[FY]
    to_left, to_right = math.sqrt(1.0 + left * left), math.sqrt(1.0 + right * right)
    to_up, to_down = math.sqrt(1.0 + up * up), math.sqrt(1.0 + down * down)
    count = 0
    bends = view[END] > 0.0
    for chunk in range(spheres.shape[0]):
        dx, dy, dz = spheres[chunk, 0] - p[0], spheres[chunk, 1] - p[1], spheres[chunk, 2] - p[2]
        radius = spheres[chunk, 3]
        x = a[0] * dx + a[1] * dy + a[2] * dz
        y = a[3] * dx + a[4] * dy + a[5] * dz
        z = a[6] * dx + a[7] * dy + a[8] * dz
        beside = (x - right * z > radius * to_right) | (left * z - x > radius * to_left)
        beyond = (y - down * z > radius * to_down) | (up * z - y > radius * to_up)
        if bends:
            is_out = math.sqrt(x * x + y * y) * view[END_COSINE] - z * view[END_SINE] > radius
        else:
            is_out = beside | beyond | (z + radius < view[NEAR])
        if not is_out:
            chunks[count] = chunk
            count += 1
    return count


@threaded_kernel
def project(
    view: View,
    geometry: Floats,
    harmonics: Floats,
    chunks: Integers,
    begin: int,
    end: int,
    owner: int,
    basis: Floats,
    footprints: Floats,
    tiles: Tiles,
    counts: Integers,
) -> None:
    """Footprints of the splats of chunks[begin:end]: those of chunks[r] from r * CHUNK on, counts[r] of them.

    `owner`: the number of their scene. `basis` (16,) is room to work in.
    """
    for r in range(begin, end):
        first = chunks[r] * CHUNK
        slot = r * CHUNK
        for i in range(first, min(first + CHUNK, geometry.shape[0])):
            made = _footprint_in(footprints[slot])
            if _footprint(view, geometry[i], made, tiles[slot]):
                _colour(view, geometry[i], harmonics[i], basis, made)
                made.owner = owner
                slot += 1
        counts[r] = slot - r * CHUNK


@threaded_kernel
def _footprint(view: View, splat: Floats, out: Column, tiles: Tiles) -> bool:
    """Fill all of a footprint but its colour; False when it covers no pixel."""
    a = view[AXES : AXES + 9]
    dx, dy, dz = _f64(splat[0]) - view[0], _f64(splat[1]) - view[1], _f64(splat[2]) - view[2]
    z = a[6] * dx + a[7] * dy + a[8] * dz
    x = a[0] * dx + a[1] * dy + a[2] * dz
    y = a[3] * dx + a[4] * dy + a[5] * dz
    bends = view[END] > 0.0
    scale, lean, fall = 0.0, 0.0, 0.0
    if bends:
        distance = math.sqrt(x * x + y * y + z * z)
        if distance < view[NEAR]:
            return False
        scale, lean, fall = _bent(view, x, y, z, distance)
        if scale < 0.0:
            return False
        per_distance = 1.0 / distance
        slope_x, slope_y = x * scale, y * scale
    else:
        distance = z
        if z < view[NEAR]:
            return False
        per_distance = 1.0 / z
        slope_x, slope_y = x * per_distance, y * per_distance
    u = view[FX] * slope_x + view[CX]
    v = view[FY] * slope_y + view[CY]
    own = _splat_in(splat)
    extent = math.sqrt(2.0 * _f64(own.extent))
    reach = extent * _f64(max(own.scale_x, own.scale_y, own.scale_z)) * per_distance
    wide, high = reach * view[SPREAD_X] + MARGIN_PX, reach * view[SPREAD_Y] + MARGIN_PX
    if u + wide < 0.0 or u - wide > view[WIDTH] or v + high < 0.0 or v - high > view[HEIGHT]:
        return False
    if bends:
        jx, jy = _bent_jacobian(view, x, y, scale, lean, fall)
        jz = _away(a, x * per_distance, y * per_distance, z * per_distance)
    else:
        slope_x = min(max(slope_x, view[SLOPE_LEFT]), view[SLOPE_RIGHT])
        slope_y = min(max(slope_y, view[SLOPE_UP]), view[SLOPE_DOWN])
        jx, jy = _jacobian(a, view[FX] * per_distance, view[FY] * per_distance, slope_x, slope_y)
        jz = _away(a, 0.0, 0.0, 1.0)
    c_xx, c_xy, c_yy, c_xz, c_yz = _covariance(jx, jy, jz, splat)
    determinant = c_xx * c_yy - c_xy * c_xy
    if not determinant > 0.0:
        return False
    reach_x = extent * math.sqrt(c_xx) * REACH_FACTOR + REACH_MARGIN_PX
    reach_y = extent * math.sqrt(c_yy) * REACH_FACTOR + REACH_MARGIN_PX
    if u + reach_x < 0.0 or u - reach_x > view[WIDTH] - 1.0 or v + reach_y < 0.0 or v - reach_y > view[HEIGHT] - 1.0:
        return False
    tiles[0], tiles[1] = _tile(max(u - reach_x, 0.0)), _tile(min(u + reach_x, view[WIDTH] - 1.0)) + 1
    tiles[2], tiles[3] = _tile(max(v - reach_y, 0.0)), _tile(min(v + reach_y, view[HEIGHT] - 1.0)) + 1
    root = math.sqrt(c_yy / (2.0 * determinant))
    whole_u, whole_v = math.floor(u + 0.5), math.floor(v + 0.5)
    out.root_xx, out.root_xy, out.root_yy = root, -c_xy * root / c_yy, math.sqrt(0.5 / c_yy)
    out.opacity, out.depth, out.extent = own.opacity, distance, own.extent
    out.centre_x, out.centre_y, out.rest_x, out.rest_y = whole_u, whole_v, u - whole_u, v - whole_v
    out.reach_x, out.reach_y = reach_x, reach_y
    # From the middle, the depth at which the splat is densest changes by its covariance with the image: that of a flat
    # one is its plane's, of which one over the depth is linear in the image. dx and dy go from pixel to centre.
    per_depth = per_distance * per_distance / determinant
    out.inverse = _ONE / out.depth
    out.inverse_x = (c_yy * c_xz - c_xy * c_yz) * per_depth
    out.inverse_y = (c_xx * c_yz - c_xy * c_xz) * per_depth
    return True


@inlined
def _away(a: Array, x: float, y: float, z: float) -> Vector:
    """A direction of the optical frame in the map frame."""
    return x * a[0] + y * a[3] + z * a[6], x * a[1] + y * a[4] + z * a[7], x * a[2] + y * a[5] + z * a[8]


@inlined
def _jacobian(a: Array, scale_x: float, scale_y: float, slope_x: float, slope_y: float) -> tuple[Vector, Vector]:
    """Rows of the Jacobian of a pinhole's projection, turned into the map frame."""
    jx0, jx1 = scale_x * (a[0] - slope_x * a[6]), scale_x * (a[1] - slope_x * a[7])
    jy0, jy1 = scale_y * (a[3] - slope_y * a[6]), scale_y * (a[4] - slope_y * a[7])
    jx2, jy2 = scale_x * (a[2] - slope_x * a[8]), scale_y * (a[5] - slope_y * a[8])
    return (jx0, jx1, jx2), (jy0, jy1, jy2)


@inlined
def _bent(view: View, x: float, y: float, z: float, distance: float) -> tuple[float, float, float]:
    """A point (x, y, z) is seen at (x, y) times the first number; the others: how that changes with x and y, and z.

    The first is negative beyond the fisheye's end.
    """
    aside = math.sqrt(x * x + y * y)
    angle = _atan2(aside, z)
    if angle > view[END]:
        return -1.0, 0.0, 0.0
    radius, growth = _radius_of(angle, view[BEND : BEND + 4])
    fall = growth / (distance * distance)
    if aside < ON_AXIS * distance:
        return 1.0 / distance, 0.0, fall
    scale = radius / aside
    return scale, (fall * z - scale) / (aside * aside), fall


@inlined
def _bent_jacobian(view: View, x: float, y: float, scale: float, lean: float, fall: float) -> tuple[Vector, Vector]:
    a, fx, fy = view[AXES : AXES + 9], view[FX], view[FY]
    xx, xy, yy = fx * (scale + x * x * lean), x * y * lean, fy * (scale + y * y * lean)
    xz, yz, yx, xy = -fx * x * fall, -fy * y * fall, fy * xy, fx * xy
    return (
        (xx * a[0] + xy * a[3] + xz * a[6], xx * a[1] + xy * a[4] + xz * a[7], xx * a[2] + xy * a[5] + xz * a[8]),
        (yx * a[0] + yy * a[3] + yz * a[6], yx * a[1] + yy * a[4] + yz * a[7], yx * a[2] + yy * a[5] + yz * a[8]),
    )


@inlined
def _covariance(jx: Vector, jy: Vector, jz: Vector, splat: Floats) -> tuple[float, float, float, float, float]:
    """Of the footprint, in squared pixels, dilated: xx, xy, yy; and of the image with the depth: xz, yz.

    From the rows of the Jacobian in the map frame.
    """
    jx0, jx1, jx2 = jx
    jy0, jy1, jy2 = jy
    jz0, jz1, jz2 = jz
    # The same along the splat's own axes, times its scales: the covariance is the product of these with themselves.
    own = _splat_in(splat)
    qx, qy, qz, qw = _f64(own.qx), _f64(own.qy), _f64(own.qz), _f64(own.qw)
    xx, yy, zz = qx * qx, qy * qy, qz * qz
    xy, xz, yz, wx, wy, wz = qx * qy, qx * qz, qy * qz, qw * qx, qw * qy, qw * qz
    s0, s1, s2 = _f64(own.scale_x), _f64(own.scale_y), _f64(own.scale_z)
    m0, m1, m2 = (1.0 - 2.0 * (yy + zz)) * s0, (2.0 * (xy + wz)) * s0, (2.0 * (xz - wy)) * s0
    x0, y0 = jx0 * m0 + jx1 * m1 + jx2 * m2, jy0 * m0 + jy1 * m1 + jy2 * m2
    z0 = jz0 * m0 + jz1 * m1 + jz2 * m2
    m0, m1, m2 = (2.0 * (xy - wz)) * s1, (1.0 - 2.0 * (xx + zz)) * s1, (2.0 * (yz + wx)) * s1
    x1, y1 = jx0 * m0 + jx1 * m1 + jx2 * m2, jy0 * m0 + jy1 * m1 + jy2 * m2
    z1 = jz0 * m0 + jz1 * m1 + jz2 * m2
    m0, m1, m2 = (2.0 * (xz + wy)) * s2, (2.0 * (yz - wx)) * s2, (1.0 - 2.0 * (xx + yy)) * s2
    x2, y2 = jx0 * m0 + jx1 * m1 + jx2 * m2, jy0 * m0 + jy1 * m1 + jy2 * m2
    z2 = jz0 * m0 + jz1 * m1 + jz2 * m2
    c_xx = x0 * x0 + x1 * x1 + x2 * x2 + DILATION_PX2
    c_yy = y0 * y0 + y1 * y1 + y2 * y2 + DILATION_PX2
    c_xz, c_yz = x0 * z0 + x1 * z1 + x2 * z2, y0 * z0 + y1 * z1 + y2 * z2
    return c_xx, x0 * y0 + x1 * y1 + x2 * y2, c_yy, c_xz, c_yz


@threaded_kernel
def _tile(pixel: float) -> int:
    return int(pixel / TILE)


@threaded_kernel
def _colour(view: View, splat: Floats, harmonics: Floats, basis: Floats, out: Column) -> None:
    """The splat's colour as seen from the camera: spherical harmonics of the direction from camera to splat."""
    dx, dy, dz = _f64(splat[0]) - view[0], _f64(splat[1]) - view[1], _f64(splat[2]) - view[2]
    per_length = 1.0 / math.sqrt(dx * dx + dy * dy + dz * dz)
    x, y, z = _f32(dx * per_length), _f32(dy * per_length), _f32(dz * per_length)
    count = harmonics.shape[0]  # 1, 4, 9 or 16
    basis[0] = _C0
    if count > 1:
        basis[1], basis[2], basis[3] = -_C1 * y, _C1 * z, -_C1 * x
    if count > 4:
        xx, yy, zz = x * x, y * y, z * z
        basis[4], basis[5], basis[6] = _C2A * (x * y), -_C2A * (y * z), _C2B * (_TWO * zz - xx - yy)
        basis[7], basis[8] = -_C2A * (x * z), _C2C * (xx - yy)
        if count > 9:
            basis[9], basis[10] = -_C3A * y * (_THREE * xx - yy), _C3B * (x * y) * z
            basis[11] = -_C3C * y * (_FOUR * zz - xx - yy)
            basis[12] = _C3D * z * (_TWO * zz - _THREE * xx - _THREE * yy)
            basis[13] = -_C3C * x * (_FOUR * zz - xx - yy)
            basis[14], basis[15] = _C3E * z * (xx - yy), -_C3A * x * (xx - _THREE * yy)
    red = green = blue = _HALF
    for k in range(count):
        red += basis[k] * harmonics[k, 0]
        green += basis[k] * harmonics[k, 1]
        blue += basis[k] * harmonics[k, 2]
    out.red, out.green, out.blue = max(red, _f32(0.0)), max(green, _f32(0.0)), max(blue, _f32(0.0))
