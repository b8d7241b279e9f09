"""The pixels of a tile: its footprints blended front to back, eight pixels of a row at a time (SIMD)."""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.columns import Column
from microsim.engine.compiled import inlined, threaded_kernel
from microsim.render.splat import ALPHA_MAX, SURFACE_SPREAD, SURFACE_TRANSMITTANCE, TILE, TRANSMITTANCE_MIN
from microsim.render.splat.activation import Floats, Integers
from microsim.render.splat.projection import FOOTPRINT
from microsim.render.splat.projection import footprint_in as _footprint_in
from microsim.render.splat.sorting import Slots

Room: TypeAlias = npt.NDArray[np.float32]  # (ROOM,) a tile's transmittance, red, green, blue, one over the limit
Owners: TypeAlias = npt.NDArray[np.uint16]

NOTHING, THING, SPLATS = range(3)  # what a pixel shows: SPLATS are the world's, those of actor n have SPLATS + 1 + n

_AREA = TILE * TILE
_HALF_TILE = TILE // 2
ROOM = 5 * _AREA
_BATCH = 32  # footprints fetched together, for they lie far apart in memory; then the tile is asked if it is done

_f32, _u64 = np.float32, np.uint64
_ZERO, _ONE, _INFINITE = _f32(0.0), _f32(1.0), _f32(math.inf)
_ALPHA_MAX, _TRANSMITTANCE_MIN = _f32(ALPHA_MAX), _f32(TRANSMITTANCE_MIN)
_SURFACE, _SPREAD = _f32(SURFACE_TRANSMITTANCE), _f32(SURFACE_SPREAD)

# Minimax polynomial of exp(-s / 8) for s in [0, 5.6], exactly 1 at 0.
EXPONENTIAL = (
    1.0,
    -0.12499934434890747,
    0.007810933981090784,
    -0.0003242742386646569,
    9.728591976454481e-06,
    -1.7960371678782394e-07,
)
_E0, _E1, _E2, _E3, _E4, _E5 = (_f32(c) for c in EXPONENTIAL)


@threaded_kernel
def exp_of_minus(s: float) -> float:
    """exp(-s) of a float32 in [0, 5.6], within 1e-6."""
    p = ((((_E5 * s + _E4) * s + _E3) * s + _E2) * s + _E1) * s + _E0
    p = p * p
    p = p * p
    return p * p


class Frame(NamedTuple):
    colours: Floats  # (h, w, 3) 0 to 1, above where it is overexposed
    alphas: Floats  # (h, w) how much of it is splats
    depths: Floats  # (h, w) [m] of the surface that is seen; inf: none
    owners: Owners  # (h, w) whose it is: NOTHING, THING or SPLATS and above


@threaded_kernel
def blend(
    footprints: Floats,
    slots: Slots,
    offsets: Integers,
    columns: int,
    begin: int,
    end: int,
    behind: Floats,
    limits: Floats,
    room: Room,
    surfaces: Slots,
    frame: Frame,
) -> None:
    """Tiles begin to end. `behind` (h, w, 3) is what is seen where no splat is, `limits` (h, w) [m] how far that is.

    `room` (ROOM,) and `surfaces` (TILE * TILE,) are room to work in.
    """
    batch = np.empty((_BATCH, FOOTPRINT), np.float32)
    for tile in range(begin, end):
        top, left = (tile // columns) * TILE, (tile % columns) * TILE
        _start(limits, top, left, room, surfaces)
        _cover(footprints, slots[offsets[tile] : offsets[tile + 1]], top, left, room, surfaces, batch)
        _finish(footprints, behind, limits, top, left, room, surfaces, frame)


@threaded_kernel
def _start(limits: Floats, top: int, left: int, room: Room, surfaces: Slots) -> None:
    """No splat yet; pixels outside the image take none."""
    room[:_AREA] = _ONE
    room[_AREA : 4 * _AREA] = _ZERO
    room[4 * _AREA :] = _INFINITE
    surfaces[:] = -1
    for y in range(min(TILE, limits.shape[0] - top)):
        for x in range(min(TILE, limits.shape[1] - left)):
            limit = limits[top + y, left + x]
            inverse = -_INFINITE
            if limit < _INFINITE:
                inverse = _ONE / limit if limit > _ZERO else _INFINITE
            room[4 * _AREA + y * TILE + x] = inverse


@threaded_kernel
def _cover(footprints: Floats, slots: Slots, top: int, left: int, room: Room, surfaces: Slots, batch: Floats) -> None:
    for start in range(0, slots.shape[0], _BATCH):
        count = min(_BATCH, slots.shape[0] - start)
        for k in range(count):
            slot = slots[start + k]
            for column in range(FOOTPRINT):
                batch[k, column] = footprints[slot, column]
        for k in range(count):
            _cover_with(_footprint_in(batch[k]), slots[start + k], top, left, room, surfaces)
        if _is_done(_footprint_in(batch[count - 1]).inverse, room):
            break


@threaded_kernel
def _cover_with(f: Column, slot: int, top: int, left: int, room: Room, surfaces: Slots) -> None:
    x = (f.centre_x - _f32(left)) + f.rest_x
    y = (f.centre_y - _f32(top)) + f.rest_y
    first = math.ceil(max(y - f.reach_y, _ZERO))
    last = math.floor(min(y + f.reach_y, _f32(TILE - 1)))
    first_half = 1 if x - f.reach_x > _f32(_HALF_TILE - 1) else 0
    end_half = 1 if x + f.reach_x < _f32(_HALF_TILE) else 2
    for row in range(first, last + 1):
        dy = y - _f32(row)
        shear = f.root_xy * dy
        rise = f.root_yy * dy
        rise = rise * rise
        inverse = f.inverse + f.inverse_y * dy
        if end_half - first_half == 2:
            _cover_pixels(f, slot, x, shear, rise, inverse, row * TILE, TILE, room, surfaces)
        else:
            left_half, at = first_half * _HALF_TILE, row * TILE + first_half * _HALF_TILE
            _cover_pixels(f, slot, x - _f32(left_half), shear, rise, inverse, at, _HALF_TILE, room, surfaces)


@inlined
def _cover_pixels(
    f: Column,
    slot: int,
    x: float,
    shear: float,
    rise: float,
    inverse: float,
    at: int,
    count: int,
    room: Room,
    surfaces: Slots,
) -> None:
    """A row of a tile, or half of one: with its length fixed, the loop becomes a few dozen SIMD instructions.

    A pixel's distance is (x - first pixel of its half) - place in that half, to the last bit.
    """
    root, opacity, extent = f.root_xx, f.opacity, f.extent
    red, green, blue = f.red, f.green, f.blue
    middle, slope, own = f.inverse, f.inverse_x, np.int32(slot)
    t, r, g = _u64(at), _u64(at + _AREA), _u64(at + 2 * _AREA)
    b, m = _u64(at + 3 * _AREA), _u64(at + 4 * _AREA)
    for i in range(count):
        k = _u64(i)
        dx = (x - _f32(i & _HALF_TILE)) - _f32(i & (_HALF_TILE - 1))
        p = root * dx + shear
        s = p * p + rise
        alpha = opacity * exp_of_minus(s)
        alpha = alpha if alpha < _ALPHA_MAX else _ALPHA_MAX
        limit = room[m + k]
        alpha = alpha if s <= extent else _ZERO
        alpha = alpha if middle > limit else _ZERO
        alpha = alpha if inverse + slope * dx > limit else _ZERO
        before = room[t + k]
        weight = alpha * before
        after = before - weight
        goes_on = after > _TRANSMITTANCE_MIN
        weight = weight if goes_on else _ZERO
        room[t + k] = after if goes_on else before
        room[m + k] = limit if goes_on else _INFINITE
        surfaces[t + k] = own if (before > _SURFACE) & (after <= _SURFACE) else surfaces[t + k]
        room[r + k] += weight * red
        room[g + k] += weight * green
        room[b + k] += weight * blue


@threaded_kernel
def _is_done(inverse: float, room: Room) -> bool:
    """No pixel takes a splat at this depth or behind."""
    open_pixels = 0
    for i in range(4 * _AREA, 5 * _AREA):
        open_pixels += inverse > room[i]
    return open_pixels == 0


@threaded_kernel
def _finish(
    footprints: Floats, behind: Floats, limits: Floats, top: int, left: int, room: Room, surfaces: Slots, frame: Frame
) -> None:
    colours, alphas, depths, owners = frame
    for y in range(min(TILE, alphas.shape[0] - top)):
        for x in range(min(TILE, alphas.shape[1] - left)):
            k, v, u = y * TILE + x, top + y, left + x
            rest = room[k]
            for channel in range(3):
                colours[v, u, channel] = room[(channel + 1) * _AREA + k] + rest * behind[v, u, channel]
            alphas[v, u] = _ONE - rest
            slot, limit = surfaces[k], limits[v, u]
            if slot >= 0:
                f = _footprint_in(footprints[slot])
                depths[v, u] = _depth_at(f, u, v)
                owners[v, u] = np.uint16(SPLATS + int(f.owner))
            else:
                depths[v, u] = limit
                owners[v, u] = THING if limit < _INFINITE else NOTHING


@threaded_kernel
def _depth_at(f: Column, u: int, v: int) -> float:
    """Where a splat is densest along a pixel's ray [m], at most `SURFACE_SPREAD` times as far, or near, as its mean."""
    dx, dy = (f.centre_x - _f32(u)) + f.rest_x, (f.centre_y - _f32(v)) + f.rest_y
    inverse = (f.inverse + f.inverse_y * dy) + f.inverse_x * dx
    return _ONE / min(max(inverse, f.inverse / _SPREAD), f.inverse * _SPREAD)
