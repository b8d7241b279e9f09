"""Upright round obstacles that move: where they are at a tick, and how far a ray or a round robot is from them.

Discs are columns of an array (3, n): x, y [m] in the map frame, radius [m].
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel
from microsim.engine.exact import TWO_PI, sincos
from microsim.engine.geometry import Array, Grid, is_free
from microsim.engine.motion import motion_in as _motion_in
from microsim.engine.noise import normals, uniforms

X, Y, RADIUS = range(3)

# rows of the plan of one that follows a path, and the values of REPEAT
PACE, START_S, REPEAT = range(3)
ONCE, LOOP, BACK_AND_FORTH = range(3)

# rows of a random walker's state and of its parameters
HEADING = 2  # [rad], after X and Y
SPEED, TURN_TICKS, WEST, SOUTH, EAST, NORTH = range(6)  # [m/s] [ticks] [m] [m] [m] [m]


@kernel
def shorten_ranges(
    settings: Array, motion: Array, memory: Array, scene: Any, key: int, tick: int, reading: Array
) -> None:
    """Ranges of a scan that was just made, as if discs (`memory`: their rows one after the other) stood in its way.

    The rest is what the scan's own kernel is given: min, max and sigma [m], its beams, its noise.
    """
    discs, count = memory.reshape((3, memory.shape[0] // 3)), reading.shape[0]
    low, high, sigma, seen = settings[0], settings[1], settings[2], _motion_in(motion)
    for i in range(count):
        ahead, aside = scene.table[i], scene.table[count + i]
        dx, dy = seen.cos_yaw * ahead - seen.sin_yaw * aside, seen.sin_yaw * ahead + seen.cos_yaw * aside
        value = distance_to_discs(discs, seen.place_x, seen.place_y, dx, dy)
        if value == math.inf:
            continue
        if sigma > 0.0:
            first, second = normals(key, tick, i // 2)
            value += sigma * (first if i % 2 == 0 else second)
        reading[i] = min(reading[i], -math.inf if value < low else math.inf if value > high else value)


@kernel
def distance_to_discs(discs: Array, x: float, y: float, dx: float, dy: float) -> float:
    """Along a ray to the nearest disc; 0 inside one, inf when it meets none."""
    nearest = math.inf
    for k in range(discs.shape[1]):
        east, north, radius = discs[X, k] - x, discs[Y, k] - y, discs[RADIUS, k]
        outside = east * east + north * north - radius * radius
        along = dx * east + dy * north
        beside = along * along - outside
        if outside <= 0.0:
            nearest = 0.0
        elif along > 0.0 and beside >= 0.0:
            nearest = min(nearest, along - math.sqrt(beside))
    return nearest


@kernel
def ways_to_discs(discs: Array, places: Array, radii: Array, ahead: Array, astern: Array) -> None:
    """`way_to_discs` of many robots, forward and backward; places (4, n): x, y, z and heading."""
    for i in range(places.shape[1]):
        sine, cosine = sincos(places[3, i])
        ahead[i] = way_to_discs(discs, places[0, i], places[1, i], cosine, sine, radii[i])
        astern[i] = way_to_discs(discs, places[0, i], places[1, i], -cosine, -sine, radii[i])


@kernel
def way_to_discs(discs: Array, x: float, y: float, dx: float, dy: float, radius: float) -> float:
    """How far a round robot can drive along the unit vector (dx, dy) until it touches a disc, inf when it never does.

    0 when it touches one already and drives further into it.
    """
    free = math.inf
    for k in range(discs.shape[1]):
        east, north = discs[X, k] - x, discs[Y, k] - y
        along, aside = dx * east + dy * north, dx * north - dy * east
        reach = radius + discs[RADIUS, k]
        if along > 0.0 and abs(aside) < reach:
            free = min(free, max(along - math.sqrt(reach * reach - aside * aside), 0.0))
    return free


@kernel
def along_paths(
    points: Array, lengths: Array, first: npt.NDArray[np.int64], plans: Array, time_s: float, discs: Array
) -> None:
    """Put disc i where its path is at a time.

    points (2, p): corners of all paths in a row, those of path i from first[i] to first[i + 1]; lengths (p,): way from
    the path's first corner; plans (3, n): PACE [m/s], START_S [s], REPEAT. Nothing adds up: any time can be requested.
    """
    for i in range(first.shape[0] - 1):
        k, last = first[i], first[i + 1] - 1
        whole = lengths[last]
        way = plans[PACE, i] * max(time_s - plans[START_S, i], 0.0)
        if plans[REPEAT, i] == ONCE or whole == 0.0:
            way = min(way, whole)
        elif plans[REPEAT, i] == LOOP:
            way -= whole * math.floor(way / whole)
        else:
            way -= 2.0 * whole * math.floor(way / (2.0 * whole))
            way = min(way, 2.0 * whole - way)
        while k < last - 1 and way >= lengths[k + 1]:
            k += 1
        after = min(k + 1, last)
        stretch = lengths[after] - lengths[k]
        share = min(max((way - lengths[k]) / stretch, 0.0), 1.0) if stretch > 0.0 else 0.0
        discs[X, i] = points[0, k] + (points[0, after] - points[0, k]) * share
        discs[Y, i] = points[1, k] + (points[1, after] - points[1, k]) * share


@kernel
def walk(
    state: Array,
    parameters: Array,
    keys: npt.NDArray[np.int64],
    tick: int,
    dt: float,
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
) -> None:
    """Random walkers from tick to tick + 1: straight ahead, with a new heading every TURN_TICKS.

    Who would leave their rectangle or enter an occupied cell stays, and takes a new heading at the next tick. Any
    tick's heading is a function of (key, tick), whatever happened before.
    """
    for i in range(state.shape[1]):
        if tick % int(parameters[TURN_TICKS, i]) == 0 or state[HEADING, i] == math.inf:
            state[HEADING, i] = (uniforms(keys[i], tick, 0)[0] - 0.5) * TWO_PI
        sine, cosine = sincos(state[HEADING, i])
        x = state[X, i] + parameters[SPEED, i] * cosine * dt
        y = state[Y, i] + parameters[SPEED, i] * sine * dt
        inside = parameters[WEST, i] <= x <= parameters[EAST, i] and parameters[SOUTH, i] <= y <= parameters[NORTH, i]
        if inside:
            u, v = x - west, y - south
            rows, columns = clearance.shape
            on_grid = 0.0 <= u < columns * cell and 0.0 <= v < rows * cell
            inside = not on_grid or is_free(clearance, cell, u, v)
        if inside:
            state[X, i], state[Y, i] = x, y
        else:
            state[HEADING, i] = math.inf
