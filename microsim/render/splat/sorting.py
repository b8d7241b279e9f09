"""Footprints in the order of their depth, then those of each tile: two stable counting sorts.

Both work on parts of their input, each with counters of its own, so that several threads can share the work; the
result does not depend on how many parts there are.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.columns import Column
from microsim.engine.compiled import inlined, threaded_kernel
from microsim.render.splat import CHUNK, TILE
from microsim.render.splat.activation import Floats, Integers
from microsim.render.splat.projection import FOOTPRINT, Tiles
from microsim.render.splat.projection import footprint_in as _footprint_in

Keys: TypeAlias = npt.NDArray[np.uint32]
Slots: TypeAlias = npt.NDArray[np.int32]

DIGIT_BITS = 11
DIGITS = 1 << DIGIT_BITS
PASSES = 3  # of 11 bits cover a float32
_MASK = np.uint32(DIGITS - 1)
_f64 = np.float64  # in compiled code, `float` leaves a float32 as it is

# No rounding may take a tile from a footprint.
EXTENT_FACTOR, EXTENT_MARGIN, MARGIN_PX = 1.002, 1e-3, 0.05


@threaded_kernel
def gather_keys(
    footprint_bits: Keys, counts: Integers, begin: int, end: int, start: int, keys: Keys, slots: Slots
) -> None:
    """Depths of the footprints of chunks begin to end, packed from `start` on: positive floats sort as their bits."""
    k = start
    for r in range(begin, end):
        for slot in range(r * CHUNK, r * CHUNK + counts[r]):
            keys[k] = _footprint_in(footprint_bits[slot]).depth
            slots[k] = slot
            k += 1


@threaded_kernel
def count_digits(keys: Keys, begin: int, end: int, shift: int, counters: Integers) -> None:
    counters[:] = 0
    for k in range(begin, end):
        counters[(keys[k] >> np.uint32(shift)) & _MASK] += 1


@threaded_kernel
def starts_of(counters: Integers, totals: Integers) -> int:
    """Turn counts (parts, bins) into where each part's share of each bin begins, and totals (bins + 1) of the bins."""
    start = 0
    for b in range(counters.shape[1]):
        totals[b] = start
        for part in range(counters.shape[0]):
            count = counters[part, b]
            counters[part, b] = start
            start += count
    totals[counters.shape[1]] = start
    return start


@threaded_kernel
def move_by_digit(
    keys: Keys, slots: Slots, begin: int, end: int, shift: int, counters: Integers, to_keys: Keys, to_slots: Slots
) -> None:
    for k in range(begin, end):
        digit = (keys[k] >> np.uint32(shift)) & _MASK
        place = counters[digit]
        counters[digit] = place + 1
        to_keys[place] = keys[k]
        to_slots[place] = slots[k]


@threaded_kernel
def gather(
    footprints: Floats, tiles: Tiles, slots: Slots, begin: int, end: int, to_footprints: Floats, to_tiles: Tiles
) -> int:
    """Put footprints where they belong: from then on they are read in a row, not here and there in memory.

    Gives the number of tiles in their rectangles.
    """
    area = 0
    for k in range(begin, end):
        slot = slots[k]
        for column in range(FOOTPRINT):
            to_footprints[k, column] = footprints[slot, column]
        for side in range(4):
            to_tiles[k, side] = tiles[slot, side]
        area += int(tiles[slot, 1] - tiles[slot, 0]) * int(tiles[slot, 3] - tiles[slot, 2])
    return area


@threaded_kernel
def find_tiles(
    footprints: Floats, tiles: Tiles, begin: int, end: int, columns: int, start: int, pairs: Slots, counters: Integers
) -> int:
    """Pairs (tile, footprint) from `start` on, and how many each tile gets; gives where they end."""
    counters[:] = 0
    at = start
    for k in range(begin, end):
        left, right, top, bottom = int(tiles[k, 0]), int(tiles[k, 1]), int(tiles[k, 2]), int(tiles[k, 3])
        if right - left > 1 and bottom - top > 1:
            at = _find_tiles_of_large(
                _footprint_in(footprints[k]), left, right, top, bottom, k, columns, at, pairs, counters
            )
            continue
        for row in range(top, bottom):
            at = _pair(row * columns + left, row * columns + right, k, at, pairs, counters)
    return at


@inlined
def _pair(first: int, end: int, k: int, at: int, pairs: Slots, counters: Integers) -> int:
    """The tiles of a row with footprint k, from `at` on; gives where they end."""
    for tile in range(first, end):
        counters[tile] += 1
        pairs[at, 0], pairs[at, 1] = tile, k
        at += 1
    return at


@threaded_kernel
def _find_tiles_of_large(
    f: Column,
    left: int,
    right: int,
    top: int,
    bottom: int,
    k: int,
    columns: int,
    at: int,
    pairs: Slots,
    counters: Integers,
) -> int:
    """Those of the rectangle's tiles that the footprint's ellipse reaches: corners are left out.

    The ellipse's right border is x(y) = (sqrt(extent - (yy y)^2) - xy y) / xx from its centre, farthest at `bulge`;
    the left border is that, turned by half a turn.
    """
    xx, xy, yy = _f64(f.root_xx), _f64(f.root_xy), _f64(f.root_yy)
    per_xx = 1.0 / xx
    extent = _f64(f.extent) * EXTENT_FACTOR + EXTENT_MARGIN
    u = _f64(f.centre_x) + _f64(f.rest_x)
    v = _f64(f.centre_y) + _f64(f.rest_y)
    bulge = -xy * math.sqrt(extent / (xy * xy + yy * yy)) / yy
    for row in range(top, bottom):
        above = float(row * TILE) - v
        below = above + (TILE - 1)
        y = min(max(bulge, above), below)
        x_high = (math.sqrt(max(extent - (yy * y) * (yy * y), 0.0)) - xy * y) * per_xx
        y = min(max(-bulge, above), below)
        x_low = (-math.sqrt(max(extent - (yy * y) * (yy * y), 0.0)) - xy * y) * per_xx
        first = int(max((u + x_low - MARGIN_PX) * (1.0 / TILE), float(left)))
        end = int(min(max((u + x_high + MARGIN_PX) * (1.0 / TILE) + 1.0, 0.0), float(right)))
        at = _pair(row * columns + first, row * columns + end, k, at, pairs, counters)
    return at


@threaded_kernel
def move_to_tiles(pairs: Slots, begin: int, end: int, counters: Integers, to_slots: Slots) -> None:
    for k in range(begin, end):
        tile = pairs[k, 0]
        place = counters[tile]
        counters[tile] = place + 1
        to_slots[place] = pairs[k, 1]
